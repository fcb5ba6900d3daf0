#include "zorse/runtime/TimeBreakdown.h"
#include "zorse/Base/Format.h"

#include <algorithm>
#include <map>
#include <set>

using namespace zorse;
using namespace zorse::runtime;

namespace {

constexpr size_t kMaxRows = 24; ///< rows of the table

struct Interval {
  double begin, end;
};

/// Total length of the union of the intervals within [begin, end).
double covered(std::vector<Interval> &intervals, double begin, double end) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval &a, const Interval &b) { return a.begin < b.begin; });
  double sum = 0, reached = begin;
  for (const Interval &i : intervals) {
    double from = std::max(i.begin, reached), to = std::min(i.end, end);
    if (to > from) {
      sum += to - from;
      reached = to;
    }
  }
  return sum;
}

/// Suggests how to shorten the step. The suggestion with the largest expected gain comes first.
std::string advice(const Bundle &bundle, const TimeBreakdown &breakdown, double measured) {
  double waiting = 0, moving = 0, slowest = 0, fastest = 0;
  size_t slow = 0, fast = 0, busiest = 0, computes = 0;
  for (size_t d = 0; d < breakdown.devices.size(); ++d) {
    const DeviceTimeBreakdown &device = breakdown.devices[d];
    if (device.computing > breakdown.devices[busiest].computing)
      busiest = d;
    if (device.slowdown == 0)
      continue;
    ++computes;
    waiting += device.idle;
    moving += device.exposedCommunication;
    if (slowest == 0 || device.slowdown > slowest)
      slowest = device.slowdown, slow = d;
    if (fastest == 0 || device.slowdown < fastest)
      fastest = device.slowdown, fast = d;
  }
  if (computes == 0)
    return {};
  waiting /= double(computes);
  moving /= double(computes);
  auto name = [&](size_t d) { return bundle.devices[d].name; };
  if (slowest > 1.25 * fastest && waiting > 0.05)
    return format("the plan divides the work by speeds that are not those found here: %s takes "
                  "%.2f times the planned time, %s %.2f times. Measure them "
                  "with zorse-profile and compile again with --profile",
                  name(slow).c_str(), slowest, name(fast).c_str(), fastest);
  if (moving > 0.2 && moving >= waiting)
    return format("%s of the time is spent on transfers while nothing computes: a larger "
                  "--global-batch-size transfers data less often, and "
                  "zorse-plan --explain "
                  "shows the effect of other links or fewer devices",
                  showPercent(moving).c_str());
  if (waiting > 0.2 && breakdown.devices.size() > 1)
    return format(
        "devices wait %s of their time, while %s computes %s of it: a larger --global-batch-size "
        "fills the gaps of a pipeline; if times differ from "
        "those planned, zorse-profile and --profile let the planner divide the work again",
        showPercent(waiting).c_str(), name(busiest).c_str(),
        showPercent(breakdown.devices[busiest].computing).c_str());
  if (breakdown.planned > 0 &&
      (measured > 1.25 * breakdown.planned || measured < 0.8 * breakdown.planned))
    return "nothing in the plan: all devices deviate from their planned speed by about the same "
           "factor, so another division of the work would not "
           "help. "
           "zorse-profile "
           "and --profile make the predictions accurate";
  return "nothing in particular: devices compute most of the time, as planned";
}

} // namespace

uint64_t zorse::runtime::stepsForBreakdown(const Bundle &bundle) {
  constexpr uint64_t kEvents = 1 << 19, kSteps = 9; // 20 MB
  uint64_t instructions = 1;
  for (const bundle::Program &program : bundle.programs)
    instructions += uint64_t(program.instructions_size());
  return std::clamp<uint64_t>(kEvents / instructions, 2, kSteps);
}

std::vector<double> zorse::runtime::plannedComputing(const Bundle &bundle) {
  std::vector<double> seconds;
  for (const bundle::Program &program : bundle.programs) {
    double &sum = seconds.emplace_back(0);
    for (const bundle::Instruction &instruction : program.instructions())
      if (instruction.has_compute())
        sum += instruction.planned_end() - instruction.planned_start();
  }
  return seconds;
}

