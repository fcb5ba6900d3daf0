// One kernel: MLIR text → object file. Thread-safe: every call has contexts of its own.
#pragma once

#include "llvm/Support/Error.h"

#include <string>

namespace zorse::codegen {

struct KernelTarget {
  std::string triple, cpu, features;
  unsigned optimizationLevel;
};

/// Makes LLVM's native target known; idempotent, call it before threads start.
void initializeTargets();

/// \param text  a module that defines `llvm.func @kernel`; the object exports it as `symbol`.
/// \param dump  not empty: path prefix for .mlir, .ll and .s files.
llvm::Expected<std::string> lowerKernel(const std::string &symbol, const std::string &text, const KernelTarget &target, const std::string &dump);

} // namespace zorse::codegen
