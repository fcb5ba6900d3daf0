// Clusters ops: the ops of a cluster run in one launch.
//
// - A *row cluster* iterates over the points of its leading dimensions. At each point it has
//   numbers (of the shape `lead`) and vectors of `columns` elements (of the shape lead × columns).
//   Reductions and broadcasts along the last dimension connect them.
// - A *column cluster* sums elementwise expressions over some dimensions of its domain, including
//   the batch dimension.
#pragma once

#include "Views.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <vector>

namespace zorse::codegen {

struct FusionGroup {
  enum Kind { Row, Column, Scatter, Matmul, Attention, Exchange } kind = Row;
  llvm::SmallVector<mlir::Operation *> ops; ///< in program order; empty: merged into another
                                            ///< cluster.
  llvm::SmallVector<int64_t, 4> lead;   ///< Row: squeezed shape; the batch dimension, if any, is
                                        ///< first.
  int64_t columns = 0;                  ///< Row: length of the vectors; 0: numbers only.
  llvm::SmallVector<int64_t, 4> domain; ///< Column: squeezed shape of the reduced expressions.
  llvm::SmallVector<bool, 4> reduced;   ///< Column: per dimension of the domain, whether it is
                                        ///< reduced.
  int64_t group = -1;                   ///< Column: value of kGroupAttr.

  llvm::SmallVector<int64_t, 4> shape() const;
};

struct FusionPlan {
  std::vector<FusionGroup> fusionGroups;                ///< in execution order.
  llvm::DenseMap<mlir::Operation *, int> fusionGroupOf; ///< has no entry for recomputed ops, views,
                                                        ///< constants and concats.

  /// Position of the launch after which `value` can be read; -1: before the first launch.
  int availableAfter(mlir::Value value) const;
  /// Whether an op outside of its cluster, or a place that claims it, needs the value in memory.
  bool isMaterialised(mlir::Value value, const BufferAliases &aliases) const;
};

/// Whether an op of a cluster can use an operand that the same cluster computes without reading it
/// from memory.
bool isAccessibleInFusionGroup(mlir::Value operand, const FusionGroup &fusionGroup);

/// Returns, per squeezed dimension, whether a reduction combines it.
llvm::SmallVector<bool, 4> reducedDims(ReduceOp op);

/// Forms the clusters of a function. Ops must be expanded and places claimed (Decompose.h,
/// Prepare.h). Fails after a diagnostic at an op that has no lowering.
/// \param fewLaunches  also merge copies of one shape, and sums over one domain, if they read
/// different values.
mlir::FailureOr<FusionPlan> formFusionGroups(mlir::func::FuncOp function,
                                             const BufferAliases &aliases, bool fewLaunches);

} // namespace zorse::codegen
