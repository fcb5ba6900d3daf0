// The scalar computation of a cluster: a graph of nodes, evaluated at one point of the cluster's domain.
#pragma once

#include "Clusters.h"
#include "KernelBuilder.h"

#include "zorse/Dialect/Zorse/SampleOps.h"

namespace zorse::codegen {

/// A node's value depends on nothing (Uniform), on the leading dimensions only (Number), or on all dimensions of the domain (Vector).
enum class Form { Uniform, Number, Vector };

struct Node {
  enum Kind {
    Constant, ///< attribute
    Load,     ///< operand, strides; with one input: plus input * indexStride
    Compute,  ///< op applied to inputs
    Reduce,   ///< input combined over the last dimension
    Index,    ///< sum of domain indices * strides, i64 or i32; `ofStep`: plus the number of the first sample
    Visible,  ///< causal mask at query input 0, key input 1: `instance` is S' - S, `window` 0 or the window
    IsEqual,  ///< input 0 (i32) == input 1 (integer, truncated to i32)
    Select,   ///< input 0 ? input 1 : input 2
    Stream,   ///< random stream of the sample: `instance`
    Dropout,  ///< inputs x, stream; element index by `strides`
  };
  Kind kind;
  mlir::Type type; ///< in which it is computed.
  Form form = Form::Uniform;
  llvm::SmallVector<int> inputs;
  mlir::Operation *op = nullptr;
  mlir::Attribute attribute;
  ReduceKind reduce = ReduceKind::Sum;
  int operand = -1;                      ///< of the kernel; -1: `base`
  mlir::Value base;                      ///< Load of a constant table
  mlir::Type element;                    ///< in memory
  llvm::SmallVector<int64_t, 6> strides; ///< per dimension of the domain; empty for nodes that need none
  int64_t indexStride = 0;
  int64_t indexEnd = 0; ///< Load: the input is in [0, indexEnd), or it reads nothing; 0: it is known to be
  int64_t instance = 0;
  int64_t window = 0;
  double hidden = 0; ///< Visible, floats: what hidden elements are
  double probability = 0;
  bool ofStep = false;
  int phase = 0; ///< row clusters: number of reductions that must be finished before.
};

/// One store of a kernel.
struct StoreNode {
  int node;
  unsigned operand;
  mlir::Type element;
  llvm::SmallVector<int64_t, 6> strides;
  bool vector; ///< one element per column, not one per point.
  bool accumulates;
};

class Expression {
public:
  /// \param domain  squeezed dimensions; the last one are the columns if `hasColumns`.
  Expression(KernelBuilder &k, const Clustering &clustering, int cluster, const Claims &claims, llvm::ArrayRef<int64_t> domain, bool hasColumns);

  /// The node of an operand of an op of the cluster.
  int use(mlir::Value operand);
  /// Adds the nodes of an op of the cluster, after its operands' ops.
  void define(mlir::Operation *op);
  int nodeOf(mlir::Value result) const { return defined.lookup(result); }

  /// The scalar of a node from those of its inputs, at a point of the domain.
  mlir::Value evaluate(const Node &node, llvm::ArrayRef<mlir::Value> inputs, llvm::ArrayRef<mlir::Value> indices);

  /// Of a Load: what `load` reads from element `offset` of `base` on, where the element at `indices` lies. The input, if any, is one for all.
  llvm::SmallVector<mlir::Value> evaluateLoads(const Node &node, llvm::ArrayRef<mlir::Value> inputs, llvm::ArrayRef<mlir::Value> indices,
                                               llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value base, mlir::Value offset)> load);

  /// The type of 16 bits that a node rounds its input to; null: it does something else.
  static mlir::Type roundsTo(const Node &node);

  /// Strides over the domain of a tensor with this squeezed shape and these strides, which is the domain's shape or its leading part.
  llvm::SmallVector<int64_t, 6> overDomain(llvm::ArrayRef<int64_t> strides) const;

  std::vector<Node> nodes;

private:
  /// A node of the result's types.
  static Node newNode(mlir::Operation *op);
  int define(GatherOp gather);
  int define(TakeOp take);
  int define(TakeGradOp takeGrad);
  int define(DropoutOp dropout);
  int define(SampleNumberOp number);
  int define(CausalMaskOp mask);
  int useMask(CausalMaskOp mask, mlir::Value operand);
  /// \param query, key  strides of its indices over the domain
  int maskNode(CausalMaskOp mask, llvm::ArrayRef<int64_t> query, llvm::ArrayRef<int64_t> key);
  int isColumn(mlir::Value ids, int64_t size); ///< whether an id is the column that goes by
  int zero(mlir::Type type);
  int add(Node node);
  int load(mlir::Value value);
  int reduceNode(int input, ReduceKind kind);
  int indexNode(mlir::Type type, llvm::ArrayRef<int64_t> strides);
  int columnNode();
  int constantNode(mlir::Value root, const Layout &layout, mlir::Type type);
  Form formOf(llvm::ArrayRef<int64_t> strides) const;

  KernelBuilder &k;
  const Clustering &clustering;
  int cluster;
  const Claims &claims;
  llvm::SmallVector<int64_t, 6> domain;
  bool hasColumns;
  llvm::DenseMap<mlir::Value, int> defined;
  llvm::DenseMap<mlir::Value, int> loaded;
  int column = -1;
};

} // namespace zorse::codegen
