# One precompiled header for every source that uses MLIR: reading MLIR's headers takes most of the time of compiling such a source.

# With Clang; elsewhere sources read the headers themselves.
set(ZORSE_PCH_DEFAULT OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  set(ZORSE_PCH_DEFAULT ON)
endif()
option(ZORSE_PCH "Precompile MLIR's headers (Clang)" ${ZORSE_PCH_DEFAULT})

# Flags of every such source. Under sanitizers -O0 (but for fuzzing): the checks triple what an optimiser has to do, and passes are not what tests
# spend their time in.
set(ZORSE_MLIR_FLAGS -fno-exceptions)
if(ZORSE_SANITIZE AND NOT ZORSE_FUZZ)
  list(APPEND ZORSE_MLIR_FLAGS -O0)
endif()

if(ZORSE_PCH)
  # An object library whose one object is the precompiled header: so it is compiled with the same flags as its users, as it must be.
  add_library(zorse_mlir_pch OBJECT ${CMAKE_CURRENT_LIST_DIR}/MlirPch.cpp)
  set_target_properties(zorse_mlir_pch PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/pch-launcher.sh)
  target_include_directories(zorse_mlir_pch SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  target_compile_definitions(zorse_mlir_pch PRIVATE ${ZORSE_LLVM_DEFINITIONS})
  target_compile_options(zorse_mlir_pch PRIVATE ${ZORSE_MLIR_FLAGS} -fpch-instantiate-templates "SHELL:-Xclang -fno-pch-timestamp" "SHELL:-x c++-header")
  # Dependence on an object library does not wait for its objects before compiling; dependence on a custom target that needs them does.
  add_custom_target(zorse_mlir_pch_ready DEPENDS $<TARGET_OBJECTS:zorse_mlir_pch>)
endif()

# zorse_use_mlir(NAME): the sources of NAME include MLIR's headers. They are compiled as MLIR is, without exceptions, and with the precompiled header.
function(zorse_use_mlir name)
  target_compile_options(${name} PRIVATE ${ZORSE_MLIR_FLAGS})
  if(ZORSE_PCH)
    target_compile_options(${name} PRIVATE -fPIC "SHELL:-include-pch $<TARGET_OBJECTS:zorse_mlir_pch>" "SHELL:-Xclang -fno-pch-timestamp")
    add_dependencies(${name} zorse_mlir_pch_ready)
  endif()
endfunction()
