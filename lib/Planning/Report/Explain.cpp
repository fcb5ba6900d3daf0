// Explains the speed of a plan: its bottlenecks, and the effect of changes.
#include "zorse/Base/Format.h"
#include "zorse/Planning/Report.h"

#include <algorithm>
#include <set>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Returns the step time of the same plan on another cluster; nullopt if it cannot be computed.
std::optional<double> stepOn(const Problem &problem, const step::Plan &plan,
                             const Cluster &cluster) {
  const Result<CostModel> costs =
      CostModel::make(problem.summary, cluster, problem.costs.profile(), plan.devices);
  if (costs.failed())
    return std::nullopt;
  step::LoweringOptions options;
  options.functions = problem.functions;
  options.costs = &*costs;
  options.checkMemory = false;
  const Result<step::StepGraph> graph = step::lowerPlan(problem.summary, plan, options);
  return graph.failed() ? std::nullopt : std::optional<double>(graph->stepTime);
}

void timesBandwidth(bundle::LinkSpec &link, double factor) {
  link.set_bandwidth(link.bandwidth() * factor);
  link.set_per_flow_bandwidth(link.per_flow_bandwidth() * factor);
}

class Explainer {
public:
  Explainer(const Problem &problem, const step::Plan &plan, const Report &report,
            const PlanAgain &planAgain, bool byPrice, bool given)
      : problem(problem), plan(plan), report(report), planAgain(planAgain), byPrice(byPrice),
        given(given) {}

  std::vector<Reason> run() {
    if (plan.durations)
      say("task times are the plan's \"durations\"; the time lost by factor and the effect of "
          "other devices need modeled times and are not listed");
    else
      factors();
    busiest();
    memory();
    optimizations();
    idle();
    links();
    otherLinks();
    if (!plan.durations) // the search has modeled times
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
    std::vector<Factor> all = {
        {e.idle, "devices without work (idle)"},
        {e.kernel, "micro-batches too small for full speed of the kernels (kernel)"},
        {e.balance, "stages that take unequal time (balance)"},
        {e.recompute, "recomputed activations (recompute)"},
        {e.bubble, "waiting for the first and the last micro-batches of the pipeline (bubble)"},
        {e.exposed, "communication and updates that compute does not hide (exposed)"}};
    std::stable_sort(all.begin(), all.end(),
                     [](const Factor &a, const Factor &b) { return a.value < b.value; });
    for (size_t i = 0; i < 3 && all[i].value < 0.995; ++i)
      say(showPercent(1 - all[i].value) + " of the time is lost to " + all[i].text);
  }

  void busiest() {
    const Report::Stage *stage = nullptr;
    for (const auto &s : report.stages)
      if (!stage || s.maxBusy > stage->maxBusy)
        stage = &s;
    if (stage)
      say("the pace is set by units " + std::to_string(stage->unitBegin) + "-" +
          std::to_string(stage->unitEnd) + " (" + stage->units + ") on " + stage->deviceTypes +
          ", busy " + format("%.0f %%", 100 * stage->maxBusy));
  }

  void memory() {
    const Report::Device *fullest = nullptr;
    size_t full = 0;
    auto fill = [](const Report::Device &d) {
      return d.available ? double(d.memory) / double(d.available) : 0;
    };
    for (const auto &d : report.devices) {
      full += fill(d) > 0.95;
      if (!fullest || fill(d) > fill(*fullest))
        fullest = &d;
    }
    if (!fullest || fill(*fullest) == 0)
      return;
    if (fill(*fullest) > 1)
      say("the plan does not fit: " + fullest->name + " exceeds its memory by " +
          showBytes(double(fullest->memory - fullest->available)));
    else if (full)
      say(std::to_string(full) + (full == 1 ? " device is" : " devices are") +
          " more than 95 % full; " + fullest->name + " is " + showPercent(fill(*fullest)) +
          " full, most of it " + largest(fullest->use));
    else
      say("no device is full: the fullest, " + fullest->name + ", has " +
          showBytes(double(fullest->available - fullest->memory)) + " left");
  }

  std::optional<Evaluation> estimateOf(const step::Plan &other) const {
    Result<Evaluation> found = estimate(problem, other);
    return found.failed() ? std::nullopt : std::optional(std::move(*found));
  }

  /// Reports the memory techniques in use with the memory each saves and its cost in time, and the
  /// memory missing without them.
  void optimizations() {
    const std::optional<Evaluation> with = estimateOf(plan);
    const bool keepsLess = activations(with), keepsElsewhere = residency(with);
    if (!keepsLess && !keepsElsewhere)
      return;
    step::Plan plain = plan;
    for (step::Cell &cell : plain.cells)
      cell.activations = step::Activations::Keep;
    plain.offload.clear();
    if (const std::optional<Evaluation> other = estimateOf(plain))
      say(other->shortfallBytes
              ? "without these, devices exceed their memory by " +
                    showBytes(double(other->shortfallBytes))
              : "without these, the plan fits and takes " + format("%.4g s", other->step));
  }

