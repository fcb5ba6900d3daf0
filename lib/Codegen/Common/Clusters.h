// Which ops run together in one launch.
//
// A *row cluster* walks the points of its leading dimensions; at each point it has numbers (of the shape `lead`) and vectors of `columns`
// elements (of the shape lead × columns), between which reductions and broadcasts along the last dimension go. A *column cluster* sums
// elementwise expressions over some dimensions of its domain, the sample axis among them.
#pragma once

#include "Views.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <vector>

namespace zorse::codegen {

struct Cluster {
  enum Kind { Row, Column, Scatter, Product, Attention } kind = Row;
  llvm::SmallVector<mlir::Operation *> ops; ///< in program order; empty: dissolved into another one.
  llvm::SmallVector<int64_t, 4> lead;       ///< Row: squeezed; the sample axis, if any, first.
  int64_t columns = 0;                      ///< Row: extent of the vectors; 0: numbers only.
  llvm::SmallVector<int64_t, 4> domain;     ///< Column: squeezed shape of the reduced expressions.
  llvm::SmallVector<bool, 4> reduced;       ///< Column: per dimension of the domain.
  int64_t group = -1;                       ///< Column: kGroupAttr.

  llvm::SmallVector<int64_t, 4> shape() const;
};

struct Clustering {
  std::vector<Cluster> clusters;                    ///< in the order of execution.
  llvm::DenseMap<mlir::Operation *, int> clusterOf; ///< what is made again, views, constants and concats have none.

  /// Position of the launch after which `value` can be read; -1: from the start.
  int availableAfter(mlir::Value value) const;
  /// True if an op outside of its cluster, or a place that claims it, needs the value in memory.
  bool isMaterialised(mlir::Value value, const Claims &claims) const;
};

/// How an op of a cluster sees an operand that the same cluster computes.
bool isAccessibleInCluster(mlir::Value operand, const Cluster &cluster);

/// The squeezed dimensions that a reduction combines.
llvm::SmallVector<bool, 4> reducedDims(ReduceOp op);

/// Ops must be expanded and places claimed (Expand.h, Prepare.h). Fails after a diagnostic at an op that has no lowering.
/// \param fewLaunches  copies of one shape, and sums over one domain, run together even if they read different values.
mlir::FailureOr<Clustering> formClusters(mlir::func::FuncOp function, const Claims &claims, bool fewLaunches);

} // namespace zorse::codegen
