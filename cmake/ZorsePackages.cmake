# Reconfigures when packages change. CMake searches for missing packages only when it configures,
# and caches found ones indefinitely. The build files therefore depend on the package manager's list
# of packages: after an installation or removal, the next build configures again and searches for
# removed packages again.

set(ZORSE_PACKAGE_LIST /var/lib/dpkg/status CACHE FILEPATH "File that changes whenever a package is installed or removed")
mark_as_advanced(ZORSE_PACKAGE_LIST)
file(TIMESTAMP "${ZORSE_PACKAGE_LIST}" zorse_packages_time "%s" UTC)
string(TIMESTAMP zorse_now "%s" UTC)
if(EXISTS "${ZORSE_PACKAGE_LIST}" AND NOT zorse_packages_time GREATER zorse_now) # a time in the future, after the clock was set back, would make Ninja configure in an endless loop
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${ZORSE_PACKAGE_LIST}")
endif()

get_directory_property(zorse_cached CACHE_VARIABLES)
foreach(variable ${zorse_cached})
  get_property(type CACHE ${variable} PROPERTY TYPE)
  if(type MATCHES "^(FILE)?PATH$" AND NOT variable MATCHES "^(CMAKE_|ZORSE_PACKAGE_LIST)")
    set(value "${${variable}}")
    if(IS_ABSOLUTE "${value}" AND NOT EXISTS "${value}")
      message(STATUS "${variable}: ${value} is gone; looking for it again")
      unset(${variable} CACHE)
    endif()
  endif()
endforeach()
