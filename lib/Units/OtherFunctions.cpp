#include "OtherFunctions.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Summary/Summary.h"
#include "zorse/Transforms/Passes.h"
#include "zorse/runtime/Expression.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"

#include <set>

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

DictionaryAttr slot(OpBuilder &b, SlotKind kind, size_t index = 0, ScalarField field = ScalarField::LossSeed) {
  return b.getDictionaryAttr(b.getNamedAttr(attributes::kSlot, SlotAttr::get(b.getContext(), kind, uint32_t(index), field)));
}
DictionaryAttr scalar(OpBuilder &b, ScalarField field, size_t index = 0) { return slot(b, SlotKind::Scalars, index, field); }

/// The value of a lifted constant (zorse-lift-constants keeps it on the module); null for other parameters.
TypedAttr constantOf(const ModelGraph &graph, BlockArgument argument) {
  auto values = func::FuncOp(graph.model)->getParentOfType<ModuleOp>()->getAttrOfType<DictionaryAttr>(kConstantValueAttr);
  return values ? dyn_cast_if_present<TypedAttr>(values.get(graph.nameOf(argument))) : TypedAttr();
}

/// Operations `roots` depend on, in the order of the model; the arguments among them.
void collectSlice(func::FuncOp model, ArrayRef<Value> roots, SmallVectorImpl<Operation *> &ops, SmallVectorImpl<BlockArgument> &arguments) {
  DenseSet<Value> wanted(roots.begin(), roots.end());
  for (Operation &op : llvm::reverse(model.getBody().front().without_terminator()))
    if (llvm::any_of(op.getResults(), [&](Value v) { return wanted.contains(v); })) {
      ops.push_back(&op);
      wanted.insert(op.operand_begin(), op.operand_end());
    }
  std::reverse(ops.begin(), ops.end());
  for (BlockArgument argument : model.getArguments())
    if (wanted.contains(argument))
      arguments.push_back(argument);
}

} // namespace

namespace {

/// The terms of the loss, and the numbers that functions of units read, from the attributes of the model.
class LossReader {
public:
  LossReader(const ModelGraph &graph, bundle::ModelSummary &summary) : graph(graph), summary(summary) {}

  LogicalResult run() {
    if (failed(readCounts()))
      return failure();
    for (const Numerator &numerator : graph.numerators)
      if (failed(readTerm(numerator)))
        return failure();
    if (graph.known.size() > size_t(abi::kMaxKnown))
      return func::FuncOp(graph.model).emitError("the model reads ")
             << graph.known.size() << " numbers that follow from the samples of a step and its counts, at most " << abi::kMaxKnown
             << " are supported: compute fewer, or per sample";
    for (const std::string &text : graph.known) {
      if (failed(check(text, func::FuncOp(graph.model).getLoc(), "zorse.known")))
        return failure();
      summary.add_known(text);
    }
    summary.set_reads_sample_numbers(graph.numbersSamples);
    return success();
  }

  /// What the counts return, by number.
  SmallVector<Value> counts;

private:
  LogicalResult readCounts() {
    func::FuncOp model = graph.model;
    Operation *terminator = model.getBody().front().getTerminator();
    for (unsigned i = 0; i < model.getNumResults(); ++i) {
      auto role = model.getResultAttrOfType<StringAttr>(i, attributes::kRole);
      if (!role || role.getValue() != "count")
        continue;
      auto number = model.getResultAttrOfType<IntegerAttr>(i, attributes::kCount);
      auto reduce = model.getResultAttrOfType<StringAttr>(i, attributes::kReduce);
      std::optional<bundle::Count::Reduce> known = reduce ? parseReduce(reduce.getValue().str()) : std::nullopt;
      if (!number || number.getInt() != int64_t(counts.size()) || !known || counts.size() == Expression::kMaxCounts)
        return model.emitError("expected counts to be numbered from 0 to at most ")
               << Expression::kMaxCounts - 1 << " in the order of the results, each with a zorse.reduce of sum, max or min; found result " << i
               << " otherwise";
      counts.push_back(terminator->getOperand(i));
      bundle::Count &count = *summary.add_counts();
      count.set_reduce(*known);
      count.set_meaning(meaningOf(counts.back()));
    }
    return success();
  }

