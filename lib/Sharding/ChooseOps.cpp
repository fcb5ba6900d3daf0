// Nodes of the graph are ops, values and parameters. A node on the source's side of the cut is
// divided. Edges with a finite capacity are costs: the FLOPs of an op that is not divided, and the
// bytes of an exchange. Infinite ones are rules.
#include "ChooseOps.h"

#include "DivideByIds.h"

#include "zorse/Base/MaxFlow.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::sharding;

double sharding::flopsOf(Operation *op) {
  auto costs = dyn_cast<CostOpInterface>(op);
  return costs ? costs.getFlops() : 0;
}

BlockArgument sharding::parameterOfGradient(func::FuncOp joint, unsigned result) {
  ArgumentAttr attribute = attributeOfResult(joint, result);
  if (isOfKind(attribute, ArgumentKind::ParameterGradient))
    for (BlockArgument argument : joint.getArguments())
      if (ArgumentAttr of = attributeOfArgument(joint, argument.getArgNumber());
          isOfKind(of, ArgumentKind::Parameter) && of.getIndex() == attribute.getIndex())
        return argument;
  return {};
}

static int64_t exchangeCost(Value value, double flopsPerByte) {
  auto type = cast<RankedTensorType>(value.getType());
  int64_t elements = 1;
  for (int64_t size : type.getShape())
    elements *= size == ShapedType::kDynamic ? 1 : size;
  const double bytes = static_cast<double>(elements) *
                       std::max(1U, type.getElementTypeBitWidth() / 8);
  return std::max<int64_t>(1, static_cast<int64_t>(bytes * flopsPerByte));
}

namespace {
class ClosureGraph {
public:
  ClosureGraph(func::FuncOp joint, Propagation &candidates,
               const DenseMap<Value, ShardedValue> &sharded, double flopsPerByte)
      : joint(joint), candidates(candidates), others(sharded), flopsPerByte(flopsPerByte) {
    DenseSet<Value> dividedGradients; // parameters whose gradients another axis divides
    Operation *returned = joint.getBody().front().getTerminator();
    for (unsigned i = 0; i < joint.getNumResults(); ++i)
      if (BlockArgument parameter = parameterOfGradient(joint, i);
          parameter && others.contains(returned->getOperand(i)))
        dividedGradients.insert(parameter);
    for (const auto &[op, split] : candidates.splits)
      opNodes[op] = nodes++;
    for (BlockArgument argument : joint.getArguments())
      if (isOfKind(attributeOfArgument(joint, argument.getArgNumber()), ArgumentKind::Parameter) &&
          isComplete(argument) && !joint.getArgAttr(argument.getArgNumber(), kWholeAttr) &&
          !others.contains(argument) && !dividedGradients.contains(argument))
        parameterNodes[argument] = nodes++;
    for (const auto &[op, split] : candidates.splits)
      for (Value result : op->getResults())
        valueNodes[result] = nodes++;
  }

  ChosenOps solve() {
    flow = std::make_unique<MaxFlow>(nodes);
    double total = 0;
    for (const auto &[op, split] : candidates.splits) {
      const auto flops = static_cast<int64_t>(flopsOf(op));
      flow->addEdge(kSource, opNodes[op], flops);
      total += static_cast<double>(flops);
      for (auto [result, dims] : llvm::zip(op->getResults(), candidates.factorsOf(op).results))
        addResult(op, result, isSharded(dims, split));
      if (combines(op)) // one exchange of three numbers for each loss
        flow->addEdge(opNodes[op], kSink, 3 * exchangeCost(op->getResult(0), flopsPerByte));
    }
    for (auto [argument, node] : parameterNodes)
      addParameter(argument, node);
    ChosenOps chosen;
    chosen.gain = total - static_cast<double>(flow->solve(kSource, kSink));
    const std::vector<bool> whole = flow->sinkSide(kSink);
    for (const auto &[op, split] : candidates.splits)
      if (!whole[opNodes[op]])
        chosen.ops.insert(op);
    for (BlockArgument argument : joint.getArguments())
      if (auto it = parameterNodes.find(argument); it != parameterNodes.end() && !whole[it->second])
        chosen.parameters.push_back(argument);
    return chosen;
  }

private:
  static constexpr int kSource = 0, kSink = 1;

  bool isComplete(Value value) const {
    auto it = candidates.maps.find(value);
    return it != candidates.maps.end() &&
           it->second.map.covers(cast<RankedTensorType>(value.getType()).getDimSize(it->second.dim),
                                 candidates.granules);
  }

  static bool isSharded(const OpFactors::Value &dims, const OpSplit &split) {
    return llvm::any_of(dims, [&](const OpFactors::Dimension &dimension) {
      return llvm::any_of(dimension, [&](const OpFactors::Segment &segment) {
        return llvm::any_of(segment.factors,
                            [&](unsigned factor) { return split.find(factor) != nullptr; });
      });
    });
  }

  /// A sharded result is gathered if one of its users is not divided. A partial one is reduced,
  /// unless it is the gradient of a parameter: its reduction among replicas includes the devices of
  /// a group.
  void addResult(Operation *op, Value result, bool sharded) {
    const int node = opNodes[op], value = valueNodes[result];
    bool read = false;
    for (OpOperand &use : result.getUses()) {
      Operation *user = use.getOwner();
      if (!user->hasTrait<OpTrait::IsTerminator>()) {
        read = true;
        auto it = opNodes.find(user);
        if (sharded)
          flow->addEdge(value, it == opNodes.end() ? kSink : it->second, MaxFlow::kInfinite);
        continue;
      }
      const BlockArgument parameter = parameterOfGradient(joint, use.getOperandNumber());
      if (!parameter) {
        read = true;
        if (sharded)
          flow->addEdge(value, kSink, MaxFlow::kInfinite);
      } else if (sharded && (others.contains(parameter) || !(candidates.maps.lookup(parameter) ==
                                                             candidates.maps.lookup(result)))) {
        flow->addEdge(node, kSink, MaxFlow::kInfinite);
      }
    }
    if (read && !combines(op))
      flow->addEdge(node, sharded ? value : kSink, exchangeCost(result, flopsPerByte));
  }

  /// A parameter is stored sharded only if all its users are divided. Its memory breaks ties.
  void addParameter(Value argument, int node) {
    flow->addEdge(kSource, node, 1);
    for (Operation *user : argument.getUsers())
      if (auto it = opNodes.find(user); it != opNodes.end())
        flow->addEdge(node, it->second, MaxFlow::kInfinite);
      else
        flow->addEdge(node, kSink, MaxFlow::kInfinite);
  }

  func::FuncOp joint;
  Propagation &candidates;
  const DenseMap<Value, ShardedValue> &others; ///< values that other axes divide
  const double flopsPerByte;
  int nodes = 2;
  DenseMap<Operation *, int> opNodes;
  DenseMap<Value, int> parameterNodes, valueNodes;
  std::unique_ptr<MaxFlow> flow;
};
} // namespace

ChosenOps sharding::chooseOps(func::FuncOp joint, Propagation &candidates,
                              const DenseMap<Value, ShardedValue> &sharded, double flopsPerByte) {
  return ClosureGraph(joint, candidates, sharded, flopsPerByte).solve();
}
