#pragma once

#include "KernelBuilder.h"

namespace zorse::codegen {

/// Builds a kernel for CPUs. A call computes the points from `begin` to `end` (abi/KernelAbi.h).
class CpuKernelBuilder final : public KernelBuilder {
public:
  using KernelBuilder::KernelBuilder;

  /// Allocates `count` elements on the kernel's stack.
  Value scratch(mlir::Type type, int64_t count);

  /// \param contract  allow fused multiply-add. Valid only if the distribution of points over
  /// threads cannot change how a loop is vectorized.
  Kernel finish(llvm::StringRef hint, const Size &points, bool contract);
};

} // namespace zorse::codegen
