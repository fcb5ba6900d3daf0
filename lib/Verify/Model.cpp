#include "Model.h"

#include "zorse/Collectives/Levels.h"
#include "zorse/Collectives/Places.h"
#include "zorse/Summary/Optimizers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

using namespace zorse;
using namespace zorse::verify;
using Function = zorse::bundle::UnitFunction;

namespace {

template <typename List> bool indices(const List &list, int64_t size) {
  return std::all_of(list.begin(), list.end(), [&](uint32_t i) { return i < uint64_t(size); });
}

bool failSummary(std::vector<Finding> &findings, const std::string &message) {
  findings.push_back({Code::Malformed, -1, -1, "summary: " + message});
  return false;
}

/// Returns the number of elements, or -1 if it is impossible.
int64_t elementsOf(const bundle::ParameterInfo &parameter) {
  int64_t elements = 1;
  for (int64_t extent : parameter.shape())
    elements = elements < 0 ? -1 : product(elements, extent);
  return elements;
}

} // namespace

int64_t verify::elementSize(bundle::ElementType type) {
  switch (type) {
  case bundle::F32:
  case bundle::I32:
    return 4;
  case bundle::F64:
  case bundle::I64:
    return 8;
  case bundle::BF16:
  case bundle::F16:
    return 2;
  case bundle::I1:
  case bundle::U8:
    return 1;
  default:
    return 0;
  }
}

Model::Model(const bundle::ModelSummary &summary, const bundle::FunctionLibrary &functions,
             const PlanView &plan, std::vector<Finding> &findings)
    : summary(summary), functions(functions), plan(plan) {
  findSegments();
  if (checkDeviceGroups(findings) && checkSummary(findings) && checkFunctions(findings) &&
      checkSums(findings) && checkPlan(findings))
    index();
}

bool Model::isSound(const bundle::UnitInfo &unit) const {
  if (!bundle::hasSoundParts(summary, unit))
    return false;
  if (!indices(unit.parameters(), summary.parameters_size()) ||
      !indices(unit.values_in(), summary.values_size()) ||
      !indices(unit.values_out(), summary.values_size()) ||
      !indices(unit.inputs(), summary.inputs_size()) ||
      !indices(unit.loss_terms(), summary.loss_size()) ||
      unit.class_id() >= uint32_t(summary.classes_size()) ||
      extentBytes(classOf(unit).saved_bytes(), 1) < 0 ||
      extentBytes(classOf(unit).saved_for_weight_grad_bytes(), 1) < 0)
    return false;
  for (const Function &function : classOf(unit).functions())
    for (const auto &exchange : function.exchanges())
      if (!elementSize(exchange.type()) || exchange.parts().empty() ||
          !std::all_of(exchange.parts().begin(), exchange.parts().end(),
                       [](const bundle::AffineSize &part) { return extentBytes(part, 1) >= 0; }))
        return false;
  std::vector<Function::Task> tasks{Function::FORWARD, Function::BACKWARD};
  if (plan.splitBackward && unit.splits())
    tasks.insert(tasks.end(), {Function::INPUT_GRADIENTS, Function::WEIGHT_GRADIENTS});
  return std::all_of(tasks.begin(), tasks.end(), [&](Function::Task task) {
    return functionOf(unit, task) < uint32_t(functions.functions_size());
  });
}

