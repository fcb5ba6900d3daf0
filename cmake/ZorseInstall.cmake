# cmake --install: installs the tools and all libraries that they need except the C library. The
# folder is relocatable and runs on any x86-64 Linux with a C library at least as new as that of the
# build machine. The linker of kernels is found if bin/ is on the PATH. Components:
#
#   tools          bin/zorse-*, shell completion, the license
#   dependencies   lib/: LLVM, MLIR and others; bin/ld.lld, the linker. Omit it if the system's packages are installed
#   development    include/ and the CMake package: find_package(Zorse) defines Zorse::zorse-compile and
#                  other tools, and Zorse::runtime_abi, the headers for kernels, drivers and readers of
#                  bundles
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# DT_RPATH instead of DT_RUNPATH, because the libraries' own dependencies would not use DT_RUNPATH.
set_target_properties(${ZORSE_TOOLS} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
foreach(tool ${ZORSE_TOOLS})
  target_link_options(${tool} PRIVATE LINKER:--disable-new-dtags)
endforeach()

install(TARGETS ${ZORSE_TOOLS} EXPORT ZorseTargets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
# One file per library, under the name that programs load: wheels convert links to copies.
set(ZORSE_TOOL_FILES)
foreach(tool ${ZORSE_TOOLS})
  list(APPEND ZORSE_TOOL_FILES $<TARGET_FILE:${tool}>)
endforeach()
install(CODE "
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${ZORSE_TOOL_FILES} RESOLVED_DEPENDENCIES_VAR found DIRECTORIES ${LLVM_LIBRARY_DIRS}
       PRE_EXCLUDE_REGEXES \"^ld-linux\" \"^lib(c|m|dl|rt|pthread|util|resolv|nsl|anl)[.]so\")
  file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib\")
  foreach(library \${found})
    get_filename_component(name \${library} NAME)
    file(REAL_PATH \${library} file)
    message(STATUS \"Installing: \${CMAKE_INSTALL_PREFIX}/lib/\${name}\")
    file(COPY_FILE \${file} \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/\${name}\" ONLY_IF_DIFFERENT)
  endforeach()" COMPONENT dependencies)
if(ZORSE_LLD)
  file(REAL_PATH ${ZORSE_LLD} ZORSE_LLD_FILE)
  # The libraries do not use the rpath of ld.lld, so a script sets the library path.
  install(PROGRAMS ${ZORSE_LLD_FILE} DESTINATION libexec/zorse RENAME ld.lld COMPONENT dependencies)
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/cmake/ld.lld.sh DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME ld.lld COMPONENT dependencies)
endif()
foreach(tool ${ZORSE_TOOLS})
  install(FILES ${PROJECT_SOURCE_DIR}/tools/completion/zorse.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ${tool} COMPONENT tools)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)

add_library(zorse_runtime_abi INTERFACE)
set_target_properties(zorse_runtime_abi PROPERTIES EXPORT_NAME runtime_abi)
target_include_directories(zorse_runtime_abi INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS zorse_runtime_abi EXPORT ZorseTargets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/runtime/include/zorse DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/include/zorse/Base/Status.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/zorse/Base COMPONENT development) # Status.h of the runtime
install(EXPORT ZorseTargets NAMESPACE Zorse:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Zorse COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ZorseConfig.cmake.in ${PROJECT_BINARY_DIR}/ZorseConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Zorse)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ZorseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ZorseConfig.cmake ${PROJECT_BINARY_DIR}/ZorseConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Zorse COMPONENT development)
