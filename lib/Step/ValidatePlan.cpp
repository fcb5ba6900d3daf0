// Checks a plan against a model: the tiling by one sweep over the units, then devices, owners and
// order.

#include "Messages.h"

#include "zorse/Bundle/ContentHash.h"
#include "zorse/Step/Schedules.h"
#include "zorse/Summary/FlatGroups.h"
#include "zorse/Summary/Optimizers.h"
#include "zorse/Summary/StateLayout.h"
#include "zorse/Summary/Summary.h"

#include "bundle.pb.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

using namespace zorse::step;

namespace {

std::string range(const char *what, int64_t begin, int64_t end) {
  return std::string(what) + " " + std::to_string(begin) + "-" + std::to_string(end);
}

/// Returns the units of a group whose devices exchange different values when they recompute.
std::set<int32_t> recomputedDifferently(const zorse::bundle::ModelSummary &summary,
                                        const zorse::bundle::DeviceGroup &group) {
  auto exchanges = [&](const auto &member, int i) {
    std::vector<uint32_t> numbers;
    if (const auto *function = zorse::findFunction(zorse::classOf(summary, member.units(i)),
                                                   zorse::bundle::UnitFunction::RECOMPUTE))
      for (const auto &exchange : function->exchanges())
        numbers.push_back(exchange.number());
    return numbers;
  };
  std::set<int32_t> units;
  for (int i = 0; i < group.units_size(); ++i)
    for (const auto &member : group.members())
      if (exchanges(member, i) != exchanges(group.members(0), i))
        units.insert(static_cast<int32_t>(group.units(i)));
  return units;
}

/// Checks the cells of groups: every device of a group has each of its cells. Returns, by cell,
/// whether it repeats the rectangle of the group's first device.
std::vector<bool> checkGroups(const Plan &plan, const zorse::bundle::ModelSummary &summary,
                              Messages &messages) {
  std::vector<bool> again(plan.cells.size(), false);
  if (plan.groups.empty() && summary.device_groups_size() == 0)
    return again;
  if (static_cast<int>(plan.groups.size()) != summary.device_groups_size()) {
    messages.add("the plan has " + std::to_string(plan.groups.size()) +
                 " groups of devices, the model was compiled for " +
                 std::to_string(summary.device_groups_size()) +
                 ": compile the model with this plan");
    return again;
  }
  if (plan.durations)
    messages.add("durations: a plan with groups has none: remove them");
  std::set<uint32_t> grouped;
  std::vector<std::set<int32_t>> dividedBy(plan.groups.size()), different(plan.groups.size());
  std::set<int32_t> divided;
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const DeviceGroup &group = plan.groups[g];
    const auto &known = summary.device_groups(static_cast<int>(g));
    if (known.name() != group.name ||
        known.members_size() != static_cast<int>(group.devices.size()))
      messages.add("group '" + group.name + "' is not the group '" + known.name() +
                   "' that the model was compiled for: compile the model with this plan");
    for (uint32_t device : group.devices)
      if (!grouped.insert(device).second)
        messages.add("group '" + group.name + "': device " + plan.devices[device].name +
                     " is in two groups, or twice in one");
    different[g] = recomputedDifferently(summary, known);
    for (uint32_t unit : known.units()) {
      dividedBy[g].insert(static_cast<int32_t>(unit));
      divided.insert(static_cast<int32_t>(unit));
    }
  }
  if (!messages.empty())
    return again;
  std::map<std::array<int64_t, 5>, std::set<uint32_t>> members; // by rectangle and group
  for (uint32_t i = 0; i < plan.cells.size(); ++i) {
    const Cell &cell = plan.cells[i];
    again[i] = !isListed(cell);
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      if (cell.group < 0 ? divided.count(u)
                         : !dividedBy[static_cast<size_t>(cell.group)].count(u)) {
        messages.add(describeCell(plan, i) + ": unit '" + summary.units(u).name() +
                     (cell.group < 0
                          ? "' is divided by a group, and this cell belongs to no group: "
                            "make its device a group, {\"name\": ..., \"devices\": [\"" +
                                plan.devices[cell.device].name + "\"]}"
                          : "' is not divided by this group"));
        break;
      }
    if (cell.group < 0)
      continue;
    const auto &units = different[static_cast<size_t>(cell.group)];
    const auto unit = units.lower_bound(cell.unitBegin);
    if (cell.activations == Activations::Recompute && isListed(cell) && unit != units.end() &&
        *unit < cell.unitEnd)
      messages.add(describeCell(plan, i) + ": the devices of its group exchange different values " +
                   "when they recompute unit '" + summary.units(*unit).name() +
                   "', which is not supported yet: set its \"activations\" to \"keep\"");
    members[{cell.unitBegin, cell.unitEnd, cell.sampleBegin, cell.sampleEnd, cell.group}].insert(
        cell.member);
  }
  for (const auto &[rectangle, present] : members)
    if (present.size() != plan.groups[static_cast<size_t>(rectangle[4])].devices.size())
      messages.add("group '" + plan.groups[static_cast<size_t>(rectangle[4])].name + "': only " +
                   std::to_string(present.size()) + " of its devices have the cell of " +
                   range("units", rectangle[0], rectangle[1]));
  return again;
}

