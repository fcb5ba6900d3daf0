// Ends an import: builds the function @model from the emitted operations.
#include "Emit.h"
#include "Initializers.h"
#include "Interpret.h"

#include "zorse/runtime/Expression.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/Sequence.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// The argument, among the first `inputs` ones, whose elements a value contains. -1: none, or
/// several. `shifted` is set if the value omits the first positions. `exact` is cleared if the
/// elements are changed on the way (padding excepted); bounds of the use are then not bounds of the
/// input.
static int sourceInput(Value value, unsigned inputs, bool &shifted, bool &exact) {
  for (int depth = 0; depth < 64; ++depth) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return argument.getArgNumber() < inputs ? static_cast<int>(argument.getArgNumber()) : -1;
    Operation *op = value.getDefiningOp();
    if (auto slice = dyn_cast<SliceOp>(op)) {
      for (int64_t offset : slice.getOffsets())
        shifted |= offset != 0;
      value = slice.getX();
    } else if (isa<ReshapeOp, TransposeOp, BroadcastOp, arith::ExtSIOp, arith::TruncIOp>(op)) {
      value = op->getOperand(0);
    } else if (auto concat = dyn_cast<ConcatOp>(op)) {
      Value next;
      for (Value operand : concat.getXs())
        if (zorse::carriesSamples(operand.getType()) && !splatValue(operand))
          next = operand;
      if (!next)
        return -1;
      value = next;
    } else if (isa<arith::MaxSIOp, arith::MinSIOp, arith::MulIOp, arith::AddIOp>(op)) {
      exact = false;
      value = splatValue(op->getOperand(0)) ? op->getOperand(1) : op->getOperand(0);
    } else if (isa<arith::SelectOp>(op)) {
      exact = false;
      value = splatValue(op->getOperand(1)) ? op->getOperand(2) : op->getOperand(1);
    } else {
      return -1;
    }
  }
  return -1;
}

/// Collects the operations that `results` depend on, depth first, and the arguments in the order of
/// their first use.
static void orderOperations(ArrayRef<Value> results, SmallVector<Operation *> &order,
                            std::vector<BlockArgument> &arguments) {
  llvm::DenseSet<Operation *> placed;
  llvm::DenseSet<Value> met;
  for (Value root : results) {
    SmallVector<std::pair<Value, unsigned>> stack{{root, 0}};
    while (!stack.empty()) {
      auto &[value, next] = stack.back();
      Operation *op = value.getDefiningOp();
      if (!op) {
        if (met.insert(value).second)
          arguments.push_back(cast<BlockArgument>(value));
        stack.pop_back();
        continue;
      }
      if (placed.contains(op)) {
        stack.pop_back();
        continue;
      }
      if (next < op->getNumOperands()) {
        Value operand = op->getOperand(next++);
        stack.push_back({operand, 0});
        continue;
      }
      placed.insert(op);
      order.push_back(op);
      stack.pop_back();
    }
  }
}

/// Derives the results of the function and their attributes from the loss.
static LogicalResult describeTerms(ImportState &state, const Loss &loss,
                                   SmallVectorImpl<Value> &results,
                                   SmallVectorImpl<DictionaryAttr> &resultAttributes) {
  int64_t term = 0;
  state.location = NameLoc::get(state.builder.getStringAttr("loss"));
  for (const LossSummand &summand : loss.summands) {
    if (!state.dependsOnParameter(summand.numerator)) {
      warn(state,
           "loss term " + std::to_string(term) + " depends on no trained parameter" +
               (zorse::carriesSamples(summand.numerator.getType()) && !splatValue(summand.numerator)
                    ? ""
                    : " and no input: it is a constant. If it is a penalty on weights, the "
                      "exporter has computed it from their "
                      "initial values; "
                      "export with torch.onnx.export(..., dynamo=True, optimize=False), or use "
                      "--weight-decay"));
    }
    if (summand.factor.isConstant())
      warn(state, "the loss is a sum over samples: its gradient grows with the batch");
    NamedAttrList attributes;
    attributes.set(attributes::kTerm, state.builder.getI64IntegerAttr(term));
    attributes.set(attributes::kRole, state.builder.getStringAttr("numerator"));
    attributes.set(attributes::kFactor, state.builder.getStringAttr(summand.factor.print()));
    results.push_back(summand.numerator);
    resultAttributes.push_back(attributes.getDictionary(&state.context));
    ++term;
  }
  if (loss.summands.empty())
    return error(state, "the loss has no terms");
  return checkPadding(state);
}

