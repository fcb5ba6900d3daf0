// expansion-cost: the cost of expanding a plan by number of devices, for the whole expansion and
// for times and memory peaks alone (timeStep). It uses a synthetic model of 80 blocks on stages x
// replicas devices, with micro-batches of one row.
#include "SyntheticModel.h"

#include "zorse/Step/AssignMicroBatches.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sys/resource.h>

using namespace zorse;

namespace {

struct Options {
  int stages = 32, replicas = 16, microBatches = 40, blocks = 80, repeat = 3, timed = 0,
      timeOnly = 0;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

int64_t peakMebibytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

step::Plan makePlan(const Options &o) {
  step::Plan plan;
  plan.batch = static_cast<int64_t>(o.replicas) * o.microBatches;
  for (int d = 0; d < o.stages * o.replicas; ++d)
    plan.devices.push_back(
        {"d" + std::to_string(d), d % 3 ? 1e12 : 2e12, 0, "n" + std::to_string(d / 8)});
  plan.intraNode = {100e9, 1e-6};
  plan.interNode = {10e9, 1e-5};
  int units = o.blocks * 2 + 2;
  for (int s = 0; s < o.stages; ++s) {
    std::vector<step::StageDevice> devices;
    for (int r = 0; r < o.replicas; ++r)
      devices.push_back({static_cast<uint32_t>(s * o.replicas + r), o.microBatches, 1});
    step::assignMicroBatches(units * s / o.stages, units * (s + 1) / o.stages, 0, devices,
                             plan.cells);
  }
  plan.schedule.kind = o.timed ? step::ScheduleKind::SteadyState
                               : step::ScheduleKind::OneForwardOneBackward;
  plan.schedule.inFlightFactor = 1.5;
  return plan;
}

struct Made {
  uint32_t ids;
  double seconds; ///< step time
  size_t instructions = 0, arguments = 0;
};

Result<Made> time(const test::SyntheticModel &model, const step::Plan &plan) {
  step::TimeOptions options;
  options.functions = &model.functions;
  const auto times = step::timeStep(model.summary, plan, options);
  if (times.failed())
    return times.error();
  return Made{times->numInstructions, times->stepTime};
}

Result<Made> expand(const test::SyntheticModel &model, const step::Plan &plan) {
  step::LoweringOptions options;
  options.functions = &model.functions;
  options.checkMemory = false;
  const auto graph = step::lowerPlan(model.summary, plan, options);
  if (graph.failed())
    return graph.error();
  return Made{graph->numInstructions, graph->stepTime, graph->instructions.size(),
              graph->arguments.size()};
}

} // namespace

int main(int argc, char **argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    auto number = [&](const char *name, int &target) {
      size_t length = strlen(name);
      if (strncmp(argv[i], name, length) || argv[i][length] != '=')
        return false;
      target = atoi(argv[i] + length + 1);
      return true;
    };
    if (number("--pipeline-stages", o.stages) || number("--replicas", o.replicas) ||
        number("--micro-batches", o.microBatches) || number("--blocks", o.blocks) ||
        number("--repeat", o.repeat) || number("--timed", o.timed) ||
        number("--time-only", o.timeOnly))
      continue;
    fprintf(stderr, "expansion-cost [--pipeline-stages=N] [--replicas=N] [--micro-batches=N] "
                    "[--blocks=N] [--repeat=N] [--timed=0|1] [--time-only=0|1]\n");
    return 2;
  }
  test::SyntheticOptions shape;
  shape.units = o.blocks * 2 + 2;
  shape.skip = false;
  const test::SyntheticModel model = test::makeModel(shape);
  const step::Plan plan = makePlan(o);
  std::vector<double> seconds, processors;
  double length = 1;
  for (int run = 0; run < o.repeat; ++run) {
    double begin = now(), before = cpu();
    const Result<Made> made = o.timeOnly ? time(model, plan) : expand(model, plan);
    seconds.push_back(now() - begin);
    processors.push_back(cpu() - before);
    if (made.failed()) {
      fprintf(stderr, "%s\n", made.message().c_str());
      return 1;
    }
    length = made->ids;
    if (run == 0)
      printf("%zu devices, %zu cells, %zu instructions, %u ids, %zu arguments, step %.6g s\n",
             plan.devices.size(), plan.cells.size(), made->instructions, made->ids, made->arguments,
             made->seconds);
  }
  std::sort(seconds.begin(), seconds.end());
  std::sort(processors.begin(), processors.end());
  printf("expanded in %.3f s (least of %d), %.3f s of processors, %.0f ns per id, peak %lld MiB\n",
         seconds.front(), o.repeat, processors.front(), processors.front() * 1e9 / length,
         static_cast<long long>(peakMebibytes()));
  return 0;
}