/// Sweeps over unit boundaries with the set of cells that cover the current unit, ordered by
/// samples.
/// \param again  cells that are duplicates of another cell
void checkTiling(const Plan &plan, int32_t units, const std::vector<bool> &again,
                 Messages &messages) {
  std::map<int32_t, std::vector<uint32_t>> begins, ends;
  std::set<int32_t> boundaries{0};
  for (uint32_t i = 0; i < plan.cells.size(); ++i) {
    if (again[i])
      continue;
    begins[plan.cells[i].unitBegin].push_back(i);
    ends[plan.cells[i].unitEnd].push_back(i);
    boundaries.insert(plan.cells[i].unitBegin);
    boundaries.insert(plan.cells[i].unitEnd);
  }

  std::map<int64_t, uint32_t> active; // by first sample
  bool overlaps = false;
  int64_t covered = 0;
  for (auto boundary = boundaries.begin(); boundary != boundaries.end(); ++boundary) {
    if (*boundary >= units)
      break;
    for (uint32_t i : ends[*boundary]) {
      auto it = active.find(plan.cells[i].sampleBegin);
      if (it == active.end() || it->second != i)
        continue; // removed after a reported overlap
      active.erase(it);
      covered -= plan.cells[i].rows();
    }
    for (uint32_t i : begins[*boundary]) {
      const Cell &cell = plan.cells[i];
      auto next = active.lower_bound(cell.sampleBegin);
      int64_t other = -1;
      if (next != active.end() && plan.cells[next->second].sampleBegin < cell.sampleEnd)
        other = next->second;
      else if (next != active.begin() &&
               plan.cells[std::prev(next)->second].sampleEnd > cell.sampleBegin)
        other = std::prev(next)->second;
      if (other >= 0) {
        const Cell &o = plan.cells[other];
        overlaps = true;
        messages.add(describeCell(plan, i) + " overlaps " + describeCell(plan, other) + " in " +
                     range("units", std::max(o.unitBegin, cell.unitBegin),
                           std::min(o.unitEnd, cell.unitEnd)) +
                     ", " +
                     range("samples",
                           std::max(o.sampleBegin, cell.sampleBegin) * plan.samplesPerRow,
                           std::min(o.sampleEnd, cell.sampleEnd) * plan.samplesPerRow) +
                     ": every unit of every sample belongs to exactly one cell");
        continue;
      }
      active.emplace(cell.sampleBegin, i);
      covered += cell.rows();
    }
    if (covered == plan.batch || overlaps)
      continue; // a cell removed after an overlap may have filled this gap
    int32_t until = std::next(boundary) == boundaries.end() ? units
                                                            : std::min(units, *std::next(boundary));
    int64_t expected = 0;
    auto report = [&](int64_t begin, int64_t end) {
      messages.add("gap: " + range("units", *boundary, until) + " of " +
                   range("samples", begin * plan.samplesPerRow, end * plan.samplesPerRow) +
                   " belong to no cell (the plan must cover units 0-" + std::to_string(units) +
                   " of samples 0-" + std::to_string(plan.batch * plan.samplesPerRow) + ")");
    };
    for (auto &[begin, i] : active) {
      if (begin > expected)
        report(expected, begin);
      expected = plan.cells[i].sampleEnd;
    }
    if (expected < plan.batch)
      report(expected, plan.batch);
  }
}

