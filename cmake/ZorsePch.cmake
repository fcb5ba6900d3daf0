# Two precompiled headers: one for sources that use MLIR, one for all others. Parsing headers takes
# most of the compile time of these sources.

# Only with Clang. With other compilers, and for fuzzing (some targets have their own flags),
# sources parse the headers themselves.
set(ZORSE_PCH_DEFAULT OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang AND NOT ZORSE_FUZZ)
  set(ZORSE_PCH_DEFAULT ON)
endif()
option(ZORSE_PCH "Precompile headers (Clang)" ${ZORSE_PCH_DEFAULT})

# Flags of sources that use MLIR. Sanitizer builds use -O0 (except for fuzzing): the checks triple
# the optimizer's work, and tests do not spend their time in passes.
set(ZORSE_MLIR_FLAGS -fno-exceptions)
if(ZORSE_SANITIZE AND NOT ZORSE_FUZZ)
  list(APPEND ZORSE_MLIR_FLAGS -O0)
endif()

# zorse_precompile(NAME SOURCE FLAGS...): an object library with the precompiled header as its only
# object, so that it is compiled with the flags of its users, as Clang requires.
function(zorse_precompile name source)
  add_library(${name} OBJECT ${source})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/pch-launcher.sh)
  target_compile_options(${name} PRIVATE ${ARGN} -fpch-instantiate-templates "SHELL:-Xclang -fno-pch-timestamp" "SHELL:-x c++-header")
  # A dependency on an object library does not wait for its objects before compiling; a dependency
  # on a custom target that needs them does.
  add_custom_target(${name}_ready DEPENDS $<TARGET_OBJECTS:${name}>)
endfunction()

if(ZORSE_PCH)
  zorse_precompile(zorse_mlir_pch ${CMAKE_CURRENT_LIST_DIR}/MlirPch.cpp ${ZORSE_MLIR_FLAGS})
  target_include_directories(zorse_mlir_pch SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  target_compile_definitions(zorse_mlir_pch PRIVATE ${ZORSE_LLVM_DEFINITIONS})
  zorse_precompile(zorse_pch ${CMAKE_CURRENT_LIST_DIR}/Pch.cpp)
  target_link_libraries(zorse_pch PRIVATE zorse_schema nlohmann_json::nlohmann_json) # for their headers
endif()

# zorse_use_mlir(NAME): the sources of NAME include MLIR headers. Compiles them without exceptions,
# as MLIR is, and with the MLIR precompiled header.
function(zorse_use_mlir name)
  set_target_properties(${name} PROPERTIES ZORSE_NO_PCH TRUE)
  target_compile_options(${name} PRIVATE ${ZORSE_MLIR_FLAGS})
  if(ZORSE_PCH)
    target_compile_options(${name} PRIVATE -fPIC "SHELL:-include-pch $<TARGET_OBJECTS:zorse_mlir_pch>" "SHELL:-Xclang -fno-pch-timestamp")
    add_dependencies(${name} zorse_mlir_pch_ready)
  endif()
endfunction()

# zorse_use_pch(NAME): compiles NAME with the other precompiled header, unless it uses MLIR or has
# source-specific flags (property ZORSE_NO_PCH).
function(zorse_use_pch name)
  if(ZORSE_PCH)
    set(plain "$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:$<TARGET_PROPERTY:${name},ZORSE_NO_PCH>>>>")
    target_compile_options(${name} PRIVATE $<${plain}:-fPIC> "SHELL:$<${plain}:-include-pch $<TARGET_OBJECTS:zorse_pch>>" "SHELL:$<${plain}:-Xclang -fno-pch-timestamp>")
    add_dependencies(${name} zorse_pch_ready)
  endif()
endfunction()
