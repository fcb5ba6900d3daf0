// The computation of a column cluster, independent of the assignment of sums to threads: its
// reductions over the batch dimension and other leading dimensions, the expression graph of their
// inputs, and the kept dimensions of the domain.
#pragma once

#include "RowProgram.h"

namespace zorse::codegen {

class ColumnProgram {
public:
  /// \param k  newly created builder; must outlive this object
  ColumnProgram(KernelBuilder &k, const KernelContext &context, int index);

protected:
  using Value = mlir::Value;

  struct Result {
    ReduceOp op;
    int node; ///< node of the reduced expression
    unsigned operand;
    llvm::SmallVector<int64_t, 4> strides; ///< over the kept dimensions
    mlir::Type type, element;              ///< type of sums, and type of stored elements
  };

  Size sizeOf(size_t dim) const;
  /// Returns the value of a node at a point of the domain. Nodes in the cache are computed once.
  Value evaluate(int node, llvm::ArrayRef<Value> indices, llvm::DenseMap<int, Value> &cache);
  /// Returns the initial values of the sums, one per result.
  llvm::SmallVector<Value> identities();
  void store(Result &result, Value value, llvm::ArrayRef<Value> keptIndices);

  const KernelContext &context;
  const FusionGroup &fusionGroup;
  KernelBuilder &k;
  Expression expression;
  std::vector<Result> results;
  llvm::SmallVector<size_t> keptDims,
      reducedDims; ///< dimensions of the domain, without the column dimension
  bool hasColumns; ///< whether the last dimension is kept
};

} // namespace zorse::codegen