/// What an update treats as a whole: "a matrix, which muon updates as a whole".
std::string blockText(const zorse::bundle::ModelSummary &summary, uint32_t group) {
  const zorse::OptimizerInfo &info = zorse::infoOf(summary.training().optimizer());
  const auto *rule = zorse::ruleOf(summary, summary.groups(static_cast<int>(group)));
  if (info.has(zorse::OptimizerInfo::Codes))
    return "an aligned range of blocks of " + std::to_string(zorse::blockElements(*rule)) +
           " elements, which " + info.name + " updates as a whole";
  return std::string(rule->block_size() > 1 ? "a matrix" : "a vector") + ", which " + info.name +
         " updates as a whole";
}

/// Returns an end of an owner's range at which a group may not be divided; -1: there is none.
int64_t insideBlock(const zorse::bundle::ModelSummary &summary, uint32_t group,
                    const Owner &owner) {
  for (const int64_t end : {owner.begin, owner.end})
    if (owner.begin < owner.end && zorse::ownerBorder(summary, group, end) != end)
      return end;
  return -1;
}

/// Returns why a range of elements cannot have an owner, after ownedText; "" if it can.
std::string problemOfRange(const zorse::bundle::ModelSummary &summary, uint32_t number,
                           const Owner &owner) {
  const auto &group = summary.groups(static_cast<int>(number));
  const auto align =
      static_cast<int64_t>(zorse::kStateAlignment / zorse::elementBytes(group.type()));
  if (owner.begin > owner.end || owner.end > group.elements())
    return "expected a range inside 0-" + std::to_string(group.elements());
  if (owner.begin % align || (owner.end % align && owner.end != group.elements()))
    return "expected multiples of " + std::to_string(align) + " elements (512 bytes)";
  if (const int64_t inside = insideBlock(summary, number, owner); inside >= 0)
    return "and " + std::to_string(inside) + " is inside of " + blockText(summary, number) +
           "; the next border before it is " +
           std::to_string(zorse::ownerBorder(summary, number, inside));
  return {};
}

std::string ownedText(const std::string &group, const std::string &device, const Owner &owner) {
  return group + ": device " + device + " owns " + range("elements", owner.begin, owner.end) + ", ";
}

