#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Transforms/Passes.h"
#include "zorse/runtime/Expression.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringSet.h"

namespace zorse {
#define GEN_PASS_DEF_VERIFYMODEL
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

/// (M2)
static LogicalResult verifyArguments(func::FuncOp model) {
  llvm::StringSet<> names;
  for (unsigned i = 0; i < model.getNumArguments(); ++i) {
    BlockArgument argument = model.getArgument(i);
    auto input = model.getArgAttrOfType<StringAttr>(i, attributes::kInput),
         parameter = model.getArgAttrOfType<StringAttr>(i, attributes::kParameter);
    if (!input == !parameter)
      return emitError(argument.getLoc(), "(M2) expects argument ")
             << i << " of @model to be a zorse.input or a zorse.parameter, got "
             << (input ? "both" : "neither");
    StringRef name = input ? input.getValue() : parameter.getValue();
    if (name.empty() || !names.insert(name).second)
      return emitError(argument.getLoc(), "(M2) expects argument ")
             << i << " of @model to have a unique, non-empty name, got '" << name << "'";
    if (input && !carriesSamples(argument.getType()))
      return emitError(argument.getLoc(), "(M2) expects input '")
             << name << "' to carry samples (dimension 0 is ?), got " << argument.getType();
    if (parameter && carriesSamples(argument.getType()))
      return emitError(argument.getLoc(), "(M2) expects parameter '")
             << name << "' not to carry samples, got " << argument.getType();
    if (parameter && !model.getArgAttrOfType<BoolAttr>(i, attributes::kTrainable))
      return emitError(argument.getLoc(), "(M2) expects parameter '")
             << name << "' to say whether it is zorse.trainable (true or false)";
  }
  return success();
}

/// (M3): returns the number of result i among the terms or the counts.
static FailureOr<int64_t> verifyResult(func::FuncOp model, unsigned i) {
  auto type = dyn_cast<RankedTensorType>(model.getResultTypes()[i]);
  auto role = model.getResultAttrOfType<StringAttr>(i, attributes::kRole);
  const bool count = role && role.getValue() == "count";
  auto number =
      model.getResultAttrOfType<IntegerAttr>(i, count ? attributes::kCount : attributes::kTerm);
  bool typed = type && type.getRank() == 1 && carriesSamples(type) &&
               (type.getElementType().isF32() || type.getElementType().isF64());
  if (!typed || !number || (!count && (!role || role.getValue() != "numerator")))
    return model.emitError("(M3) expects result ")
           << i
           << " to be tensor<?xf32> or tensor<?xf64>, a numerator (zorse.role) with a zorse.term "
              "or a count with a zorse.count, got "
           << model.getResultTypes()[i];
  if (!count && !model.getResultAttrOfType<StringAttr>(i, attributes::kFactor))
    return model.emitError("(M3) expects numerator ") << i << " to have a zorse.factor";
  auto reduce = model.getResultAttrOfType<StringAttr>(i, attributes::kReduce);
  if (count && !(reduce && (reduce.getValue() == "sum" || reduce.getValue() == "max" ||
                            reduce.getValue() == "min")))
    return model.emitError("(M3) expects count ")
           << i << " to have a zorse.reduce of sum, max or min";
  return number.getInt();
}

/// (M4): `text` reads only existing counts.
static LogicalResult verifyExpression(StringRef text, int64_t counts,
                                      function_ref<InFlightDiagnostic(const Twine &)> emit) {
  auto expression = Expression::parse(text);
  if (expression.failed())
    return emit("(M4) expects an expression of B and counts, got \"" + text +
                "\": " + expression.message());
  for (int64_t count : expression->counts())
    if (count >= counts)
      return emit("(M4) expects count n" + Twine(count) + " of \"" + text +
                  "\" to be among the results, got " + Twine(counts) + " counts");
  return success();
}

/// (M3) and (M4)
static LogicalResult verifyTerms(func::FuncOp model) {
  int64_t terms = 0, counts = 0;
  for (unsigned i = 0; i < model.getNumResults(); ++i) {
    FailureOr<int64_t> number = verifyResult(model, i);
    if (failed(number))
      return failure();
    const bool count = model.getResultAttrOfType<StringAttr>(i, attributes::kRole).getValue() ==
                       "count";
    int64_t &next = count ? counts : terms;
    if (*number != next++)
      return model.emitError("(M4) expects ")
             << (count ? "counts" : "terms") << " numbered from 0 in the order of the results, got "
             << *number << " where " << next - 1 << " is due";
  }
  if (terms == 0)
    return model.emitError("(M4) expects at least one loss term");
  if (counts > static_cast<int64_t>(Expression::kMaxCounts))
    return model.emitError("(M4) expects at most ")
           << Expression::kMaxCounts << " counts, got " << counts;
  auto atModel = [&](const Twine &message) { return model.emitError(message); };
  for (unsigned i = 0; i < model.getNumResults(); ++i)
    if (auto factor = model.getResultAttrOfType<StringAttr>(i, attributes::kFactor); factor)
      if (failed(verifyExpression(factor.getValue(), counts, atModel)))
        return failure();
  for (auto known : model.front().getOps<KnownOp>())
    if (failed(verifyExpression(known.getExpression(), counts,
                                [&](const Twine &message) { return known.emitError(message); })))
      return failure();
  return success();
}

/// (M5): count `number` may read only counts of lower numbers, so that a step can compute them in
/// order.
static LogicalResult verifyReadCounts(KnownOp known, int64_t number) {
  auto expression = Expression::parse(known.getExpression());
  if (expression.failed()) // (M4) reports it
    return success();
  for (int64_t count : expression->counts())
    if (count >= number)
      return known.emitError("(M5) expects count n")
             << number
             << " to read counts of lower numbers alone, but it depends on this number, which "
                "reads n"
             << count << (count == number ? ", itself" : "");
  return success();
}

/// (M5)
static LogicalResult verifyCounts(func::FuncOp model) {
  Operation *terminator = model.front().getTerminator();
  for (unsigned i = 0; i < model.getNumResults(); ++i) {
    if (model.getResultAttrOfType<StringAttr>(i, attributes::kRole).getValue() != "count")
      continue;
    const int64_t number = model.getResultAttrOfType<IntegerAttr>(i, attributes::kCount).getInt();
    SmallVector<Value> open{terminator->getOperand(i)};
    llvm::DenseSet<Value> seen;
    while (!open.empty()) {
      Value value = open.pop_back_val();
      if (!seen.insert(value).second)
        continue;
      if (auto argument = dyn_cast<BlockArgument>(value)) {
        auto trainable =
            model.getArgAttrOfType<BoolAttr>(argument.getArgNumber(), attributes::kTrainable);
        if (trainable && trainable.getValue())
          return model.emitError("(M5) expects count ")
                 << i << " to depend on inputs alone, but it depends on parameter "
                 << model.getArgAttr(argument.getArgNumber(), attributes::kParameter);
        continue;
      }
      if (auto known = dyn_cast<KnownOp>(value.getDefiningOp());
          known && failed(verifyReadCounts(known, number)))
        return failure();
      llvm::append_range(open, value.getDefiningOp()->getOperands());
    }
  }
  return success();
}

/// (M6) and (M7)
static LogicalResult verifyOps(func::FuncOp model) {
  for (Operation &op : model.front().without_terminator()) {
    Dialect *dialect = op.getDialect();
    bool known = dialect && (dialect->getNamespace() == ZorseDialect::getDialectNamespace() ||
                             isa<arith::ArithDialect, math::MathDialect>(dialect));
    if (!known || op.getNumRegions() != 0)
      return op.emitOpError("(M7) expects only ops of zorse, arith and math in a model");
    for (Type type : op.getResultTypes())
      if (!isGraphTensor(type))
        return op.emitOpError(
                   "(M7) expects ranked tensors with no dynamic dimension but dimension 0, got ")
               << type;
    bool sampled = llvm::any_of(op.getOperandTypes(), carriesSamples);
    for (Type type : op.getResultTypes())
      if (sampled && !carriesSamples(type))
        return op.emitOpError("(M6) mixes samples: it computes ")
               << type
               << " from values that carry samples, so a step could not be split over devices; "
                  "compute it per sample, or outside the model";
  }
  return success();
}

namespace {
struct VerifyModel : zorse::impl::VerifyModelBase<VerifyModel> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    auto classes = getOperation().getOps<ClassOp>();
    if (!model || model.isExternal() || !llvm::hasSingleElement(model.getBody()) ||
        !classes.empty()) {
      InFlightDiagnostic error =
          getOperation().emitError("(M1) expects a function @model of one block");
      if (!classes.empty())
        error << "; found class '@" << (*classes.begin()).getSymName()
              << "': passes over a model come before --zorse-find-units";
      return signalPassFailure();
    }
    if (failed(verifyArguments(model)) || failed(verifyTerms(model)) ||
        failed(verifyCounts(model)) || failed(verifyOps(model)))
      signalPassFailure();
  }
};
} // namespace
