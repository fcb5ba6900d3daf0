// Computes a report from the full expansion of a plan.
#include "zorse/Planning/Report.h"

#include "zorse/Simulation/Network.h"
#include "zorse/Simulation/UniformParts.h"
#include "zorse/Step/Schedules.h"
#include "zorse/Step/UnitTasks.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Disjoint sets (union-find).
class Sets {
public:
  explicit Sets(size_t n) : parent(n) { std::iota(parent.begin(), parent.end(), 0); }
  uint32_t find(uint32_t i) {
    while (parent[i] != i)
      i = parent[i] = parent[parent[i]];
    return i;
  }
  void join(uint32_t a, uint32_t b) {
    parent[std::max(find(a), find(b))] = std::min(find(a), find(b));
  }

private:
  std::vector<uint32_t> parent;
};

/// Groups devices into pipelines. Cells with adjacent units and overlapping samples exchange
/// values, so their devices are in one pipeline, as are the devices of a group (tensor
/// parallelism).
Sets pipelinesOf(const step::Plan &plan) {
  Sets sets(plan.devices.size());
  for (const step::DeviceGroup &group : plan.groups)
    for (uint32_t device : group.devices)
      sets.join(group.devices.front(), device);
  std::map<int32_t, std::vector<uint32_t>> byBegin;
  for (uint32_t c = 0; c < plan.cells.size(); ++c)
    byBegin[plan.cells[c].unitBegin].push_back(c);
  for (auto &[unit, cells] : byBegin)
    std::sort(cells.begin(), cells.end(), [&](uint32_t a, uint32_t b) {
      return plan.cells[a].sampleBegin < plan.cells[b].sampleBegin;
    });
  for (const step::Cell &cell : plan.cells) {
    auto below = byBegin.find(cell.unitEnd);
    if (below == byBegin.end())
      continue;
    auto it = std::partition_point(below->second.begin(), below->second.end(), [&](uint32_t o) {
      return plan.cells[o].sampleEnd <= cell.sampleBegin;
    });
    for (; it != below->second.end() && plan.cells[*it].sampleBegin < cell.sampleEnd; ++it)
      sets.join(cell.device, plan.cells[*it].device);
  }
  return sets;
}

std::string scheduleName(const step::Plan &plan) {
  const step::GradientWire wire = plan.gradientWire;
  return step::scheduleRule(plan.schedule.kind).name +
         std::string(plan.schedule.splitBackward ? ", split backward" : "") +
         (wire == step::GradientWire::Bf16BetweenNodes   ? ", gradients as bf16 between nodes"
          : wire == step::GradientWire::Bf16BetweenSites ? ", gradients as bf16 between sites"
                                                         : "");
}

class ReportBuilder {
public:
  ReportBuilder(const Problem &problem, const step::Plan &plan, const step::StepGraph &graph,
                Report &report)
      : problem(problem), plan(plan), graph(graph), report(report) {
    std::unordered_map<std::string, uint32_t> index;
    for (uint32_t d = 0; d < problem.cluster.devices.size(); ++d)
      index[problem.cluster.devices[d].name] = d;
    for (const step::PlanDevice &device : plan.devices) {
      auto it = index.find(device.name);
      inCluster.push_back(it == index.end() ? UINT32_MAX : it->second);
    }
  }

  void devices() {
    report.devices.resize(plan.devices.size());
    for (uint32_t d = 0; d < plan.devices.size(); ++d) {
      Report::Device &device = report.devices[d];
      device.name = plan.devices[d].name;
      device.node = plan.devices[d].node;
      const ClusterDevice *known =
          inCluster[d] == UINT32_MAX ? nullptr : &problem.cluster.devices[inCluster[d]];
      device.type = known ? (known->type.empty() ? known->kind : known->type) : "device";
      device.use = graph.devices[d].memory;
      device.memory = graph.devices[d].plannedBytes;
      device.available = plan.devices[d].memory;
      const step::Span instructions = graph.devices[d].instructions;
      for (uint32_t e = instructions.begin; e < instructions.end; ++e) {
        const step::Instruction &instruction = graph.instructions[e];
        if (instruction.kind != step::InstructionKind::Compute)
          continue;
        double &seconds = instruction.task == bundle::Compute::F   ? device.forward
                          : instruction.task == bundle::Compute::B ? device.backward
                          : instruction.task == bundle::Compute::W ? device.weights
                                                                   : device.other;
        seconds += instruction.plannedEnd - instruction.plannedStart;
      }
    }
    std::vector<std::vector<std::pair<int64_t, int64_t>>> rows(plan.devices.size());
    for (const step::Cell &cell : plan.cells) {
      ++report.devices[cell.device].cells;
      rows[cell.device].push_back({cell.sampleBegin, cell.sampleEnd});
    }
    for (uint32_t d = 0; d < rows.size(); ++d) {
      std::sort(rows[d].begin(), rows[d].end());
      int64_t end = 0;
      for (auto [begin, last] : rows[d]) {
        report.devices[d].samples += std::max<int64_t>(0, last - std::max(begin, end)) *
                                     plan.samplesPerRow;
        end = std::max(end, last);
      }
    }
  }