void checkOwners(const Plan &plan, const zorse::bundle::ModelSummary &summary, Messages &messages) {
  std::set<uint32_t> seen;
  for (const GroupOwners &entry : plan.owners) {
    if (entry.group >= static_cast<uint32_t>(summary.groups_size())) {
      messages.add("state group " + std::to_string(entry.group) +
                   " does not exist: the model has " + std::to_string(summary.groups_size()));
      continue;
    }
    const auto &group = summary.groups(entry.group);
    std::string name = "state group " + std::to_string(entry.group) + " ('" + group.name() + "')";
    if (!seen.insert(entry.group).second)
      messages.add(name + " is listed twice");
    if (!group.trainable())
      messages.add(name + " is frozen: it has no owners, every device that reads it holds it; "
                          "remove it from the list");
    std::set<uint32_t> devices;
    double shares = 0;
    bool anyShare = false, anyRange = false;
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const Owner &owner : entry.owners) {
      if (owner.device >= plan.devices.size()) {
        messages.add(name + ": owner device " + std::to_string(owner.device) + " does not exist");
        continue;
      }
      const std::string &device = plan.devices[owner.device].name;
      if (owner.begin < 0) {
        if (!devices.insert(owner.device).second)
          messages.add(name + ": device " + device +
                       " is listed twice; a device has at most one share of a group");
        anyShare = true;
        shares += owner.fraction;
        if (!(owner.fraction >= 0 && owner.fraction <= 1))
          messages.add(name + ": the fraction of device " + device + " is " +
                       std::to_string(owner.fraction) + ", expected a fraction from 0 to 1");
        continue;
      }
      anyRange = true;
      if (const std::string wrong = problemOfRange(summary, entry.group, owner); !wrong.empty())
        messages.add(ownedText(name, device, owner) + wrong);
      else if (owner.begin < owner.end)
        ranges.push_back({owner.begin, owner.end});
    }
    if (entry.owners.empty())
      messages.add(
          name +
          " has an empty list of owners: remove it from the list to give it the default owners");
    else if (anyShare && anyRange)
      messages.add(name + " mixes shares and element ranges: use one of them");
    else if (anyShare && !(shares > 0.995 && shares < 1.005))
      messages.add(name + ": fractions add up to " + std::to_string(shares) + ", expected 1");
    else if (anyRange) {
      std::sort(ranges.begin(), ranges.end());
      int64_t expected = 0;
      for (auto [begin, end] : ranges) {
        if (begin != expected) {
          messages.add(name + ": " +
                       range("elements", std::min(begin, expected), std::max(begin, expected)) +
                       (begin > expected ? " have no owner" : " have two owners"));
          break;
        }
        expected = end;
      }
      if (!ranges.empty() && ranges.back().second < group.elements() &&
          expected == ranges.back().second)
        messages.add(name + ": " + range("elements", expected, group.elements()) +
                     " have no owner");
      if (ranges.empty())
        messages.add(name + ": no device owns any of its elements");
    }
  }
}

/// Checks residency. Most of these errors occur only in plans that are made by programs, not in
/// files.
void checkResidency(const Plan &plan, const zorse::bundle::ModelSummary &summary,
                    Messages &messages) {
  for (size_t i = 0; i < plan.offload.size(); ++i) {
    const OffloadRule &rule = plan.offload[i];
    const std::string name = "residency rule " + std::to_string(i);
    auto check = [&](const std::vector<uint32_t> &list, const char *what, size_t count) {
      if (std::adjacent_find(list.begin(), list.end(), std::greater_equal<>()) != list.end())
        messages.add(name + ": its " + what + "s are not in ascending order, each once");
      if (!list.empty() && *std::max_element(list.begin(), list.end()) >= count)
        messages.add(name + ": names " + what + " " +
                     std::to_string(*std::max_element(list.begin(), list.end())) + " of " +
                     std::to_string(count));
    };
    if ((rule.reshardAfterForward.has_value() && !rule.devices.empty()) ||
        (rule.bufferCount && !rule.groups.empty()))
      messages.add(name +
                   ": gathers are of groups on all devices, images of devices for all groups");
    if (rule.bufferCount && (*rule.bufferCount < 1 || *rule.bufferCount > kMaxBufferCount))
      messages.add(name + ": images are " + std::to_string(*rule.bufferCount) + ", expected 1 to " +
                   std::to_string(kMaxBufferCount));
    check(rule.devices, "device", plan.devices.size());
    check(rule.groups, "group", static_cast<size_t>(summary.groups_size()));
  }
  if (!messages.empty())
    return;
  // If a rule assigns updates to the host's CPU, all updated state must finally be on the host.
  for (const OffloadRule &rule : plan.offload) {
    if (rule.optimizer != MemoryTier::Host)
      continue;
    auto all = [](const std::vector<uint32_t> &named, size_t count) {
      std::vector<uint32_t> list(named);
      for (uint32_t i = 0; list.size() < count && named.empty(); ++i)
        list.push_back(i);
      return list;
    };
    for (uint32_t d : all(rule.devices, plan.devices.size()))
      for (uint32_t g : all(rule.groups, static_cast<size_t>(summary.groups_size()))) {
        const StatePlacement at = plan.placementOf(d, g);
        const bool moments = zorse::optimizerStates(summary, summary.groups(static_cast<int>(g))) >
                                 0 &&
                             at.moments == MemoryTier::Device;
        if (!summary.groups(static_cast<int>(g)).trainable() || at.update == MemoryTier::Device ||
            (at.parameters == MemoryTier::Host && !moments))
          continue;
        return messages.add("residency: state group " + std::to_string(g) + " ('" +
                            summary.groups(static_cast<int>(g)).name() + "') of device " +
                            plan.devices[d].name + " is updated on the host, and its " +
                            (at.parameters == MemoryTier::Host ? "moments" : "parameters") +
                            " are kept on the device: the host's CPU updates only state in host "
                            "memory. Keep parameters and moments \"host\"," +
                            " or say \"update\": \"device\"");
      }
  }
}

