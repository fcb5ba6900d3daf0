// packing: how near placed buffers come to the bytes that are alive at once. Random plans of large models, of every schedule and with every
// residency; bytes are handed on only where that makes no entry wait on the simulated clock, so steps are those without sharing of bytes.
//
//     packing [--plans=N]      default 300; fails where more than one device of a hundred has an arena of more than 1.03 times the peak of what is
//     alive
#include "zorse/Planning/ModelShape.h"
#include "zorse/Step/RandomPlan.h"
#include "zorse/Step/StepGraph.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

using namespace zorse;

namespace {

constexpr double kMost = 1.03; ///< times the peak of live bytes

} // namespace

int main(int argc, char **argv) {
  int plans = 300;
  if (argc > 1 && std::strncmp(argv[1], "--plans=", 8) == 0)
    plans = std::atoi(argv[1] + 8);
  const char *shapes[] = {"llama-7b", "llama-13b", "llama-33b", "llama-65b"};
  std::vector<double> ratios;
  for (int p = 0; p < plans; ++p) {
    std::string error;
    std::optional<planning::ModelShape> shape = planning::findModelShape(shapes[p % 4]);
    if (shape)
      shape->sequence = 1024;
    auto summary = shape ? planning::makeSummary(*shape, error) : std::nullopt;
    std::optional<step::StepGraph> graph;
    if (summary) {
      step::Plan plan = step::randomPlan(*summary, 8 + p % 25, 2 + static_cast<uint32_t>(p % 7), static_cast<uint64_t>(p));
      for (step::PlanDevice &device : plan.devices)
        device.memory = 0;
      graph = step::expandPlan(*summary, plan, error);
    }
    if (!graph) {
      std::fprintf(stderr, "plan %d of %s: %s\n", p, shapes[p % 4], error.c_str());
      return 2;
    }
    for (const step::DeviceProgram &device : graph->devices)
      if (device.memory.least > 0)
        ratios.push_back(static_cast<double>(device.memory.total) / static_cast<double>(device.memory.least));
  }
  std::sort(ratios.begin(), ratios.end());
  if (ratios.empty())
    return 2;
  const auto above = static_cast<size_t>(ratios.end() - std::upper_bound(ratios.begin(), ratios.end(), kMost));
  std::printf("%d plans, %zu devices: arenas take %.4f x the bytes alive at once in the median, %.4f in the 95th of 100, %.4f at most; %zu take more "
              "than %.2f\n",
              plans, ratios.size(), ratios[ratios.size() / 2], ratios[ratios.size() * 95 / 100], ratios.back(), above, kMost);
  return above * 100 > ratios.size();
}
