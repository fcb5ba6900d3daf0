// Why a plan is as fast as it is: what binds, and what changes would bring.
#include "zorse/Planning/Report.h"

#include "Text.h"

#include <algorithm>
#include <set>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// The step of the same plan on another cluster; nullopt if it cannot be told.
std::optional<double> stepOn(const Problem &problem, const step::Plan &plan, const Cluster &cluster) {
  std::string error;
  std::optional<CostModel> costs = CostModel::make(problem.summary, cluster, problem.profile, plan.devices, error);
  if (!costs)
    return std::nullopt;
  step::ExpandOptions options;
  options.bodies = problem.bodies;
  options.costs = &*costs;
  options.checkMemory = false;
  std::optional<step::StepGraph> graph = step::expandPlan(problem.summary, plan, error, options);
  return graph ? std::optional<double>(graph->stepTime) : std::nullopt;
}

void timesBandwidth(bundle::LinkClass &link, double factor) {
  link.set_bandwidth(link.bandwidth() * factor);
  link.set_flow(link.flow() * factor);
}

class Explainer {
public:
  Explainer(const Problem &problem, const step::Plan &plan, const Report &report, const PlanAgain &planAgain)
      : problem(problem), plan(plan), report(report), planAgain(planAgain) {}

  std::vector<Reason> run() {
    factors();
    busiest();
    memory();
    techniques();
    idle();
    links();
    otherLinks();
    otherDevices();
    return std::move(reasons);
  }

private:
  void say(const std::string &what, double gain = 0) { reasons.push_back({what, gain}); }
  std::optional<double> gainOf(std::optional<double> step) const {
    return step && report.step > 0 ? std::optional<double>(1 - *step / report.step) : std::nullopt;
  }

  /// The largest loss first.
  void factors() {
    const Efficiency &e = report.efficiency;
    struct Factor {
      double value;
      const char *text;
    };
    std::vector<Factor> all = {{e.idle, "devices without work"},
                               {e.kernel, "micro-batches too small for full speed of the kernels"},
                               {e.balance, "stages that take unequal time"},
                               {e.recompute, "recomputed activations"},
                               {e.bubble, "waiting for the first and the last micro-batches of the pipeline"},
                               {e.exposed, "links, reductions and updates that nothing hides"}};
    std::stable_sort(all.begin(), all.end(), [](const Factor &a, const Factor &b) { return a.value < b.value; });
    for (size_t i = 0; i < 3 && all[i].value < 0.995; ++i)
      say(format("%s: ", showPercent(1 - all[i].value).c_str()) + "of the time is lost to " + all[i].text);
  }

  void busiest() {
    const Report::Stage *stage = nullptr;
    for (const auto &s : report.stages)
      if (!stage || s.mostBusy > stage->mostBusy)
        stage = &s;
    if (stage)
      say("the pace is set by units " + std::to_string(stage->unitBegin) + "-" + std::to_string(stage->unitEnd) + " (" + stage->units + ") on " +
          stage->deviceTypes + ", busy " + format("%.0f %%", 100 * stage->mostBusy));
  }

  void memory() {
    const Report::Device *fullest = nullptr;
    size_t full = 0;
    auto fill = [](const Report::Device &d) { return d.available ? double(d.memory) / double(d.available) : 0; };
    for (const auto &d : report.devices) {
      full += fill(d) > 0.95;
      if (!fullest || fill(d) > fill(*fullest))
        fullest = &d;
    }
    if (!fullest || fill(*fullest) == 0)
      return;
    if (fill(*fullest) > 1)
      say("it does not fit: " + fullest->name + " lacks " + showBytes(double(fullest->memory - fullest->available)));
    else if (full)
      say("memory binds on " + std::to_string(full) + (full == 1 ? " device" : " devices") + "; " + fullest->name + " is " +
          showPercent(fill(*fullest)) + " full, most of it " + largest(fullest->use));
    else
      say("memory does not bind: the fullest device, " + fullest->name + ", has " + showBytes(double(fullest->available - fullest->memory)) +
          " left");
  }

  /// What saves memory, and how much devices would lack without it.
  void techniques() {
    step::Plan without = plan;
    size_t cells = 0;
    std::set<uint32_t> again, host;
    for (step::Cell &cell : without.cells) {
      const bool recomputes = cell.activations == step::Activations::Recompute;
      cells += recomputes;
      if (recomputes)
        again.insert(cell.device);
      cell.activations = step::Activations::Keep;
    }
    for (uint32_t d = 0; d < plan.devices.size(); ++d)
      for (uint32_t g = 0; g < static_cast<uint32_t>(problem.summary.groups_size()) && !plan.residency.empty(); ++g)
        if (!plan.residenceOf(d, g).onDevice())
          host.insert(d);
    without.residency.clear();
    if (cells == 0 && host.empty())
      return;
    auto devices = [](size_t n) { return std::to_string(n) + (n == 1 ? " device" : " devices"); };
    std::string text = again.empty() ? "" : devices(again.size()) + " compute activations again";
    if (!host.empty())
      text += (text.empty() ? "" : ", ") + devices(host.size()) + (host.size() == 1 ? " keeps" : " keep") + " state on the host";
    std::string error;
    if (std::optional<Evaluation> plain = evaluate(problem, without, error, /*timeOnly=*/true))
      text += plain->excess ? "; without, devices lack " + showBytes(double(plain->excess))
                            : "; without, it fits and takes " + format("%.4g s", plain->step);
    say("to fit, " + text);
  }

