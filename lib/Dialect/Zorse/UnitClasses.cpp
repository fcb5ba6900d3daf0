// Verifiers of units and their classes, and the functions of a module in the order of their bodies.
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include <map>

using namespace mlir;
using namespace zorse;

func::FuncOp ClassOp::function(Task task) { return lookupSymbol<func::FuncOp>(stringifyTask(task)); }

func::FuncOp ClassOp::writerOf(SlotKind block) { return function(block == SlotKind::Deferred ? Task::InputGradients : Task::Forward); }

func::FuncOp ClassOp::definer() {
  func::FuncOp forward = function(Task::Forward);
  return forward ? forward : function(Task::Joint);
}

std::optional<Task> zorse::taskOf(func::FuncOp function) {
  return isa_and_nonnull<ClassOp>(function->getParentOp()) ? symbolizeTask(function.getSymName()) : std::nullopt;
}

std::string zorse::compiledFunctionName(func::FuncOp function) {
  auto unitClass = dyn_cast_if_present<ClassOp>(function->getParentOp());
  return unitClass ? (unitClass.getSymName() + "." + function.getSymName()).str() : function.getSymName().str();
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
  SmallVector<SlotKind> arguments, results;
};

/// Returns the slot kinds of a task's arguments and results.
const Kinds &kindsOf(Task task) {
  using K = SlotKind;
  static const std::map<Task, Kinds> kinds = {
      {Task::Joint,
       {{K::Parameter, K::Input, K::BoundaryIn, K::BoundaryOutGradient, K::Scalars},
        {K::BoundaryOut, K::Loss, K::BoundaryInGradient, K::ParameterGradient, K::Saved}}},
      {Task::Forward, {{K::Parameter, K::Input, K::BoundaryIn, K::Scalars}, {K::BoundaryOut, K::Loss, K::Saved}}},
      {Task::Backward,
       {{K::Parameter, K::Input, K::BoundaryIn, K::BoundaryOutGradient, K::Scalars, K::Saved}, {K::BoundaryInGradient, K::ParameterGradient}}},
      {Task::InputGradients,
       {{K::Parameter, K::Input, K::BoundaryIn, K::BoundaryOutGradient, K::Scalars, K::Saved}, {K::BoundaryInGradient, K::Deferred}}},
      {Task::WeightGradients,
       {{K::Parameter, K::Input, K::BoundaryIn, K::BoundaryOutGradient, K::Scalars, K::Saved, K::Deferred}, {K::ParameterGradient}}},
      {Task::Recompute, {{K::Parameter, K::Input, K::BoundaryIn, K::Scalars}, {K::Saved}}},
      {Task::Logits, {{K::Parameter, K::Input, K::BoundaryIn, K::Scalars}, {K::BoundaryOut}}},
  };
  return kinds.at(task);
}

/// Returns the kind of the value that a gradient belongs to, or the kind itself if it is not a gradient.
SlotKind sourceOf(SlotKind kind) {
  return kind == SlotKind::ParameterGradient     ? SlotKind::Parameter
         : kind == SlotKind::BoundaryInGradient  ? SlotKind::BoundaryIn
         : kind == SlotKind::BoundaryOutGradient ? SlotKind::BoundaryOut
                                                 : kind;
}

/// Whether functions of the task define the slots of the kind.
bool defines(Task task, SlotKind kind) {
  if (task == Task::InputGradients)
    return kind == SlotKind::Deferred;
  const bool forward = task == Task::Forward || task == Task::Joint;
  return forward && (kind == SlotKind::Parameter || kind == SlotKind::Input || kind == SlotKind::BoundaryIn || kind == SlotKind::BoundaryOut ||
                     kind == SlotKind::Loss || kind == SlotKind::Saved);
}

/// Compares the slots of a class's functions, starting with the functions that define them.
class SlotChecker {
public:
  LogicalResult check(func::FuncOp function, Task task) {
    std::map<SlotKind, SmallVector<uint32_t>> defined;
    for (bool defining : {true, false}) // a joint function takes gradients of its own results
      for (bool result : {false, true}) {
        ArrayRef<Type> types = result ? function.getResultTypes() : function.getArgumentTypes();
        for (auto [i, type] : llvm::enumerate(types)) {
          SlotAttr slot = result ? slotOfResult(function, unsigned(i)) : slotOfArgument(function, unsigned(i));
          if ((slot && defines(task, slot.getKind())) != defining)
            continue;
          if (failed(checkSlot(function, task, slot, type, (result ? "result " : "argument ") + std::to_string(i), result)))
            return failure();
          if (defining)
            defined[slot.getKind()].push_back(slot.getIndex());
        }
      }
    for (auto &[kind, indices] : defined) {
      llvm::sort(indices);
      for (auto [i, index] : llvm::enumerate(indices))
        if (index != i)
          return function.emitOpError("(C3) expects ")
                 << stringifySlotKind(kind) << " slots numbered from 0 without gaps, got " << index << " in place of " << i;
    }
    return success();
  }

private:
  LogicalResult checkSlot(func::FuncOp function, Task task, SlotAttr slot, Type type, const std::string &where, bool result) {
    if (!slot)
      return function.emitOpError("(C2) expects zorse.slot on ") << where;
    if (const Kinds &kinds = kindsOf(task); !llvm::is_contained(result ? kinds.results : kinds.arguments, slot.getKind()))
      return function.emitOpError("(C2) has ") << slot << " as " << where << ", which functions of this task do not have";
    if (slot.getKind() == SlotKind::Scalars || task == Task::Logits) // f64 or i64 by field; positions and result of logits
      return success();
    const SlotKind source = sourceOf(slot.getKind());
    auto [found, isNew] = types.try_emplace({source, slot.getIndex()}, type);
    if (isNew && !defines(task, slot.getKind()))
      return function.emitOpError("(C4) has ") << slot << " as " << where << ", which no function of the class defines";
    const bool same = source == slot.getKind() ? found->second == type
                                               : cast<RankedTensorType>(found->second).getShape() == cast<RankedTensorType>(type).getShape();
    if (!same)
      return function.emitOpError("(C4) expects ") << where << ", " << slot << ", to be " << found->second << " as elsewhere in the class, got "
                                                   << type;
    return success();
  }

