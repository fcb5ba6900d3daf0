// packing: compares arena sizes with the peak of live bytes, for random plans of large models with
// every schedule and every residency. Memory is reused only if no instruction has to wait for it on
// the simulated clock. Also measures the steady-state step time, with steps overlapping as far as
// waits allow, relative to the same list with separate memory for every buffer.
//
//     packing [--plans=N] [--list]
//
// --plans: default 300. --list names the plans and devices beyond either limit.
//
// Fails if more than 1 % of the devices, given 1.03 times the peak of live bytes, have a larger
// arena, or if more than 1 % of the plans take more than 1.01 times the time without sharing.
#include "LlamaShape.h"
#include "RandomPlan.h"
#include "zorse/Step/Schedules.h"
#include "zorse/Step/StepGraph.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

using namespace zorse;

namespace {

constexpr double kMax = 1.03;     ///< times the peak of live bytes
constexpr double kLongest = 1.01; ///< times the step without sharing of memory

/// Steady-state step time: every instruction takes its planned time, queues continue with the next
/// step while others finish the current one, and at most two steps are in progress.
double steadyStep(const step::StepGraph &graph) {
  constexpr int kSteps = 8, kCounted = 4; // the last kCounted steps count
  struct Half {
    uint32_t device, instruction;
  };
  std::vector<std::vector<Half>> halves(graph.numInstructions);
  for (uint32_t d = 0; d < graph.devices.size(); ++d)
    for (uint32_t e = graph.devices[d].instructions.begin; e < graph.devices[d].instructions.end;
         ++e)
      halves[graph.instructions[e].id].push_back({d, e});
  using Ends = std::vector<std::vector<std::vector<double>>>; // by device, queue, position
  Ends before, now;
  std::vector<std::vector<double>> free;
  for (const step::DeviceProgram &device : graph.devices)
    free.emplace_back(device.queues.size(), 0.0);
  double ends[kSteps + 2] = {}; // ends of the steps, from index 2 on
  for (int s = 0; s < kSteps; ++s) {
    now.clear();
    for (const step::DeviceProgram &device : graph.devices)
      now.emplace_back(device.queues.size());
    double last = ends[s + 1];
    for (const std::vector<Half> &list : halves) {
      double start = ends[s], duration = 0;
      for (const Half &half : list) {
        const step::Instruction &instruction = graph.instructions[half.instruction];
        start = std::max(start, free[half.device][instruction.queue]);
        duration = std::max(duration, instruction.plannedEnd - instruction.plannedStart);
        for (uint32_t w = instruction.waits.begin; w < instruction.waits.end; ++w) {
          const step::Wait &wait = graph.waits[w];
          const Ends &of = wait.previousStep ? before : now;
          if (!of.empty())
            start = std::max(start, of[half.device][wait.queue][wait.position]);
        }
      }
      for (const Half &half : list) {
        const uint32_t queue = graph.instructions[half.instruction].queue;
        now[half.device][queue].push_back(start + duration);
        free[half.device][queue] = start + duration;
      }
      last = std::max(last, start + duration);
    }
    ends[s + 2] = last;
    before.swap(now);
  }
  return (ends[kSteps + 1] - ends[kSteps + 1 - kCounted]) / kCounted;
}

} // namespace