  LogicalResult readTerm(const Numerator &numerator) {
    func::FuncOp model = graph.model;
    bundle::LossTerm &term = *summary.add_loss();
    StringRef name = nameOf(numerator.value.getLoc());
    term.set_name(name.empty() ? "loss " + std::to_string(numerator.term) : name.str());
    auto factor = model.getResultAttrOfType<StringAttr>(numerator.result, attributes::kFactor);
    if (!factor)
      return emitError(numerator.value.getLoc()) << "loss term " << numerator.term << " has no factor: expected zorse.factor";
    term.set_factor(factor.getValue().str());
    return check(term.factor(), numerator.value.getLoc(), "the factor of a loss term");
  }

  LogicalResult check(StringRef text, Location loc, StringRef what) {
    std::string error;
    std::optional<Expression> expression = Expression::parse({text.data(), text.size()}, error);
    if (!expression)
      return emitError(loc) << what << " is \"" << text << "\": " << error;
    for (uint32_t count : expression->counts())
      if (count >= counts.size())
        return emitError(loc) << what << " is \"" << text << "\" and reads count n" << count << ", but the model returns " << counts.size()
                              << " counts";
    return success();
  }

  /// "labels of 'y' other than -100", or the inputs that it follows from.
  std::string meaningOf(Value count) const {
    SmallVector<Operation *> ops;
    SmallVector<BlockArgument> arguments;
    collectSlice(graph.model, count, ops, arguments);
    SmallVector<BlockArgument> inputs;
    for (BlockArgument argument : arguments)
      if (!graph.isParameter(argument))
        inputs.push_back(argument);
    if (std::optional<int64_t> ignored = onlyComparison(ops); ignored && inputs.size() == 1 && inputs.size() == arguments.size())
      return "labels of '" + graph.nameOf(inputs[0]).str() + "' other than " + std::to_string(*ignored);
    std::string text;
    for (BlockArgument input : inputs)
      text += (text.empty() ? "" : ", ") + ("'" + graph.nameOf(input).str() + "'");
    for (uint32_t other : countsIn(ops))
      text += (text.empty() ? "n" : ", n") + std::to_string(other);
    StringRef name = nameOf(count.getLoc());
    return (name.empty() ? "a number of each sample" : "'" + name.str() + "'") + (text.empty() ? "" : ", from " + text);
  }

  /// The counts that operations read.
  static std::set<uint32_t> countsIn(ArrayRef<Operation *> ops) {
    std::set<uint32_t> found;
    std::string error;
    for (Operation *op : ops)
      if (auto known = dyn_cast<KnownOp>(op))
        if (std::optional<Expression> expression = Expression::parse(known.getExpression().str(), error))
          for (uint32_t count : expression->counts())
            found.insert(count);
    return found;
  }

  /// The integer c, where a count is that of elements that differ from c and nothing else.
  static std::optional<int64_t> onlyComparison(ArrayRef<Operation *> ops) {
    std::optional<int64_t> ignored;
    for (Operation *op : ops) {
      if (auto compare = dyn_cast<arith::CmpIOp>(op)) {
        std::optional<double> constant = splatValue(compare.getRhs());
        if (ignored || compare.getPredicate() != arith::CmpIPredicate::ne || !constant)
          return std::nullopt;
        ignored = static_cast<int64_t>(*constant);
        continue;
      }
      auto reduce = dyn_cast<ReduceOp>(op);
      if (reduce ? reduce.getKind() != ReduceKind::Sum : !isa<arith::ConstantOp, arith::UIToFPOp, BroadcastOp, ReshapeOp, SliceOp>(op))
        return std::nullopt;
    }
    return ignored;
  }

  const ModelGraph &graph;
  bundle::ModelSummary &summary;
};

} // namespace

