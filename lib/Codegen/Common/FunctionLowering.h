// Lowers one unit function to one compiled function.
#pragma once

#include "RowProgram.h"

#include "zorse/Codegen/Functions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zorse::codegen {

/// Emits the kernels of clusters for one kind of device.
class Emitter {
public:
  virtual ~Emitter() = default;
  /// "CPU" or "CUDA", for messages.
  virtual llvm::StringRef name() const = 0;
  /// Rewrites ops for which this kind of device has neither kernels nor routines. Runs before all
  /// other steps.
  virtual mlir::LogicalResult prepare(mlir::func::FuncOp function) { return mlir::success(); }
  /// Whether a launch is expensive enough that saving one justifies longer live ranges of values.
  virtual bool wantsFewLaunches() const { return false; }
  virtual Kernel row(const KernelContext &context, int cluster) = 0;
  virtual Kernel column(const KernelContext &context, int cluster) = 0;
  virtual Kernel scatter(const KernelContext &context, int cluster) = 0;
  /// Returns the kernels of an attention or its gradient, which are launched sequentially; empty if
  /// the device has a routine for it. Fails after a diagnostic.
  virtual mlir::FailureOr<std::vector<Kernel>> attention(const KernelContext &context,
                                                         int cluster) {
    return std::vector<Kernel>();
  }
  /// Bytes per sample of the scratch buffer that these kernels share, at KernelContext::scratch.
  virtual int64_t attentionScratch(mlir::Operation *op) { return 0; }
  /// Stores a kernel and returns its symbol.
  virtual std::string add(llvm::StringRef hint, mlir::OwningOpRef<mlir::ModuleOp> kernel) = 0;
};

/// Fills `compiled` and `sizes`, and adds the kernels to the emitter. Fails after a diagnostic.
mlir::LogicalResult lowerFunction(mlir::func::FuncOp function, Emitter &emitter,
                                  bundle::CompiledFunction &compiled, FunctionSizes &sizes);

} // namespace zorse::codegen
