// The functions of units: their arguments, the parts of split backwards, and the calls of tasks.
#include "Model.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::verify;

using Function = bundle::UnitFunction;

bool Model::findRepeated(std::vector<Finding> &findings) {
  for (const auto &cell : plan.cells) {
    if (cell.firstUnit < 0 || cell.firstUnit >= cell.endUnit ||
        cell.endUnit > summary.units_size() || !recomputes(cell))
      continue;
    const auto last = uint32_t(cell.endUnit - 1);
    const bundle::UnitInfo &unit = unitOf(cell.device, last);
    if (extentBytes(classOf(unit).saved_bytes(), 1) <= 0)
      continue;
    if (repeatedFunction(cell, last) >= uint32_t(functions.functions_size())) {
      findings.push_back({Code::Malformed, -1, -1,
                          "summary: no function recomputes the saved block of unit '" +
                              unit.name() + "', as the plan requires"});
      return false;
    }
    repeated.insert(&unit);
  }
  return true;
}

/// Unit functions only read values of other tasks, write their outputs completely and add
/// gradients.
bool Model::checkUnitFunctions(std::vector<Finding> &findings) const {
  auto allowed = [](const bundle::FunctionArgument &argument) {
    switch (argument.kind()) {
    case bundle::PARAMETER:
    case bundle::INPUT:
    case bundle::BOUNDARY_IN:
    case bundle::SCALARS:
      return argument.mode() == bundle::READ;
    case bundle::BOUNDARY_OUT:
    case bundle::LOSS:
      return argument.mode() == bundle::WRITE || argument.mode() == bundle::READ;
    case bundle::EXCHANGE:
      return argument.mode() == bundle::UPDATE;
    case bundle::PARAMETER_GRADIENT:
    case bundle::BOUNDARY_IN_GRADIENT:
      return argument.mode() == bundle::ACCUMULATE || argument.mode() == bundle::WRITE;
    case bundle::SAVED:
    case bundle::SAVED_FOR_WEIGHT_GRAD:
    case bundle::BOUNDARY_OUT_GRADIENT:
      return argument.mode() != bundle::ACCUMULATE;
    default:
      return argument.kind() == bundle::WORKSPACE;
    }
  };
  bool good = true;
  forUnits([&](const bundle::UnitInfo &unit, uint32_t) {
    for (uint32_t function : functionsOf(unit))
      for (const auto &argument : functions.functions(int(function)).arguments())
        if (good && !allowed(argument)) {
          findings.push_back({Code::Malformed, -1, -1,
                              "function '" + functions.functions(int(function)).name() +
                                  "' of unit '" + unit.name() + "': argument '" + argument.name() +
                                  "' has a kind or mode that unit functions do not have"});
          good = false;
        }
  });
  return good;
}

/// Checks that the parts of a split backward form the whole: B has the gradients of values, W those
/// of parameters, and only they have a deferred block.
bool Model::checkParts(std::vector<Finding> &findings) const {
  bool good = true;
  forUnits(
      [&](const bundle::UnitInfo &unit, uint32_t) { good = good && checkParts(unit, findings); });
  return good;
}

bool Model::checkParts(const bundle::UnitInfo &unit, std::vector<Finding> &findings) const {
  auto has = [&](uint32_t function, bundle::ArgumentKind kind, int64_t index) {
    const auto &arguments = functions.functions(int(function)).arguments();
    return std::any_of(arguments.begin(), arguments.end(), [&](const auto &argument) {
      return argument.kind() == kind && (index < 0 || argument.index() == uint32_t(index));
    });
  };
  auto fail = [&](const std::string &message) {
    findings.push_back({Code::Malformed, -1, -1, "unit '" + unit.name() + "': " + message});
    return false;
  };
  if (repeated.count(&unit))
    for (const auto &argument :
         functions.functions(int(functionOf(unit, Function::RECOMPUTE))).arguments())
      if (argument.mode() != bundle::READ && argument.kind() != bundle::WORKSPACE &&
          argument.kind() != bundle::EXCHANGE &&
          (argument.kind() != bundle::SAVED || argument.mode() != bundle::WRITE))
        return fail("the function that recomputes its saved block changes argument '" +
                    argument.name() + "', too");
  if (has(functionOf(unit, Function::FORWARD), bundle::SAVED_FOR_WEIGHT_GRAD, -1) ||
      has(functionOf(unit, Function::BACKWARD), bundle::SAVED_FOR_WEIGHT_GRAD, -1))
    return fail("only the parts of a split backward have a deferred block");
  if (!plan.splitBackward || !unit.splits())
    return true;
  const uint32_t inputs = functionOf(unit, Function::INPUT_GRADIENTS),
                 weights = functionOf(unit, Function::WEIGHT_GRADIENTS);
  if (has(inputs, bundle::PARAMETER_GRADIENT, -1) || has(weights, bundle::BOUNDARY_IN_GRADIENT, -1))
    return fail("the first part of its backward makes gradients of values only, the second those "
                "of parameters only");
  for (const auto &argument :
       functions.functions(int(functionOf(unit, Function::BACKWARD))).arguments())
    if ((argument.kind() == bundle::PARAMETER_GRADIENT &&
         !has(weights, argument.kind(), argument.index())) ||
        (argument.kind() == bundle::BOUNDARY_IN_GRADIENT &&
         !has(inputs, argument.kind(), argument.index())))
      return fail("argument '" + argument.name() + "' of its backward is in neither part");
  return true;
}

