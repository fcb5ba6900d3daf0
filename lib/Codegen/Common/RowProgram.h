// The computation of a row cluster, independent of the loops over its points and columns: the
// expression graph, the stores, and the sizes of the leading dimensions. Dimensions are merged if
// every access treats them as one.
#pragma once

#include "Expression.h"
#include "Fusion.h"
#include "KernelBuilder.h"

namespace zorse::codegen {

/// Information about results for kernel emission: which results are stored, and which are added to
/// at run time.
struct KernelContext {
  mlir::MLIRContext *context;
  const FusionPlan &plan;
  const BufferAliases &aliases;
  KernelBuilder::Resolve resolve;
  std::function<bool(mlir::Value root)> accumulates;
  std::function<KernelBuilder::Place(int cluster)> scratch = {}; ///< scratch buffer of this
                                                                 ///< cluster's launches
};

class RowProgram {
public:
  /// Builds the graph and the stores, merges dimensions and evaluates uniform nodes.
  /// \param k  newly created builder; must outlive this object
  RowProgram(KernelBuilder &k, const KernelContext &context, int index);

protected:
  using Value = mlir::Value;

  const std::vector<Node> &nodes() const { return expression.nodes; }
  /// Returns the value of a uniform node or a number of the current point; it is emitted once.
  Value scalarOf(int index, llvm::ArrayRef<Value> indices);
  /// Whether keeping the value is cheaper than recomputing it.
  static bool isExpensive(const Node &node);
  /// The store from which later phases may reload a node's vector; -1: none.
  int storeOf(int node) const;
  Value accumulateFlag(const StoreNode &store) {
    return store.accumulates ? flags[store.operand] : Value();
  }
  std::string hint() const;

  const KernelContext &context;
  const FusionGroup &fusionGroup;
  KernelBuilder &k;
  Expression expression;
  std::vector<StoreNode> stores;
  llvm::SmallVector<Size, 4> sizes; ///< sizes of the leading dimensions, merged.
  int64_t columns;
  int phases = 1;
  std::vector<char> needed;   ///< by node
  std::vector<Value> scalars; ///< values of uniform nodes, and numbers of the current point.

private:
  void buildGraph();
  void eraseDim(size_t dim);
  void mergeDims();
  void markNeeded();
  template <typename Visit> bool allStrides(Visit visit);
  llvm::DenseMap<unsigned, Value> flags;
};

} // namespace zorse::codegen