void checkOptimizerStep(const Plan &plan, const zorse::bundle::ModelSummary &summary,
                        Messages &messages) {
  if (plan.optimizerStep == OptimizerStep::AfterBackward)
    return;
  for (const std::string &reason : whyNotInBackward(summary))
    messages.add("state.optimizer_in_backward is true, which updates a group as soon as its "
                 "gradients are reduced, and " +
                 reason + ", or say \"optimizer_in_backward\": false");
}

} // namespace

std::vector<std::string> zorse::step::whyNotInBackward(const zorse::bundle::ModelSummary &summary) {
  const auto &training = summary.training();
  std::vector<std::string> reasons;
  if (training.clip_norm() > 0)
    reasons.emplace_back("gradients are clipped by their norm, which needs the gradients of all "
                         "groups first: compile with --max-grad-norm=0");
  if (training.loss_scale() > 0)
    reasons.emplace_back("the loss is scaled, with steps that overflow skipped, which needs the "
                         "gradients of all groups first: compile for bf16 or f32");
  return reasons;
}

zorse::Status zorse::step::checkGradientWire(GradientWire wire,
                                             const bundle::ModelSummary &summary) {
  if (wire == GradientWire::Unrounded)
    return Status::success();
  for (const auto &group : summary.groups())
    if (group.trainable() && group.type() != bundle::F32)
      return userError(std::string("gradient_wire is \"") +
                       kGradientWireNames[static_cast<size_t>(wire)] +
                       "\", which rounds f32 gradients, and the gradients of group '" +
                       group.name() + "' are " + elementTypeName(group.type()) +
                       ": remove \"gradient_wire\" (--gradient-wire), or compile with f32 "
                       "gradients");
  return Status::success();
}

