// Checks the order in which devices launch direct transfers. Every device launches them in the
// order of its queue. Two devices that launch common transfers in different orders deadlock; so do
// more devices whose orders form a cycle. Ascending ids exclude both. This check does not use ids,
// so that it can report the mistake if they were changed, and it holds for any way of ordering
// programs.
#include "Device.h"

#include <algorithm>
#include <tuple>

using namespace zorse;
using namespace zorse::verify;

void Device::collectLaunches() {
  for (const auto &instruction : program.instructions()) {
    if (instruction.queue() >= uint32_t(program.queues_size()) ||
        program.queues(int(instruction.queue())).kind() != bundle::DEVICE_TO_DEVICE)
      continue;
    result.launches.push_back(int64_t(instruction.id()));
  }
}

namespace {

class LaunchOrder {
public:
  LaunchOrder(const Model &model, const std::vector<DeviceResult> &results,
              std::vector<Finding> &findings)
      : model(model), results(results), findings(findings) {}

  void run() {
    index();
    follow();
    for (uint32_t r = 0; r < results.size(); ++r)
      if (front[r] < first[r + 1])
        return explain(r);
  }

private:
  /// A launch of one device. Places are numbered across all devices, in the order of results and
  /// programs.
  struct Member {
    int64_t id;
    uint32_t result, place;
    bool operator<(const Member &o) const { return std::tie(id, place) < std::tie(o.id, o.place); }
  };
  const Model &model;
  const std::vector<DeviceResult> &results;
  std::vector<Finding> &findings;
  std::vector<Member> members;       ///< members of all launches, by id
  std::vector<uint32_t> launchAt;    ///< by place: number of its launch
  std::vector<uint32_t> firstMember; ///< by launch: index in members, with an end element
  std::vector<uint32_t> first;       ///< by result: its first place, with an end element
  std::vector<uint32_t> front;       ///< by result: its current place

  void index() {
    for (uint32_t r = 0; r < results.size(); ++r) {
      first.push_back(uint32_t(members.size()));
      for (int64_t id : results[r].launches)
        members.push_back({id, r, uint32_t(members.size())});
    }
    first.push_back(uint32_t(members.size()));
    front.assign(first.begin(), first.end() - 1);
    std::sort(members.begin(), members.end());
    launchAt.resize(members.size());
    for (uint32_t m = 0; m < members.size(); ++m) {
      if (m == 0 || members[m].id != members[m - 1].id)
        firstMember.push_back(m);
      launchAt[members[m].place] = uint32_t(firstMember.size() - 1);
    }
    firstMember.push_back(uint32_t(members.size()));
  }

  /// A launch ends when all of its devices have arrived at it. Advances all devices as far as
  /// possible. All of them reach their ends exactly if one total order is compatible with the order
  /// of each; no pairs of devices need to be compared.
  void follow() {
    std::vector<uint32_t> missing, ready;
    for (size_t launch = 0; launch + 1 < firstMember.size(); ++launch)
      missing.push_back(firstMember[launch + 1] - firstMember[launch]);
    auto arrive = [&](uint32_t r) {
      if (front[r] < first[r + 1] && --missing[launchAt[front[r]]] == 0)
        ready.push_back(launchAt[front[r]]);
    };
    for (uint32_t r = 0; r < results.size(); ++r)
      arrive(r);
    while (!ready.empty()) {
      const uint32_t launch = ready.back();
      ready.pop_back();
      for (uint32_t m = firstMember[launch]; m < firstMember[launch + 1]; ++m) {
        ++front[members[m].result];
        arrive(members[m].result);
      }
    }
  }

  std::string device(uint32_t result) const {
    const auto index = uint32_t(results[result].device);
    return index < model.plan.devices.size() ? model.plan.devices[index].name
                                             : "device " + std::to_string(index);
  }
  int64_t idAt(uint32_t place) const { return members[firstMember[launchAt[place]]].id; }

  /// For a blocked device, a device that it waits for because that one launches something else
  /// first.
  uint32_t waitsFor(uint32_t result) const {
    const uint32_t launch = launchAt[front[result]];
    for (uint32_t m = firstMember[launch]; m < firstMember[launch + 1]; ++m)
      if (members[m].place != front[members[m].result])
        return members[m].result;
    return result;
  }

  /// Every blocked device waits for another blocked one: following them leads to a cycle.
  void explain(uint32_t result) {
    std::vector<bool> seen(results.size());
    for (; !seen[result]; result = waitsFor(result))
      seen[result] = true;
    for (uint32_t next = waitsFor(result), met = result; next != met;
         next = waitsFor(next)) // the first device of the cycle
      result = std::min(result, next);
    const uint32_t other = waitsFor(result);
    const int64_t id = idAt(front[result]);
    std::string text = "instruction " + std::to_string(id) + ": " + device(result);
    if (other == result) {
      text += " launches it twice: expects once";
    } else if (waitsFor(other) == result) {
      text += " launches it where " + device(other) + " launches instruction " +
              std::to_string(idAt(front[other])) +
              ": expects both to launch what they share in one order, or they wait for each other";
    } else {
      text += " launches it and waits for ";
      for (uint32_t next = other; next != result; next = waitsFor(next))
        text += device(next) + ", which launches instruction " + std::to_string(idAt(front[next])) +
                " before and waits for ";
      text += device(result) +
              ": the orders of the devices go round in a circle, expects one that all follow";
    }
    findings.push_back({Code::Launch, results[result].device, id, text});
  }
};

} // namespace

void verify::checkLaunches(const Model &model, const std::vector<DeviceResult> &results,
                           std::vector<Finding> &findings) {
  LaunchOrder(model, results, findings).run();
}