bool Model::checkSummary(std::vector<Finding> &findings) {
  auto fail = [&](const std::string &message) { return failSummary(findings, message); };
  for (const bundle::UpdateRule &rule : summary.update_rules()) {
    if (uint32_t(rule.states_size()) > kMaxOptimizerStates)
      return fail("expects at most " + std::to_string(kMaxOptimizerStates) +
                  " optimizer states, found " + std::to_string(rule.states_size()));
    if (blockSize(rule) <= 0)
      return fail("update rule '" + rule.name() + "' has blocks of an impossible size");
    for (const auto &state : rule.states())
      if (state.entries() <= 0 || state.entries() > blockSize(rule) ||
          (state.type() != bundle::ELEMENT_TYPE_UNSPECIFIED && !elementSize(state.type())))
        return fail("update rule '" + rule.name() + "' has a state of an impossible size or type");
  }
  if (!std::isfinite(summary.training().clip_norm()))
    return fail("clip_norm is not a number");
  if (!checkGroups(findings))
    return false;
  if (copies && summary.cast_function() >= uint32_t(functions.functions_size()))
    return fail("function " + std::to_string(summary.cast_function()) + " of " +
                std::to_string(functions.functions_size()) + ", which casts, does not exist");
  if (!checkScale(findings))
    return false;
  for (const auto &value : summary.values())
    if (value.bytes_per_row() < 0 || value.bytes_per_row() > kMaxSize ||
        value.producer() >= uint32_t(summary.units_size()) ||
        !indices(value.users(), summary.units_size()))
      return fail("value '" + value.name() + "' has an impossible size, producer or user");
  for (const auto &input : summary.inputs())
    if (input.bytes_per_row() < 0 || input.bytes_per_row() > kMaxSize)
      return fail("input '" + input.name() + "' has an impossible size");
  if (summary.loss_size() > 14)
    return fail("expects at most 14 loss terms, found " + std::to_string(summary.loss_size()));
  const bundle::UnitInfo *unsound = nullptr;
  forUnits([&](const bundle::UnitInfo &unit, uint32_t) {
    if (!isSound(unit))
      unsound = &unit;
  });
  if (unsound)
    return fail("unit '" + unsound->name() + "' names something that does not exist");
  if (!findRepeated(findings))
    return false;
  std::vector<uint32_t> others{summary.norm_function(), summary.sum_loss_function(),
                               summary.clip_and_check_function()};
  for (const bundle::UpdateRule &rule : summary.update_rules())
    others.push_back(rule.function());
  for (uint32_t function : others)
    if (function >= uint32_t(functions.functions_size()))
      return fail("function " + std::to_string(function) + " of " +
                  std::to_string(functions.functions_size()) + " does not exist");
  return placeParameters(findings);
}

bool Model::checkGroups(std::vector<Finding> &findings) {
  auto fail = [&](const std::string &message) { return failSummary(findings, message); };
  std::vector<const bundle::UpdateRule *> first(size_t(summary.groups_size()), nullptr);
  for (int p = 0; p < summary.parameters_size(); ++p) {
    const auto &parameter = summary.parameters(p);
    const int64_t elements = elementsOf(parameter);
    if (parameter.group() >= uint32_t(summary.groups_size()) || elements < 0 ||
        parameter.offset() < 0 || parameter.offset() > kMaxSize)
      return fail("parameter '" + parameter.name() + "' has an impossible group, shape or offset");
    const auto &group = summary.groups(parameter.group());
    if (parameter.trainable() &&
        (parameter.update_rule() >= uint32_t(summary.update_rules_size()) ||
         summary.update_rules(int(parameter.update_rule())).running_stat() !=
             parameter.running_stat()))
      return fail("parameter '" + parameter.name() + "' has no update rule of its kind");
    if (parameter.type() != group.type() || parameter.trainable() != group.trainable() ||
        parameter.running_stat() != group.running_stat() ||
        (group.running_stat() && !group.trainable()) ||
        parameter.offset() + elements > group.elements())
      return fail("parameter '" + parameter.name() + "' does not fit its group '" + group.name() +
                  "'");
    if (!parameter.trainable())
      continue;
    const auto &rule = summary.update_rules(int(parameter.update_rule()));
    if (elements % blockSize(rule))
      return fail("parameter '" + parameter.name() +
                  "' is not made of the blocks of its update rule '" + rule.name() + "'");
    const bundle::UpdateRule *&known = first[parameter.group()];
    if (!known)
      known = &rule;
    if (known->states_size() != rule.states_size())
      return fail("parameter '" + parameter.name() + "' has " + std::to_string(rule.states_size()) +
                  " optimizer states, others of its group '" + group.name() + "' have " +
                  std::to_string(known->states_size()));
    for (int s = 0; s < rule.states_size(); ++s)
      if (known->states(s).type() != rule.states(s).type())
        return fail("parameter '" + parameter.name() +
                    "' has optimizer states of another type than "
                    "others of its group '" +
                    group.name() + "'");
  }
  for (const auto &group : summary.groups())
    if (group.elements() < 0 || product(group.elements(), elementSize(group.type())) < 0 ||
        !elementSize(group.type()) || !indices(group.parameters(), summary.parameters_size()))
      return fail("group '" + group.name() + "' has impossible elements, type or parameters");
  for (const auto &group : summary.groups()) {
    if (group.param_dtype() == bundle::ELEMENT_TYPE_UNSPECIFIED)
      continue;
    if (!group.trainable() || group.type() != bundle::F32 ||
        (group.param_dtype() != bundle::BF16 && group.param_dtype() != bundle::F16))
      return fail("group '" + group.name() + "' has copies of an impossible type");
    copies = true;
  }
  return true;
}