int main(int argc, char **argv) {
  int plans = 300;
  bool lists = false;
  for (int i = 1; i < argc; ++i)
    if (std::strncmp(argv[i], "--plans=", 8) == 0)
      plans = std::atoi(argv[i] + 8);
    else
      lists |= std::strcmp(argv[i], "--list") == 0;
  const char *shapes[] = {"llama-7b", "llama-13b", "llama-33b", "llama-65b"};
  std::vector<double> ratios, longer;
  size_t roomy = 0; // devices above the limit when memory is unlimited: the data of updates is then
                    // placed after all other data
  for (int p = 0; p < plans; ++p) {
    std::optional<planning::LlamaShape> shape = planning::findLlamaShape(shapes[p % 4]);
    if (shape)
      shape->sequence = 1024;
    const auto summary = shape ? planning::makeSummary(*shape)
                               : Result<bundle::ModelSummary>(userError("unknown"));
    Result<step::StepGraph> graph = summary.error();
    if (!summary.failed()) {
      step::Plan plan = step::randomPlan(*summary, 8 + p % 25, 2 + static_cast<uint32_t>(p % 7),
                                         static_cast<uint64_t>(p));
      for (step::PlanDevice &device : plan.devices)
        device.memory = 0;
      graph = step::lowerPlan(*summary, plan);
      step::LoweringOptions apart;
      apart.shareBytes = false;
      const Result<step::StepGraph> unshared =
          graph.failed() ? graph.error() : step::lowerPlan(*summary, plan, apart);
      // Limit these devices to the allowed size.
      bool misses = false;
      for (uint32_t d = 0; !graph.failed() && d < graph->devices.size(); ++d)
        if (const step::MemoryUse &use = graph->devices[d].memory;
            static_cast<double>(use.total) > kMax * static_cast<double>(use.peakLiveBytes)) {
          plan.devices[d].memory =
              static_cast<uint64_t>(kMax * static_cast<double>(use.peakLiveBytes));
          misses = true;
          ++roomy;
        }
      step::LoweringOptions limited;
      limited.checkMemory = false;
      if (misses)
        graph = step::lowerPlan(*summary, plan, limited);
      // Timed with the memory limits above.
      if (!graph.failed() && !unshared.failed())
        longer.push_back(steadyStep(*graph) / steadyStep(*unshared));
      if (lists && !longer.empty() && longer.back() > kLongest)
        std::printf("plan %d, %s: a step takes %.4f x\n", p,
                    step::scheduleRule(plan.schedule.kind).name, longer.back());
      for (uint32_t d = 0; lists && !graph.failed() && d < graph->devices.size(); ++d)
        if (const step::MemoryUse &use = graph->devices[d].memory;
            static_cast<double>(use.total) > kMax * static_cast<double>(use.peakLiveBytes))
          std::printf("plan %d, %s, device %u: %.4f x of %.3f GB: state %.3f gradients %.3f "
                      "activations %.3f gathered %.3f workspace %.3f, %u cells alive\n",
                      p, step::scheduleRule(plan.schedule.kind).name, d,
                      static_cast<double>(use.total) / static_cast<double>(use.peakLiveBytes),
                      1e-9 * double(use.peakLiveBytes), 1e-9 * double(use.state),
                      1e-9 * double(use.gradients), 1e-9 * double(use.activations),
                      1e-9 * double(use.gathered), 1e-9 * double(use.workspace),
                      use.peakInFlightCells);
    }
    if (graph.failed()) {
      std::fprintf(stderr, "plan %d of %s: %s\n", p, shapes[p % 4], graph.message().c_str());
      return 2;
    }
    for (const step::DeviceProgram &device : graph->devices)
      if (device.memory.peakLiveBytes > 0)
        ratios.push_back(static_cast<double>(device.memory.total) /
                         static_cast<double>(device.memory.peakLiveBytes));
  }
  std::sort(ratios.begin(), ratios.end());
  if (ratios.empty())
    return 2;
  std::sort(longer.begin(), longer.end());
  const auto above =
      static_cast<size_t>(ratios.end() - std::upper_bound(ratios.begin(), ratios.end(), kMax));
  const auto slow =
      static_cast<size_t>(longer.end() - std::upper_bound(longer.begin(), longer.end(), kLongest));
  std::printf("%d plans, %zu devices: arenas take %.4f x the bytes alive at once in the median, "
              "%.4f in the 95th of 100, %.4f at most; %zu take more "
              "than %.2f, and %zu where memory is not limited; steps take %.4f x those without "
              "sharing in the median, %.4f in the 95th of 100, %.4f "
              "at most; %zu take more than %.2f\n",
              plans, ratios.size(), ratios[ratios.size() / 2], ratios[ratios.size() * 95 / 100],
              ratios.back(), above, kMax, roomy, longer[longer.size() / 2],
              longer[longer.size() * 95 / 100], longer.back(), slow, kLongest);
  return above * 100 > ratios.size() || slow * 100 > longer.size();
}
