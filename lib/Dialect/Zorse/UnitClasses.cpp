// Verifiers of units and their classes, and the functions of a module in the order of their
// compiled functions.
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include <map>

using namespace mlir;
using namespace zorse;

func::FuncOp ClassOp::function(Task task) {
  return lookupSymbol<func::FuncOp>(stringifyTask(task));
}

func::FuncOp ClassOp::writerOf(ArgumentKind block) {
  return function(block == ArgumentKind::SavedForWeightGrad ? Task::InputGradients : Task::Forward);
}

func::FuncOp ClassOp::definer() {
  func::FuncOp forward = function(Task::Forward);
  return forward ? forward : function(Task::Joint);
}

std::optional<Task> zorse::taskOf(func::FuncOp function) {
  return isa_and_nonnull<ClassOp>(function->getParentOp()) ? symbolizeTask(function.getSymName())
                                                           : std::nullopt;
}

std::string zorse::compiledFunctionName(func::FuncOp function) {
  auto unitClass = dyn_cast_if_present<ClassOp>(function->getParentOp());
  return unitClass ? (unitClass.getSymName() + "." + function.getSymName()).str()
                   : function.getSymName().str();
}

SmallVector<func::FuncOp> zorse::functionsInOrder(ModuleOp module) {
  SmallVector<func::FuncOp> functions;
  auto add = [&](ArrayRef<Task> tasks) {
    for (auto unitClass : module.getOps<ClassOp>())
      for (Task task : tasks)
        if (func::FuncOp function = unitClass.function(task))
          functions.push_back(function);
  };
  add({Task::Joint, Task::Forward, Task::Backward});
  for (auto function : module.getOps<func::FuncOp>())
    if (function.getSymName() != attributes::kModel)
      functions.push_back(function);
  add(Task::Logits);
  add({Task::InputGradients, Task::WeightGradients, Task::Recompute});
  return functions;
}

