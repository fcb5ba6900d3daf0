#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringSet.h"

#include <map>

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
    auto input = model.getArgAttrOfType<StringAttr>(i, attributes::kInput), parameter = model.getArgAttrOfType<StringAttr>(i, attributes::kParameter);
    if (!input == !parameter)
      return emitError(argument.getLoc(), "(M2) expects argument ")
             << i << " of @model to be a zorse.input or a zorse.parameter, got " << (input ? "both" : "neither");
    StringRef name = input ? input.getValue() : parameter.getValue();
    if (name.empty() || !names.insert(name).second)
      return emitError(argument.getLoc(), "(M2) expects argument ") << i << " of @model to have a name of its own, got '" << name << "'";
    if (input && !carriesSamples(argument.getType()))
      return emitError(argument.getLoc(), "(M2) expects input '") << name << "' to carry samples (dimension 0 is ?), got " << argument.getType();
    if (parameter && carriesSamples(argument.getType()))
      return emitError(argument.getLoc(), "(M2) expects parameter '") << name << "' not to carry samples, got " << argument.getType();
    if (parameter && !model.getArgAttrOfType<BoolAttr>(i, attributes::kTrainable))
      return emitError(argument.getLoc(), "(M2) expects parameter '") << name << "' to say whether it is zorse.trainable (true or false)";
  }
  return success();
}

/// (M3) and (M4)
static LogicalResult verifyTerms(func::FuncOp model) {
  struct Term {
    int numerators = 0, denominators = 0;
    bool constant = false;
  };
  std::map<int64_t, Term> terms;
  for (unsigned i = 0; i < model.getNumResults(); ++i) {
    auto type = dyn_cast<RankedTensorType>(model.getResultTypes()[i]);
    auto term = model.getResultAttrOfType<IntegerAttr>(i, attributes::kTerm);
    auto role = model.getResultAttrOfType<StringAttr>(i, attributes::kRole);
    bool typed = type && type.getRank() == 1 && carriesSamples(type) && (type.getElementType().isF32() || type.getElementType().isF64());
    if (!typed || !term || !role || (role.getValue() != "numerator" && role.getValue() != "denominator"))
      return model.emitError("(M3) expects result ")
             << i << " to be tensor<?xf32> or tensor<?xf64> with zorse.term and a zorse.role of numerator or denominator, got "
             << model.getResultTypes()[i];
    Term &known = terms[term.getInt()];
    if (role.getValue() == "denominator") {
      ++known.denominators;
      continue;
    }
    ++known.numerators;
    if (!model.getResultAttrOfType<FloatAttr>(i, attributes::kCoefficient))
      return model.emitError("(M3) expects numerator ") << i << " to have a zorse.coefficient";
    if (auto perRow = model.getResultAttrOfType<FloatAttr>(i, attributes::kDenominatorPerRow)) {
      known.constant = true;
      if (!(perRow.getValueAsDouble() > 0))
        return model.emitError("(M4) expects a positive zorse.denominator_per_row on result ") << i << ", got " << perRow.getValueAsDouble();
    }
  }
  int64_t next = 0;
  for (auto &[number, term] : terms) {
    if (number != next++)
      return model.emitError("(M4) expects terms numbered from 0 without gaps, got ") << number;
    if (term.numerators != 1 || term.denominators + term.constant != 1)
      return model.emitError("(M4) expects term ") << number << " to have one numerator and either a denominator or zorse.denominator_per_row, got "
                                                   << term.numerators << " numerators and " << term.denominators << " denominators"
                                                   << (term.constant ? " beside zorse.denominator_per_row" : "");
  }
  if (terms.empty())
    return model.emitError("(M4) expects at least one loss term");
  return success();
}

/// (M5)
static LogicalResult verifyDenominators(func::FuncOp model) {
  Operation *terminator = model.front().getTerminator();
  for (unsigned i = 0; i < model.getNumResults(); ++i) {
    if (model.getResultAttrOfType<StringAttr>(i, attributes::kRole).getValue() != "denominator")
      continue;
    SmallVector<Value> open{terminator->getOperand(i)};
    llvm::DenseSet<Value> seen;
    while (!open.empty()) {
      Value value = open.pop_back_val();
      if (!seen.insert(value).second)
        continue;
      if (auto argument = dyn_cast<BlockArgument>(value)) {
        auto trainable = model.getArgAttrOfType<BoolAttr>(argument.getArgNumber(), attributes::kTrainable);
        if (trainable && trainable.getValue())
          return model.emitError("(M5) expects denominator ") << i << " to depend on inputs alone, but it depends on parameter "
                                                              << model.getArgAttr(argument.getArgNumber(), attributes::kParameter);
        continue;
      }
      llvm::append_range(open, value.getDefiningOp()->getOperands());
    }
  }
  return success();
}

/// (M6) and (M7)
static LogicalResult verifyOps(func::FuncOp model) {
  for (Operation &op : model.front().without_terminator()) {
    Dialect *dialect = op.getDialect();
    bool known = dialect && (dialect->getNamespace() == ZorseDialect::getDialectNamespace() || isa<arith::ArithDialect, math::MathDialect>(dialect));
    if (!known || op.getNumRegions() != 0)
      return op.emitOpError("(M7) expects only ops of zorse, arith and math in a model");
    for (Type type : op.getResultTypes())
      if (!isGraphTensor(type))
        return op.emitOpError("(M7) expects ranked tensors with no dynamic dimension but dimension 0, got ") << type;
    bool sampled = llvm::any_of(op.getOperandTypes(), carriesSamples);
    for (Type type : op.getResultTypes())
      if (sampled && !carriesSamples(type))
        return op.emitOpError("(M6) mixes samples: it computes ")
               << type << " from values that carry samples, so a step could not be split over devices; compute it per sample, or outside the model";
  }
  return success();
}

namespace {
struct VerifyModel : zorse::impl::VerifyModelBase<VerifyModel> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!model || model.isExternal() || !llvm::hasSingleElement(model.getBody())) {
      InFlightDiagnostic error = getOperation().emitError("(M1) expects a function @model of one block");
      if (auto functions = getOperation().getOps<func::FuncOp>(); !model && !functions.empty())
        error << "; found '@" << (*functions.begin()).getName() << "': passes over a model come before --zorse-find-units";
      return signalPassFailure();
    }
    if (failed(verifyArguments(model)) || failed(verifyTerms(model)) || failed(verifyDenominators(model)) || failed(verifyOps(model)))
      signalPassFailure();
  }
};
} // namespace
