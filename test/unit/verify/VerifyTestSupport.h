// Plans and programs for the verifier's tests.
#pragma once

#include "SerialPrograms.h"

#include "zorse/Verify/Verify.h"

#include <string>

namespace zorse::test {

inline verify::PlanView viewOf(const SerialPlan &plan) {
  verify::PlanView view;
  view.batch = plan.batch;
  for (int d = 0; d < plan.devices; ++d)
    view.devices.push_back({"d" + std::to_string(d), 0});
  for (const auto &cell : plan.cells)
    view.cells.push_back(
        {cell.firstUnit, cell.endUnit, cell.firstSample, cell.endSample, cell.device});
  view.splitBackward = plan.splitBackward;
  return view;
}

/// All inputs of the verifier, which a test changes.
struct Case {
  SyntheticModel model;
  SerialPlan plan;
  verify::PlanView view;
  std::vector<bundle::Program> programs;

  Case(const SyntheticOptions &options, SerialPlan serial)
      : model(makeModel(options)), plan(std::move(serial)), view(viewOf(plan)),
        programs(serialPrograms(model, plan)) {}

  std::vector<verify::Finding> findings(unsigned threads = 1) const {
    return verify::verifyPrograms(model.summary, model.functions, view, programs, {threads, 8});
  }
  std::string text() const {
    std::string all;
    for (const auto &finding : findings())
      all += verify::toString(finding, view) + "\n";
    return all;
  }
};

inline SerialPlan oneDevice() { return {8, 1, {{0, 4, 0, 8, 0}}, {}}; }
inline SerialPlan oneDeviceTwoCells() { return {8, 1, {{0, 4, 0, 5, 0}, {0, 4, 5, 8, 0}}, {}}; }
inline SerialPlan pipeline() {
  return {8, 2, {{0, 2, 0, 4, 0}, {0, 2, 4, 8, 0}, {2, 4, 0, 3, 1}, {2, 4, 3, 8, 1}}, {}};
}
inline SerialPlan split(SerialPlan plan) {
  plan.splitBackward = true;
  return plan;
}
/// Every group is owned by both devices, split after its first 128 elements.
inline SerialPlan dataParallel(const SyntheticModel &model) {
  SerialPlan plan{7, 2, {{0, 4, 0, 5, 0}, {0, 4, 5, 7, 1}}, {}};
  for (uint32_t g = 0; g < uint32_t(model.summary.groups_size()); ++g)
    if (model.summary.groups(int(g)).trainable()) {
      plan.owners.push_back({g, 0, 0, 128});
      if (model.summary.groups(int(g)).elements() > 128)
        plan.owners.push_back({g, 1, 128, model.summary.groups(int(g)).elements()});
    }
  return plan;
}

/// Three devices, two of which compute, own ranges of 32 elements of every group round-robin.
inline SerialPlan ownersInTurns(const SyntheticModel &model, bool compact = false) {
  SerialPlan plan{7, 3, {{0, 4, 0, 5, 0}, {0, 4, 5, 7, 1}}, {}};
  for (uint32_t g = 0; g < uint32_t(model.summary.groups_size()); ++g)
    for (int64_t begin = 0; begin < model.summary.groups(int(g)).elements() &&
                            model.summary.groups(int(g)).trainable();
         begin += 32)
      plan.owners.push_back({g, uint32_t(begin / 32 % 3), begin, begin + 32});
  plan.compact = compact;
  return plan;
}

} // namespace zorse::test