/// `text` with its counts renumbered by their positions in `order`.
static std::string renumbered(StringRef text, const std::vector<int64_t> &order) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const bool begins = text[i] == 'n' && (i == 0 || !llvm::isAlpha(text[i - 1])) &&
                        i + 1 < text.size() && llvm::isDigit(text[i + 1]);
    out += text[i++];
    int64_t number = 0;
    if (!begins || text.drop_front(i).consumeInteger(10, number))
      continue;
    out += std::to_string(llvm::find(order, number) - order.begin());
    while (i < text.size() && llvm::isDigit(text[i]))
      ++i;
  }
  return out;
}

static std::vector<int64_t> countsIn(StringRef text) {
  std::vector<int64_t> found;
  if (auto expression = Expression::parse(text.str()); !expression.failed())
    for (int64_t count : expression->counts())
      found.push_back(count);
  return found;
}

/// The counts that texts and operations read, directly or through other counts. A count follows all
/// counts that its summand reads, so a step can compute them in this order.
static std::vector<int64_t> countsRead(std::vector<int64_t> used,
                                       const std::vector<Count> &counts) {
  std::vector<std::vector<int64_t>> reads(counts.size());
  for (size_t i = 0; i < used.size(); ++i) { // grows during the loop
    SmallVector<Operation *> operations;
    std::vector<BlockArgument> arguments;
    orderOperations({counts[used[i]].numerator}, operations, arguments);
    for (Operation *op : operations)
      if (auto known = dyn_cast<KnownOp>(op))
        llvm::append_range(reads[used[i]], countsIn(known.getExpression()));
    for (int64_t count : reads[used[i]])
      if (!llvm::is_contained(used, count))
        used.push_back(count);
  }
  // A count is created after those that it reads, so one pass in order of creation finds all
  // levels.
  std::vector<int64_t> level(counts.size(), 0);
  for (size_t i = 0; i < counts.size(); ++i)
    for (int64_t count : reads[i])
      level[i] = std::max(level[i], level[count] + 1);
  llvm::stable_sort(used, [&](int64_t a, int64_t b) { return level[a] < level[b]; });
  return used;
}

/// Adds the counts that a factor, a value or another count reads as results after the terms,
/// numbered without gaps.
static void describeCounts(ImportState &state, ArrayRef<Operation *> order,
                           SmallVectorImpl<Value> &results,
                           SmallVectorImpl<DictionaryAttr> &resultAttributes) {
  std::vector<int64_t> used;
  const auto use = [&](StringRef text) {
    for (int64_t count : countsIn(text))
      if (!llvm::is_contained(used, count))
        used.push_back(count);
  };
  for (DictionaryAttr attributes : resultAttributes)
    use(attributes.getAs<StringAttr>(attributes::kFactor).getValue());
  for (Operation *op : order)
    if (auto known = dyn_cast<KnownOp>(op))
      use(known.getExpression());
  used = countsRead(std::move(used), state.counts);
  for (DictionaryAttr &attributes : resultAttributes) {
    NamedAttrList list(attributes);
    list.set(attributes::kFactor,
             state.builder.getStringAttr(
                 renumbered(attributes.getAs<StringAttr>(attributes::kFactor).getValue(), used)));
    attributes = list.getDictionary(&state.context);
  }
  SmallVector<Value> roots(results.begin(), results.end());
  for (int64_t count : used)
    roots.push_back(state.counts[count].numerator);
  SmallVector<Operation *> all;
  std::vector<BlockArgument> arguments;
  orderOperations(roots, all, arguments);
  for (Operation *op : all)
    if (auto known = dyn_cast<KnownOp>(op))
      known.setExpression(renumbered(known.getExpression(), used));
  for (auto [number, count] : llvm::enumerate(used)) {
    NamedAttrList attributes;
    attributes.set(attributes::kRole, state.builder.getStringAttr("count"));
    attributes.set(attributes::kCount,
                   state.builder.getI64IntegerAttr(static_cast<int64_t>(number)));
    const ReduceKind reduce = state.counts[count].reduce;
    attributes.set(attributes::kReduce,
                   state.builder.getStringAttr(reduce == ReduceKind::Sum   ? "sum"
                                               : reduce == ReduceKind::Max ? "max"
                                                                           : "min"));
    results.push_back(state.counts[count].numerator);
    resultAttributes.push_back(attributes.getDictionary(&state.context));
  }
}

