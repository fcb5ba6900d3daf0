// A chain of units with given task times, for tests of schedules: only times, bytes and memory
// matter.
#pragma once

#include "zorse/Step/Costs.h"
#include "zorse/Step/Plan.h"

#include "bundle.pb.h"

#include <vector>

namespace zorse::test {

struct ChainUnit {
  double forward = 1, inputs = 1, weights = 1; ///< seconds per row at speed 1
  int64_t saved = 0,
          boundary = 64; ///< bytes per row: saved from F to B and W; sent to the next unit
};

/// One parameter per unit. All units but the first split their backward; the first has its whole
/// backward in W.
bundle::ModelSummary chainSummary(const std::vector<ChainUnit> &units);

/// Times by unit and device speed. Operations on state cost nothing.
class ChainCosts final : public step::Costs {
public:
  ChainCosts(std::vector<ChainUnit> units, std::vector<double> speeds,
             const bundle::Topology &topology)
      : units(std::move(units)), speeds(std::move(speeds)), links(topology) {}
  double unit(uint32_t device, step::UnitRef unit, step::UnitTask task,
              int64_t rows) const override;
  double update(uint32_t, step::UpdateWork) const override { return 0; }
  double norm(uint32_t, int64_t) const override { return 0; }
  double hostUpdate(uint32_t, step::UpdateWork) const override { return 0; }
  double copy(uint32_t, uint64_t) const override { return 0; }
  double load(uint32_t, uint64_t) const override { return 0; }
  const sim::Network &network() const override { return links; }

private:
  std::vector<ChainUnit> units;
  std::vector<double> speeds;
  sim::Network links;
};

/// Each device is a separate node with a NIC of `bandwidth` bytes/s (0: not limited) and `latency`
/// seconds between nodes.
bundle::Topology oneDevicePerNode(size_t devices, double bandwidth, double latency);

/// One device of speed 1 per unit; micro-batches have one sample.
step::Plan chainPlan(int stages, int64_t batch);

} // namespace zorse::test