LogicalResult units::buildCounts(OpBuilder &builder, const ModelGraph &graph, const DenseMap<Value, unsigned> &inputIndex,
                                 bundle::ModelSummary &summary) {
  func::FuncOp model = graph.model;
  LossReader loss(graph, summary);
  summary.set_count_body(-1);
  if (failed(loss.run()))
    return failure();
  ArrayRef<Value> roots = loss.counts;
  if (roots.empty())
    return success();

  SmallVector<Operation *> ops;
  SmallVector<BlockArgument> arguments, inputs;
  collectSlice(model, roots, ops, arguments);
  SmallVector<DictionaryAttr> argumentAttributes, resultAttributes;
  for (BlockArgument argument : arguments) {
    if (auto it = inputIndex.find(argument); it != inputIndex.end()) {
      argumentAttributes.push_back(slot(builder, SlotKind::Input, inputs.size()));
      summary.add_count_inputs(it->second);
      inputs.push_back(argument);
    } else if (!constantOf(graph, argument)) {
      return emitError(argument.getLoc()) << "a count depends on parameter '" << graph.nameOf(argument)
                                          << "': expected it to follow from inputs and constants alone";
    }
  }
  SmallVector<Value> read(inputs.begin(), inputs.end());
  for (Operation *op : ops) // numbers that follow from counts which the host knows before
    if (auto known = dyn_cast<KnownOp>(op)) {
      argumentAttributes.push_back(scalar(builder, ScalarField::Known, llvm::find(graph.known, known.getExpression()) - graph.known.begin()));
      read.push_back(known);
    }
  for (unsigned i = 0; i < roots.size(); ++i)
    resultAttributes.push_back(slot(builder, SlotKind::Loss, i));

  auto function =
      func::FuncOp::create(builder, model.getLoc(), "counts", builder.getFunctionType(TypeRange(ValueRange(read)), TypeRange(ValueRange(roots))));
  function.setAllArgAttrs(argumentAttributes);
  function.setAllResultAttrs(resultAttributes);
  OpBuilder::InsertionGuard guard(builder);
  Block *block = function.addEntryBlock();
  builder.setInsertionPointToEnd(block);
  IRMapping mapping;
  for (auto [from, to] : llvm::zip(read, block->getArguments()))
    mapping.map(from, to);
  for (BlockArgument argument : arguments)
    if (!inputIndex.contains(argument))
      mapping.map(argument, arith::ConstantOp::create(builder, argument.getLoc(), constantOf(graph, argument)));
  for (Operation *op : ops)
    if (!isa<KnownOp>(op))
      builder.clone(*op, mapping);
  SmallVector<Value> returned;
  for (Value root : roots)
    returned.push_back(mapping.lookup(root));
  func::ReturnOp::create(builder, model.getLoc(), returned);
  return success();
}

/// p - mean over rows of what was added up; moments, which every group has, stay what they are. No clipping and no learning rate: nothing is learned.
static void buildStatisticsUpdate(OpBuilder &builder, Location loc, RankedTensorType shard, int moments) {
  auto f64 = RankedTensorType::get({}, builder.getF64Type()), i64 = RankedTensorType::get({}, builder.getI64Type());
  SmallVector<Type> argumentTypes(2 + moments, shard), resultTypes(1 + moments, shard);
  SmallVector<DictionaryAttr> argumentAttributes, resultAttributes;
  for (int i = 0; i < 2 + moments; ++i) {
    argumentAttributes.push_back(slot(builder, SlotKind::State, i));
    if (i != 1)
      resultAttributes.push_back(slot(builder, SlotKind::State, i));
  }
  argumentTypes.append({f64, i64, f64});
  argumentAttributes.append({scalar(builder, ScalarField::PerRow), scalar(builder, ScalarField::Skip), slot(builder, SlotKind::OptimizerStep)});
  auto function = func::FuncOp::create(builder, loc, "update.statistics", builder.getFunctionType(argumentTypes, resultTypes));
  function.setAllArgAttrs(argumentAttributes);
  function.setAllResultAttrs(resultAttributes);

  OpBuilder::InsertionGuard guard(builder);
  Block *block = function.addEntryBlock();
  builder.setInsertionPointToEnd(block);
  auto constant = [&](RankedTensorType type, double value) -> Value {
    Attribute number = builder.getFloatAttr(type.getElementType(), value);
    return arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(RankedTensorType::get({}, type.getElementType()), number));
  };
  Value one = constant(f64, 1.0);
  OperationState update(loc, SgdUpdateOp::getOperationName());
  update.addOperands({block->getArgument(0), block->getArgument(1), block->getArgument(2 + moments), one, block->getArgument(3 + moments),
                      block->getArgument(4 + moments)});
  update.addAttribute("weight_decay", builder.getF64FloatAttr(0));
  update.addAttribute("momentum", builder.getF64FloatAttr(0));
  update.addAttribute("operandSegmentSizes", builder.getDenseI32ArrayAttr({1, 1, 1, 1, 1, 1, 0}));
  update.addTypes(shard);
  SmallVector<Value> results{builder.create(update)->getResult(0)};
  for (int m = 0; m < moments; ++m) {
    Value zero = BroadcastOp::create(builder, loc, shard, constant(shard, 0.0), ArrayRef<int64_t>{});
    results.push_back(arith::AddFOp::create(builder, loc, block->getArgument(2 + m), zero));
  }
  func::ReturnOp::create(builder, loc, results);
}

