// One kernel: MLIR text → PTX without its header, or LLVM bitcode. Thread-safe: every call has contexts of its own.
#pragma once

#include "llvm/Support/Error.h"

#include <string>

namespace zorse::codegen::cuda {

struct PtxTarget {
  std::string chip; ///< "sm_80"; "emu:sm_90": bitcode for sm_90, as it is before PTX is made of it; "emu": for sm_80
  unsigned optimizationLevel;

  bool isBitcode() const { return chip.rfind("emu", 0) == 0; }
};

/// Makes LLVM's NVPTX target known; idempotent, call it before threads start.
void initializePtx();

/// \param text  a module that CudaKernelBuilder has finished: it defines `llvm.func @kernel`; the result exports it as `symbol`.
/// \param dump  not empty: path prefix for .mlir, .ll and .ptx files.
llvm::Expected<std::string> lowerToPtx(const std::string &symbol, const std::string &text, const PtxTarget &target, const std::string &dump);

/// The lines before the first kernel, which all have in common.
std::string ptxHeader(const PtxTarget &target);

} // namespace zorse::codegen::cuda
