# Functions that declare the project's targets. Every directory lists its sources; nothing is
# globbed.

# zorse_library(NAME SOURCES... LINK libs...): a C++ library without MLIR. It may use lib/Base.
function(zorse_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include
                             ${PROJECT_SOURCE_DIR}/runtime/include ${PROJECT_BINARY_DIR}/runtime/schema)
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
  if(NOT name STREQUAL zorse_base)
    target_link_libraries(${name} PUBLIC zorse_base)
  endif()
  zorse_use_pch(${name})
endfunction()

# zorse_mlir_library: the same, linked with the shared MLIR and LLVM libraries only.
function(zorse_mlir_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;DEPENDS" ${ARGN})
  zorse_library(${name} SOURCES ${ARG_SOURCES} LINK ${ARG_LINK} MLIR LLVM)
  target_include_directories(${name} SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  target_compile_definitions(${name} PUBLIC ${ZORSE_LLVM_DEFINITIONS})
  zorse_use_mlir(${name})
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# zorse_tool(NAME SOURCES... LINK libs...): an executable in bin/.
function(zorse_tool name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES} ${ZORSE_SANITIZER_DEFAULTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  zorse_use_pch(${name})
endfunction()

# Time limits in tests are valid on an idle machine; the evidence (test/evidence) checks them
# unchanged. CTest also runs on busy and slow machines, where limits only detect hangs: tests
# multiply them by this factor (test/support/Patience.h, PATIENCE in test/e2e/harness.py).
set(ZORSE_TEST_PATIENCE 4)
if(ZORSE_SANITIZE)
  set(ZORSE_TEST_PATIENCE 15)
endif()

# zorse_unit_test(NAME SOURCES... LINK libs...): a GoogleTest binary, registered with CTest.
function(zorse_unit_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES} ${ZORSE_SANITIZER_DEFAULTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE ZORSE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ZORSE_BINARY_DIR="${PROJECT_BINARY_DIR}")
  zorse_use_pch(${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "ZORSE_TEST_PATIENCE=${ZORSE_TEST_PATIENCE}")
endfunction()

# CTest runs one test per CPU in parallel (tools/ctest.sh). Tests for which this is a
# problem declare it:
#
# zorse_test_alone(TESTS...): compares measured times or speeds, so no other test may run.
# zorse_test_waits(TESTS...): starts several processes and waits for deadlines. It may run next to other tests, but not next to another one of this kind.
# zorse_test_lock(RESOURCE TESTS...): uses a resource that exists once per machine: network namespaces, control groups, the ports of Slurm.
# zorse_test_long(TESTS...): a long form. `ctest -LE long` and .ci/run skip it; tools/run-tests.sh --all runs it.
function(zorse_test_alone)
  set_tests_properties(${ARGN} PROPERTIES RUN_SERIAL TRUE)
endfunction()
function(zorse_test_waits)
  foreach(test ${ARGN})
    set_property(TEST ${test} APPEND PROPERTY RESOURCE_LOCK deadlines)
  endforeach()
endfunction()
function(zorse_test_lock resource)
  foreach(test ${ARGN})
    set_property(TEST ${test} APPEND PROPERTY RESOURCE_LOCK ${resource})
  endforeach()
endfunction()
function(zorse_test_long)
  foreach(test ${ARGN})
    set_property(TEST ${test} APPEND PROPERTY LABELS long)
  endforeach()
endfunction()

# zorse_check_always(TEST asan|tsan...): every change runs this test under these sanitizers. Only
# for tests without MLIR, which are cheap to build.
# `ninja asan-fast` builds them, `ctest -L asan-fast` runs them (tools/run-sanitizers.sh --fast).
function(zorse_check_always test)
  foreach(sanitizer ${ARGN})
    set_property(TEST ${test} APPEND PROPERTY LABELS ${sanitizer}-fast)
    if(NOT TARGET ${sanitizer}-fast)
      add_custom_target(${sanitizer}-fast)
    endif()
    add_dependencies(${sanitizer}-fast ${test})
  endforeach()
endfunction()
