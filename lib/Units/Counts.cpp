// Builds `@counts`, and checks the values that are known before a step: counts, factors of loss
// terms, numbers that units read.
#include "Counts.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Summary/Summary.h"
#include "zorse/Transforms/Passes.h"
#include "zorse/runtime/Expression.h"
#include "zorse/runtime/abi/StepScalars.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"

#include <set>

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

DictionaryAttr slot(OpBuilder &b, ArgumentKind kind, size_t index,
                    ScalarField field = ScalarField::LossSeed) {
  return b.getDictionaryAttr(b.getNamedAttr(
      attributes::kArgument, ArgumentAttr::get(b.getContext(), kind, uint32_t(index), field)));
}

/// Returns the value of a lifted constant (zorse-lift-constants stores it on the module); null for
/// other parameters.
TypedAttr constantOf(const ModelGraph &graph, BlockArgument argument) {
  auto values = func::FuncOp(graph.model)
                    ->getParentOfType<ModuleOp>()
                    ->getAttrOfType<DictionaryAttr>(kConstantValueAttr);
  return values ? dyn_cast_if_present<TypedAttr>(values.get(graph.nameOf(argument))) : TypedAttr();
}

/// Collects the operations that `roots` depend on, in the order of the model, and the arguments
/// among them.
void collectSlice(func::FuncOp model, ArrayRef<Value> roots, SmallVectorImpl<Operation *> &ops,
                  SmallVectorImpl<BlockArgument> &arguments) {
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

/// Checks the terms of the loss and the numbers that functions of units read, and sets the meaning
/// of the model's counts.
class LossChecker {
public:
  explicit LossChecker(const ModelGraph &graph) : graph(graph) {}

  LogicalResult run() {
    if (failed(readCounts()))
      return failure();
    for (const Numerator &numerator : graph.numerators)
      if (failed(checkTerm(numerator)))
        return failure();
    if (graph.known.size() > size_t(abi::kMaxKnown))
      return func::FuncOp(graph.model).emitError("the model reads ")
             << graph.known.size()
             << " numbers that follow from the samples of a step and its counts, at most "
             << abi::kMaxKnown << " are supported: compute fewer, or per sample";
    for (const std::string &text : graph.known)
      if (failed(check(text, func::FuncOp(graph.model).getLoc(), "zorse.known")))
        return failure();
    return success();
  }

  /// Values of the counts and index of the model's result, by count number.
  SmallVector<Value> counts;
  SmallVector<unsigned> results;

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
      if (!number || number.getInt() != int64_t(counts.size()) || !reduce ||
          !parseReduce(reduce.getValue().str()) || counts.size() == Expression::kMaxCounts)
        return model.emitError("expected counts to be numbered from 0 to at most ")
               << Expression::kMaxCounts - 1
               << " in the order of the results, each with a zorse.reduce of sum, max or min; "
                  "found result "
               << i << " otherwise";
      counts.push_back(terminator->getOperand(i));
      results.push_back(i);
      model.setResultAttr(i, attributes::kMeaning,
                          StringAttr::get(model.getContext(), meaningOf(counts.back())));
    }
    return success();
  }

  LogicalResult checkTerm(const Numerator &numerator) {
    func::FuncOp model = graph.model;
    auto factor = model.getResultAttrOfType<StringAttr>(numerator.result, attributes::kFactor);
    if (!factor)
      return emitError(numerator.value.getLoc())
             << "loss term " << numerator.term << " has no factor: expected zorse.factor";
    return check(factor.getValue(), numerator.value.getLoc(), "the factor of a loss term");
  }

  LogicalResult check(StringRef text, Location loc, StringRef what) {
    auto expression = Expression::parse(text);
    if (expression.failed())
      return emitError(loc) << what << " is \"" << text << "\": " << expression.message();
    for (uint32_t count : expression->counts())
      if (count >= counts.size())
        return emitError(loc) << what << " is \"" << text << "\" and reads count n" << count
                              << ", but the model returns " << counts.size() << " counts";
    return success();
  }

  /// Describes a count: "labels of 'y' other than -100", or the inputs that it depends on.
  std::string meaningOf(Value count) const {
    SmallVector<Operation *> ops;
    SmallVector<BlockArgument> arguments;
    collectSlice(graph.model, count, ops, arguments);
    SmallVector<BlockArgument> inputs;
    for (BlockArgument argument : arguments)
      if (!graph.isParameter(argument))
        inputs.push_back(argument);
    if (std::optional<int64_t> ignored = onlyComparison(ops);
        ignored && inputs.size() == 1 && inputs.size() == arguments.size())
      return "labels of '" + graph.nameOf(inputs[0]).str() + "' other than " +
             std::to_string(*ignored);
    std::string text;
    for (BlockArgument input : inputs)
      text += (text.empty() ? "" : ", ") + ("'" + graph.nameOf(input).str() + "'");
    for (uint32_t other : countsIn(ops))
      text += (text.empty() ? "n" : ", n") + std::to_string(other);
    StringRef name = nameOf(count.getLoc());
    return (name.empty() ? "a number of each sample" : "'" + name.str() + "'") +
           (text.empty() ? "" : ", from " + text);
  }

  /// Returns the counts that operations read.
  static std::set<uint32_t> countsIn(ArrayRef<Operation *> ops) {
    std::set<uint32_t> found;
    for (Operation *op : ops)
      if (auto known = dyn_cast<KnownOp>(op))
        if (auto expression = Expression::parse(known.getExpression()); !expression.failed())
          for (uint32_t count : expression->counts())
            found.insert(count);
    return found;
  }

  /// Returns the integer c if a count only counts elements that differ from c.
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
      if (reduce ? reduce.getKind() != ReduceKind::Sum
                 : !isa<arith::ConstantOp, arith::UIToFPOp, BroadcastOp, ReshapeOp, SliceOp>(op))
        return std::nullopt;
    }
    return ignored;
  }

  const ModelGraph &graph;
};