namespace {

struct Kinds {
  SmallVector<ArgumentKind> arguments, results;
};

/// Returns the argument attribute kinds of a task's arguments and results.
const Kinds &kindsOf(Task task) {
  using K = ArgumentKind;
  static const std::map<Task, Kinds> kinds = {
      {Task::Joint,
       {{K::Parameter, K::Input, K::BoundaryIn, K::BoundaryOutGradient, K::Scalars},
        {K::BoundaryOut, K::Loss, K::BoundaryInGradient, K::ParameterGradient, K::Saved}}},
      {Task::Forward,
       {{K::Parameter, K::Input, K::BoundaryIn, K::Scalars}, {K::BoundaryOut, K::Loss, K::Saved}}},
      {Task::Backward,
       {{K::Parameter, K::Input, K::BoundaryIn, K::BoundaryOutGradient, K::Scalars, K::Saved},
        {K::BoundaryInGradient, K::ParameterGradient}}},
      {Task::InputGradients,
       {{K::Parameter, K::Input, K::BoundaryIn, K::BoundaryOutGradient, K::Scalars, K::Saved},
        {K::BoundaryInGradient, K::SavedForWeightGrad}}},
      {Task::WeightGradients,
       {{K::Parameter, K::Input, K::BoundaryIn, K::BoundaryOutGradient, K::Scalars, K::Saved,
         K::SavedForWeightGrad},
        {K::ParameterGradient}}},
      {Task::Recompute, {{K::Parameter, K::Input, K::BoundaryIn, K::Scalars}, {K::Saved}}},
      {Task::Logits, {{K::Parameter, K::Input, K::BoundaryIn, K::Scalars}, {K::BoundaryOut}}},
  };
  return kinds.at(task);
}

/// Returns the kind of the value that a gradient belongs to, or the kind itself if it is not a
/// gradient.
ArgumentKind sourceOf(ArgumentKind kind) {
  return kind == ArgumentKind::ParameterGradient     ? ArgumentKind::Parameter
         : kind == ArgumentKind::BoundaryInGradient  ? ArgumentKind::BoundaryIn
         : kind == ArgumentKind::BoundaryOutGradient ? ArgumentKind::BoundaryOut
                                                     : kind;
}

/// Whether functions of the task define the argument attributes of the kind.
bool defines(Task task, ArgumentKind kind) {
  if (task == Task::InputGradients)
    return kind == ArgumentKind::SavedForWeightGrad;
  const bool forward = task == Task::Forward || task == Task::Joint;
  return forward && (kind == ArgumentKind::Parameter || kind == ArgumentKind::Input ||
                     kind == ArgumentKind::BoundaryIn || kind == ArgumentKind::BoundaryOut ||
                     kind == ArgumentKind::Loss || kind == ArgumentKind::Saved);
}

/// Compares the argument attributes of a class's functions, starting with the functions that define
/// them.
class ArgumentChecker {
public:
  LogicalResult check(func::FuncOp function, Task task) {
    std::map<ArgumentKind, SmallVector<uint32_t>> defined;
    for (bool defining : {true, false}) // a joint function has arguments for the gradients of its
                                        // results
      for (bool result : {false, true}) {
        ArrayRef<Type> types = result ? function.getResultTypes() : function.getArgumentTypes();
        for (auto [i, type] : llvm::enumerate(types)) {
          ArgumentAttr attribute = result ? attributeOfResult(function, unsigned(i))
                                          : attributeOfArgument(function, unsigned(i));
          if ((attribute && defines(task, attribute.getKind())) != defining)
            continue;
          if (failed(checkArgument(function, task, attribute, type,
                                   (result ? "result " : "argument ") + std::to_string(i), result)))
            return failure();
          if (defining)
            defined[attribute.getKind()].push_back(attribute.getIndex());
        }
      }
    for (auto &[kind, indices] : defined) {
      llvm::sort(indices);
      for (auto [i, index] : llvm::enumerate(indices))
        if (index != i)
          return function.emitOpError("(C3) expects ")
                 << stringifyArgumentKind(kind) << " arguments numbered from 0 without gaps, got "
                 << index << " in place of " << i;
    }
    return success();
  }

private:
  LogicalResult checkArgument(func::FuncOp function, Task task, ArgumentAttr attribute, Type type,
                              const std::string &where, bool result) {
    if (!attribute)
      return function.emitOpError("(C2) expects zorse.argument on ") << where;
    if (const Kinds &kinds = kindsOf(task);
        !llvm::is_contained(result ? kinds.results : kinds.arguments, attribute.getKind()))
      return function.emitOpError("(C2) has ")
             << attribute << " as " << where << ", which functions of this task do not have";
    // f64 or i64 by field; positions and result of logits.
    if (attribute.getKind() == ArgumentKind::Scalars || task == Task::Logits)
      return success();
    const ArgumentKind source = sourceOf(attribute.getKind());
    auto [found, isNew] = types.try_emplace({source, attribute.getIndex()}, type);
    if (isNew && !defines(task, attribute.getKind()))
      return function.emitOpError("(C4) has ")
             << attribute << " as " << where << ", which no function of the class defines";
    const bool same = source == attribute.getKind()
                          ? found->second == type
                          : cast<RankedTensorType>(found->second).getShape() ==
                                cast<RankedTensorType>(type).getShape();
    if (!same)
      return function.emitOpError("(C4) expects ")
             << where << ", " << attribute << ", to be " << found->second
             << " as elsewhere in the class, got " << type;
    return success();
  }

  std::map<std::pair<ArgumentKind, uint32_t>, Type> types;
};

} // namespace