  std::map<std::pair<SlotKind, uint32_t>, Type> types;
};

} // namespace

LogicalResult ClassOp::verifyRegions() {
  for (Operation &op : getBody().front())
    if (auto function = dyn_cast<func::FuncOp>(op); !function || !taskOf(function))
      return op.emitOpError("(C1) stands in a zorse.class, expects functions called by a task: forward, backward, backward_inputs, ...");
  if (!function(Task::Forward) && !function(Task::Joint))
    return emitOpError("(C1) expects a function @forward or @joint");
  const bool parts = bool(function(Task::InputGradients));
  if (parts != bool(function(Task::WeightGradients)) || (parts && !function(Task::Backward)))
    return emitOpError("(C5) expects @backward_inputs and @backward_weights together, in addition to @backward");
  SlotChecker slots;
  for (Task task : {Task::Joint, Task::Forward, Task::InputGradients, Task::Backward, Task::WeightGradients, Task::Recompute, Task::Logits})
    if (func::FuncOp one = function(task); one && failed(slots.check(one, task)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// zorse.unit
//===----------------------------------------------------------------------===//

ClassOp UnitOp::unitClass() { return SymbolTable::lookupNearestSymbolFrom<ClassOp>(*this, getCalleeAttr()); }

LogicalResult UnitOp::verify() {
  if (getNames().size() != getNumResults())
    return emitOpError("(U3) expects a name for each of its ") << getNumResults() << " results, got " << getNames().size();
  return success();
}

namespace {

/// Compares operands or results of a unit with the corresponding slots of the class's forward.
LogicalResult compareSlots(UnitOp unit, StringRef what, ArrayRef<std::pair<SlotAttr, Type>> slots, TypeRange types) {
  if (slots.size() != types.size())
    return unit.emitOpError("(U2) has ") << types.size() << " " << what << ", expects the " << slots.size() << " of @" << unit.getCallee();
  for (auto [slot, type] : llvm::zip(slots, types)) {
    auto mine = cast<RankedTensorType>(type), theirs = cast<RankedTensorType>(slot.second);
    const bool isNarrowed = mine.getElementType().isF32() && (theirs.getElementType().isF16() || theirs.getElementType().isBF16());
    if (mine.getShape() != theirs.getShape() || (mine.getElementType() != theirs.getElementType() && !isNarrowed))
      return unit.emitOpError("(U2) expects ") << slot.first << " of @" << unit.getCallee() << " to be " << theirs << ", got " << mine;
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
  SmallVector<std::pair<SlotAttr, Type>> parameters, inputs, boundary, known, results;
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    SlotAttr slot = slotOfArgument(function, unsigned(i));
    auto *list = isSlot(slot, SlotKind::Parameter)                                          ? &parameters
                 : isSlot(slot, SlotKind::Input)                                            ? &inputs
                 : isSlot(slot, SlotKind::BoundaryIn)                                       ? &boundary
                 : isSlot(slot, SlotKind::Scalars) && slot.getField() == ScalarField::Known ? &known
                                                                                            : nullptr;
    if (list)
      list->push_back({slot, type});
  }
  for (SlotKind kind : {SlotKind::BoundaryOut, SlotKind::Loss})
    for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
      if (SlotAttr slot = slotOfResult(function, unsigned(i)); isSlot(slot, kind))
        results.push_back({slot, type});
  return success(succeeded(compareSlots(*this, "parameters", parameters, getParameters().getTypes())) &&
                 succeeded(compareSlots(*this, "inputs", inputs, getInputs().getTypes())) &&
                 succeeded(compareSlots(*this, "values", boundary, getBoundary().getTypes())) &&
                 succeeded(compareSlots(*this, "known numbers", known, getKnown().getTypes())) &&
                 succeeded(compareSlots(*this, "results", results, getResultTypes())));
}

LogicalResult TargetOp::verifyRegions() {
  for (Operation &op : getKernels().front())
    if (auto kernel = dyn_cast<ModuleOp>(op); !kernel || !kernel.getSymName())
      return op.emitOpError("stands in a zorse.target, expects modules that are called by their symbols");
  return success();
}
