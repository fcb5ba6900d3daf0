#include "RandomCases.h"

#include "RandomPlan.h"
#include "zorse/Base/Apportion.h"
#include "zorse/Step/AssignMicroBatches.h"
#include "zorse/Step/Schedules.h"
#include "zorse/Summary/FlatGroups.h"

#include <algorithm>
#include <numeric>
#include <random>

using namespace zorse;
using namespace zorse::test;

namespace {

struct Drawer {
  std::mt19937_64 random;

  int64_t between(int64_t low, int64_t high) {
    return low + int64_t(random() % uint64_t(high - low));
  } // [low, high)
  bool chance(int percent) { return between(0, 100) < percent; }

  /// Splits [0, total) into `parts` nonempty ranges; returns their ends.
  std::vector<int64_t> cut(int64_t total, int64_t parts) {
    std::vector<int64_t> ends;
    for (int64_t i = 1; i < total; ++i)
      ends.push_back(i);
    std::shuffle(ends.begin(), ends.end(), random);
    ends.resize(size_t(std::min(parts - 1, total - 1)));
    ends.push_back(total);
    std::sort(ends.begin(), ends.end());
    return ends;
  }

  SyntheticModel model(uint64_t seed, int largest) {
    SyntheticOptions options;
    options.seed = uint32_t(seed * 2654435761u >> 3);
    options.units = int(between(2, 7 + 5 * (largest - 1)));
    options.tied = chance(70);
    options.skip = chance(60);
    options.frozen = chance(50);
    options.moments = int(between(0, 3));
    options.lossTerms = chance(20) ? 2 : 1;
    options.clipNorm = chance(80) ? 1 : 0;
    chance(80); // not used: the following draws stay those of a seed
    options.irregular = chance(60);
    options.scales = seed % 3 == 1;
    options.block = seed % 7 == 3 ? 32 : 0;
    if (seed % 6 == 0) // groups may commit separately
      options.clipNorm = 0;
    return makeModel(options);
  }

  /// Adds the cells of one pipeline: the units are split into stages, each on some of `devices`.
  void pipeline(step::Plan &plan, int64_t units, int64_t sampleBegin, int64_t sampleEnd,
                std::vector<uint32_t> devices) {
    std::shuffle(devices.begin(), devices.end(), random);
    const int64_t stages = between(1, std::min<int64_t>(units, int64_t(devices.size())) + 1);
    auto ends = cut(units, stages), shares = cut(int64_t(devices.size()), int64_t(ends.size()));
    for (size_t s = 0; s < ends.size(); ++s) {
      std::vector<step::StageDevice> stage;
      const size_t first = s ? size_t(shares[s - 1]) : 0, last = size_t(shares[s]);
      std::vector<double> weights;
      for (size_t d = first; d < last; ++d)
        weights.push_back(double(between(1, 6)));
      auto samples = apportion(sampleEnd - sampleBegin, weights);
      for (size_t d = first; d < last; ++d)
        if (samples[d - first])
          stage.push_back({devices[d], samples[d - first],
                           between(1, std::min<int64_t>(4, samples[d - first]) + 1)});
      step::assignMicroBatches(int32_t(s ? ends[s - 1] : 0), int32_t(ends[s]), sampleBegin, stage,
                               plan.cells);
    }
  }

  /// Adds the cells of a looped schedule (ring or V shape) with micro-batches of any size.
  void laps(step::Plan &plan, int64_t units, int64_t devices, bool folded) {
    auto chunks = cut(units, between(std::min(units, devices + 1), units + 1));
    auto micro = cut(plan.batch, between(1, plan.batch + 1));
    for (size_t c = 0; c < chunks.size(); ++c)
      for (size_t m = 0; m < micro.size(); ++m)
        plan.cells.push_back(
            {int32_t(c ? chunks[c - 1] : 0), int32_t(chunks[c]), m ? micro[m - 1] : 0, micro[m],
             uint32_t(folded && c / size_t(devices) % 2 ? size_t(devices) - 1 - c % size_t(devices)
                                                        : c % size_t(devices))});
  }

  /// Adds the cells of the whole model on every device.
  void dataParallel(step::Plan &plan, int64_t units, const std::vector<uint32_t> &devices) {
    std::vector<step::StageDevice> stage;
    auto ends = cut(plan.batch, int64_t(devices.size()));
    for (size_t i = 0; i < ends.size(); ++i) {
      const int64_t samples = ends[i] - (i ? ends[i - 1] : 0);
      stage.push_back({devices[i], samples, between(1, samples + 1)});
    }
    step::assignMicroBatches(0, int32_t(units), 0, stage, plan.cells);
  }

  /// Puts devices on nodes of one to eight, and these on one to three sites.
  void places(step::Plan &plan) {
    const int64_t sites = between(1, 4);
    int64_t left = 0, node = 0, site = 0;
    for (step::PlanDevice &device : plan.devices) {
      if (left-- == 0) {
        left = between(0, 8);
        ++node;
        site = between(0, sites);
      }
      device.node = "n" + std::to_string(node);
      device.site = "s" + std::to_string(site);
    }
  }

