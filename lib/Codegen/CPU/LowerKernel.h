// Compiles one kernel from MLIR text to an object file. Thread-safe: every call has its own
// contexts.
#pragma once

#include "llvm/Support/Error.h"

#include <string>

namespace zorse::codegen {

struct KernelTarget {
  std::string triple, cpu, features;
  unsigned optimizationLevel;
};

/// Registers LLVM's native target. Idempotent; call it before threads start.
void initializeTargets();

/// Returns the bytes of an object file.
/// \param text  a module that defines `llvm.func @kernel`; the object exports it as `symbol`.
/// \param dump  path prefix for .mlir, .ll and .s files; empty: no files.
llvm::Expected<std::string> lowerKernel(const std::string &symbol, const std::string &text,
                                        const KernelTarget &target, const std::string &dump);

} // namespace zorse::codegen
