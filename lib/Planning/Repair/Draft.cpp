#include "Draft.h"

#include "../Search/DealDevices.h"

#include "zorse/Base/Apportion.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace zorse;
using namespace zorse::planning;

namespace {

using Groups = std::vector<DeviceSet>;

std::vector<uint32_t> devicesIn(const Groups &groups) {
  std::vector<uint32_t> devices;
  for (const DeviceSet &group : groups)
    devices.insert(devices.end(), group.devices.begin(), group.devices.end());
  return devices;
}

/// Samples per second, by device type.
class Rates {
public:
  explicit Rates(const StageModel &model) : model(model) {
    for (uint32_t c = 0; c < model.deviceTypes(); ++c)
      rates.push_back(1 / model.minPerSample(c, 0, model.units()));
  }
  double of(const DeviceSet &group) const {
    double rate = 0;
    for (uint32_t d : group.devices)
      rate += rates[model.deviceTypeOf(d)];
    return rate;
  }
  double of(const Groups &groups) const {
    double rate = 0;
    for (const DeviceSet &group : groups)
      rate += of(group);
    return rate;
  }
  double of(uint32_t device) const { return rates[model.deviceTypeOf(device)]; }
  std::vector<double> ofEach(const std::vector<Groups> &pipelines) const {
    std::vector<double> speeds;
    speeds.reserve(pipelines.size());
    for (const Groups &groups : pipelines)
      speeds.push_back(of(groups));
    return speeds;
  }

private:
  const StageModel &model;
  std::vector<double> rates;
};

/// Returns the stage of a pipeline that a device joins.
size_t stageFor(const StageModel &model, const Rates &rates, uint32_t device,
                const Groups &groups) {
  auto key = [&](const DeviceSet &group) {
    bool here = false, alike = group.devices.empty();
    for (uint32_t d : group.devices) {
      const bool equal = model.deviceTypeOf(d) == model.deviceTypeOf(device);
      alike |= equal;
      here |= equal && model.nodeOf(d) == model.nodeOf(device);
    }
    return std::tuple(!here, !alike, rates.of(group));
  };
  return static_cast<size_t>(
      std::min_element(groups.begin(), groups.end(),
                       [&](const DeviceSet &a, const DeviceSet &b) { return key(a) < key(b); }) -
      groups.begin());
}

void insert(uint32_t device, DeviceSet &group) {
  group.devices.insert(std::lower_bound(group.devices.begin(), group.devices.end(), device),
                       device);
}

} // namespace

void zorse::planning::spread(const StageModel &model, const std::vector<uint32_t> &devices,
                             Draft &draft) {
  const Rates rates(model);
  std::vector<double> speed = rates.ofEach(draft.pipelines);
  for (uint32_t device : devices) {
    const auto slowest =
        static_cast<size_t>(std::min_element(speed.begin(), speed.end()) - speed.begin());
    Groups &groups = draft.pipelines[slowest];
    insert(device, groups[stageFor(model, rates, device, groups)]);
    speed[slowest] += rates.of(device);
  }
}

std::vector<uint32_t> zorse::planning::fillHoles(const StageModel &model,
                                                 std::vector<uint32_t> devices, Draft &draft) {
  std::vector<Hole> open;
  for (const Hole &hole : draft.holes) {
    const auto equal = std::find_if(devices.begin(), devices.end(), [&](uint32_t d) {
      return model.deviceTypeOf(d) == hole.deviceType;
    });
    if (equal == devices.end()) {
      open.push_back(hole);
      continue;
    }
    insert(*equal, draft.pipelines[hole.pipeline][hole.stage]);
    devices.erase(equal);
  }
  draft.holes = std::move(open);
  return devices;
}

std::vector<uint32_t> zorse::planning::dissolve(size_t pipeline, Draft &draft) {
  std::vector<uint32_t> devices = devicesIn(draft.pipelines[pipeline]);
  std::sort(devices.begin(), devices.end());
  draft.pipelines.erase(draft.pipelines.begin() + static_cast<long>(pipeline));
  std::vector<Hole> open;
  for (Hole hole : draft.holes)
    if (hole.pipeline != pipeline) {
      hole.pipeline -= hole.pipeline > pipeline;
      open.push_back(hole);
    }
  draft.holes = std::move(open);
  return devices;
}

bool zorse::planning::fillFromFastest(const StageModel &model, Draft &draft) {
  const Rates rates(model);
  std::vector<double> speed = rates.ofEach(draft.pipelines);
  bool any = false;
  std::vector<Hole> open;
  for (const Hole &hole : draft.holes) {
    std::vector<uint32_t> *from = nullptr;
    size_t fastest = 0;
    for (size_t p = 0; p < draft.pipelines.size(); ++p)
      if (p != hole.pipeline && (!from || speed[p] > speed[fastest]))
        for (DeviceSet &group : draft.pipelines[p])
          if (group.devices.size() > 1 &&
              std::any_of(group.devices.begin(), group.devices.end(),
                          [&](uint32_t d) { return model.deviceTypeOf(d) == hole.deviceType; })) {
            from = &group.devices;
            fastest = p;
            break;
          }
    if (!from || speed[fastest] <= speed[hole.pipeline]) {
      open.push_back(hole);
      continue;
    }
    const auto moved = std::find_if(from->rbegin(), from->rend(), [&](uint32_t d) {
      return model.deviceTypeOf(d) == hole.deviceType;
    });
    const uint32_t device = *moved;
    from->erase(std::next(moved).base());
    insert(device, draft.pipelines[hole.pipeline][hole.stage]);
    speed[fastest] -= rates.of(device);
    speed[hole.pipeline] += rates.of(device);
    any = true;
  }
  draft.holes = std::move(open);
  return any;
}