  /// Returns whether cells recompute or offload activations.
  bool activations(const std::optional<Evaluation> &with) {
    using step::Activations;
    bool used = false;
    for (Activations how : {Activations::Recompute, Activations::Offload}) {
      std::set<uint32_t> devices;
      step::Plan without = plan;
      for (step::Cell &cell : without.cells)
        if (cell.activations == how) {
          devices.insert(cell.device);
          cell.activations = Activations::Keep;
        }
      used |= how == Activations::Recompute
                  ? sayOptimization(with, devices, "recomputes activations",
                                    "recompute activations", without)
                  : sayOptimization(
                        with, devices,
                        "offloads activations to the host between forward and backward",
                        "offload activations to their hosts between forward and backward", without);
    }
    return used;
  }

  /// Returns whether parameters are gathered by phase, or state is in host memory.
  bool residency(const std::optional<Evaluation> &with) {
    std::set<uint32_t> phased, updated, state, moments;
    for (uint32_t d = 0; d < plan.devices.size() && !plan.offload.empty(); ++d)
      for (uint32_t g = 0; g < static_cast<uint32_t>(problem.summary.groups_size()) && holds(d);
           ++g) {
        if (plan.reshardAfterForward(g))
          phased.insert(d);
        if (const step::StatePlacement at = plan.placementOf(d, g); !at.onDevice())
          (at.update == step::MemoryTier::Host       ? updated
           : at.parameters == step::MemoryTier::Host ? state
                                                     : moments)
              .insert(d);
      }
    for (uint32_t d : updated)
      state.erase(d), moments.erase(d);
    for (uint32_t d : state)
      moments.erase(d);
    step::Plan atOnce = plan;
    step::OffloadRule once;
    once.reshardAfterForward = false;
    atOnce.offload.push_back(std::move(once));
    auto onDevice = [&](const std::set<uint32_t> &devices) {
      step::Plan without = plan;
      step::OffloadRule rule;
      rule.devices.assign(devices.begin(), devices.end());
      rule.parameters = rule.optimizerStates = rule.gradients = rule.optimizer =
          step::MemoryTier::Device;
      without.offload.push_back(std::move(rule));
      return without;
    };
    bool used = sayOptimization(with, phased, "gathers parameters per model chunk, twice a step",
                                "gather parameters per model chunk, twice a step", atOnce);
    used |= sayOptimization(with, moments, "keeps optimizer states on the host",
                            "keep optimizer states on their hosts", onDevice(moments));
    used |= sayOptimization(
        with, state, "keeps parameters, optimizer states and reduced gradients on the host",
        "keep parameters, optimizer states and reduced gradients on their hosts", onDevice(state));
    used |= sayOptimization(
        with, updated,
        "keeps parameters and optimizer states on the host and updates them with the host's CPU",
        "keep parameters and optimizer states on their hosts and update them with the hosts' CPUs",
        onDevice(updated));
    return used;
  }

  /// Returns whether any device uses the technique.
  /// \param with     evaluation of the plan
  /// \param without  the same plan without the technique
  bool sayOptimization(const std::optional<Evaluation> &with, const std::set<uint32_t> &devices,
                       const char *one, const char *many, const step::Plan &without) {
    if (devices.empty())
      return false;
    std::string text = devices.size() == 1 ? plan.devices[*devices.begin()].name + " " + one
                                           : std::to_string(devices.size()) + " devices " + many;
    text += unitsOf(devices);
    const std::optional<Evaluation> other = estimateOf(without);
    const std::optional<Evaluation> fastest = fastestWithMemory(without);
    if (other && fastest && with) {
      uint64_t saved = 0;
      for (uint32_t d : devices)
        saved = std::max(saved, other->memory[d] - std::min(other->memory[d], with->memory[d]));
      text += ": saves " + showBytes(double(saved)) +
              (devices.size() == 1 ? "" : " on one of them");
      if (with->step > fastest->step)
        text += ", costs " + format("%.1f %%", 100 * (with->step / fastest->step - 1)) +
                " compared with a plan with sufficient memory";
      else
        text += ", costs no time compared with the same plan without it";
    }
    say(text);
    return true;
  }

  /// Returns the fastest evaluation with more memory. With little memory, the schedule has fewer
  /// samples in flight, so the cost of a technique is visible only with enough memory. The best
  /// number in flight varies; a schedule with more memory may always use fewer.
  std::optional<Evaluation> fastestWithMemory(const step::Plan &without) const {
    std::optional<Evaluation> fastest;
    for (const double times : {1.0, 1.5, 2.0, 4.0, 0.0}) { // multiples of the devices' memory; 0:
                                                           // unlimited
      step::Plan roomy = without;
      for (step::PlanDevice &device : roomy.devices)
        device.memory = static_cast<uint64_t>(static_cast<double>(device.memory) * times);
      if (std::optional<Evaluation> found = estimateOf(roomy);
          found && (!fastest || found->step < fastest->step))
        fastest = std::move(found);
    }
    return fastest;
  }