bool Model::checkScale(std::vector<Finding> &findings) const {
  if (!scales())
    return true;
  const double scale = summary.training().loss_scale();
  int exponent = 0;
  if (!(scale >= 1) || std::frexp(scale, &exponent) != 0.5 ||
      summary.training().loss_scale_interval() < 1)
    return failSummary(findings,
                       "a loss scale of " + std::to_string(scale) + ", doubled after " +
                           std::to_string(summary.training().loss_scale_interval()) +
                           " steps: expects a power of two, at least 1, and at least one step");
  if (summary.scale_loss_gradient_function() >= uint32_t(functions.functions_size()))
    return failSummary(findings, "function " +
                                     std::to_string(summary.scale_loss_gradient_function()) +
                                     " of " + std::to_string(functions.functions_size()) +
                                     ", which scales, does not exist");
  return true;
}

/// Parameters of a group must not overlap, because the replay counts contributions per parameter.
bool Model::placeParameters(std::vector<Finding> &findings) {
  pieces.resize(summary.groups_size());
  for (int p = 0; p < summary.parameters_size(); ++p) {
    const auto &parameter = summary.parameters(p);
    if (const int64_t elements = elementsOf(parameter); elements > 0)
      pieces[parameter.group()].push_back(
          {parameter.offset(), parameter.offset() + elements, uint32_t(p)});
  }
  for (int g = 0; g < summary.groups_size(); ++g) {
    auto &list = pieces[g];
    std::sort(list.begin(), list.end(),
              [](const Piece &a, const Piece &b) { return a.begin < b.begin; });
    for (size_t i = 1; i < list.size(); ++i)
      if (list[i].begin < list[i - 1].end)
        return failSummary(findings, "parameters '" +
                                         summary.parameters(list[i - 1].parameter).name() +
                                         "' and '" + summary.parameters(list[i].parameter).name() +
                                         "' overlap in group '" + summary.groups(g).name() + "'");
  }
  placeStates();
  return true;
}

int64_t Model::blockSize(const bundle::UpdateRule &rule) {
  int64_t size = 1;
  for (int64_t extent : rule.block())
    size = size < 0 ? -1 : product(size, extent);
  return size;
}

// The entries of every parameter begin at a multiple of 512 bytes, as its elements do.
void Model::placeStates() {
  constexpr int64_t alignment = 512;
  states.resize(size_t(summary.groups_size()));
  for (size_t g = 0; g < states.size(); ++g)
    for (const Piece &piece : pieces[g]) {
      const bundle::ParameterInfo &parameter = summary.parameters(int(piece.parameter));
      if (!parameter.trainable())
        continue;
      const bundle::UpdateRule &rule = summary.update_rules(int(parameter.update_rule()));
      states[g].resize(size_t(rule.states_size()));
      for (int s = 0; s < rule.states_size(); ++s) {
        State &state = states[g][size_t(s)];
        state.type = rule.states(s).type() == bundle::ELEMENT_TYPE_UNSPECIFIED
                         ? parameter.type()
                         : rule.states(s).type();
        const int64_t count = (piece.end - piece.begin) / blockSize(rule) *
                              rule.states(s).entries(),
                      unit = alignment / elementSize(state.type);
        state.pieces.push_back({state.entries, state.entries + count, piece.parameter});
        state.entries += (count + unit - 1) / unit * unit;
      }
    }
}

