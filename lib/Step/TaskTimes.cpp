// Seconds of tasks: from the caller's costs, or from FLOPs, the plan's speeds and its two links.
// The plan's durations override F, B and W.

#include "PlanLowering.h"
#include "Tables.h"

#include "zorse/Step/UnitTasks.h"
#include "zorse/Summary/Optimizers.h"

#include <algorithm>
#include <unordered_map>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;

/// Returns a topology of one site with the plan's nodes. The intra-node link is the device link of
/// every device. The inter-node link is the NIC of every node, shared by the node's transfers.
bundle::Topology topologyOf(const Plan &plan) {
  bundle::Topology topology;
  auto set = [](bundle::LinkSpec &to, const LinkSpeed &from) {
    to.set_bandwidth(from.bandwidth);
    to.set_latency(from.latency);
  };
  bundle::Topology::Site *site = topology.add_sites();
  site->mutable_fabric()->set_latency(plan.interNode.latency);
  std::unordered_map<std::string, uint32_t> index;
  for (const PlanDevice &device : plan.devices) {
    auto [it, fresh] = index.emplace(device.node, topology.nodes_size());
    if (fresh) {
      bundle::Topology::Node *node = topology.add_nodes();
      node->set_name(device.node);
      set(*node->mutable_port(), plan.intraNode);
      node->mutable_nic()->set_bandwidth(plan.interNode.bandwidth);
    }
    topology.add_node_of_device(it->second);
  }
  return topology;
}

class PlanCosts final : public Costs {
public:
  PlanCosts(const bundle::ModelSummary &summary, const Plan &plan)
      : summary(summary), plan(plan), links(topologyOf(plan)) {}

  double unit(uint32_t device, UnitRef unit, UnitTask task, int64_t rows) const override {
    // Every launch has a constant cost. Without it, cells of one row would seem to cost nothing
    // extra.
    constexpr double kCallSeconds = 5e-6;
    return (plan.devices[device].flopsPerSecond > 0 ? kCallSeconds : 0) +
           compute(device,
                   unitFunction(summary, unit, task).flops_per_row() * static_cast<double>(rows));
  }
  double update(uint32_t device, UpdateWork work) const override {
    return compute(device, 10.0 * static_cast<double>(work.elements) + work.flops);
  }
  double norm(uint32_t device, int64_t elements) const override {
    return compute(device, 2.0 * static_cast<double>(elements));
  }
  double hostUpdate(uint32_t, UpdateWork work) const override {
    return hostUpdateSeconds(work, elementBytes(zorse::accumulationType(summary.compute_type())),
                             zorse::meanStateBytes(summary));
  }
  double copy(uint32_t, uint64_t) const override { return 0; }
  double load(uint32_t, uint64_t) const override { return 0; }
  const zorse::sim::Network &network() const override { return links; }

private:
  double compute(uint32_t device, double flops) const {
    constexpr double kDefaultSpeed = 1e9, kMin = 1e-9;
    double speed = plan.devices[device].flopsPerSecond;
    return std::max(flops / (speed > 0 ? speed : kDefaultSpeed), kMin);
  }

  const bundle::ModelSummary &summary;
  const Plan &plan;
  zorse::sim::Network links;
};

} // namespace

std::unique_ptr<Costs> zorse::step::planCosts(const bundle::ModelSummary &summary,
                                              const Plan &plan) {
  return std::make_unique<PlanCosts>(summary, plan);
}

bool PlanLowering::hasWork(uint32_t c, TaskKind kind) {
  return secondsOf[c]->works[static_cast<int>(kind)];
}

double PlanLowering::taskSeconds(uint32_t c, TaskKind kind) {
  const auto &given = plan.durations;
  const TaskSeconds &known = *secondsOf[c];
  if (!known.works[static_cast<int>(kind)])
    return 0;
  if (given && kind == TaskKind::Forward)
    return given->forward[c];
  if (given && (!given->weights.empty() || !plan.schedule.splitBackward))
    return (kind == TaskKind::Backward ? given->backward : given->weights)[c];
  const double *shape = known.seconds;
  if (!given)
    return shape[static_cast<int>(kind)];
  // The plan contains the duration of the whole backward: it is divided in the ratio of the costs.
  double both = shape[1] + shape[2];
  return given->backward[c] * (both > 0 ? shape[static_cast<int>(kind)] / both : 0.5);
}
