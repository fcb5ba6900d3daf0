#include "ModelGraph.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Dialect/Zorse/SampleOps.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

bool units::isComputeIntensive(Operation *op) { return isa<MatmulOp, AttentionOp>(op); }
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

bool ModelGraph::isParameter(BlockArgument argument) const {
  return bool(func::FuncOp(model).getArgAttr(argument.getArgNumber(), attributes::kParameter));
}

bool ModelGraph::isTrained(BlockArgument argument) const {
  auto trainable = func::FuncOp(model).getArgAttrOfType<BoolAttr>(argument.getArgNumber(),
                                                                  attributes::kTrainable);
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

/// Bit set of the kinds of values that a value depends on.
enum : uint8_t { kSamples = 1, kParameters = 2 };

/// A frozen weight counts as a parameter (otherwise complete frozen layers would be cloned into
/// their users). A constant table of positions or a mask does not. They are distinguished by use: a
/// frozen weight is the right operand of a matrix product.
bool multipliesByFrozenWeight(Operation *op, func::FuncOp model) {
  auto matmul = dyn_cast<MatmulOp>(op);
  if (!matmul)
    return false;
  Value weight = matmul.getB();
  while (Operation *producer = weight.getDefiningOp()) {
    if (!isa<ReshapeOp, TransposeOp, SliceOp, RoundOp>(producer))
      return false;
    weight = producer->getOperand(0);
  }
  auto argument = cast<BlockArgument>(weight);
  return model.getArgAttr(argument.getArgNumber(), attributes::kParameter) &&
         cast<RankedTensorType>(weight.getType()).getRank() >= 2;
}

DenseMap<Value, uint8_t> dependences(func::FuncOp model) {
  DenseMap<Value, uint8_t> bits;
  for (BlockArgument argument : model.getArguments()) {
    if (model.getArgAttr(argument.getArgNumber(), attributes::kInput))
      bits[argument] = kSamples;
    else if (auto trainable =
                 model.getArgAttrOfType<BoolAttr>(argument.getArgNumber(), attributes::kTrainable);
             trainable && trainable.getValue())
      bits[argument] = kParameters;
  }
  for (Operation &op : model.getBody().front().without_terminator()) {
    uint8_t union_ = 0;
    for (Value operand : op.getOperands())
      union_ |= bits.lookup(operand);
    if (multipliesByFrozenWeight(&op, model))
      union_ |= kParameters;
    if (isa<SampleNumberOp>(op))
      union_ |= kSamples;
    // Clones of a dropout would draw different numbers in different units.
    if (isa<DropoutOp>(op))
      union_ |= kSamples | kParameters;
    if (auto attention = dyn_cast<AttentionOp>(op);
        attention && attention.getDropout().convertToDouble() > 0.0)
      union_ |= kSamples | kParameters;
    for (Value result : op.getResults())
      bits[result] = union_;
  }
  return bits;
}

/// Orders a spine depth-first from its results: operands before their readers, and the operand with
/// the longest dependency chain first. A second source (a decoder's embedding, segment ids)
/// therefore directly precedes its first reader, and an encoder precedes the decoder that reads it.
class DepthFirst {
public:
  DepthFirst(Block &block, const DenseSet<Operation *> &spine) : spine(spine) {
    for (Operation &op : block.without_terminator())
      if (spine.contains(&op)) {
        int longest = 0;
        for (Value operand : op.getOperands())
          longest = std::max(longest, depth.lookup(operand.getDefiningOp()));
        depth[&op] = longest + 1;
      }
  }

  /// Appends the operations that `root` depends on and that are not in `done`.
  void append(Operation *root, DenseSet<Operation *> &done, std::vector<Operation *> &order) const {
    // With the operands that are not yet visited, in reverse order.
    SmallVector<std::pair<Operation *, SmallVector<Operation *>>> stack;
    auto enter = [&](Operation *op) {
      if (!op || !spine.contains(op) || !done.insert(op).second)
        return;
      SmallVector<Operation *> operands;
      for (Value operand : op->getOperands())
        if (Operation *producer = operand.getDefiningOp())
          operands.push_back(producer);
      llvm::stable_sort(
          operands, [&](Operation *a, Operation *b) { return depth.lookup(a) > depth.lookup(b); });
      std::reverse(operands.begin(), operands.end());
      stack.push_back({op, std::move(operands)});
    };
    enter(root);
    while (!stack.empty()) {
      auto &[op, operands] = stack.back();
      if (!operands.empty()) {
        enter(operands.pop_back_val());
        continue;
      }
      order.push_back(op);
      stack.pop_back();
    }
  }

private:
  const DenseSet<Operation *> &spine;
  DenseMap<Operation *, int> depth;
};

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
    return model.emitError(
        "the model has no loss: expected a result with zorse.role = \"numerator\"; name an output "
        "with --loss-output, or add a loss with --loss");
  llvm::stable_sort(graph.numerators,
                    [](const Numerator &a, const Numerator &b) { return a.term < b.term; });

  for (auto op : model.getBody().front().getOps<KnownOp>())
    if (std::string text = op.getExpression().str(); !llvm::is_contained(graph.known, text))
      graph.known.push_back(text);
  graph.numbersSamples = !model.getBody().front().getOps<SampleNumberOp>().empty();

  SmallVector<Value> trainable, targets;
  for (BlockArgument argument : model.getArguments())
    if (auto flag =
            model.getArgAttrOfType<BoolAttr>(argument.getArgNumber(), attributes::kTrainable);
        flag && flag.getValue())
      trainable.push_back(argument);
  for (const Numerator &numerator : graph.numerators)
    targets.push_back(numerator.value);
  graph.active = autodiff::activeValues(model.getBody().front(), trainable, targets);

  if (llvm::none_of(trainable, [&](Value v) { return graph.active.contains(v); }))
    return model.emitError("nothing to train: no trained parameter reaches the loss. --freeze may "
                           "name all of them, or the file may have none; --train "
                           "NAME,... trains initializers by name");

  DenseMap<Value, uint8_t> bits = dependences(model);
  DenseSet<Operation *> spine;
  for (Operation &op : model.getBody().front().without_terminator())
    if (llvm::any_of(op.getResults(),
                     [&](Value v) { return bits.lookup(v) == (kSamples | kParameters); }))
      spine.insert(&op);

  // Numerators with the longest dependency chain first. Terms that depend on the middle of the
  // model are then last, with the head.
  DepthFirst depthFirst(model.getBody().front(), spine);
  std::vector<std::pair<size_t, Operation *>> sized;
  for (const Numerator &numerator : graph.numerators) {
    DenseSet<Operation *> done;
    std::vector<Operation *> history;
    if (Operation *op = numerator.value.getDefiningOp())
      depthFirst.append(op, done, history);
    sized.push_back({history.size(), numerator.value.getDefiningOp()});
  }
  llvm::stable_sort(sized, [](auto &a, auto &b) { return a.first > b.first; });
  DenseSet<Operation *> done;
  for (auto &[size, op] : sized)
    if (op)
      depthFirst.append(op, done, graph.order);
  if (graph.order.empty())
    return model.emitError(
        "the loss follows from parameters alone: expected it to depend on an input");
  for (auto [i, op] : llvm::enumerate(graph.order))
    graph.position[op] = i;
  return graph;
}