Range Model::entriesOf(uint32_t group, uint32_t state, Range elements) const {
  const std::vector<Piece> &list = pieces[group];
  if (list.size() != states[group][state].pieces.size() || list.empty())
    return {-1, -1};
  auto entry = [&](int64_t element, int64_t inside) {
    size_t p = 0;
    while (p + 1 < list.size() && list[p + 1].begin <= inside)
      ++p;
    const bundle::UpdateRule &rule =
        summary.update_rules(int(summary.parameters(int(list[p].parameter)).update_rule()));
    return states[group][state].pieces[p].begin +
           (element - list[p].begin) / blockSize(rule) * rule.states(int(state)).entries();
  };
  return {entry(elements.begin, elements.begin), entry(elements.end, elements.end - 1)};
}

/// Checks the functions that add terms. Every type has one for each number of terms from 2 to the
/// maximum, with the terms in order and one element of each per row. Sums of rounded terms may be
/// f32 sums of bf16 terms only, and one function rounds a term.
bool Model::checkSums(std::vector<Finding> &findings) {
  auto fail = [&](const bundle::SumFunction &sum, const std::string &what) {
    findings.push_back(
        {Code::Malformed, -1, -1,
         "summary: the sum of " + std::to_string(sum.num_contributions()) + " terms " + what});
    return false;
  };
  std::map<std::array<int, 3>, uint32_t> last; // by types, and whether the sum continues
  for (const auto &sum : summary.sums()) {
    const bundle::ElementType term = sum.term_type() ? sum.term_type() : sum.type();
    const bool rounds = sum.type() == bundle::BF16 && term == bundle::F32,
               known = rounds || term == sum.type() ||
                       (sum.type() == bundle::F32 && term == bundle::BF16);
    uint32_t &latest = last[{sum.type(), sum.term_type(), sum.continues()}];
    const uint32_t before = latest ? latest : rounds ? 0 : 1;
    if (!elementSize(sum.type()) || !known || (rounds && before) ||
        (sum.continues() && term != bundle::BF16) || sum.num_contributions() != before + 1 ||
        sum.num_contributions() > kMaxTerms ||
        sum.function() >= uint32_t(functions.functions_size()))
      return fail(sum, "has an impossible type, number of terms or function");
    latest = sum.num_contributions();
    const auto &arguments = functions.functions(int(sum.function())).arguments();
    bool good = arguments.size() == int(sum.num_contributions()) + 1;
    for (int s = 0; s < arguments.size() && good; ++s) {
      const bool isSum = s == int(sum.num_contributions());
      good = arguments[s].kind() == (isSum ? bundle::SUM : bundle::CONTRIBUTION) &&
             arguments[s].index() == (isSum ? 0 : uint32_t(s)) &&
             arguments[s].mode() == (isSum ? bundle::WRITE : bundle::READ) &&
             arguments[s].bytes().fixed() == 0;
      const bundle::ElementType type = isSum || (s == 0 && sum.continues()) ? sum.type() : term;
      good = good && arguments[s].type() == type &&
             arguments[s].bytes().per_row() == elementSize(type);
    }
    if (!good)
      return fail(sum, "has another function: expects its terms in their order, then the sum");
  }
  return true;
}

bool Model::checkFunctions(std::vector<Finding> &findings) const {
  return checkArguments(findings) && checkUnitFunctions(findings) && checkParts(findings) &&
         checkCommit(findings);
}

bool Model::checkArguments(std::vector<Finding> &findings) const {
  for (const auto &function : functions.functions()) {
    std::set<std::pair<int, uint32_t>> seen;
    for (const auto &argument : function.arguments())
      if (argument.kind() <= bundle::ARGUMENT_UNSPECIFIED || argument.kind() > bundle::EXCHANGE ||
          argument.mode() < bundle::READ || argument.mode() > bundle::ACCUMULATE ||
          extentBytes(argument.bytes(), 1) < 0 ||
          (argument.kind() != bundle::WORKSPACE &&
           !seen.insert({argument.kind(), argument.index()}).second)) {
        findings.push_back({Code::Malformed, -1, -1,
                            "function '" + function.name() + "': argument '" + argument.name() +
                                "' has an impossible kind, mode or size, or is listed twice"});
        return false;
      }
  }
  return true;
}

