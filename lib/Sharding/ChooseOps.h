// Chooses which of the ops that could be divided along an axis are divided.
#pragma once

#include "Propagation.h"

namespace zorse::sharding {

struct ChosenOps {
  llvm::DenseSet<mlir::Operation *> ops;
  llvm::SmallVector<mlir::Value> parameters; ///< arguments that are stored sharded
  double gain = 0; ///< FLOPs of `ops` minus the cost of the exchanges that they need
};

/// Maximizes the FLOPs of divided ops minus the bytes of the exchanges that they need: a closure
/// problem, solved by a minimum cut (Picard, "Maximal closure of a graph and applications to
/// combinatorial problems", 1976).
/// \param sharded  values that other axes divide: a parameter and its gradient have one axis
ChosenOps chooseOps(mlir::func::FuncOp joint, Propagation &candidates,
                    const llvm::DenseMap<mlir::Value, ShardedValue> &sharded, double flopsPerByte);

/// FLOPs of one row of an op, or of the whole op if it carries no samples.
double flopsOf(mlir::Operation *op);

} // namespace zorse::sharding