  std::string owners(step::Plan &plan, const bundle::ModelSummary &summary) {
    plan.owners.clear();
    const int64_t sharding = between(0, 3);
    plan.defaultSharding = step::kDefaultShardings[sharding];
    const int64_t kind = between(0, 4);
    static const char *const defaults[] = {"in proportion", "equal", "first"};
    if (kind == 0)
      return defaults[sharding];
    for (int g = 0; g < summary.groups_size(); ++g) {
      if (!summary.groups(g).trainable() || chance(25))
        continue;
      std::vector<uint32_t> devices(plan.devices.size());
      for (uint32_t d = 0; d < devices.size(); ++d)
        devices[d] = d;
      std::shuffle(devices.begin(), devices.end(), random);
      const int64_t blocks = (summary.groups(g).elements() + 127) / 128;
      devices.resize(size_t(between(1, std::min<int64_t>(int64_t(devices.size()), 4) + 1)));
      step::GroupOwners instruction;
      instruction.group = uint32_t(g);
      if (kind == 1 || blocks < int64_t(devices.size()) ||
          updatesBlocks(summary, summary.groups(g))) { // fractions, 0 included
        int64_t left = 100;
        for (size_t i = 0; i < devices.size(); ++i) {
          const int64_t share = i + 1 == devices.size() ? left
                                : chance(25)            ? 0
                                                        : between(0, left + 1);
          left -= share;
          instruction.owners.push_back({devices[i], double(share) / 100, -1, -1});
        }
      } else { // elements
        auto ends = cut(blocks, int64_t(devices.size()));
        for (size_t i = 0; i < ends.size(); ++i)
          instruction.owners.push_back({devices[i], 0, (i ? ends[i - 1] : 0) * 128,
                                        std::min(ends[i] * 128, summary.groups(g).elements())});
      }
      plan.owners.push_back(std::move(instruction));
    }
    return kind == 1 ? "shares" : "elements";
  }
};

} // namespace

RandomCase test::randomCase(uint64_t seed, const SyntheticModel *model, int largest) {
  Drawer draw{std::mt19937_64(seed * 0x9E3779B97F4A7C15ull + 1)};
  RandomCase result;
  result.model = model ? *model : draw.model(seed, largest);
  const auto &summary = result.model.summary;
  const int64_t units = summary.units_size(), batch = draw.between(1, 9 * largest + 1);
  const uint32_t devices = uint32_t(draw.between(1, 5 * largest + 1));
  step::Plan &plan = result.plan;
  plan = step::randomPlan(summary, batch, devices, draw.random());
  std::vector<uint32_t> all(devices);
  for (uint32_t d = 0; d < devices; ++d)
    all[d] = d;
  bool folded = false;
  switch (seed % 5) {
  case 0:
    result.kind = "tiling";
    break;
  case 1:
    result.kind = "pipeline";
    plan.cells.clear();
    draw.pipeline(plan, units, 0, batch, all);
    break;
  case 2:
    result.kind = "laps";
    plan.cells.clear();
    folded = draw.chance(50);
    draw.laps(plan, units, devices, folded);
    break;
  case 3: {
    result.kind = "several pipelines";
    plan.cells.clear();
    auto ends = draw.cut(batch, draw.between(1, 4));
    for (size_t i = 0; i < ends.size(); ++i)
      draw.pipeline(plan, units, i ? ends[i - 1] : 0, ends[i],
                    all); // devices may belong to more than one pipeline
    break;
  }
  default:
    result.kind = "data parallel";
    plan.cells.clear();
    draw.dataParallel(plan, units, all);
  }
  result.owners = draw.owners(plan, summary);
  if (seed % 10 == 3 || seed % 10 == 8)
    plan.gradientWire = seed % 20 < 10 ? step::GradientWire::Bf16BetweenNodes
                                       : step::GradientWire::Bf16BetweenSites;
  step::randomActivations(plan, seed);
  plan.order.clear();
  if (result.kind == "laps" && draw.chance(50)) {
    plan.schedule.kind = folded ? step::ScheduleKind::Wave : step::ScheduleKind::Interleaved;
    plan.schedule.inFlightFactor = double(draw.between(1, 9)) / 4;
    // More chunks than devices.
    if (step::scheduleRule(plan.schedule.kind).whyUnsupported(plan, summary).empty()) {
      result.schedule = step::scheduleRule(plan.schedule.kind).name;
      return result;
    }
  }
  switch (draw.between(0, 4)) {
  case 0:
    result.schedule = "1f1b";
    plan.schedule.kind = step::ScheduleKind::OneForwardOneBackward;
    break;
  case 1:
    result.schedule = "gpipe";
    plan.schedule.kind = step::ScheduleKind::GPipe;
    break;
  case 2:
    result.schedule = "steady_state";
    plan.schedule.kind = step::ScheduleKind::SteadyState;
    break;
  default:
    result.schedule = "random order";
    step::randomOrder(plan, draw.random());
  }
  return result;
}

RandomCase test::levelCase(uint64_t seed) {
  Drawer draw{std::mt19937_64(seed * 0x9E3779B97F4A7C15ull + 2)};
  RandomCase result;
  result.kind = "data parallel on nodes";
  result.model = draw.model(seed, 1);
  const auto &summary = result.model.summary;
  const uint32_t devices = uint32_t(draw.between(3, 13));
  step::Plan &plan = result.plan;
  plan = step::randomPlan(summary, devices + draw.between(0, 4), devices, draw.random());
  draw.places(plan);
  std::vector<uint32_t> all(devices);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), draw.random);
  plan.cells.clear();
  draw.dataParallel(plan, summary.units_size(), all);
  result.owners = draw.owners(plan, summary);
  step::randomActivations(plan, seed);
  plan.order.clear();
  result.schedule = "1f1b";
  plan.schedule.kind = step::ScheduleKind::OneForwardOneBackward;
  return result;
}