/// Names, shifts and bounds of the inputs, by argument.
static std::vector<NamedAttrList> describeInputs(ImportState &state, ArrayRef<Operation *> order) {
  unsigned inputCount = static_cast<unsigned>(state.inputNames.size());
  std::vector<NamedAttrList> inputAttributes(inputCount);
  for (unsigned i = 0; i < inputCount; ++i)
    inputAttributes[i].set(attributes::kInput, state.builder.getStringAttr(state.inputNames[i]));
  for (Operation *op : order)
    if (auto gather = dyn_cast<GatherOp>(op)) {
      bool shifted = false, exact = true;
      int input = sourceInput(gather.getIndices(), inputCount, shifted, exact);
      if (input < 0 || !exact)
        continue;
      int64_t bound = cast<RankedTensorType>(gather.getTable().getType()).getDimSize(0);
      auto old = dyn_cast_or_null<IntegerAttr>(inputAttributes[input].get("zorse.upper_bound"));
      inputAttributes[input].set(
          "zorse.upper_bound",
          state.builder.getI64IntegerAttr(old ? std::min(old.getInt(), bound) : bound));
      inputAttributes[input].set(attributes::kRole, state.builder.getStringAttr("ids"));
    }
  for (const LossInfo &info : state.losses) {
    bool shifted = false, exact = true;
    int input = sourceInput(info.labels, inputCount, shifted, exact);
    if (input < 0)
      continue;
    if (state.options.shiftedInGraph)
      shifted = *state.options.shiftedInGraph;
    // An input that is both looked up in a table and compared with the logits contains labels if
    // another input has ids. If it is the only such input, the model is an autoencoder.
    const bool isOnlyInput = llvm::none_of(llvm::seq<unsigned>(inputCount), [&](unsigned other) {
      return other != static_cast<unsigned>(input) &&
             inputAttributes[other].get(attributes::kRole) == state.builder.getStringAttr("ids");
    });
    if (!inputAttributes[input].get(attributes::kRole) || (!shifted && !isOnlyInput)) {
      inputAttributes[input].set(attributes::kRole, state.builder.getStringAttr("labels"));
      inputAttributes[input].set("zorse.shifted_in_graph", state.builder.getBoolAttr(shifted));
      if (exact)
        inputAttributes[input].set("zorse.upper_bound",
                                   state.builder.getI64IntegerAttr(info.classes));
      if (info.ignore)
        inputAttributes[input].set("zorse.ignore_index",
                                   state.builder.getI64IntegerAttr(*info.ignore));
    }
    state.notes.push_back("labels are '" + state.inputNames[input] + "': " +
                          (shifted ? "the graph shifts them itself, so they are the ids. zorse-run "
                                     "--data FILE does that; a separate file (--data " +
                                         state.inputNames[input] + "=FILE.npy) holds the ids"
                                   : "the graph compares position i with label i. zorse-run --data "
                                     "FILE takes the next token for every label; a "
                                     "separate file (--data " +
                                         state.inputNames[input] +
                                         "=FILE.npy) must hold labels that are shifted already"));
  }
  return inputAttributes;
}