LogicalResult ClassOp::verifyRegions() {
  for (Operation &op : getBody().front())
    if (auto function = dyn_cast<func::FuncOp>(op); !function || !taskOf(function))
      return op.emitOpError("(C1) stands in a zorse.class, expects functions called by a task: "
                            "forward, backward, backward_inputs, ...");
  if (!function(Task::Forward) && !function(Task::Joint))
    return emitOpError("(C1) expects a function @forward or @joint");
  const bool parts = bool(function(Task::InputGradients));
  if (parts != bool(function(Task::WeightGradients)) || (parts && !function(Task::Backward)))
    return emitOpError(
        "(C5) expects @backward_inputs and @backward_weights together, in addition to @backward");
  ArgumentChecker arguments;
  for (Task task : {Task::Joint, Task::Forward, Task::InputGradients, Task::Backward,
                    Task::WeightGradients, Task::Recompute, Task::Logits})
    if (func::FuncOp one = function(task); one && failed(arguments.check(one, task)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// zorse.unit
//===----------------------------------------------------------------------===//

ClassOp UnitOp::unitClass() {
  return SymbolTable::lookupNearestSymbolFrom<ClassOp>(*this, getCalleeAttr());
}

LogicalResult UnitOp::verify() {
  if (getNames().size() != getNumResults())
    return emitOpError("(U3) expects a name for each of its ")
           << getNumResults() << " results, got " << getNames().size();
  return success();
}

namespace {

/// Compares operands or results of a unit with the corresponding argument attributes of the class's
/// forward.
LogicalResult compareArguments(UnitOp unit, StringRef what,
                               ArrayRef<std::pair<ArgumentAttr, Type>> attributes,
                               TypeRange types) {
  if (attributes.size() != types.size())
    return unit.emitOpError("(U2) has ") << types.size() << " " << what << ", expects the "
                                         << attributes.size() << " of @" << unit.getCallee();
  for (auto [attribute, type] : llvm::zip(attributes, types)) {
    auto mine = cast<RankedTensorType>(type), theirs = cast<RankedTensorType>(attribute.second);
    const bool isNarrowed = mine.getElementType().isF32() &&
                            (theirs.getElementType().isF16() || theirs.getElementType().isBF16());
    if (mine.getShape() != theirs.getShape() ||
        (mine.getElementType() != theirs.getElementType() && !isNarrowed))
      return unit.emitOpError("(U2) expects ") << attribute.first << " of @" << unit.getCallee()
                                               << " to be " << theirs << ", got " << mine;
  }
  return success();
}

} // namespace

LogicalResult UnitOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto unitClass = symbols.lookupNearestSymbolFrom<ClassOp>(*this, getCalleeAttr());
  if (!unitClass)
    return emitOpError("(U1) expects a zorse.class @") << getCallee() << ", found none";
  func::FuncOp function = unitClass.definer();
  if (!function)
    return success(); // the verifier of the class reports it
  SmallVector<std::pair<ArgumentAttr, Type>> parameters, inputs, boundary, known, results;
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    ArgumentAttr attribute = attributeOfArgument(function, unsigned(i));
    auto *list = isOfKind(attribute, ArgumentKind::Parameter)    ? &parameters
                 : isOfKind(attribute, ArgumentKind::Input)      ? &inputs
                 : isOfKind(attribute, ArgumentKind::BoundaryIn) ? &boundary
                 : isOfKind(attribute, ArgumentKind::Scalars) &&
                         attribute.getField() == ScalarField::Known
                     ? &known
                     : nullptr;
    if (list)
      list->push_back({attribute, type});
  }
  for (ArgumentKind kind : {ArgumentKind::BoundaryOut, ArgumentKind::Loss})
    for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
      if (ArgumentAttr attribute = attributeOfResult(function, unsigned(i));
          isOfKind(attribute, kind))
        results.push_back({attribute, type});
  return success(
      succeeded(compareArguments(*this, "parameters", parameters, getParameters().getTypes())) &&
      succeeded(compareArguments(*this, "inputs", inputs, getInputs().getTypes())) &&
      succeeded(compareArguments(*this, "values", boundary, getBoundary().getTypes())) &&
      succeeded(compareArguments(*this, "known numbers", known, getKnown().getTypes())) &&
      succeeded(compareArguments(*this, "results", results, getResultTypes())));
}

LogicalResult TargetOp::verifyRegions() {
  for (Operation &op : getKernels().front())
    if (auto kernel = dyn_cast<ModuleOp>(op); !kernel || !kernel.getSymName())
      return op.emitOpError(
          "stands in a zorse.target, expects modules that are called by their symbols");
  return success();
}
