# What is found on the machine follows what is installed. CMake looks again for what it did not find, but only when it runs, and keeps what it found for ever. So the build files depend on the
# package manager's list of packages: after anything was installed or removed, the next build configures again, and what has gone is looked for anew.

set(ZORSE_PACKAGE_LIST /var/lib/dpkg/status CACHE FILEPATH "File that changes whenever a package is installed or removed")
mark_as_advanced(ZORSE_PACKAGE_LIST)
file(TIMESTAMP "${ZORSE_PACKAGE_LIST}" zorse_packages_time "%s" UTC)
string(TIMESTAMP zorse_now "%s" UTC)
if(EXISTS "${ZORSE_PACKAGE_LIST}" AND NOT zorse_packages_time GREATER zorse_now) # of the future, after a clock was set back: Ninja would configure for ever
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