// Builds the function. Operations are in depth-first order from the results and arguments in the
// order of their first use, so the result does not depend on the order in which the exporter wrote
// the nodes.
LogicalResult zorse::onnx_import::finish(ImportState &state, const Loss &loss,
                                         ImportedModel &result) {
  std::unique_ptr<Block> scratch(state.block);
  SmallVector<Value> results;
  SmallVector<DictionaryAttr> resultAttributes;
  if (failed(describeTerms(state, loss, results, resultAttributes)))
    return failure();
  SmallVector<Operation *> order;
  std::vector<BlockArgument> arguments;
  orderOperations(results, order, arguments);
  if (const size_t terms = results.size();
      describeCounts(state, order, results, resultAttributes), results.size() > terms) {
    order.clear();
    arguments.clear();
    orderOperations(results, order, arguments);
  }

  // Inputs in the order of the file, used or not. Parameters follow in the order of their first
  // use.
  unsigned inputCount = static_cast<unsigned>(state.inputNames.size());
  SmallVector<BlockArgument> sorted;
  for (unsigned i = 0; i < inputCount; ++i)
    sorted.push_back(state.block->getArgument(i));
  for (BlockArgument argument : arguments)
    if (argument.getArgNumber() >= inputCount)
      sorted.push_back(argument);

  SmallVector<Type> argumentTypes, resultTypes;
  for (BlockArgument argument : sorted)
    argumentTypes.push_back(argument.getType());
  for (Value value : results)
    resultTypes.push_back(value.getType());
  OpBuilder moduleBuilder = OpBuilder::atBlockEnd(state.module->getBody());
  auto function = func::FuncOp::create(
      moduleBuilder, NameLoc::get(state.builder.getStringAttr(state.model.model().graph().name())),
      "model", FunctionType::get(&state.context, argumentTypes, resultTypes));
  Block *body = function.addEntryBlock();
  for (auto [index, argument] : llvm::enumerate(sorted)) {
    body->getArgument(index).setLoc(argument.getLoc());
  }

  std::vector<NamedAttrList> inputAttributes = describeInputs(state, order);
  std::vector<WeightSource> ordered;
  for (unsigned i = 0; i < sorted.size(); ++i) {
    if (i < inputCount) {
      function.setArgAttrs(i, inputAttributes[i].getDictionary(&state.context));
      continue;
    }
    unsigned number = sorted[i].getArgNumber();
    function.setArgAttrs(i, state.argumentAttributes[number - inputCount]);
    ordered.push_back(state.weights[state.weightOfArgument.at(number)]);
  }
  for (unsigned i = 0; i < resultTypes.size(); ++i)
    function.setResultAttrs(i, resultAttributes[i]);

  for (Operation *op : order) {
    op->remove();
    body->push_back(op);
  }
  OpBuilder end = OpBuilder::atBlockEnd(body);
  func::ReturnOp::create(end, function.getLoc(), results);
  for (auto [index, argument] : llvm::enumerate(sorted))
    argument.replaceAllUsesWith(body->getArgument(index));
  if (failed(verify(*state.module)))
    return failure();
  result.weights = std::move(ordered);
  if (failed(checkAgainstFile(state, function, sorted, result.weights)))
    return failure();
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*scratch)))
    op.erase();

  result.hub = state.metadata.hubModel;
  reportParameters(state);
  result.warnings = state.warnings;
  result.combinesSamples = state.combinesSamples;
  result.freezesTraining = state.normsTrain && state.options.groupRows == 0;
  result.notes = state.notes;
  result.module = std::move(state.module);
  return success();
}