std::optional<Draft> zorse::planning::withFurtherStage(const StageModel &model,
                                                       const std::vector<uint32_t> &devices,
                                                       StagePlace place, Draft draft) {
  const size_t count = draft.pipelines.size();
  if (devices.size() < count)
    return std::nullopt;
  // The slowest pipelines get the fastest devices.
  const Rates rates(model);
  std::vector<double> speed = rates.ofEach(draft.pipelines);
  std::vector<uint32_t> order = devices;
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return rates.of(a) > rates.of(b); });
  Groups added(count);
  for (uint32_t device : order) {
    size_t to = 0;
    for (size_t p = 1; p < count; ++p)
      if (std::pair(!added[p].devices.empty(), speed[p]) <
          std::pair(!added[to].devices.empty(), speed[to]))
        to = p;
    insert(device, added[to]);
    speed[to] += rates.of(device);
  }
  for (size_t p = 0; p < count; ++p) {
    Groups &groups = draft.pipelines[p];
    size_t at = place == StagePlace::Front ? 0 : groups.size();
    if (place == StagePlace::Beside) {
      const uint32_t type = model.deviceTypeOf(added[p].devices.front());
      size_t most = 0;
      for (size_t s = 0; s < groups.size(); ++s) {
        const auto equal = static_cast<size_t>(
            std::count_if(groups[s].devices.begin(), groups[s].devices.end(),
                          [&](uint32_t d) { return model.deviceTypeOf(d) == type; }));
        if (equal > most) {
          most = equal;
          at = s + 1;
        }
      }
      if (at == groups.size())
        continue; // the same as Back, or no stage has such devices
    }
    groups.insert(groups.begin() + static_cast<long>(at), added[p]);
    added[p].devices.clear();
  }
  const bool all = std::all_of(added.begin(), added.end(),
                               [](const DeviceSet &set) { return set.devices.empty(); });
  return all ? std::optional(std::move(draft)) : std::nullopt;
}

std::optional<Draft> zorse::planning::withEqualPipeline(const StageModel &model,
                                                        const std::vector<uint32_t> &devices,
                                                        Draft draft) {
  for (const Groups &groups : draft.pipelines) {
    std::map<uint32_t, std::vector<uint32_t>> left; // by type, in descending order
    for (auto d = devices.rbegin(); d != devices.rend(); ++d)
      left[model.deviceTypeOf(*d)].push_back(*d);
    Groups made(groups.size());
    size_t used = 0;
    for (size_t s = 0; s < groups.size(); ++s)
      for (uint32_t like : groups[s].devices)
        if (auto &free = left[model.deviceTypeOf(like)]; !free.empty()) {
          insert(free.back(), made[s]);
          free.pop_back();
          ++used;
        }
    if (used != devices.size() || used != devicesIn(groups).size())
      continue;
    draft.pipelines.push_back(std::move(made));
    return draft;
  }
  return std::nullopt;
}

std::optional<Candidate> zorse::planning::cut(SearchContext &context, Draft draft,
                                              const Strategy &like) {
  const StageModel &model = context.modelOf(like);
  Candidate candidate;
  candidate.strategy = like;
  candidate.strategy.pipelines.clear();
  std::vector<Groups> pipelines;
  for (Groups &groups : draft.pipelines) {
    groups.erase(std::remove_if(groups.begin(), groups.end(),
                                [](const DeviceSet &set) { return set.devices.empty(); }),
                 groups.end());
    if (!groups.empty())
      pipelines.push_back(std::move(groups));
  }
  if (pipelines.empty())
    return std::nullopt;
  const std::vector<double> speed = Rates(model).ofEach(pipelines);
  const std::vector<int64_t> samples = apportion(context.problem.batch, speed);
  for (size_t p = 0; p < pipelines.size(); ++p) {
    if (samples[p] < 1)
      return std::nullopt;
    candidate.strategy.pipelines.push_back({samples[p], {}});
    for (const DeviceSet &group : pipelines[p]) { // the partitioner looks at devices only
      candidate.strategy.pipelines.back().stages.emplace_back();
      for (uint32_t d : group.devices)
        candidate.strategy.pipelines.back().stages.back().members.push_back({d, 1, 1});
    }
  }
  StagePartitioner &partitioner = context.partitioner(0, like.boundaryDenominator);
  double slowest = 0;
  for (size_t p = 0; p < pipelines.size(); ++p) {
    if (!cutAgain(partitioner, model, pipelines[p], p, candidate))
      return std::nullopt;
    slowest = std::max(slowest, candidate.estimate);
  }
  candidate.estimate = slowest;
  if (like.boundaryDenominator > 1)
    setSamplesPerVariant(candidate.strategy);
  candidate.id = context.nextId();
  return candidate;
}
