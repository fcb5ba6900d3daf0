// The scalar computation of a cluster: a graph of nodes that is evaluated at one point of the
// cluster's domain.
#pragma once

#include "Fusion.h"
#include "KernelBuilder.h"

#include "zorse/Dialect/Zorse/SampleOps.h"

namespace zorse::codegen {

/// Dependence of a node's value: on no dimension (Uniform), on the leading dimensions only
/// (Number), or on all dimensions of the domain (Vector).
enum class Form { Uniform, PerRow, PerElement };

struct Node {
  enum Kind {
    Constant, ///< attribute
    Load,     ///< operand, strides; with one input: plus input * indexStride
    Compute,  ///< op applied to inputs
    Reduce,   ///< input combined over the last dimension
    Index, ///< sum of domain indices * strides, i64 or i32; `ofStep`: plus the number of the first
           ///< sample
    CausalMask, ///< causal mask for query input 0 and key input 1: `offset` is S' - S, `window` is
                ///< the window or 0
    IsEqual,    ///< input 0 (i32) == input 1 (integer, truncated to i32)
    Select,     ///< input 0 ? input 1 : input 2
    Stream,     ///< random stream of the sample: `rngId`
    Dropout,    ///< inputs x, stream; element index by `strides` from `offset`
  };
  Kind kind;
  mlir::Type type; ///< type of the computation.
  Form form = Form::Uniform;
  llvm::SmallVector<int> inputs;
  mlir::Operation *op = nullptr;
  mlir::Attribute attribute;
  ReduceKind reduce = ReduceKind::Sum;
  int operand = -1;                      ///< kernel operand; -1: `base`
  mlir::Value base;                      ///< Load of a constant table
  mlir::Type element;                    ///< type in memory
  llvm::SmallVector<int64_t, 6> strides; ///< per dimension of the domain; empty for nodes without
                                         ///< strides
  int64_t indexStride = 0;
  int64_t indexEnd = 0; ///< Load: the input must be in [0, indexEnd), otherwise the load gives NaN;
                        ///< 0: the input is known to be valid
  int64_t offset = 0;
  int64_t rngId = 0;
  int64_t window = 0;
  double hidden = 0; ///< Visible, floats: value of hidden elements
  double probability = 0;
  bool ofStep = false;
  int phase = 0; ///< row clusters: number of reductions that must be finished before this node.
};

/// A store of a kernel.
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
  /// \param domain  squeezed dimensions; if `hasColumns`, the last one is the columns.
  Expression(KernelBuilder &k, const FusionPlan &plan, int cluster, const BufferAliases &aliases,
             llvm::ArrayRef<int64_t> domain, bool hasColumns);

  /// Returns the node of an operand of an op of the cluster.
  int use(mlir::Value operand);
  /// Adds the nodes of an op of the cluster. The ops of its operands must have been added.
  void define(mlir::Operation *op);
  int nodeOf(mlir::Value result) const { return defined.lookup(result); }

  /// Computes the scalar of a node from the scalars of its inputs, at a point of the domain.
  mlir::Value evaluate(const Node &node, llvm::ArrayRef<mlir::Value> inputs,
                       llvm::ArrayRef<mlir::Value> indices);

  /// Evaluates a Load for several elements: returns what `load` reads from element `offset` of
  /// `base` on, which is the position of the element at `indices`. The input, if any, is shared by
  /// all elements.
  llvm::SmallVector<mlir::Value> evaluateLoads(
      const Node &node, llvm::ArrayRef<mlir::Value> inputs, llvm::ArrayRef<mlir::Value> indices,
      llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value base, mlir::Value offset)>
          load);

  /// The 16-bit type to which a node rounds its input; null if it does something else.
  static mlir::Type roundsTo(const Node &node);

  /// Extends strides to the domain. The tensor's squeezed shape must be the domain's shape or its
  /// leading part.
  llvm::SmallVector<int64_t, 6> overDomain(llvm::ArrayRef<int64_t> strides) const;

  std::vector<Node> nodes;

private:
  /// Creates a node with the types of the op's result.
  static Node newNode(mlir::Operation *op);
  int define(GatherOp gather);
  int define(TakeAlongDimOp take);
  int define(TakeAlongDimGradOp grad);
  int define(DropoutOp dropout);
  int define(SampleNumberOp number);
  int define(CausalMaskOp mask);
  int useMask(CausalMaskOp mask, mlir::Value operand);
  /// \param query, key  strides of the mask's indices over the domain
  int maskNode(CausalMaskOp mask, llvm::ArrayRef<int64_t> query, llvm::ArrayRef<int64_t> key);
  int isColumn(mlir::Value index, int64_t size); ///< whether the index equals the current column
  int zero(mlir::Type type);
  int add(Node node);
  int load(mlir::Value value);
  int reduceNode(int input, ReduceKind kind);
  int indexNode(mlir::Type type, llvm::ArrayRef<int64_t> strides);
  int columnNode();
  int constantNode(mlir::Value root, const Layout &layout, mlir::Type type);
  Form formOf(llvm::ArrayRef<int64_t> strides) const;

  KernelBuilder &k;
  const FusionPlan &plan;
  int cluster;
  const BufferAliases &aliases;
  llvm::SmallVector<int64_t, 6> domain;
  bool hasColumns;
  llvm::DenseMap<mlir::Value, int> defined;
  llvm::DenseMap<mlir::Value, int> loaded;
  int column = -1;
};

} // namespace zorse::codegen
