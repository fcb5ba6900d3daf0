#include "ModelGraph.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

bool units::isHeavy(Operation *op) { return isa<MatmulOp, AttentionOp>(op); }
bool units::isNorm(Operation *op) { return isa<LayerNormOp, RmsNormOp>(op); }

StringRef units::nameOf(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName();
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location part : fused.getLocations())
      if (StringRef name = nameOf(part); !name.empty())
        return name;
  return {};
}

bool ModelGraph::isParameter(BlockArgument argument) const { return bool(func::FuncOp(model).getArgAttr(argument.getArgNumber(), attributes::kParameter)); }

bool ModelGraph::isTrained(BlockArgument argument) const {
  auto trainable = func::FuncOp(model).getArgAttrOfType<BoolAttr>(argument.getArgNumber(), attributes::kTrainable);
  return trainable && trainable.getValue() && active.contains(argument);
}

StringRef ModelGraph::nameOf(BlockArgument argument) const {
  func::FuncOp function = model;
  for (StringRef kind : {StringRef(attributes::kParameter), StringRef(attributes::kInput)})
    if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kind))
      return name.getValue();
  return {};
}

namespace {

/// Bits of what a value depends on.
enum : uint8_t { kSamples = 1, kParameters = 2 };

/// A frozen weight counts as a parameter (otherwise whole frozen layers would be cloned into their users), a constant table of positions or a mask does
/// not. What tells them apart is use: a matrix that multiplies from the right.
bool multipliesByFrozenWeight(Operation *op, func::FuncOp model) {
  auto matmul = dyn_cast<MatmulOp>(op);
  if (!matmul)
    return false;
  Value weight = matmul.getB();
  while (Operation *producer = weight.getDefiningOp()) {
    if (!isa<ReshapeOp, TransposeOp, SliceOp>(producer))
      return false;
    weight = producer->getOperand(0);
  }
  auto argument = cast<BlockArgument>(weight);
  return model.getArgAttr(argument.getArgNumber(), attributes::kParameter) && cast<RankedTensorType>(weight.getType()).getRank() >= 2;
}

DenseMap<Value, uint8_t> dependences(func::FuncOp model) {
  DenseMap<Value, uint8_t> bits;
  for (BlockArgument argument : model.getArguments()) {
    if (model.getArgAttr(argument.getArgNumber(), attributes::kInput))
      bits[argument] = kSamples;
    else if (auto trainable = model.getArgAttrOfType<BoolAttr>(argument.getArgNumber(), attributes::kTrainable); trainable && trainable.getValue())
      bits[argument] = kParameters;
  }
  for (Operation &op : model.getBody().front().without_terminator()) {
    uint8_t union_ = 0;
    for (Value operand : op.getOperands())
      union_ |= bits.lookup(operand);
    if (multipliesByFrozenWeight(&op, model))
      union_ |= kParameters;
    // Clones of a dropout would draw different numbers in different units.
    if (isa<DropoutOp>(op))
      union_ |= kSamples | kParameters;
    if (auto attention = dyn_cast<AttentionOp>(op); attention && attention.getDropout().convertToDouble() > 0.0)
      union_ |= kSamples | kParameters;
    for (Value result : op.getResults())
      bits[result] = union_;
  }
  return bits;
}

/// Operations of `spine` that `root` depends on, in depth-first post-order: operands first, each as late as its first reader allows.
void appendDepthFirst(Operation *root, const DenseSet<Operation *> &spine, DenseSet<Operation *> &done, std::vector<Operation *> &order) {
  SmallVector<std::pair<Operation *, unsigned>> stack;
  auto enter = [&](Operation *op) {
    if (op && spine.contains(op) && done.insert(op).second)
      stack.push_back({op, 0});
  };
  enter(root);
  while (!stack.empty()) {
    auto &[op, next] = stack.back();
    if (next < op->getNumOperands()) {
      Operation *producer = op->getOperand(next++).getDefiningOp();
      enter(producer);
      continue;
    }
    order.push_back(op);
    stack.pop_back();
  }
}

} // namespace

FailureOr<ModelGraph> units::analyseModel(func::FuncOp model) {
  ModelGraph graph;
  graph.model = model;
  Operation *terminator = model.getBody().front().getTerminator();
  for (unsigned i = 0; i < model.getNumResults(); ++i) {
    auto role = model.getResultAttrOfType<StringAttr>(i, attributes::kRole);
    auto term = model.getResultAttrOfType<IntegerAttr>(i, attributes::kTerm);
    if (role && term && role.getValue() == "numerator")
      graph.numerators.push_back({term.getInt(), i, terminator->getOperand(i)});
  }
  if (graph.numerators.empty())
    return model.emitError("the model has no loss: expected a result with zorse.role = \"numerator\"; name one with --loss");
  llvm::stable_sort(graph.numerators, [](const Numerator &a, const Numerator &b) { return a.term < b.term; });

  SmallVector<Value> trainable, targets;
  for (BlockArgument argument : model.getArguments())
    if (auto flag = model.getArgAttrOfType<BoolAttr>(argument.getArgNumber(), attributes::kTrainable); flag && flag.getValue())
      trainable.push_back(argument);
  for (const Numerator &numerator : graph.numerators)
    targets.push_back(numerator.value);
  graph.active = autodiff::activeValues(model.getBody().front(), trainable, targets);

  if (llvm::none_of(trainable, [&](Value v) { return graph.active.contains(v); }))
    return model.emitError("nothing to train: the loss depends on no trainable parameter; expected an argument with zorse.parameter and zorse.trainable = true that reaches it");

  DenseMap<Value, uint8_t> bits = dependences(model);
  DenseSet<Operation *> spine;
  for (Operation &op : model.getBody().front().without_terminator())
    if (llvm::any_of(op.getResults(), [&](Value v) { return bits.lookup(v) == (kSamples | kParameters); }))
      spine.insert(&op);

  // The numerator with the longest history first: terms that hang on the middle of the model then come last, with the head.
  std::vector<Operation *> roots;
  std::vector<std::pair<size_t, Operation *>> sized;
  for (const Numerator &numerator : graph.numerators) {
    DenseSet<Operation *> done;
    std::vector<Operation *> history;
    if (Operation *op = numerator.value.getDefiningOp())
      appendDepthFirst(op, spine, done, history);
    sized.push_back({history.size(), numerator.value.getDefiningOp()});
  }
  llvm::stable_sort(sized, [](auto &a, auto &b) { return a.first > b.first; });
  DenseSet<Operation *> done;
  for (auto &[size, op] : sized)
    if (op)
      appendDepthFirst(op, spine, done, graph.order);
  if (graph.order.empty())
    return model.emitError("the loss follows from parameters alone: expected it to depend on an input");
  for (auto [i, op] : llvm::enumerate(graph.order))
    graph.position[op] = i;
  return graph;
}