/// Returns the type to which a value has been rounded, if nothing was computed with it since; null
/// otherwise.
static Type roundedTo(Value value) {
  Operation *op = value.getDefiningOp();
  if (auto round = dyn_cast_if_present<RoundOp>(op))
    return round.getTo();
  if (!movesElements(op))
    return {};
  Type type = roundedTo(op->getOperand(0));
  return llvm::all_of(op->getOperands(), [&](Value operand) { return roundedTo(operand) == type; })
             ? type
             : Type();
}

/// Returns the type in which all readers of a trained parameter need it: products read its rounded
/// value, and rows of embeddings are rounded at lookup.
static Type readAs(BlockArgument parameter) {
  Type type;
  auto wants = [&](Operation *reader) {
    auto round = dyn_cast<RoundOp>(reader);
    if (!round || (type && type != round.getTo()))
      return false;
    type = round.getTo();
    return true;
  };
  for (OpOperand &use : parameter.getUses()) {
    auto gather = dyn_cast<GatherOp>(use.getOwner());
    if (gather && use.getOperandNumber() == 0 ? !llvm::all_of(gather->getUsers(), wants)
                                              : !wants(use.getOwner()))
      return {};
  }
  return type;
}

void units::findLowPrecisionValues(ModelGraph &graph, ArrayRef<int> ends) {
  for (BlockArgument argument : func::FuncOp(graph.model).getArguments())
    if (graph.isParameter(argument) && graph.isTrained(argument) &&
        getElementTypeOrSelf(argument.getType()).isF32())
      if (Type type = readAs(argument))
        graph.lowPrecision[argument] = type;

  auto unitOf = [&](Operation *op) {
    return llvm::upper_bound(ends, graph.position.lookup(op)) - ends.begin();
  };
  for (Operation *op : graph.order)
    for (Value value : op->getResults()) {
      if (!getElementTypeOrSelf(value.getType()).isF32())
        continue;
      Type type = roundedTo(value);
      if (!type)
        continue;
      DenseSet<int64_t> readers;
      for (Operation *user : value.getUsers())
        if (graph.onSpine(user) && unitOf(user) != unitOf(op))
          readers.insert(unitOf(user));
      if (readers.size() == 1 || !graph.active.contains(value))
        graph.lowPrecision[value] = type;
    }
}
