// What goes directly from GPU to GPU is launched by every device in an order of its own queue. Two devices that launch what they share in different
// orders wait for each other for ever, and so do more devices whose orders together go round in a circle. Ids that ascend rule both out; this check
// does not rest on ids, so that it says what is wrong where they were changed, and holds however programs come to be ordered.
#include "Device.h"

#include <algorithm>
#include <map>

using namespace zorse;
using namespace zorse::verify;

void Device::collectLaunches() {
  for (const auto &entry : program.entries()) {
    if (entry.queue() >= uint32_t(program.queues_size()) || program.queues(int(entry.queue())).kind() != bundle::DIRECT)
      continue;
    result.launches.push_back(int64_t(entry.id()));
  }
}

namespace {

class LaunchOrder {
public:
  LaunchOrder(const Model &model, const std::vector<DeviceResult> &results, std::vector<Finding> &findings)
      : model(model), results(results), findings(findings) {}

  void run() {
    for (uint32_t r = 0; r < results.size(); ++r)
      for (size_t place = 0; place < results[r].launches.size(); ++place)
        placesOf[results[r].launches[place]].push_back({r, place});
    if (checkPairs())
      checkCircles();
  }

private:
  struct Place {
    uint32_t result;
    size_t place;
  };
  const Model &model;
  const std::vector<DeviceResult> &results;
  std::vector<Finding> &findings;
  std::map<int64_t, std::vector<Place>> placesOf; ///< by id: in the order of programs

  std::string device(uint32_t result) const {
    const auto index = uint32_t(results[result].device);
    return index < model.plan.devices.size() ? model.plan.devices[index].name : "device " + std::to_string(index);
  }

  /// What two devices both launch, in the order of either.
  bool checkPairs() {
    for (uint32_t one = 0; one < results.size(); ++one) {
      std::map<uint32_t, std::vector<int64_t>> shared; // by the other device's program: ids in the order of this one
      for (int64_t launch : results[one].launches)
        for (const Place &other : placesOf[launch])
          if (other.result > one)
            shared[other.result].push_back(launch);
      for (const auto &[other, mine] : shared) {
        std::vector<int64_t> theirs;
        for (int64_t launch : results[other].launches)
          if (std::find_if(placesOf[launch].begin(), placesOf[launch].end(), [one = one](const Place &p) { return p.result == one; }) !=
              placesOf[launch].end())
            theirs.push_back(launch);
        const size_t count = std::min(mine.size(), theirs.size());
        const size_t at = size_t(std::mismatch(mine.begin(), mine.begin() + long(count), theirs.begin()).first - mine.begin());
        if (at < count) {
          findings.push_back({Code::Launch, results[one].device, mine[at],
                              "entry " + std::to_string(mine[at]) + ": " + device(one) + " launches it where " + device(other) + " launches entry " +
                                  std::to_string(theirs[at]) + ": expects both to launch what they share in one order, or they wait for each other"});
          return false;
        }
      }
    }
    return true;
  }

  /// A launch ends when all of its devices have come to it: follows the fronts of all devices as far as they go.
  void checkCircles() {
    std::vector<size_t> front(results.size(), 0);
    std::vector<uint32_t> look;
    look.reserve(results.size());
    for (uint32_t r = 0; r < results.size(); ++r)
      look.push_back(r);
    while (!look.empty()) {
      const uint32_t r = look.back();
      look.pop_back();
      if (front[r] == results[r].launches.size())
        continue;
      const std::vector<Place> &places = placesOf[results[r].launches[front[r]]];
      if (!std::all_of(places.begin(), places.end(), [&](const Place &p) { return front[p.result] == p.place; }))
        continue;
      for (const Place &p : places) {
        ++front[p.result];
        look.push_back(p.result);
      }
    }
    for (uint32_t r = 0; r < results.size(); ++r)
      if (front[r] < results[r].launches.size()) {
        const int64_t id = results[r].launches[front[r]];
        std::string others;
        for (const Place &p : placesOf[id])
          if (front[p.result] != p.place)
            others += (others.empty() ? "" : ", ") + device(p.result) + " is at entry " + std::to_string(results[p.result].launches[front[p.result]]);
        findings.push_back({Code::Launch, results[r].device, id,
                            "entry " + std::to_string(id) + ": " + device(r) + " launches it while " + others +
                                ": the orders of the devices go round in a circle, expects one that all follow"});
        return;
      }
  }
};

} // namespace

void verify::checkLaunches(const Model &model, const std::vector<DeviceResult> &results, std::vector<Finding> &findings) {
  LaunchOrder(model, results, findings).run();
}