zorse::Status zorse::step::validatePlan(const Plan &plan, const bundle::ModelSummary &summary) {
  Messages messages;
  int32_t units = summary.units_size();
  if (bundle::differentModels(plan.model, summary.content_hash()))
    messages.add("the plan was made for another model: it names " + plan.model +
                 ", this model is " + summary.content_hash() +
                 "; plan again, or remove \"model\" if the units are the same");
  if (plan.batch < 1)
    messages.add("batch is " + std::to_string(plan.batch) + ", expected at least 1");
  if (plan.batch > kMaxSamples)
    messages.add("batch is " + std::to_string(plan.batch) + ", expected at most " +
                 std::to_string(kMaxSamples));
  if (static_cast<int64_t>(plan.cells.size()) > kMaxCells)
    messages.add("the plan has " + std::to_string(plan.cells.size()) + " cells, expected at most " +
                 std::to_string(kMaxCells));
  if (plan.devices.empty())
    messages.add("the plan has no devices");
  std::set<std::string> names;
  for (const PlanDevice &device : plan.devices)
    if (!names.insert(device.name).second)
      messages.add("device '" + device.name + "' is listed twice");
  if (!messages.empty())
    return userError(messages.take());

  for (uint32_t i = 0; i < plan.cells.size(); ++i) {
    const Cell &cell = plan.cells[i];
    if (cell.device >= plan.devices.size())
      messages.add(describeCell(plan, i) + " is on an unknown device: the plan has " +
                   std::to_string(plan.devices.size()));
    if (cell.unitBegin >= cell.unitEnd)
      messages.add(describeCell(plan, i) + " has no units: expected begin < end");
    if (cell.sampleBegin >= cell.sampleEnd)
      messages.add(describeCell(plan, i) + " has no samples: expected begin < end");
    if (cell.unitBegin < 0 || cell.unitEnd > units)
      messages.add(describeCell(plan, i) + " leaves the model: it has units 0-" +
                   std::to_string(units));
    if (cell.sampleBegin < 0 || cell.sampleEnd > plan.batch)
      messages.add(describeCell(plan, i) + " leaves the batch: it has samples 0-" +
                   std::to_string(plan.batch * plan.samplesPerRow));
  }
  const Schedule &schedule = plan.schedule;
  for (const ScheduleParameter &parameter : scheduleRule(schedule.kind).parameters) {
    if (auto *number = std::get_if<double Schedule::*>(&parameter.field)) {
      double value = schedule.**number;
      if (!((parameter.positive ? value > 0 : value >= 0) && value <= 1e30))
        messages.add(std::string("schedule: ") + parameter.key + " is " + std::to_string(value) +
                     (parameter.positive ? ", expected a number above 0"
                                         : ", expected a number that is not negative"));
    } else if (auto *list = std::get_if<std::vector<uint32_t> Schedule::*>(&parameter.field)) {
      size_t count = (schedule.**list).size();
      if (count != 0 && count != plan.devices.size())
        messages.add(std::string("schedule: ") + parameter.key + " lists " + std::to_string(count) +
                     " devices, expected " + std::to_string(plan.devices.size()));
    }
  }
  if (plan.durations && (plan.durations->forward.size() != plan.cells.size() ||
                         plan.durations->backward.size() != plan.cells.size()))
    messages.add("durations list " + std::to_string(plan.durations->forward.size()) +
                 " forwards and " + std::to_string(plan.durations->backward.size()) +
                 " backwards, expected one of each for " + std::to_string(plan.cells.size()) +
                 " cells");
  if (plan.durations && !plan.durations->weights.empty() &&
      (plan.durations->weights.size() != plan.cells.size() || !plan.schedule.splitBackward))
    messages.add(plan.schedule.splitBackward
                     ? "durations list " + std::to_string(plan.durations->weights.size()) +
                           " weights, expected one for each of " +
                           std::to_string(plan.cells.size()) + " cells"
                     : "durations list weights, and the plan does not split its backward: add "
                       "\"split_backward\": true, or remove them");
  if (!messages.empty())
    return userError(messages.take());

  checkTiling(plan, units, checkGroups(plan, summary, messages), messages);
  checkOwners(plan, summary, messages);
  checkResidency(plan, summary, messages);
  checkOptimizerStep(plan, summary, messages);
  if (const Status status = checkGradientWire(plan.gradientWire, summary); status.failed())
    messages.add(status.message());
  if (messages.empty())
    if (std::string why = scheduleRule(schedule.kind).whyUnsupported(plan, summary); !why.empty())
      messages.add(why);
  if (!messages.empty())
    return userError(messages.take());
  return Status::success();
}
