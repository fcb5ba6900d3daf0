// One unit function → one body.
#pragma once

#include "RowProgram.h"

#include "zorse/Codegen/Bodies.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zorse::codegen {

/// What a kind of device makes of clusters.
class Emitter {
public:
  virtual ~Emitter() = default;
  /// "CPU", "CUDA": for messages.
  virtual llvm::StringRef name() const = 0;
  /// Rewrites what this kind of device has neither kernels nor routines for. Before anything else.
  virtual mlir::LogicalResult prepare(mlir::func::FuncOp function) { return mlir::success(); }
  /// Whether a launch costs so much that values may live longer for one launch less.
  virtual bool wantsFewLaunches() const { return false; }
  virtual Kernel row(const KernelContext &context, int cluster) = 0;
  virtual Kernel column(const KernelContext &context, int cluster) = 0;
  virtual Kernel scatter(const KernelContext &context, int cluster) = 0;
  /// The kernels of an attention or its gradient, launched one after the other; none where the device has a routine for it. Fails after a diagnostic.
  virtual mlir::FailureOr<std::vector<Kernel>> attention(const KernelContext &context, int cluster) { return std::vector<Kernel>(); }
  /// Bytes of one sample that these leave for each other, at KernelContext::scratch.
  virtual int64_t attentionScratch(mlir::Operation *op) { return 0; }
  /// Keeps a kernel; returns its symbol.
  virtual std::string add(llvm::StringRef hint, mlir::OwningOpRef<mlir::ModuleOp> kernel) = 0;
};

/// Fills `body` and `facts`; kernels go to the emitter. Fails after a diagnostic.
mlir::LogicalResult lowerFunction(mlir::func::FuncOp function, Emitter &emitter, bundle::Body &body, BodyFacts &facts);

} // namespace zorse::codegen