  void stages() {
    Sets pipelines = pipelinesOf(plan);
    std::map<std::tuple<uint32_t, int32_t, int32_t>, Report::Stage> byPlace;
    std::map<std::tuple<uint32_t, int32_t, int32_t>, std::set<uint32_t>> members;
    std::map<std::tuple<uint32_t, int32_t, int32_t>, std::set<int32_t>> groupsIn;
    // A stage consists of devices with overlapping ranges of units. Different samples may have
    // different stage boundaries.
    std::vector<std::vector<std::pair<int32_t, int32_t>>> ranges(plan.devices.size());
    for (const step::Cell &cell : plan.cells)
      ranges[cell.device].push_back({cell.unitBegin, cell.unitEnd});
    for (auto &list : ranges) {
      std::sort(list.begin(), list.end());
      std::vector<std::pair<int32_t, int32_t>> joined;
      for (auto &range : list)
        if (joined.empty() || range.first >= joined.back().second)
          joined.push_back(range);
        else
          joined.back().second = std::max(joined.back().second, range.second);
      list = std::move(joined);
    }
    // Samples with the first unit, and with the last one.
    std::map<std::tuple<uint32_t, int32_t, int32_t>, std::pair<int64_t, int64_t>> atEnds;
    for (const step::Cell &cell : plan.cells) {
      const auto &list = ranges[cell.device];
      auto band = std::prev(
          std::upper_bound(list.begin(), list.end(), std::pair(cell.unitBegin, INT32_MAX)));
      auto key = std::tuple(pipelines.find(cell.device), band->first, band->second);
      const int64_t samples = cell.member == 0 ? cell.rows() * plan.samplesPerRow : 0;
      atEnds[key].first += cell.unitBegin == band->first ? samples : 0;
      atEnds[key].second += cell.unitEnd == band->second ? samples : 0;
      Report::Stage &stage = byPlace[key];
      stage.samples += samples;
      stage.minRows = stage.minRows ? std::min(stage.minRows, cell.rows()) : cell.rows();
      stage.maxRows = std::max(stage.maxRows, cell.rows());
      members[key].insert(cell.device);
      if (cell.group >= 0)
        groupsIn[key].insert(cell.group);
    }
    std::map<uint32_t, uint32_t> numbers; // pipeline numbers by the pipeline's first device
    for (auto &[key, stage] : byPlace)
      numbers.emplace(std::get<0>(key), static_cast<uint32_t>(numbers.size()));
    for (auto &[key, stage] : byPlace) {
      std::tie(std::ignore, stage.unitBegin, stage.unitEnd) = key;
      stage.pipeline = numbers[std::get<0>(key)];
      stage.firstFraction = double(atEnds[key].first) / double(stage.samples);
      stage.lastFraction = double(atEnds[key].second) / double(stage.samples);
      const auto &units = problem.summary.units();
      stage.units = units[stage.unitBegin].name() + (stage.unitEnd - stage.unitBegin > 1
                                                         ? " ... " + units[stage.unitEnd - 1].name()
                                                         : "");
      stage.devices.assign(members[key].begin(), members[key].end());
      std::vector<std::pair<std::string, int>> types;
      double fullest = -1;
      for (uint32_t d : stage.devices) {
        const Report::Device &device = report.devices[d];
        auto it = std::find_if(types.begin(), types.end(),
                               [&](auto &t) { return t.first == device.type; });
        if (it == types.end())
          types.push_back({device.type, 1});
        else
          ++it->second;
        const double busy = report.step > 0 ? device.busy() / report.step : 0;
        stage.meanBusy += busy / double(stage.devices.size());
        stage.maxBusy = std::max(stage.maxBusy, busy);
        const double fill = device.available ? double(device.memory) / double(device.available)
                                             : 1e-30 * double(device.memory);
        if (fill > fullest) {
          fullest = fill;
          stage.memory = device.memory;
          stage.available = device.available;
        }
      }
      for (auto &[type, count] : types)
        stage.deviceTypes += (stage.deviceTypes.empty() ? "" : ", ") + std::to_string(count) +
                             " x " + type;
      if (const size_t count = groupsIn[key].size())
        stage.deviceTypes += " in " + std::to_string(count) + (count > 1 ? " groups" : " group");
      report.stages.push_back(stage);
    }
    std::stable_sort(report.stages.begin(), report.stages.end(),
                     [](const Report::Stage &a, const Report::Stage &b) {
                       return std::pair(a.pipeline, a.unitBegin) <
                              std::pair(b.pipeline, b.unitBegin);
                     });
  }

