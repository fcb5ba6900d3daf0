#pragma once

#include "KernelBuilder.h"

namespace zorse::codegen {

/// Builds a kernel for processors: a call computes the points from `begin` to `end` (abi/KernelAbi.h).
class CpuKernelBuilder final : public KernelBuilder {
public:
  using KernelBuilder::KernelBuilder;

  /// Scratch of the kernel's frame.
  Value scratch(mlir::Type type, int64_t count);

  /// \param contract  allow fused multiply-add: only where the split of points among threads cannot change how a loop is vectorised.
  Kernel finish(llvm::StringRef hint, const Size &points, bool contract);
};

} // namespace zorse::codegen
