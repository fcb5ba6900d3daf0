# Compiler launcher, linker, warnings and sanitizers for all targets of the project.

find_program(ZORSE_CCACHE ccache)
if(ZORSE_CCACHE)
  # Sources with a precompiled header are cached too (cmake/ZorsePch.cmake): it does not use
  # __DATE__ and similar macros, and its users have the same macros on the command line. Paths
  # inside the project are hashed relative to the build folder, so that clones in different folders
  # share one cache.
  set(ZORSE_CCACHE_ENVIRONMENT CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true)
  set(CMAKE_C_COMPILER_LAUNCHER env ${ZORSE_CCACHE_ENVIRONMENT} ${ZORSE_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER env ${ZORSE_CCACHE_ENVIRONMENT} CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_PCH_EXTSUM=true ${ZORSE_CCACHE})
endif()

find_program(ZORSE_LLD NAMES ld.lld-22 PATHS /usr/lib/llvm-22/bin)
if(ZORSE_LLD AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_link_options(--ld-path=${ZORSE_LLD})
endif()

add_compile_options(-Wall -Wextra -Wno-unused-parameter)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_compile_options(-Wno-deprecated-declarations)
endif()

# ZORSE_FUZZ: instruments all code with libFuzzer, for the targets of test/fuzz (docs/internals/testing.md);
# requires Clang.
option(ZORSE_FUZZ "Instrument for libFuzzer" OFF)
if(ZORSE_FUZZ)
  # Without tracing of comparisons, because the mutators know the formats, and without library
  # functions, because their coverage is unrelated to a reader.
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp -fsanitize-coverage-ignorelist=${PROJECT_SOURCE_DIR}/cmake/fuzz-ignore.txt)
  set(ZORSE_NOT_FUZZED -fno-sanitize=fuzzer-no-link,undefined) # generated code and mutators: their coverage is unrelated to a reader
endif()

# ZORSE_SANITIZE: a list for -fsanitize, for example "address,undefined" or "thread".
set(ZORSE_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them")
if(ZORSE_SANITIZE)
  add_compile_options(-fsanitize=${ZORSE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ZORSE_SANITIZE})
  if(ZORSE_SANITIZE MATCHES thread)
    add_compile_options(-U__SANITIZE_THREAD__) # otherwise protobuf's headers give maps two more fields, which the installed libprotobuf does not have
  endif()
  set(ZORSE_SANITIZER_DEFAULTS ${PROJECT_SOURCE_DIR}/cmake/SanitizerDefaults.cpp) # linked into every executable
endif()
