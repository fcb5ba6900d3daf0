// Checks a summary. A summary from a file may contain any numbers, and the expansion uses them as
// indices, so they are checked once.

#include "PlanLowering.h"

#include "ParameterRuns.h"

#include "zorse/Step/UnitTasks.h"
#include "zorse/Summary/Optimizers.h"

#include <algorithm>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;

template <typename List> bool inRange(const List &list, int size) {
  return std::all_of(list.begin(), list.end(),
                     [&](uint32_t index) { return index < static_cast<uint32_t>(size); });
}

template <typename List> bool contains(const List &list, uint32_t item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

int64_t elementsOf(const bundle::ParameterInfo &parameter) {
  int64_t elements = 1;
  for (int64_t dim : parameter.shape())
    if (dim < 0 || __builtin_mul_overflow(elements, dim, &elements))
      return -1;
  return elements;
}

/// Limits that keep sums and products of sizes far below 2^64: expansion and verification do not
/// check for overflow.
constexpr int64_t kMaxBytes = int64_t(1) << 48, kMaxBytesOfCell = int64_t(1) << 56;

bool soundSize(int64_t bytes) { return bytes >= 0 && bytes <= kMaxBytes; }
bool sound(const bundle::AffineSize &extent) {
  return soundSize(extent.fixed()) && soundSize(extent.per_row());
}

/// Costs determine times. A cost that is not a number would stop the simulated clock.
bool soundCost(double cost) { return cost >= 0 && cost <= 1e30; }

/// Returns all sizes of a unit of the class that a cell may allocate.
std::vector<const bundle::AffineSize *> sizesOf(const bundle::UnitClass &unitClass) {
  std::vector<const bundle::AffineSize *> sizes = {&unitClass.saved_bytes(),
                                                   &unitClass.saved_for_weight_grad_bytes()};
  for (const bundle::UnitFunction &function : unitClass.functions())
    sizes.push_back(&function.workspace());
  return sizes;
}

std::string checkWork(const bundle::FunctionCost &work) {
  if (!soundCost(work.attention_flops_per_row()) || !sound(work.bytes()))
    return "has a cost that is not a number from 0 to 1e30, or a size that is not one from 0 to "
           "2^48";
  for (const auto &product : work.matmuls())
    if (!sound(product.m()) || !sound(product.n()) || !sound(product.k()) ||
        !sound(product.batch()))
      return "has a product of a size that is not a number from 0 to 2^48";
  return "";
}

std::string checkFunction(const bundle::ModelSummary &summary,
                          const bundle::UnitFunction &function) {
  for (double cost : {function.flops_per_row(), function.bytes_per_row()})
    if (!soundCost(cost))
      return "has a cost of " + std::to_string(cost) + ", expected a number from 0 to 1e30";
  if (function.costs_size() != 0 && function.costs_size() != summary.gpu_targets_size())
    return "has work of " + std::to_string(function.costs_size()) + " targets, expected " +
           std::to_string(summary.gpu_targets_size());
  for (int t = 0; t < function.costs_size(); ++t)
    if (std::string message = checkWork(function.costs(t)); !message.empty())
      return "on '" + summary.gpu_targets(t) + "' " + message;
  return "";
}

std::string checkClasses(const bundle::ModelSummary &summary) {
  using Function = bundle::UnitFunction;
  for (const auto &unitClass : summary.classes()) {
    const std::string name = "class '" + unitClass.name() + "' ";
    std::vector<int> times(Function::Task_ARRAYSIZE, 0);
    for (const Function &function : unitClass.functions()) {
      if (!Function::Task_IsValid(function.task()) ||
          function.task() == Function::TASK_UNSPECIFIED || ++times[function.task()] > 1)
        return name +
               "has a function of a task that this version does not know, or two of one task";
      if (std::string message = checkFunction(summary, function); !message.empty())
        return "function '" + zorse::functionName(unitClass, function.task()) + "' " + message;
    }
    if (!times[Function::FORWARD] || !times[Function::BACKWARD] ||
        times[Function::INPUT_GRADIENTS] != times[Function::WEIGHT_GRADIENTS])
      return name + "expects a forward and a backward, and both parts of the backward or none";
    for (const bundle::AffineSize *size : sizesOf(unitClass))
      if (!sound(*size))
        return name + "has a size of " + std::to_string(size->fixed()) + " bytes and " +
               std::to_string(size->per_row()) + " per row, expected 0 to 2^48";
    if ((unitClass.saved_bytes().fixed() > 0 || unitClass.saved_bytes().per_row() > 0) &&
        !times[Function::RECOMPUTE])
      return name + "has a saved block, but no function that recomputes it";
  }
  return "";
}

std::string checkUnit(const bundle::ModelSummary &summary, const bundle::UnitInfo &unit) {
  const std::string name = "unit '" + unit.name() + "' ";
  if (!inRange(unit.parameters(), summary.parameters_size()) ||
      !inRange(unit.values_in(), summary.values_size()) ||
      !inRange(unit.values_out(), summary.values_size()) ||
      !inRange(unit.inputs(), summary.inputs_size()) ||
      !inRange(unit.loss_terms(), summary.loss_size()))
    return name + "names a parameter, value, input or loss term that does not exist";
  if (unit.class_id() >= static_cast<uint32_t>(summary.classes_size()))
    return name + "is of class " + std::to_string(unit.class_id()) + " of " +
           std::to_string(summary.classes_size());
  bool inputs = std::any_of(unit.values_in().begin(), unit.values_in().end(),
                            [&](uint32_t v) { return summary.values(v).needs_gradient(); });
  bool weights = std::any_of(unit.parameters().begin(), unit.parameters().end(),
                             [&](uint32_t p) { return summary.parameters(p).trainable(); });
  if (unit.splits() && !(inputs && weights))
    return name + "splits its backward, and has no gradient of " +
           (inputs ? "parameters" : "inputs");
  if (unit.splits() &&
      !zorse::findFunction(zorse::classOf(summary, unit), bundle::UnitFunction::INPUT_GRADIENTS))
    return name + "splits its backward, and its class has no functions for the parts";
  std::vector<uint32_t> parameters(unit.parameters().begin(), unit.parameters().end());
  std::sort(parameters.begin(), parameters.end());
  auto twice = std::adjacent_find(parameters.begin(), parameters.end());
  if (twice != parameters.end())
    return name + "has the parameter '" + summary.parameters(*twice).name() + "' in two arguments";
  if (!bundle::hasSoundParts(summary, unit))
    return name + "has an impossible part of a parameter";
  return "";
}

std::string checkUnits(const bundle::ModelSummary &summary) {
  for (const auto &unit : summary.units())
    if (std::string problem = checkUnit(summary, unit); !problem.empty())
      return problem;
  for (const auto &group : summary.device_groups()) {
    if (!inRange(group.units(), summary.units_size()))
      return "group '" + group.name() + "' names a unit that does not exist";
    for (const auto &member : group.members()) {
      if (member.units_size() != group.units_size())
        return "group '" + group.name() + "' has a device without some of its units";
      for (const auto &unit : member.units())
        if (std::string problem = checkUnit(summary, unit); !problem.empty())
          return "group '" + group.name() + "': " + problem;
    }
  }
  return "";
}

std::string checkParameters(const bundle::ModelSummary &summary) {
  for (const auto &group : summary.groups()) {
    std::string name = "state group '" + group.name() + "' ";
    if (!inRange(group.parameters(), summary.parameters_size()) ||
        !inRange(group.units(), summary.units_size()))
      return name + "names a parameter or unit that does not exist";
    if (!soundSize(group.elements()))
      return name + "has " + std::to_string(group.elements()) + " elements, expected 0 to 2^48";
    if (!zorse::elementBytes(group.type()))
      return name + "is of element type " + std::to_string(int(group.type())) +
             ", which this version does not know";
    if (group.param_dtype() != bundle::ELEMENT_TYPE_UNSPECIFIED &&
        (!zorse::isHalf(group.param_dtype()) || group.type() != bundle::F32 || !group.trainable()))
      return name + "has copies of element type " + std::to_string(int(group.param_dtype())) +
             ", expected bf16 or f16 of trained parameters in f32";
    int64_t end = 0;
    for (uint32_t p : group.parameters()) {
      const auto &parameter = summary.parameters(p);
      int64_t elements = elementsOf(parameter);
      if (elements < 0 || parameter.offset() < end ||
          parameter.offset() > group.elements() - elements)
        return "parameter '" + parameter.name() + "' does not fit at its offset in its state group";
      end = parameter.offset() + elements;
    }
  }
  for (int p = 0; p < summary.parameters_size(); ++p) {
    const auto &parameter = summary.parameters(p);
    if (parameter.group() >= static_cast<uint32_t>(summary.groups_size()) ||
        !contains(summary.groups(parameter.group()).parameters(), p))
      return "parameter '" + parameter.name() + "' is not in the state group it names";
    if (parameter.trainable() != summary.groups(parameter.group()).trainable())
      return "parameter '" + parameter.name() + "' and its state group differ in being trainable";
    if (parameter.running_stat() != summary.groups(parameter.group()).running_stat() ||
        (parameter.running_stat() && !parameter.trainable()))
      return "parameter '" + parameter.name() +
             "' and its state group differ in being a running statistic, or it is one that does "
             "not change";
  }
  return "";
}

std::string checkValues(const bundle::ModelSummary &summary) {
  for (int v = 0; v < summary.values_size(); ++v) {
    const auto &value = summary.values(v);
    std::string name = "value '" + value.name() + "' ";
    if (!soundSize(value.bytes_per_row()))
      return name + "has a size of " + std::to_string(value.bytes_per_row()) +
             " bytes per row, expected 0 to 2^48";
    if (value.producer() >= static_cast<uint32_t>(summary.units_size()) ||
        !contains(summary.units(value.producer()).values_out(), v))
      return name + "is not among the outputs of the unit that produces it";
    uint32_t last = value.producer();
    for (uint32_t user : value.users()) {
      if (user <= last || user >= static_cast<uint32_t>(summary.units_size()) ||
          !contains(summary.units(user).values_in(), v))
        return name + "has users that are not in ascending order or do not read it";
      last = user;
    }
  }
  for (int u = 0; u < summary.units_size(); ++u) {
    for (uint32_t v : summary.units(u).values_in())
      if (!contains(summary.values(v).users(), u))
        return "value '" + summary.values(v).name() + "' does not list unit '" +
               summary.units(u).name() + "' as a user";
    for (uint32_t v : summary.units(u).values_out())
      if (summary.values(v).producer() != static_cast<uint32_t>(u))
        return "value '" + summary.values(v).name() + "' does not name unit '" +
               summary.units(u).name() + "' as its producer";
  }
  for (const auto &input : summary.inputs())
    if (!soundSize(input.bytes_per_row()))
      return "input '" + input.name() + "' has a size of " + std::to_string(input.bytes_per_row()) +
             " bytes per row, expected 0 to 2^48";
  return "";
}

} // namespace