/// The other functions must have the arguments through which the replay follows the commit.
bool Model::checkCommit(std::vector<Finding> &findings) const {
  auto needs = [&](uint32_t index, bundle::ArgumentKind kind, uint32_t position,
                   std::initializer_list<bundle::AccessMode> modes, const char *what) {
    for (const auto &argument : functions.functions(int(index)).arguments())
      if (argument.kind() == kind && argument.index() == position &&
          std::find(modes.begin(), modes.end(), argument.mode()) != modes.end())
        return true;
    findings.push_back(
        {Code::Malformed, -1, -1,
         "function '" + functions.functions(int(index)).name() + "' has no argument for " + what});
    return false;
  };
  bool good = true;
  const auto read = {bundle::READ}, change = {bundle::UPDATE},
             add = {bundle::ACCUMULATE, bundle::UPDATE};
  for (const bundle::UpdateRule &rule : summary.update_rules()) {
    const uint32_t update = rule.function();
    good = good && needs(update, bundle::STATE, 0, change, "the parameters") &&
           needs(update, bundle::STATE, 1, read, "the gradients");
    good = good && needs(update, bundle::SCALARS, 0, read, "the decision");
    for (int m = 0; m < rule.states_size(); ++m)
      good = good && needs(update, bundle::STATE, 2 + uint32_t(m), change, "the moments");
  }
  if (copies)
    good = good && needs(summary.cast_function(), bundle::STATE, 0, read, "the parameters") &&
           needs(summary.cast_function(), bundle::PARAMETER, 0, {bundle::WRITE}, "their copy");
  if (scales())
    good = good &&
           needs(summary.scale_loss_gradient_function(), bundle::SCALARS, 0, change, "the seeds") &&
           needs(summary.scale_loss_gradient_function(), bundle::OPTIMIZER_STEP, 0, read,
                 "the scale") &&
           needs(summary.clip_and_check_function(), bundle::OPTIMIZER_STEP, 0, change, "the scale");
  return good && needs(summary.norm_function(), bundle::STATE, 1, read, "the gradients") &&
         needs(summary.norm_function(), bundle::LOCAL_METRICS, 0, add, "the sums") &&
         (!summary.loss_size() ||
          needs(summary.sum_loss_function(), bundle::LOCAL_METRICS, 0, add, "the sums")) &&
         needs(summary.clip_and_check_function(), bundle::LOCAL_METRICS, 0, read, "the sums") &&
         needs(summary.clip_and_check_function(), bundle::SCALARS, 0, change, "the decision");
}

/// Returns the cells that tile units and samples: of the cells of a group, those of its first
/// device.
static std::vector<uint32_t> tilesOf(const PlanView &plan) {
  std::vector<uint32_t> tiles;
  for (uint32_t c = 0; c < plan.cells.size(); ++c)
    if (plan.cells[c].member == 0)
      tiles.push_back(c);
  return tiles;
}

