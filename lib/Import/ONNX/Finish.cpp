// The end of an import: what was emitted becomes the function @model.
#include "Importer.h"

#include "zorse/runtime/Expression.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// The input that a value shows, among the first `inputs` arguments; -1: none, or several. `shifted`: it leaves the first positions out. `exact`: the
/// values reach the use as they are (and padding), so bounds of the use are bounds of the input.
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

/// Operations that `results` depend on, depth first, and arguments in the order of their first use.
static void orderOperations(ArrayRef<Value> results, SmallVector<Operation *> &order, std::vector<BlockArgument> &arguments) {
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

/// c / (elements * B), c / n_j or c.
static std::string factorOf(const LossSummand &summand, int64_t samplesPerRow, uint32_t count) {
  using Op = Expression::Op;
  Expression coefficient = Expression::number(summand.coefficient);
  if (summand.denominator)
    return Expression::apply(Op::Divide, {coefficient, Expression::count(count)}).print();
  if (summand.denominatorPerRow == 0)
    return coefficient.print();
  double perSample = summand.denominatorPerRow / static_cast<double>(samplesPerRow);
  Expression samples = Expression::samples();
  if (perSample != 1)
    samples = Expression::apply(Op::Multiply, {Expression::number(perSample), samples});
  return Expression::apply(Op::Divide, {coefficient, samples}).print();
}

LogicalResult Importer::describeTerms(const Val &loss, SmallVectorImpl<Value> &results, SmallVectorImpl<DictionaryAttr> &resultAttributes) {
  int64_t term = 0;
  SmallVector<Value> counts;
  location = NameLoc::get(builder.getStringAttr("loss"));
  for (const LossSummand &summand : loss.summands) {
    if (!dependsOnParameter(summand.numerator)) {
      warn(
          "loss term " + std::to_string(term) + " depends on no trained parameter" +
          (zorse::carriesSamples(summand.numerator.getType()) && !splatValue(summand.numerator)
               ? ""
               : " and no input: it is a constant. Where it stands for a penalty on weights, the exporter has computed it from their initial values; "
                 "export with torch.onnx.export(..., dynamo=True, optimize=False), or use --weight-decay"));
    }
    NamedAttrList attributes;
    attributes.set(attributes::kTerm, builder.getI64IntegerAttr(term));
    attributes.set(attributes::kRole, builder.getStringAttr("numerator"));
    if (!summand.denominator && summand.denominatorPerRow == 0)
      warn("the loss is a sum over samples: its gradient grows with the batch");
    if (summand.denominator && !llvm::is_contained(counts, summand.denominator))
      counts.push_back(summand.denominator);
    auto count = static_cast<uint32_t>(llvm::find(counts, summand.denominator) - counts.begin());
    attributes.set(attributes::kFactor, builder.getStringAttr(factorOf(summand, std::max<int64_t>(options.batchNormRows, 1), count)));
    results.push_back(summand.numerator);
    resultAttributes.push_back(attributes.getDictionary(&context));
    ++term;
  }
  for (auto [number, value] : llvm::enumerate(counts)) {
    NamedAttrList count;
    count.set(attributes::kRole, builder.getStringAttr("count"));
    count.set(attributes::kCount, builder.getI64IntegerAttr(static_cast<int64_t>(number)));
    count.set(attributes::kReduce, builder.getStringAttr("sum"));
    results.push_back(value);
    resultAttributes.push_back(count.getDictionary(&context));
  }
  if (loss.summands.empty())
    return error("the loss has no terms");
  return checkPadding();
}

std::vector<NamedAttrList> Importer::describeInputs(ArrayRef<Operation *> order) {
  unsigned inputCount = static_cast<unsigned>(inputNames.size());
  std::vector<NamedAttrList> inputAttributes(inputCount);
  for (unsigned i = 0; i < inputCount; ++i)
    inputAttributes[i].set(attributes::kInput, builder.getStringAttr(inputNames[i]));
  for (Operation *op : order)
    if (auto gather = dyn_cast<GatherOp>(op)) {
      bool shifted = false, exact = true;
      int input = sourceInput(gather.getIds(), inputCount, shifted, exact);
      if (input < 0 || !exact)
        continue;
      int64_t bound = cast<RankedTensorType>(gather.getTable().getType()).getDimSize(0);
      auto old = dyn_cast_or_null<IntegerAttr>(inputAttributes[input].get("zorse.upper_bound"));
      inputAttributes[input].set("zorse.upper_bound", builder.getI64IntegerAttr(old ? std::min(old.getInt(), bound) : bound));
      inputAttributes[input].set(attributes::kRole, builder.getStringAttr("ids"));
    }
  for (const LossInfo &info : losses) {
    bool shifted = false, exact = true;
    int input = sourceInput(info.labels, inputCount, shifted, exact);
    if (input < 0)
      continue;
    if (options.shiftedInGraph)
      shifted = *options.shiftedInGraph;
    if (!inputAttributes[input].get(attributes::kRole)) {
      inputAttributes[input].set(attributes::kRole, builder.getStringAttr("labels"));
      inputAttributes[input].set("zorse.shifted_in_graph", builder.getBoolAttr(shifted));
      if (exact)
        inputAttributes[input].set("zorse.upper_bound", builder.getI64IntegerAttr(info.classes));
      if (info.ignore)
        inputAttributes[input].set("zorse.ignore_index", builder.getI64IntegerAttr(*info.ignore));
    }
    notes.push_back("labels are '" + inputNames[input] + "': " +
                    (shifted ? "the graph shifts them itself, so they are the ids. zorse-run --data FILE does that; a file of their own (--data " +
                                   inputNames[input] + "=FILE.npy) holds the ids"
                             : "the graph compares position i with label i. zorse-run --data FILE takes the next token for every label by itself; a "
                               "file of their own (--data " +
                                   inputNames[input] + "=FILE.npy) must hold labels that are shifted already"));
  }
  return inputAttributes;
}

// Builds the function: operations in depth-first order from the results, arguments in the order of their first use, so that the order in which an
// exporter wrote its nodes leaves no trace.
LogicalResult Importer::finish(const Val &loss, ImportedModel &result) {
  std::unique_ptr<Block> scratch(block);
  SmallVector<Value> results;
  SmallVector<DictionaryAttr> resultAttributes;
  if (failed(describeTerms(loss, results, resultAttributes)))
    return failure();
  SmallVector<Operation *> order;
  std::vector<BlockArgument> arguments;
  orderOperations(results, order, arguments);

  // Inputs in the file's order, used or not; then parameters in the order of their first use.
  unsigned inputCount = static_cast<unsigned>(inputNames.size());
  SmallVector<BlockArgument> sorted;
  for (unsigned i = 0; i < inputCount; ++i)
    sorted.push_back(block->getArgument(i));
  for (BlockArgument argument : arguments)
    if (argument.getArgNumber() >= inputCount)
      sorted.push_back(argument);

  SmallVector<Type> argumentTypes, resultTypes;
  for (BlockArgument argument : sorted)
    argumentTypes.push_back(argument.getType());
  for (Value value : results)
    resultTypes.push_back(value.getType());
  OpBuilder moduleBuilder = OpBuilder::atBlockEnd(module->getBody());
  auto function = func::FuncOp::create(moduleBuilder, NameLoc::get(builder.getStringAttr(model.model().graph().name())), "model",
                                       FunctionType::get(&context, argumentTypes, resultTypes));
  Block *body = function.addEntryBlock();
  for (auto [index, argument] : llvm::enumerate(sorted)) {
    body->getArgument(index).setLoc(argument.getLoc());
  }

  std::vector<NamedAttrList> inputAttributes = describeInputs(order);
  std::vector<WeightSource> ordered;
  for (unsigned i = 0; i < sorted.size(); ++i) {
    if (i < inputCount) {
      function.setArgAttrs(i, inputAttributes[i].getDictionary(&context));
      continue;
    }
    unsigned number = sorted[i].getArgNumber();
    function.setArgAttrs(i, argumentAttributes[number - inputCount]);
    ordered.push_back(weights[weightOfArgument.at(number)]);
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
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*scratch)))
    op.erase();

  if (failed(verify(*module)))
    return failure();
  result.weights = std::move(ordered);
  result.hub = facts.hubModel;
  reportParameters(result);
  result.warnings = warnings;
  result.notes = notes;
  result.module = std::move(module);
  return success();
}
