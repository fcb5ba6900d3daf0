// Plans a model on a cluster, or adapts the plan of another cluster, and prints the planning time,
// from opening the first file to closing plan.json, and the quality of the plan.
#include "Layout/StrategySimulator.h"

#include "LlamaShape.h"
#include "zorse/Planning/CostModel.h"
#include "zorse/Planning/LowerBound.h"
#include "zorse/Planning/Repair.h"
#include "zorse/Planning/Search.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>

using namespace zorse;
using namespace zorse::planning;

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int fail(const std::string &message) {
  std::fprintf(stderr, "planning-time: %s\n", message.c_str());
  return 1;
}

std::string describe(const Problem &problem, const Strategy &strategy) {
  std::string text;
  for (const Pipeline &pipeline : strategy.pipelines) {
    text += "  pipeline of " + std::to_string(pipeline.samples) + " samples\n";
    for (const Stage &stage : pipeline.stages) {
      std::map<std::string, std::pair<int, int64_t>> types;
      for (const step::StageDevice &member : stage.members) {
        auto &instruction = types[problem.cluster.devices[member.device].type];
        ++instruction.first;
        instruction.second += member.samples;
      }
      text += "    units " + std::to_string(stage.unitBegin) + "-" + std::to_string(stage.unitEnd) +
              ", rows " + std::to_string(stage.members.front().microBatchSize) + ":";
      for (auto &[type, instruction] : types)
        text += " " + std::to_string(instruction.first) + " " + type + " (" +
                std::to_string(instruction.second) + ")";
      text += "\n";
    }
  }
  return text;
}

} // namespace

int main(int argc, char **argv) {
  std::map<std::string, std::string> flags = {{"model", "llama-7b"},
                                              {"sequence", "2048"},
                                              {"tokens", "1048576"},
                                              {"type", "f16"},
                                              {"plan", "/dev/null"}};
  bool show = false, bound = false;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--show")
      show = true;
    else if (name == "--bound")
      bound = true;
    else if (name.rfind("--", 0) == 0 && i + 1 < argc)
      flags[name.substr(2)] = argv[++i];
    else
      return fail("usage: planning-time --cluster FILE [--model NAME] [--sequence N] [--tokens N] "
                  "[--type f16|bf16|f32] [--seed N] [--candidates N] "
                  "[--threads N] "
                  "[--plan FILE] [--near FILE] [--show] [--bound]");
  }
  auto number = [&](const char *name, long otherwise) {
    return flags.count(name) ? std::atol(flags[name].c_str()) : otherwise;
  };
  auto shape = findLlamaShape(flags["model"]);
  if (!shape)
    return fail("unknown model '" + flags["model"] + "'; known are " + knownLlamaShapes());
  shape->sequence = number("sequence", 2048);
  shape->computeType = flags["type"] == "bf16"  ? bundle::BF16
                       : flags["type"] == "f32" ? bundle::F32
                                                : bundle::F16;
  auto summary = makeSummary(*shape);
  if (summary.failed())
    return fail(summary.message());

  double start = seconds();
  std::optional<step::Plan> old;
  if (flags.count("near")) {
    auto read = step::readPlanFile(flags["near"], *summary);
    if (read.failed())
      return fail(read.message());
    old = std::move(*read);
  }
  auto cluster = readClusterFile(flags["cluster"]);
  if (cluster.failed())
    return fail(cluster.message());
  auto costs = CostModel::make(*summary, *cluster, nullptr, {});
  if (costs.failed())
    return fail(costs.message());
  Problem problem{*summary, *cluster, *costs, number("tokens", 1 << 20) / shape->sequence};
  SearchOptions options;
  options.seed = static_cast<uint64_t>(number("seed", 1));
  options.candidates = static_cast<uint32_t>(number("candidates", 0));
  options.threads = static_cast<unsigned>(number("threads", 0));
  auto result = old ? repairPlan(problem, *old, options) : searchPlan(problem, options);
  double searched = seconds();
  if (result.failed())
    return fail("after " + std::to_string(searched - start) + " s: " + result.message());
  {
    std::ofstream file(flags["plan"], std::ios::binary);
    file << step::writePlan(result->plan, *summary);
  }
  double end = seconds();
  double rate = static_cast<double>(problem.batch * shape->sequence) / result->evaluation.step;
  std::printf("%zu devices, %s: %.3f s (search %.3f), %u candidates, step %.3f s, %.0f tokens/s",
              cluster->devices.size(), shape->name.c_str(), end - start, searched - start,
              result->tried, result->evaluation.step, rate);
  if (old)
    std::printf(", %.3f GB moved",
                static_cast<double>(redistributionBytes(problem, *old, result->plan)) / 1e9);
  if (bound)
    if (auto efficient = efficiency(problem, result->plan); !efficient.failed())
      std::printf(
          ", eta %.4f = idle %.3f kernel %.3f balance %.3f recompute %.3f bubble %.3f exposed %.3f",
          efficient->eta, efficient->idle, efficient->kernel, efficient->balance,
          efficient->recompute, efficient->bubble, efficient->exposed);
  if (show) {
    StrategySimulator simulator(problem);
    const auto &once = simulator.run(result->strategy);
    double before = seconds();
    simulator.run(result->strategy);
    std::printf("\n  timer: %.3f s, %u tasks in %.2f ms", once.step, once.tasks,
                1e3 * (seconds() - before));
  }
  std::printf("\n");
  if (show) {
    const step::Schedule &schedule = result->strategy.schedule;
    std::printf("  schedule %d, split %d, in flight %.2f, delay %.2f, state %d\n%s",
                int(schedule.kind), int(schedule.splitBackward), schedule.inFlightFactor,
                schedule.maxWeightGradDelay, int(result->strategy.state),
                describe(problem, result->strategy).c_str());
  }
  return 0;
}
