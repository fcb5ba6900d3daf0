// What a column cluster computes, before anybody says who sums what: its reductions over the sample axis and other leading dimensions, the graph of
// what they reduce, and which dimensions of the domain are kept.
#pragma once

#include "RowProgram.h"

namespace zorse::codegen {

class ColumnProgram {
public:
  /// \param k  new; outlives this
  ColumnProgram(KernelBuilder &k, const KernelContext &context, int index);

protected:
  using Value = mlir::Value;

  struct Result {
    ReduceOp op;
    int node; ///< of the reduced expression
    unsigned operand;
    llvm::SmallVector<int64_t, 4> strides; ///< over the kept dimensions
    mlir::Type type, element;              ///< of sums, and of what is stored
  };

  Size sizeOf(size_t dim) const;
  /// The node at a point of the domain; nodes in the cache are computed once.
  Value evaluate(int node, llvm::ArrayRef<Value> indices, llvm::DenseMap<int, Value> &cache);
  /// What sums begin with, one per result.
  llvm::SmallVector<Value> identities();
  void store(Result &result, Value value, llvm::ArrayRef<Value> keptIndices);

  const KernelContext &context;
  const Cluster &cluster;
  KernelBuilder &k;
  Expression expression;
  std::vector<Result> results;
  llvm::SmallVector<size_t> keptDims, reducedDims; ///< of the domain; without the column dimension
  bool hasColumns;                                 ///< the last dimension is kept
};

} // namespace zorse::codegen