  bool holds(uint32_t device) const {
    return std::any_of(plan.cells.begin(), plan.cells.end(),
                       [&](const step::Cell &cell) { return cell.device == device; });
  }

  /// Returns " of units 3-9" if the devices' cells form one range, else "".
  std::string unitsOf(const std::set<uint32_t> &devices) const {
    std::vector<std::pair<int32_t, int32_t>> ranges;
    for (const step::Cell &cell : plan.cells)
      if (devices.count(cell.device))
        ranges.push_back({cell.unitBegin, cell.unitEnd});
    std::sort(ranges.begin(), ranges.end());
    int32_t end = ranges.empty() ? 0 : ranges.front().second;
    for (auto [first, last] : ranges) {
      if (first > end)
        return ""; // not contiguous
      end = std::max(end, last);
    }
    if (ranges.empty())
      return "";
    return " of units " + std::to_string(ranges.front().first) + "-" + std::to_string(end);
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
      say((count == 1 ? "1 device has no work in this plan: "
                      : std::to_string(count) + " devices have no work in this plan: ") +
          names + (count > 6 ? ", ..." : ""));
  }

  void links() {
    if (!report.links.empty() && report.links.front().fraction > 0.3)
      say("the busiest link, " + report.links.front().name + ", transfers " +
          showBytes(report.links.front().bytes) + " per step and is busy " +
          format("%.0f %%", 100 * report.links.front().fraction) + " of the step");
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

  /// One more device of each type, next to the first of its type, and 25 % more memory on all
  /// devices.
  void otherDevices() {
    if (!planAgain)
      return;
    if (given) // the lines of larger clusters contain this gain
      sayPlannedAgain(problem.cluster, "another plan on the same devices");
    std::set<std::string> types;
    for (size_t d = 0; d < problem.cluster.devices.size() && types.size() < 6; ++d) {
      const ClusterDevice &like = problem.cluster.devices[d];
      const std::string type = like.type.empty() ? like.name : like.type;
      if (!types.insert(type).second)
        continue;
      Cluster cluster = problem.cluster;
      ClusterDevice more = like;
      more.name = "one-more";
      while (std::any_of(cluster.devices.begin(), cluster.devices.end(),
                         [&](const ClusterDevice &o) { return o.name == more.name; }))
        more.name += "+";
      cluster.devices.insert(cluster.devices.begin() + d + 1, more);
      auto *nodes = cluster.topology.mutable_node_of_device();
      nodes->Clear();
      for (const ClusterDevice &device : cluster.devices)
        nodes->Add(device.node);
      sayPlannedAgain(cluster, "one more device like " + like.name +
                                   (like.type.empty() ? "" : " (" + like.type + ")"));
    }
    Cluster cluster = problem.cluster;
    bool limited = false;
    for (ClusterDevice &device : cluster.devices) {
      limited |= device.memory > 0;
      device.memory += device.memory / 4;
    }
    if (limited)
      sayPlannedAgain(cluster, "a quarter more memory on every device");
  }

  /// Reports the effect of a larger cluster. The current plan also runs there, so the gain is never
  /// negative.
  void sayPlannedAgain(const Cluster &cluster, const std::string &what) {
    const bool priced = byPrice && report.price > 0;
    double gain = 0;
    if (const std::optional<double> kept = stepOn(problem, plan, cluster))
      gain = std::max(gain, *gainOf(kept));
    if (const std::optional<Replanned> again = planAgain(cluster))
      gain = std::max(gain, priced ? 1 - again->step * again->price / (report.step * report.price)
                                   : gainOf(again->step).value_or(0));
    if (gain > 5e-4)
      reasons.push_back({what, gain, priced});
    else
      say(what + " would not help: the search finds no " + (priced ? "cheaper" : "faster") +
          " plan");
  }

  const Problem &problem;
  const step::Plan &plan;
  const Report &report;
  const PlanAgain &planAgain;
  const bool byPrice, given;
  std::vector<Reason> reasons;
};

} // namespace

std::vector<Reason> zorse::planning::explain(const Problem &problem, const step::Plan &plan,
                                             const Report &report, const PlanAgain &planAgain,
                                             bool byPrice, bool given) {
  return Explainer(problem, plan, report, planAgain, byPrice, given).run();
}

std::string zorse::planning::showGain(const Reason &reason) {
  if (reason.gain == 0)
    return "";
  return (reason.price ? "a sample would cost " : "the step would take ") +
         format("%.1f %% ", 100 * std::abs(reason.gain)) + (reason.gain > 0 ? "less" : "more");
}