bool Model::checkPlan(std::vector<Finding> &findings) {
  auto fail = [&](const std::string &message) {
    findings.push_back({Code::Plan, -1, -1, "plan: " + message});
    return false;
  };
  const auto &training = summary.training();
  if (plan.commitsByGroup && (training.clip_norm() > 0 || scales()))
    return fail("commits by group, but gradients are clipped or the loss is scaled, which needs "
                "the gradients of all groups");
  int64_t units = summary.units_size();
  if (summary.samples_per_row() < 0 || summary.samples_per_row() > kMaxSize)
    return fail("the model has rows of an impossible number of samples");
  if (plan.samplesPerRow != std::max<int64_t>(summary.samples_per_row(), 1))
    return fail("takes " + std::to_string(plan.samplesPerRow) + " samples for a row, the model " +
                std::to_string(summary.samples_per_row()));
  if (plan.batch < 1 || plan.batch > kMaxSize)
    return fail("expects a positive batch, found " + std::to_string(plan.batch));
  __int128 area = 0;
  auto text = [](const PlanView::Cell &cell) {
    return "(units " + std::to_string(cell.firstUnit) + "-" + std::to_string(cell.endUnit) +
           ", samples " + std::to_string(cell.firstSample) + "-" + std::to_string(cell.endSample) +
           ")";
  };
  for (const auto &cell : plan.cells)
    if (cell.firstUnit < 0 || cell.firstUnit >= cell.endUnit || cell.endUnit > units ||
        cell.firstSample < 0 || cell.firstSample >= cell.endSample || cell.endSample > plan.batch ||
        cell.device >= plan.devices.size())
      return fail("cell " + text(cell) + " is not inside " + std::to_string(units) + " units x " +
                  std::to_string(plan.batch) + " samples, or its device does not exist");
  if (!checkMembers(findings))
    return false;
  const std::vector<uint32_t> tiles = tilesOf(plan);
  for (uint32_t c : tiles)
    area += __int128(plan.cells[c].endUnit - plan.cells[c].firstUnit) *
            (plan.cells[c].endSample - plan.cells[c].firstSample);
  if (area != __int128(units) * plan.batch)
    return fail("cells cover " + std::to_string(int64_t(area)) + " of " +
                std::to_string(int64_t(__int128(units) * plan.batch)) + " (unit, sample) pairs");

  // Sweep over units: at each unit, the samples of the open cells must not overlap. Together with
  // the area, this proves that the tiling is exact.
  std::vector<uint32_t> byFirst(tiles), byEnd(tiles);
  std::sort(byFirst.begin(), byFirst.end(), [&](uint32_t a, uint32_t b) {
    return plan.cells[a].firstUnit < plan.cells[b].firstUnit;
  });
  std::sort(byEnd.begin(), byEnd.end(),
            [&](uint32_t a, uint32_t b) { return plan.cells[a].endUnit < plan.cells[b].endUnit; });
  std::map<int64_t, uint32_t> open; // first sample -> cell
  size_t closing = 0;
  for (uint32_t index : byFirst) {
    const auto &cell = plan.cells[index];
    while (closing < byEnd.size() && plan.cells[byEnd[closing]].endUnit <= cell.firstUnit)
      open.erase(plan.cells[byEnd[closing++]].firstSample);
    auto next = open.lower_bound(cell.firstSample);
    if (next != open.end() && next->first < cell.endSample)
      return fail("cells " + text(cell) + " and " + text(plan.cells[next->second]) + " overlap");
    if (next != open.begin() && plan.cells[std::prev(next)->second].endSample > cell.firstSample)
      return fail("cells " + text(cell) + " and " + text(plan.cells[std::prev(next)->second]) +
                  " overlap");
    open.emplace(cell.firstSample, index);
  }
  return true;
}

std::vector<uint32_t> Model::contributorsOf(const bundle::Value &sum) const {
  if (isState(sum.kind()) && sum.id() < groupContributors.size())
    return groupContributors[sum.id()];
  std::vector<uint32_t> devices; // for an exchange: the devices of the cell's group
  for (const PlanView::Cell &cell : plan.cells)
    if (sum.kind() == bundle::Value::EXCHANGED && cell.group >= 0 &&
        cell.firstUnit <= int64_t(sum.id()) && int64_t(sum.id()) < cell.endUnit &&
        cell.firstSample == sum.begin() && cell.endSample == sum.end())
      devices.push_back(cell.device);
  std::sort(devices.begin(), devices.end());
  return devices;
}

/// Adds the elements of all groups of which the unit has a part of a parameter.
void Model::addPartialContributions(uint32_t device, const bundle::UnitInfo &unit) {
  std::set<uint32_t> partial;
  auto groupOf = [&](uint32_t argument) {
    return summary.parameters(int(unit.parameters(int(argument)))).group();
  };
  for (const auto &part : unit.parts())
    partial.insert(groupOf(part.argument()));
  for (uint32_t i = 0; i < uint32_t(unit.parameters_size()); ++i)
    if (partial.count(groupOf(i)) && contributed[&unit].count(unit.parameters(int(i)))) {
      const Compact elements = bundle::parameterRuns(summary, unit, i);
      for (const Compact::Run &run : elements.runs())
        partialContributions[{device, groupOf(i)}].push_back({device, run.begin, run.end});
    }
}

