// Lowers one kernel from MLIR text to PTX without its header, or to LLVM bitcode. Thread-safe:
// every call has its own contexts.
#pragma once

#include "llvm/Support/Error.h"

#include <string>

namespace zorse::codegen::cuda {

struct PtxTarget {
  std::string chip; ///< "sm_80"; "emu:sm_90": the LLVM bitcode for sm_90 from which PTX would be
                    ///< generated; "emu": the same for sm_80
  unsigned optimizationLevel;

  bool isBitcode() const { return chip.rfind("emu", 0) == 0; }
};

/// Registers LLVM's NVPTX target. Idempotent; call it before threads start.
void initializePtx();

/// Lowers one kernel.
/// \param text  a module finished by CudaKernelBuilder. It defines `llvm.func @kernel`; the result
/// exports it as `symbol`.
/// \param dump  path prefix for .mlir, .ll and .ptx files; empty: no files.
llvm::Expected<std::string> lowerToPtx(const std::string &symbol, const std::string &text,
                                       const PtxTarget &target, const std::string &dump);

/// The lines before the first kernel, which are the same for all kernels.
std::string ptxHeader(const PtxTarget &target);

} // namespace zorse::codegen::cuda