LogicalResult units::buildUpdates(OpBuilder &builder, Location loc, FloatType type, bundle::ModelSummary &summary) {
  const bundle::TrainingOptions &options = summary.training();
  bool sgd = options.optimizer() == bundle::TrainingOptions::SGD || options.optimizer() == bundle::TrainingOptions::OPTIMIZER_UNSPECIFIED;
  int moments = sgd ? (options.momentum() > 0.0 ? 1 : 0) : 2;
  summary.set_moments(moments);

  auto shard = RankedTensorType::get({ShapedType::kDynamic}, type);
  auto f64 = RankedTensorType::get({}, builder.getF64Type()), i64 = RankedTensorType::get({}, builder.getI64Type());
  if (llvm::any_of(summary.groups(), [](const bundle::GroupInfo &group) { return group.statistic(); }))
    buildStatisticsUpdate(builder, loc, shard, moments);
  for (bool decay : {true, false}) {
    SmallVector<Type> argumentTypes(2 + moments, shard), resultTypes(1 + moments, shard);
    SmallVector<DictionaryAttr> argumentAttributes, resultAttributes;
    for (int i = 0; i < 2 + moments; ++i) {
      argumentAttributes.push_back(slot(builder, SlotKind::State, i));
      if (i != 1)
        resultAttributes.push_back(slot(builder, SlotKind::State, i));
    }
    argumentTypes.append({f64, f64, i64, f64});
    argumentAttributes.append({scalar(builder, ScalarField::LearningRate), scalar(builder, ScalarField::ClipFactor),
                               scalar(builder, ScalarField::Skip), slot(builder, SlotKind::OptimizerStep)});
    auto function = func::FuncOp::create(builder, loc, decay ? "update.decay" : "update.plain", builder.getFunctionType(argumentTypes, resultTypes));
    function.setAllArgAttrs(argumentAttributes);
    function.setAllResultAttrs(resultAttributes);

    OpBuilder::InsertionGuard guard(builder);
    Block *block = function.addEntryBlock();
    builder.setInsertionPointToEnd(block);
    auto state = [&](int i) -> Value { return block->getArgument(i); };
    Value learningRate = block->getArgument(2 + moments), clip = block->getArgument(3 + moments), skip = block->getArgument(4 + moments),
          step = block->getArgument(5 + moments);
    auto real = [&](double value) { return builder.getF64FloatAttr(value); };
    double weightDecay = decay ? options.weight_decay() : 0.0;
    NamedAttrList attributes;
    attributes.set("weight_decay", real(weightDecay));
    OperationState update(loc, sgd ? SgdUpdateOp::getOperationName() : AdamUpdateOp::getOperationName());
    if (sgd) {
      update.addOperands({state(0), state(1), learningRate, clip, skip, step});
      if (moments)
        update.addOperands(state(2));
      attributes.set("momentum", real(options.momentum()));
      if (options.nesterov())
        attributes.set("nesterov", builder.getUnitAttr());
    } else {
      update.addOperands({state(0), state(1), state(2), state(3), learningRate, clip, skip, step});
      attributes.set("beta1", real(options.beta1()));
      attributes.set("beta2", real(options.beta2()));
      attributes.set("epsilon", real(options.epsilon()));
      if (options.optimizer() == bundle::TrainingOptions::ADAMW)
        attributes.set("decoupled", builder.getUnitAttr());
      if (options.plain_epsilon())
        attributes.set("plain_epsilon", builder.getUnitAttr());
    }
    if (sgd)
      attributes.set("operandSegmentSizes", builder.getDenseI32ArrayAttr({1, 1, 1, 1, 1, 1, moments}));
    update.addAttributes(attributes);
    update.addTypes(resultTypes);
    Operation *op = builder.create(update);
    func::ReturnOp::create(builder, loc, op->getResults());
  }
  return success();
}