std::vector<uint32_t> Model::contributorsTo(uint32_t group, const Shard &shard) const {
  std::vector<uint32_t> devices;
  for (uint32_t device : groupContributors[group]) {
    const auto partial = partialContributions.find({device, group});
    if (partial == partialContributions.end() || !holdersOf(partial->second, shard).empty())
      devices.push_back(device);
  }
  return devices;
}

void Model::index() {
  auto addOnce = [](std::vector<uint32_t> &list, uint32_t item) {
    if (std::find(list.begin(), list.end(), item) == list.end())
      list.push_back(item);
  };
  parameterContributors.resize(summary.parameters_size());
  valueContributors.resize(summary.values_size());
  forUnits([&](const bundle::UnitInfo &unit, uint32_t u) {
    // If the plan splits the backward, each contribution belongs to either B or W.
    for (bundle::Compute::Task task : {bundle::Compute::B, bundle::Compute::W}) {
      const uint32_t function = functionOf(unit, task);
      if (function == kNoFunction)
        continue;
      for (const auto &argument : functions.functions(int(function)).arguments()) {
        if (argument.kind() == bundle::PARAMETER_GRADIENT &&
            argument.index() < uint32_t(unit.parameters_size())) {
          const uint32_t parameter = unit.parameters(int(argument.index()));
          addOnce(parameterContributors[parameter], u);
          contributed[&unit].insert(parameter);
        }
        if (argument.kind() == bundle::BOUNDARY_IN_GRADIENT &&
            argument.index() < uint32_t(unit.values_in_size()))
          addOnce(valueContributors[unit.values_in(int(argument.index()))], u);
      }
    }
  });
  for (auto *lists : {&parameterContributors, &valueContributors})
    for (std::vector<uint32_t> &list : *lists)
      std::sort(list.begin(), list.end());
  groupContributors.resize(summary.groups_size());
  cellsOfDevice.resize(plan.devices.size());
  for (size_t c = 0; c < plan.cells.size(); ++c)
    cellsOfDevice[plan.cells[c].device].push_back(uint32_t(c));
  for (uint32_t d = 0; d < plan.devices.size(); ++d)
    for (uint32_t c : cellsOfDevice[d])
      for (int64_t u = plan.cells[c].firstUnit; u < plan.cells[c].endUnit; ++u) {
        const bundle::UnitInfo &unit = unitOf(d, u);
        for (uint32_t parameter : contributed[&unit]) {
          auto &devices = groupContributors[summary.parameters(int(parameter)).group()];
          if (devices.empty() || devices.back() != d)
            devices.push_back(d);
        }
        if (!unit.parts().empty())
          addPartialContributions(d, unit);
        // The devices of a group compute equal losses; the first adds them.
        if (summary.units(int(u)).loss_terms_size() && plan.cells[c].member == 0 &&
            (lossDevices.empty() || lossDevices.back() != d))
          lossDevices.push_back(d);
      }
  findTrees();
}

bool Model::isOrderOfSum(const std::vector<uint32_t> &devices) const {
  std::vector<uint32_t> ascending = devices;
  std::sort(ascending.begin(), ascending.end());
  return devices == ascending || devices == collectives::ownerOrder(placement, ascending);
}

/// Groups with equal contributors share a tree.
void Model::findTrees() {
  std::vector<std::pair<std::string, std::string>> places;
  places.reserve(plan.devices.size());
  for (const PlanView::Device &device : plan.devices)
    places.push_back({device.node, device.site});
  placement = collectives::placementOf(places);
  std::map<std::vector<uint32_t>, std::shared_ptr<const collectives::Tree>> known;
  for (const std::vector<uint32_t> &contributors : groupContributors) {
    auto &tree = known[contributors];
    if (!tree)
      tree = std::make_shared<collectives::Tree>(
          contributors.empty() ? collectives::Tree()
                               : collectives::makeTree(placement, contributors));
    trees.push_back(tree);
  }
}