zorse::Status zorse::step::checkSummary(const bundle::ModelSummary &summary) {
  for (auto check : {checkClasses, checkUnits, checkParameters, checkValues})
    if (std::string message = check(summary); !message.empty())
      return userError("the model summary contradicts itself: " + message);
  if (maxOptimizerStates(summary) > kMaxOptimizerStates)
    return userError("the model summary asks for " + std::to_string(maxOptimizerStates(summary)) +
                     " optimizer states per parameter, expected at most " +
                     std::to_string(kMaxOptimizerStates));
  for (const auto &parameter : summary.parameters())
    if (parameter.trainable() && parameter.update_rule() >= uint32_t(summary.update_rules_size()))
      return userError("the model summary has no update rule for parameter '" + parameter.name() +
                       "'");
  return Status::success();
}

zorse::Status zorse::step::checkSizes(const bundle::ModelSummary &summary, const Plan &plan) {
  int64_t rows = 0;
  for (const Cell &cell : plan.cells)
    rows = std::max(rows, cell.rows());
  double sum = 0;
  auto check = [&](const std::string &what, double fixed, double perRow) -> Status {
    sum += fixed + perRow * static_cast<double>(rows);
    if (sum <= static_cast<double>(kMaxBytesOfCell))
      return Status::success();
    return userError("with " + what + ", a cell of all units and " + std::to_string(rows) +
                     " rows has more than 2^56 bytes; no device has this memory: cut the samples "
                     "into smaller cells, or check the model's summary");
  };
  for (const auto &unit : summary.units())
    for (const bundle::AffineSize *size : sizesOf(zorse::classOf(summary, unit)))
      if (Status status = check("unit '" + unit.name() + "'", static_cast<double>(size->fixed()),
                                static_cast<double>(size->per_row()));
          status.failed())
        return status;
  for (const auto &value : summary.values())
    if (Status status =
            check("value '" + value.name() + "'", 0, static_cast<double>(value.bytes_per_row()));
        status.failed())
      return status;
  for (const auto &input : summary.inputs())
    if (Status status =
            check("input '" + input.name() + "'", 0, static_cast<double>(input.bytes_per_row()));
        status.failed())
      return status;
  return Status::success();
}