TimeBreakdown zorse::runtime::timeBreakdown(const Bundle &bundle,
                                            const std::vector<TraceEvent> &events) {
  TimeBreakdown breakdown;
  struct Step {
    double begin = 0, end = 0;
    bool learns = false;
    size_t instructions = 0;
  };
  std::map<uint64_t, Step> steps;
  for (const TraceEvent &event : events) {
    auto [found, added] = steps.try_emplace(event.step);
    Step &step = found->second;
    step.begin = added ? event.begin : std::min(step.begin, event.begin);
    step.end = added ? event.end : std::max(step.end, event.end);
    step.learns = step.learns ||
                  bundle.programs[event.device].instructions(int(event.instruction)).phase() ==
                      bundle::BACKWARD;
    ++step.instructions;
  }
  size_t whole = 0;
  for (const bundle::Program &program : bundle.programs) {
    whole += size_t(program.instructions_size());
    for (const bundle::Instruction &instruction : program.instructions())
      breakdown.planned = std::max(breakdown.planned, instruction.planned_end());
  }
  uint64_t first = 0, count = 0, begin = 0, length = 0;
  for (const auto &[number, step] : steps) {
    bool good = step.learns && step.instructions == whole;
    length = !good ? 0 : length > 0 && number == begin + length ? length + 1 : 1;
    if (length == 1)
      begin = number;
    if (length > count)
      first = begin, count = length;
  }
  if (count == 0)
    return breakdown;
  breakdown.steps = count > 1 ? count - 1 : 1;
  double from = count > 1 ? steps[first].end : steps[first].begin,
         to = steps[first + count - 1].end;
  breakdown.seconds = (to - from) / double(breakdown.steps);
  if (to <= from) {
    breakdown.steps = 0;
    return breakdown;
  }

  auto instructionOf = [&](const TraceEvent &event) -> const bundle::Instruction & {
    return bundle.programs[event.device].instructions(int(event.instruction));
  };
  // A transfer begins when all participants have arrived.
  std::map<std::pair<uint64_t, uint32_t>, double> met; // by step and id
  for (const TraceEvent &event : events)
    if (!instructionOf(event).has_compute()) {
      double &when =
          met.try_emplace({event.step, instructionOf(event).id()}, event.begin).first->second;
      when = std::max(when, event.begin);
    }
  std::vector<std::vector<Interval>> computing(bundle.programs.size()),
      busy(bundle.programs.size());
  for (const TraceEvent &event : events) {
    bool computes = instructionOf(event).has_compute();
    Interval interval = {
        computes ? event.begin : std::min(event.end, met[{event.step, instructionOf(event).id()}]),
        event.end};
    busy[event.device].push_back(interval);
    if (computes)
      computing[event.device].push_back(interval);
  }
  const std::vector<double> plans = plannedComputing(bundle);
  for (size_t d = 0; d < bundle.programs.size(); ++d) {
    DeviceTimeBreakdown device;
    double computed = covered(computing[d], from, to), worked = covered(busy[d], from, to),
           window = to - from;
    const double planned = plans[d];
    device.computing = computed / window;
    device.exposedCommunication = (worked - computed) / window;
    device.idle = 1 - worked / window;
    device.slowdown = planned > 0 ? computed / double(breakdown.steps) / planned : 0;
    breakdown.devices.push_back(device);
  }
  return breakdown;
}

std::string zorse::runtime::describeBreakdown(const Bundle &bundle, const TimeBreakdown &breakdown,
                                              double measured) {
  if (breakdown.steps == 0)
    return {};
  if (measured == 0)
    measured = breakdown.seconds;
  std::string text = "a step took " + showDuration(measured);
  if (breakdown.planned > 0)
    text += ", predicted " + showDuration(breakdown.planned) +
            format(" (%.2f times)", measured / breakdown.planned);
  text += "; of " + std::to_string(breakdown.steps) + " step" + (breakdown.steps == 1 ? "" : "s") +
          " looked at:\n";
  size_t width = 6;
  for (const BundleDevice &device : bundle.devices)
    width = std::max(width, device.name.size());
  text += format("%-*s  %9s  %9s  %9s  %s\n", int(width), "device", "computing", "moving",
                 "waiting", "computing, measured / planned");
  std::vector<size_t> order(breakdown.devices.size());
  for (size_t d = 0; d < order.size(); ++d)
    order[d] = d;
  if (order.size() > kMaxRows)
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return breakdown.devices[a].computing > breakdown.devices[b].computing;
    });
  for (size_t row = 0; row < order.size(); ++row) {
    if (order.size() > kMaxRows && row == kMaxRows / 2) {
      text += format("%-*s  (%zu devices between)\n", int(width), "...", order.size() - kMaxRows);
      row = order.size() - kMaxRows / 2;
    }
    const DeviceTimeBreakdown &d = breakdown.devices[order[row]];
    const std::string slower = d.slowdown > 0 ? format("%.2f", d.slowdown) : "-";
    text += format("%-*s  %9s  %9s  %9s  %s\n", int(width), bundle.devices[order[row]].name.c_str(),
                   showPercent(d.computing).c_str(), showPercent(d.exposedCommunication).c_str(),
                   showPercent(d.idle).c_str(), slower.c_str());
  }
  std::string change = advice(bundle, breakdown, measured);
  return change.empty() ? text : text + "to change: " + change + "\n";
}