  /// Returns the site of a device of the plan; -1: unknown.
  int64_t siteOf(uint32_t device) const {
    if (inCluster[device] == UINT32_MAX)
      return -1;
    const uint32_t node = problem.cluster.devices[inCluster[device]].node;
    return problem.cluster.topology.nodes(static_cast<int>(node)).site();
  }

  void groups() {
    for (const step::DeviceGroup &group : plan.groups)
      report.groups.push_back({group.name, group.devices, group.shares});
    std::vector<bool> seen(plan.groups.size());
    for (const step::Cell &cell : plan.cells) {
      if (cell.group < 0)
        continue;
      Report::Group &group = report.groups[static_cast<size_t>(cell.group)];
      const bool first = !seen[static_cast<size_t>(cell.group)];
      group.unitBegin = first ? cell.unitBegin : std::min(group.unitBegin, cell.unitBegin);
      group.unitEnd = std::max(group.unitEnd, cell.unitEnd);
      seen[static_cast<size_t>(cell.group)] = true;
    }
    for (Report::Group &group : report.groups) {
      for (uint32_t device : group.devices)
        group.acrossSites |= siteOf(device) != siteOf(group.devices[0]);
      const step::Span all = graph.devices[group.devices[0]].instructions;
      for (uint32_t i = all.begin; i < all.end; ++i)
        if (const step::Instruction &instruction = graph.instructions[i];
            instruction.value.kind == bundle::Value::EXCHANGED)
          group.exchangeSeconds += instruction.plannedEnd - instruction.plannedStart;
    }
  }