/// Builds `@counts`, which reads `inputs` and the known numbers in `read`.
void buildFunction(OpBuilder &builder, const ModelGraph &graph, ArrayRef<Operation *> ops,
                   ArrayRef<Value> read, ArrayRef<DictionaryAttr> arguments,
                   ArrayRef<BlockArgument> constants, ArrayRef<Value> roots) {
  func::FuncOp model = graph.model;
  auto function = func::FuncOp::create(
      builder, model.getLoc(), kCounts,
      builder.getFunctionType(TypeRange(ValueRange(read)), TypeRange(ValueRange(roots))));
  function.setAllArgAttrs(arguments);
  for (unsigned i = 0; i < roots.size(); ++i)
    function.setResultAttrs(i, slot(builder, ArgumentKind::Loss, i));
  OpBuilder::InsertionGuard guard(builder);
  Block *block = function.addEntryBlock();
  builder.setInsertionPointToEnd(block);
  IRMapping mapping;
  for (auto [from, to] : llvm::zip(read, block->getArguments()))
    mapping.map(from, to);
  for (BlockArgument argument : constants)
    mapping.map(argument,
                arith::ConstantOp::create(builder, argument.getLoc(), constantOf(graph, argument)));
  for (Operation *op : ops)
    if (!isa<KnownOp>(op))
      builder.clone(*op, mapping);
  SmallVector<Value> returned;
  for (Value root : roots)
    returned.push_back(mapping.lookup(root));
  func::ReturnOp::create(builder, model.getLoc(), returned);
}

} // namespace

FailureOr<Counts> units::buildCounts(OpBuilder &builder, const ModelGraph &graph) {
  LossChecker loss(graph);
  if (failed(loss.run()))
    return failure();
  Counts counts;
  counts.results = loss.results;
  if (loss.counts.empty())
    return counts;

  SmallVector<Operation *> ops;
  SmallVector<BlockArgument> arguments, constants;
  collectSlice(graph.model, loss.counts, ops, arguments);
  SmallVector<DictionaryAttr> slots;
  for (BlockArgument argument : arguments) {
    if (!graph.isParameter(argument)) {
      slots.push_back(slot(builder, ArgumentKind::Input, counts.operands.size()));
      counts.operands.push_back(argument);
    } else if (constantOf(graph, argument)) {
      constants.push_back(argument);
    } else {
      return emitError(argument.getLoc())
             << "a count depends on parameter '" << graph.nameOf(argument)
             << "': expected it to follow from inputs and constants alone";
    }
  }
  for (Operation *op : ops) // numbers that depend on counts which the host knows before the step
    if (auto known = dyn_cast<KnownOp>(op)) {
      slots.push_back(slot(builder, ArgumentKind::Scalars,
                           llvm::find(graph.known, known.getExpression()) - graph.known.begin(),
                           ScalarField::Known));
      counts.operands.push_back(known);
    }
  buildFunction(builder, graph, ops, counts.operands, slots, constants, loss.counts);
  return counts;
}