std::vector<uint32_t> Model::functionsOf(const bundle::UnitInfo &unit) const {
  std::vector<uint32_t> list{functionOf(unit, Function::FORWARD),
                             functionOf(unit, Function::BACKWARD)};
  if (plan.splitBackward && unit.splits())
    list.insert(list.end(), {functionOf(unit, Function::INPUT_GRADIENTS),
                             functionOf(unit, Function::WEIGHT_GRADIENTS)});
  if (repeated.count(&unit))
    list.push_back(functionOf(unit, Function::RECOMPUTE));
  return list;
}

uint32_t Model::repeatedFunction(const PlanView::Cell &cell, uint32_t index) const {
  const auto &unit = unitOf(cell.device, index);
  if (int64_t(index) + 1 < cell.endUnit)
    return functionOf(unit, Function::FORWARD);
  return extentBytes(classOf(unit).saved_bytes(), 1) > 0 ? functionOf(unit, Function::RECOMPUTE)
                                                         : kNoFunction;
}

uint32_t Model::functionOf(const bundle::UnitInfo &unit, bundle::Compute::Task task) const {
  if (task == bundle::Compute::F)
    return functionOf(unit, Function::FORWARD);
  const bool isB = task == bundle::Compute::B;
  if (!plan.splitBackward)
    return isB ? functionOf(unit, Function::BACKWARD) : kNoFunction;
  if (unit.splits())
    return functionOf(unit, isB ? Function::INPUT_GRADIENTS : Function::WEIGHT_GRADIENTS);
  bool inputs = false, weights = false;
  for (uint32_t v : unit.values_in())
    inputs = inputs || summary.values(int(v)).needs_gradient();
  for (uint32_t p : unit.parameters())
    weights = weights || summary.parameters(int(p)).trainable();
  return isB == (inputs || !weights) ? functionOf(unit, Function::BACKWARD) : kNoFunction;
}

void Model::callsOf(const PlanView::Cell &cell, bundle::Compute::Task task,
                    std::vector<UnitCall> &calls) const {
  calls.clear();
  auto add = [&](int64_t unit, uint32_t function) {
    if (function == kNoFunction)
      return;
    const size_t count = function < segments.size() ? segments[function].size() : 0;
    for (uint32_t segment = 0; segment < std::max<size_t>(count, 1); ++segment) {
      const bool works = count == 0 || std::count(segments[function][segment].begin(),
                                                  segments[function][segment].end(), true) != 0;
      if (works)
        calls.push_back({unit, function, {cell.firstSample, cell.endSample}, segment});
    }
  };
  if (task == bundle::Compute::F || (task == bundle::Compute::B && recomputes(cell)))
    for (int64_t u = cell.firstUnit; u < cell.endUnit; ++u)
      add(u, task == bundle::Compute::F ? functionOf(unitOf(cell.device, u), task)
                                        : repeatedFunction(cell, uint32_t(u)));
  for (int64_t u = cell.endUnit; task != bundle::Compute::F && u-- > cell.firstUnit;)
    add(u, functionOf(unitOf(cell.device, u), task));
}

bool Model::hasWork(const PlanView::Cell &cell, bundle::Compute::Task task) const {
  for (int64_t u = cell.firstUnit; u < cell.endUnit; ++u)
    if (functionOf(unitOf(cell.device, u), task) != kNoFunction)
      return true;
  return false;
}