  void types() {
    double all = 0;
    std::map<std::string, double> work;
    for (const step::Cell &cell : plan.cells)
      for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u) {
        const auto &unit = step::unitInfo(problem.summary, {u, cell.group, cell.member});
        const double flops = trainingFlops(classOf(problem.summary, unit)) * double(cell.rows());
        work[report.devices[cell.device].type] += flops;
        all += flops;
      }
    for (const Report::Device &device : report.devices) {
      auto it = std::find_if(report.types.begin(), report.types.end(),
                             [&](const Report::Type &t) { return t.name == device.type; });
      if (it == report.types.end())
        it = report.types.insert(it, Report::Type{device.type});
      ++it->devices;
      if (device.cells) {
        ++it->used;
        it->utilisation += report.step > 0 ? device.busy() / report.step : 0;
      }
    }
    for (Report::Type &type : report.types) {
      type.utilisation = type.used ? type.utilisation / type.used : 0;
      type.work = all > 0 ? work[type.name] / all : 0;
    }
  }

  /// Collects one line for all devices of a type with the same source of times.
  void sources(const CostModel &costs) {
    for (uint32_t d = 0; d < report.devices.size(); ++d) {
      const std::string line = report.devices[d].type + ": " + costs.source(d);
      if (report.devices[d].cells &&
          std::find(report.sources.begin(), report.sources.end(), line) == report.sources.end())
        report.sources.push_back(line);
    }
  }

  /// Collects the bytes over every resource: transfers along their routes, collectives as the
  /// network executes them.
  void links(const step::Costs &costs) {
    const sim::Network &network = costs.network();
    std::vector<double> bytes(network.resources(), 0);
    std::vector<uint8_t> seen(graph.collectives.size(), 0);
    sim::Traffic traffic(network);
    auto collect = [&] {
      for (uint32_t r = 0; r < bytes.size(); ++r)
        bytes[r] += traffic.busyUntil(r) * network.bandwidth(r);
      traffic.reset();
    };
    for (uint32_t d = 0; d < graph.devices.size(); ++d)
      for (uint32_t e = graph.devices[d].instructions.begin; e < graph.devices[d].instructions.end;
           ++e) {
        const step::Instruction &instruction = graph.instructions[e];
        if (instruction.kind == step::InstructionKind::Send) {
          const sim::Route route = network.route(d, instruction.peer);
          for (uint8_t i = 0; i < route.count; ++i)
            bytes[route.resources[i]] += double(instruction.region.bytes);
          if (network.site(d) != network.site(instruction.peer))
            egress(network.site(d), double(instruction.region.bytes));
          continue;
        }
        if ((instruction.kind != step::InstructionKind::AllGather &&
             instruction.kind != step::InstructionKind::ReduceScatter) ||
            seen[instruction.collective]++)
          continue;
        const step::Collective &collective = graph.collectives[instruction.collective];
        sim::collectiveTimes(traffic, instruction.kind == step::InstructionKind::AllGather,
                             collective.members, collective.shards, collective.parts,
                             {double(elementBytes(collective.type)), collective.termBytes()}, 0);
        collect();
      }
    std::vector<std::string> names;
    for (const step::PlanDevice &device : plan.devices)
      names.push_back(device.name);
    for (uint32_t r = 0; r < bytes.size(); ++r)
      if (bytes[r] > 0)
        report.links.push_back(
            {network.name(r, names), bytes[r], network.bandwidth(r),
             report.step > 0 ? bytes[r] / network.bandwidth(r) / report.step : 0});
    std::stable_sort(report.links.begin(), report.links.end(),
                     [](const Report::BusyLink &a, const Report::BusyLink &b) {
                       return a.fraction > b.fraction;
                     });
  }

  void prices() {
    std::set<uint32_t> nodes;
    for (uint32_t d = 0; d < report.devices.size(); ++d)
      if (report.devices[d].cells && inCluster[d] != UINT32_MAX) {
        report.price += problem.cluster.devices[inCluster[d]].price;
        nodes.insert(problem.cluster.devices[inCluster[d]].node);
      }
    for (uint32_t node : nodes)
      if (node < problem.cluster.nodes.size())
        report.price += problem.cluster.nodes[node].price;
  }

private:
  void egress(uint32_t site, double bytes) {
    if (site < problem.cluster.egressPrice.size())
      report.egress += bytes * problem.cluster.egressPrice[site];
  }

  const Problem &problem;
  const step::Plan &plan;
  const step::StepGraph &graph;
  Report &report;
  std::vector<uint32_t> inCluster;
};

} // namespace

int64_t zorse::planning::tokensPerSample(const bundle::ModelSummary &summary) {
  int64_t tokens = 0;
  for (const auto &input : summary.inputs())
    if (input.role() == "ids") {
      tokens = 1;
      for (int64_t dim : input.shape())
        tokens *= dim;
    }
  return tokens / samplesPerRow(summary);
}

Result<Report> planning::makeReport(const Problem &problem, const step::Plan &plan,
                                    step::StepGraph *keep) {
  Result<CostModel> costs =
      CostModel::make(problem.summary, problem.cluster, problem.costs.profile(), plan.devices);
  if (costs.failed())
    return costs.error();
  step::LoweringOptions options;
  options.functions = problem.functions;
  options.costs = &*costs;
  options.keepBuffers = keep != nullptr;
  options.checkMemory = false; // a plan that does not fit is also described
  Result<step::StepGraph> graph = step::lowerPlan(problem.summary, plan, options);
  if (graph.failed())
    return graph.error();
  Report report;
  report.model = problem.summary.name();
  report.assumptions = problem.assumptions;
  report.cluster = problem.cluster.name;
  report.currency = problem.cluster.currency;
  report.schedule = scheduleName(plan);
  report.batch = plan.batch * plan.samplesPerRow;
  report.tokensPerSample = tokensPerSample(problem.summary);
  report.step = graph->stepTime;
  report.givenDurations = plan.durations.has_value();
  report.instructions = graph->numInstructions;
  Result<Efficiency> efficiency = planning::efficiency(problem, plan);
  if (efficiency.failed())
    return efficiency.error();
  report.efficiency = *efficiency;
  ReportBuilder maker(problem, plan, *graph, report);
  maker.devices();
  maker.stages();
  maker.groups();
  maker.types();
  maker.sources(*costs);
  maker.links(*costs);
  maker.prices();
  if (keep)
    *keep = std::move(*graph);
  return report;
}
