#include "Optima.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>

using namespace zorse;
using namespace zorse::optimality;
using namespace zorse::planning;
using Json = nlohmann::json;

std::optional<Strategy> zorse::optimality::randomStrategy(const Instance &instance,
                                                          Random &random) {
  const int n = static_cast<int>(instance.cluster.devices.size()),
            units = instance.summary.units_size();
  std::vector<uint32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (int i = n - 1; i > 0; --i)
    std::swap(order[i], order[random.between(0, i)]);
  order.resize(static_cast<size_t>(random.between(1, n)));
  Strategy strategy;
  strategy.schedule.kind = random.chance(50) ? step::ScheduleKind::GPipe
                                             : step::ScheduleKind::OneForwardOneBackward;
  strategy.state = random.chance(50) ? ShardSizing::Equal : ShardSizing::ByFreeMemory;
  size_t at = 0;
  int64_t left = instance.problem->batch;
  const size_t pipelines = order.size() > 1 && left > 1 && random.chance(40) ? 2 : 1;
  for (size_t p = 0; p < pipelines; ++p) {
    size_t devices =
        p + 1 == pipelines
            ? order.size() - at
            : static_cast<size_t>(random.between(1, static_cast<int64_t>(order.size()) - 1));
    Pipeline pipeline;
    pipeline.samples = p + 1 == pipelines ? left : random.between(1, left - 1);
    left -= pipeline.samples;
    int stages = static_cast<int>(
        random.between(1, std::min<int64_t>(units, static_cast<int64_t>(devices))));
    std::vector<int32_t> ends;
    std::vector<size_t> sizes(static_cast<size_t>(stages), 1);
    for (size_t rest = devices - static_cast<size_t>(stages); rest > 0; --rest)
      ++sizes[random.between(0, stages - 1)];
    for (int s = 0; s + 1 < stages; ++s)
      ends.push_back(static_cast<int32_t>(
          random.between((s ? ends.back() : 0) + 1, units - (stages - 1 - s))));
    ends.push_back(units);
    for (int s = 0; s < stages; ++s) {
      if (static_cast<int64_t>(sizes[s]) > pipeline.samples)
        return std::nullopt;
      Stage stage;
      stage.unitBegin = s ? ends[s - 1] : 0;
      stage.unitEnd = ends[s];
      std::vector<int64_t> shares(sizes[s], 1);
      for (int64_t rest = pipeline.samples - static_cast<int64_t>(sizes[s]); rest > 0; --rest)
        ++shares[random.between(0, static_cast<int64_t>(sizes[s]) - 1)];
      int64_t rows = random.between(1, 2);
      for (size_t i = 0; i < sizes[s]; ++i)
        stage.members.push_back({order[at++], shares[i], rows});
      pipeline.stages.push_back(std::move(stage));
    }
    strategy.pipelines.push_back(std::move(pipeline));
  }
  return strategy;
}

double zorse::optimality::sampleTimes(const Instance &instance) {
  Random random(instance.seed ^ 0x5A17ull);
  double sum = 0;
  for (int found = 0; found < 12;) {
    std::optional<Strategy> strategy = randomStrategy(instance, random);
    if (!strategy)
      continue;
    ++found;
    if (Result<Evaluation> e = evaluate(*instance.problem, makePlan(*instance.problem, *strategy));
        !e.failed())
      sum += e->step;
  }
  return sum;
}

std::string zorse::optimality::writeKnown(uint64_t seed, const Known &known) {
  Json line = {{"seed", seed},
               {"step", known.step},
               {"simulated", known.simulated},
               {"sample", known.sample}};
  if (known.feasible) {
    Json pipelines = Json::array();
    for (const Pipeline &pipeline : known.strategy.pipelines) {
      Json stages = Json::array();
      for (const Stage &stage : pipeline.stages) {
        Json members = Json::array();
        for (const step::StageDevice &m : stage.members)
          members.push_back({m.device, m.samples, m.microBatchSize});
        stages.push_back({{"units", {stage.unitBegin, stage.unitEnd}}, {"members", members}});
      }
      pipelines.push_back({{"samples", pipeline.samples}, {"stages", stages}});
    }
    line["layout"] = {
        {"schedule", known.strategy.schedule.kind == step::ScheduleKind::GPipe ? "gpipe" : "1f1b"},
        {"state", known.strategy.state == ShardSizing::Equal ? "equal" : "free-memory"},
        {"pipelines", pipelines}};
  }
  return line.dump();
}

std::map<uint64_t, Known> zorse::optimality::readOptima(const std::string &path) {
  std::map<uint64_t, Known> all;
  std::ifstream file(path);
  std::string text;
  while (std::getline(file, text)) {
    if (text.empty())
      continue;
    try {
      Json line = Json::parse(text);
      Known known;
      known.step = line.at("step");
      known.simulated = line.at("simulated");
      known.sample = line.at("sample");
      if (line.contains("layout")) {
        known.feasible = true;
        const Json &layout = line["layout"];
        known.strategy.schedule.kind = layout.at("schedule") == "gpipe"
                                           ? step::ScheduleKind::GPipe
                                           : step::ScheduleKind::OneForwardOneBackward;
        known.strategy.state = layout.at("state") == "equal" ? ShardSizing::Equal
                                                             : ShardSizing::ByFreeMemory;
        for (const Json &p : layout.at("pipelines")) {
          Pipeline pipeline;
          pipeline.samples = p.at("samples");
          for (const Json &s : p.at("stages")) {
            Stage stage;
            stage.unitBegin = s.at("units").at(0);
            stage.unitEnd = s.at("units").at(1);
            for (const Json &m : s.at("members"))
              stage.members.push_back({m.at(0), m.at(1), m.at(2)});
            pipeline.stages.push_back(std::move(stage));
          }
          known.strategy.pipelines.push_back(std::move(pipeline));
        }
      }
      all[line.at("seed")] = std::move(known);
    } catch (const std::exception &e) {
      std::fprintf(stderr, "%s: %s\n", path.c_str(), e.what());
      std::exit(1);
    }
  }
  if (all.empty()) {
    std::fprintf(stderr, "%s: no optima there\n", path.c_str());
    std::exit(1);
  }
  return all;
}
