// What a row cluster computes, before anybody says how its points and columns are walked: the graph of its expressions, its stores, and the sizes of
// its leading dimensions, merged where every access walks them as one.
#pragma once

#include "Clusters.h"
#include "Expression.h"
#include "KernelBuilder.h"

namespace zorse::codegen {

/// What kernel emission asks about results: which of them are stored, and which of their places are added to at run time.
struct KernelContext {
  mlir::MLIRContext *context;
  const Clustering &clustering;
  const Claims &claims;
  KernelBuilder::Resolve resolve;
  std::function<bool(mlir::Value root)> accumulates;
  std::function<KernelBuilder::Place(int cluster)> scratch = {}; ///< what only the launches of this cluster use
};

class RowProgram {
public:
  /// Builds graph and stores, merges dimensions, evaluates what is uniform.
  /// \param k  new; outlives this
  RowProgram(KernelBuilder &k, const KernelContext &context, int index);

protected:
  using Value = mlir::Value;

  const std::vector<Node> &nodes() const { return expression.nodes; }
  /// A uniform node or a number of the current point, once.
  Value scalarOf(int index, llvm::ArrayRef<Value> indices);
  /// Worth keeping rather than computing again.
  static bool isExpensive(const Node &node);
  /// The store from which later phases may load a node's vector again; -1: none.
  int storeOf(int node) const;
  Value accumulateFlag(const StoreNode &store) { return store.accumulates ? flags[store.operand] : Value(); }
  std::string hint() const;

  const KernelContext &context;
  const Cluster &cluster;
  KernelBuilder &k;
  Expression expression;
  std::vector<StoreNode> stores;
  llvm::SmallVector<Size, 4> sizes; ///< of the leading dimensions, merged.
  int64_t columns;
  int phases = 1;
  std::vector<char> needed;   ///< by node
  std::vector<Value> scalars; ///< uniform nodes and numbers of the current point.

private:
  void buildGraph();
  void eraseDim(size_t dim);
  void mergeDims();
  void markNeeded();
  template <typename Visit> bool allStrides(Visit visit);
  llvm::DenseMap<unsigned, Value> flags;
};

} // namespace zorse::codegen