  static std::string largest(const step::MemoryUse &use) {
    std::pair<uint64_t, const char *> parts[] = {{use.state, "state"},
                                                 {use.gathered, "gathered parameters"},
                                                 {use.gradients, "gradients"},
                                                 {use.activations, "activations"},
                                                 {use.workspace, "workspace"}};
    return std::max_element(std::begin(parts), std::end(parts))->second;
  }

  void idle() {
    std::string names;
    size_t count = 0;
    for (const auto &d : report.devices)
      if (d.cells == 0 && ++count <= 6)
        names += (names.empty() ? "" : ", ") + d.name;
    if (count)
      say((count == 1 ? "a device does not pay its way: " : std::to_string(count) + " devices do not pay their way: ") + names +
          (count > 6 ? ", ..." : ""));
  }

  void links() {
    if (!report.links.empty() && report.links.front().share > 0.3)
      say("the busiest link, " + report.links.front().name + ", carries " + showBytes(report.links.front().bytes) + " a step and is busy " +
          format("%.0f %%", 100 * report.links.front().share) + " of it");
  }

  void otherLinks() {
    auto with = [&](const char *what, auto change) {
      Cluster cluster = problem.cluster;
      change(cluster.topology);
      if (auto gain = gainOf(stepOn(problem, plan, cluster)); gain && std::abs(*gain) > 5e-4)
        say(what, *gain);
    };
    with("twice the bandwidth between nodes", [](bundle::Topology &t) {
      for (auto &node : *t.mutable_nodes())
        timesBandwidth(*node.mutable_nic(), 2);
      for (auto &site : *t.mutable_sites())
        timesBandwidth(*site.mutable_fabric(), 2);
    });
    with("half the bandwidth between nodes", [](bundle::Topology &t) {
      for (auto &node : *t.mutable_nodes())
        timesBandwidth(*node.mutable_nic(), 0.5);
      for (auto &site : *t.mutable_sites())
        timesBandwidth(*site.mutable_fabric(), 0.5);
    });
    if (problem.cluster.topology.sites_size() > 1)
      with("twice the bandwidth between sites", [](bundle::Topology &t) {
        for (auto &site : *t.mutable_sites())
          timesBandwidth(*site.mutable_uplink(), 2);
        timesBandwidth(*t.mutable_between_sites(), 2);
        for (auto &pair : *t.mutable_site_pairs())
          timesBandwidth(*pair.mutable_link(), 2);
      });
    with("twice the bandwidth inside nodes", [](bundle::Topology &t) {
      for (auto &node : *t.mutable_nodes()) {
        timesBandwidth(*node.mutable_port(), 2);
        timesBandwidth(*node.mutable_bus(), 2);
      }
    });
  }

  /// One more device of each type beside the first of its type, and a quarter more memory everywhere.
  void otherDevices() {
    if (!planAgain)
      return;
    std::set<std::string> types;
    for (size_t d = 0; d < problem.cluster.devices.size() && types.size() < 6; ++d) {
      const ClusterDevice &like = problem.cluster.devices[d];
      const std::string type = like.type.empty() ? like.name : like.type;
      if (!types.insert(type).second)
        continue;
      Cluster cluster = problem.cluster;
      ClusterDevice more = like;
      more.name = "one-more";
      while (std::any_of(cluster.devices.begin(), cluster.devices.end(), [&](const ClusterDevice &o) { return o.name == more.name; }))
        more.name += "+";
      cluster.devices.insert(cluster.devices.begin() + d + 1, more);
      auto *nodes = cluster.topology.mutable_node_of_device();
      nodes->Clear();
      for (const ClusterDevice &device : cluster.devices)
        nodes->Add(device.node);
      if (auto gain = gainOf(planAgain(cluster)))
        say("one more device like " + like.name + (like.type.empty() ? "" : " (" + like.type + ")"), *gain);
    }
    Cluster cluster = problem.cluster;
    bool limited = false;
    for (ClusterDevice &device : cluster.devices) {
      limited |= device.memory > 0;
      device.memory += device.memory / 4;
    }
    if (limited)
      if (auto gain = gainOf(planAgain(cluster)); gain && std::abs(*gain) > 5e-4)
        say("a quarter more memory on every device", *gain);
  }

  const Problem &problem;
  const step::Plan &plan;
  const Report &report;
  const PlanAgain &planAgain;
  std::vector<Reason> reasons;
};

} // namespace

std::vector<Reason> zorse::planning::explain(const Problem &problem, const step::Plan &plan, const Report &report, const PlanAgain &planAgain) {
  return Explainer(problem, plan, report, planAgain).run();
}
