#include "Simulate.h"

#include "zorse/Base/Format.h"
#include "zorse/runtime/DeviceFactors.h"
#include "zorse/runtime/OutputFile.h"
#include "zorse/runtime/Report.h"
#include "zorse/runtime/Simulation.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

using namespace zorse;
using namespace zorse::run;
using namespace zorse::runtime;
using nlohmann::ordered_json;

namespace {

constexpr size_t kMaxRows = 40; // maximum rows of the table of devices

std::string seconds(double s) {
  return s >= 10 ? format("%.1f s", s) : s >= 0.1 ? format("%.3f s", s) : showDuration(s);
}

double sum(const Seconds &s) { return std::accumulate(s.begin(), s.end(), 0.0); }

/// "transfer 0.012 s, gather 1.20 ms": the largest activities, without those below 0.1 % of
/// `whole`.
std::string largest(const Seconds &s, double whole, size_t max, bool shares) {
  std::vector<size_t> order(kActivities);
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return s[a] > s[b]; });
  std::string text;
  for (size_t i = 0; i < std::min(max, order.size()) && s[order[i]] > whole * 1e-3; ++i) {
    text += (text.empty() ? "" : ", ") + std::string(activityName(Activity(order[i]))) + " ";
    text += shares ? format("%.1f %%", 100 * s[order[i]] / whole) : seconds(s[order[i]]);
  }
  return text.empty() ? "-" : text;
}

ordered_json toJson(const Seconds &s) {
  ordered_json json = ordered_json::object();
  for (size_t a = 0; a < kActivities; ++a)
    if (s[a] > 0)
      json[activityName(Activity(a))] = s[a];
  return json;
}

void print(const Options &o, const Bundle &bundle, const Simulation &s) {
  printf("%s: %zu device%s, %llu instructions a step, %llu %s simulated; links: %s\n",
         bundle.model.c_str(), bundle.devices.size(), bundle.devices.size() == 1 ? "" : "s",
         (unsigned long long)s.instructions, (unsigned long long)o.steps,
         o.simulateEvaluation ? "evaluations" : "steps",
         s.usesTopology ? "the cluster's" : "as planned");
  printf("first step %s, then %s a step", seconds(s.firstStep).c_str(), seconds(s.step).c_str());
  double samples = double(bundle.samples()) * double(std::max<int64_t>(bundle.sequence, 1));
  if (s.step > 0)
    printf(" (%s %s/s)", showCount(samples / s.step).c_str(),
           bundle.sequence > 0 ? "tokens" : "samples");
  if (!o.simulateEvaluation && s.planned > 0)
    printf("; planned %s, the first step differs by %+.1f %%", seconds(s.planned).c_str(),
           100 * (s.firstStep / s.planned - 1));
  printf("\n\n");

  size_t width = 6;
  for (const BundleDevice &device : bundle.devices)
    width = std::max(width, device.name.size());
  printf("%-*s  %10s  %6s  %s\n", int(width), "device", "computes", "busy", "waits for");
  std::vector<size_t> order(s.devices.size());
  std::iota(order.begin(), order.end(), size_t(0));
  bool all = order.size() <= kMaxRows;
  if (!all)
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return s.devices[a].compute() > s.devices[b].compute();
    });
  double computed = 0;
  for (const SimulatedDevice &device : s.devices)
    computed += device.compute();
  for (size_t row = 0; row < order.size(); ++row) {
    if (!all && row == kMaxRows / 2) {
      printf("%-*s  (%zu more devices; --json lists all)\n", int(width), "...",
             order.size() - kMaxRows);
      row = order.size() - kMaxRows / 2;
    }
    const SimulatedDevice &device = s.devices[order[row]];
    printf("%-*s  %10s  %5.1f%%  %s\n", int(width), bundle.devices[order[row]].name.c_str(),
           seconds(device.compute()).c_str(), s.step > 0 ? 100 * device.compute() / s.step : 0,
           largest(device.waiting, s.step, 4, false).c_str());
  }
  printf("%-*s  %10s  %5.1f%%\n\n", int(width), "mean",
         seconds(computed / double(s.devices.size())).c_str(),
         s.step > 0 ? 100 * computed / double(s.devices.size()) / s.step : 0);
  printf("critical path of a step: %s\n",
         largest(s.criticalPath, sum(s.criticalPath), kActivities, true).c_str());
}

ordered_json toJson(const Bundle &bundle, const Simulation &s) {
  ordered_json json = {{"steps", s.stepEnds.size()},
                       {"entries", s.instructions},
                       {"first_step_seconds", s.firstStep},
                       {"step_seconds", s.step},
                       {"planned_seconds", s.planned}};
  json["links"] = s.usesTopology ? "topology" : "planned";
  json["step_ends"] = s.stepEnds;
  json["critical_path"] = toJson(s.criticalPath);
  json["devices"] = ordered_json::array();
  for (size_t d = 0; d < s.devices.size(); ++d)
    json["devices"].push_back({{"name", bundle.devices[d].name},
                               {"compute_seconds", s.devices[d].compute()},
                               {"utilization", s.step > 0 ? s.devices[d].compute() / s.step : 0},
                               {"busy", toJson(s.devices[d].busy)},
                               {"waiting", toJson(s.devices[d].waiting)}});
  return json;
}

} // namespace

Status zorse::run::runSimulation(const Options &o) {
  if (Status status = checkOutputs(o); status.failed())
    return status;
  Result<Bundle> bundle = openBundle(o, BundleUse::Simulate);
  if (bundle.failed())
    return bundle.error();
  if (o.hostStaged && !bundle->hostStaged.empty())
    bundle->useStaged();
  if (!o.cluster.empty())
    if (Status status = checkCluster(*bundle, o.cluster); status.failed())
      return status;
  SimulationOptions options;
  options.steps = o.steps;
  options.evaluation = o.simulateEvaluation;
  options.oneThreadPerQueue = o.threadPerQueue;
  options.linkTimes = o.linkTimes;
  options.traceSteps = o.trace.empty() ? 0 : o.traceSteps;
  Result<std::vector<double>> times = deviceFactors("--compute-scale", o.speedTimes, 1e6, *bundle);
  if (times.failed())
    return times.error();
  options.speedTimes = *times;
  Result<Simulation> simulation = simulatePrograms(*bundle, options);
  if (simulation.failed())
    return simulation.error();
  if (!o.quiet)
    print(o, *bundle, *simulation);
  if (!o.json.empty()) {
    if (Status status = writeOutput(o.json, toJson(*bundle, *simulation).dump(1) + "\n");
        status.failed())
      return status;
    if (!o.quiet)
      printf("figures: %s\n", o.json.c_str());
  }
  if (!o.trace.empty()) {
    if (Status status = writeTrace(o.trace, *bundle, std::move(simulation->trace)); status.failed())
      return status;
    if (!o.quiet)
      printf("trace: %s\n", o.trace.c_str());
  }
  return Status::success();
}
