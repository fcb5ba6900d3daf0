// Lower bounds of the step time, and a breakdown of a plan's time. docs/internals/cost-models.md
// derives them.
#include "zorse/Planning/LowerBound.h"

#include "LinearProgram.h"
#include "UnitKinds.h"

#include "zorse/Step/UnitTasks.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using namespace zorse::planning;
using namespace zorse;

namespace {

/// Costs of a plan's devices, which may be a subset of the cluster's devices in another order.
class PlanCosts : public step::Costs {
public:
  PlanCosts(const CostModel &costs, std::vector<uint32_t> places, const bundle::Topology &whole)
      : costs(costs), places(std::move(places)) {
    bundle::Topology topology = whole;
    topology.clear_node_of_device();
    topology.clear_direct_group_of_device();
    for (uint32_t place : this->places) {
      topology.add_node_of_device(whole.node_of_device(static_cast<int>(place)));
      if (whole.direct_group_of_device_size())
        topology.add_direct_group_of_device(whole.direct_group_of_device(static_cast<int>(place)));
    }
    links = sim::Network(topology);
  }
  double unit(uint32_t d, step::UnitRef u, step::UnitTask task, int64_t rows) const override {
    return costs.unit(places[d], u, task, rows);
  }
  double update(uint32_t d, step::UpdateWork work) const override {
    return costs.update(places[d], work);
  }
  double norm(uint32_t d, int64_t elements) const override {
    return costs.norm(places[d], elements);
  }
  double hostUpdate(uint32_t d, step::UpdateWork work) const override {
    return costs.hostUpdate(places[d], work);
  }
  double copy(uint32_t d, uint64_t bytes) const override { return costs.copy(places[d], bytes); }
  double load(uint32_t d, uint64_t bytes) const override { return costs.load(places[d], bytes); }
  const sim::Network &network() const override { return links; }

private:
  const CostModel &costs;
  std::vector<uint32_t> places;
  sim::Network links;
};

/// Costs with the same unit times; everything else is free.
class UnitsOnly : public step::Costs {
public:
  explicit UnitsOnly(const step::Costs &costs, size_t devices) : costs(costs) {
    bundle::Topology topology;
    topology.add_sites();
    topology.add_nodes();
    for (size_t d = 0; d < devices; ++d)
      topology.add_node_of_device(0);
    links = sim::Network(topology);
  }
  double unit(uint32_t d, step::UnitRef u, step::UnitTask task, int64_t rows) const override {
    return costs.unit(d, u, task, rows);
  }
  double update(uint32_t, step::UpdateWork) const override { return 0; }
  double norm(uint32_t, int64_t) const override { return 0; }
  double hostUpdate(uint32_t, step::UpdateWork) const override { return 0; }
  double copy(uint32_t, uint64_t) const override { return 0; }
  double load(uint32_t, uint64_t) const override { return 0; }
  const sim::Network &network() const override { return links; }

private:
  const step::Costs &costs;
  sim::Network links;
};

/// Returns the part of a unit's FLOPs that a device of a group computes.
double partOf(const bundle::ModelSummary &summary, step::UnitRef unit) {
  auto flops = [&](step::UnitRef of) {
    return trainingFlops(classOf(summary, step::unitInfo(summary, of)));
  };
  return unit.group < 0 || flops(unit.unit) <= 0 ? 1 : flops(unit) / flops(unit.unit);
}

double solve(const Problem &problem, const Kinds &kinds,
             const std::vector<std::vector<double>> &seconds) {
  return minTime(machinesOf(seconds), kinds.amounts(problem.batch));
}

/// Work of a plan's working device.
struct Work {
  uint32_t place = 0;                  ///< index in the cluster
  double busy = 0;                     ///< seconds of its units
  double again = 0;                    ///< seconds of recomputed forwards
  std::map<int64_t, double> rows;      ///< samples by rows of their cells
  std::vector<double> seconds, pieces; ///< by kind of unit: total seconds; samples x units
};

/// Returns the plan with its simulated task order made explicit, so that the same order runs under
/// other costs.
step::Plan withOrder(step::Plan plan, const step::StepGraph &graph) {
  plan.schedule.kind = step::ScheduleKind::Explicit;
  plan.order.assign(plan.devices.size(), {});
  std::vector<bool> hasBackward(plan.cells.size(), false);
  std::set<std::pair<uint32_t, int>> listed;
  for (const step::Instruction &instruction : graph.instructions)
    if (instruction.kind == step::InstructionKind::Compute &&
        instruction.task == bundle::Compute::B)
      hasBackward[instruction.cell] = true;
  for (size_t d = 0; d < graph.devices.size(); ++d) {
    auto &order = plan.order[d];
    auto add = [&](step::TaskKind kind, uint32_t cell) {
      const step::TaskId task{kind, cell};
      if (listed.insert({cell, int(kind)}).second) // a divided task has several instructions
        order.push_back(task);
    };
    std::vector<uint32_t> silent; // cells without gradients; the order must name their B anyway
    for (uint32_t e = graph.devices[d].instructions.begin; e < graph.devices[d].instructions.end;
         ++e) {
      const step::Instruction &instruction = graph.instructions[e];
      if (instruction.kind != step::InstructionKind::Compute || instruction.cell < 0)
        continue;
      const uint32_t cell = static_cast<uint32_t>(instruction.cell);
      if (instruction.task == bundle::Compute::F) {
        if (!hasBackward[cell] && !listed.count({cell, int(step::TaskKind::Forward)}))
          silent.push_back(cell);
        add(step::TaskKind::Forward, cell);
      } else if (instruction.task == bundle::Compute::B) {
        add(step::TaskKind::Backward, cell);
      } else if (instruction.task == bundle::Compute::W) {
        if (auto it = std::find(silent.begin(), silent.end(), cell);
            it != silent.end()) { // its whole backward is W; its B is no instruction
          add(step::TaskKind::Backward, cell);
          silent.erase(it);
        }
        add(step::TaskKind::Weights, cell);
      }
    }
    for (uint32_t cell : silent)
      add(step::TaskKind::Backward, cell);
  }
  return plan;
}

double boundOver(const Problem &problem, std::vector<uint32_t> devices,
                 const std::set<int64_t> &rowCounts) {
  Kinds kinds(problem);
  if (devices.empty())
    devices = allDevices(problem);
  return solve(problem, kinds, minSeconds(problem, kinds, devices, rowCounts));
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 1; }

/// Returns the cluster indices of the plan's devices.
Result<std::vector<uint32_t>> placesOf(const Problem &problem, const step::Plan &plan) {
  std::map<std::string, uint32_t> placeOf;
  for (uint32_t d = 0; d < problem.cluster.devices.size(); ++d)
    placeOf[problem.cluster.devices[d].name] = d;
  std::vector<uint32_t> places;
  for (const step::PlanDevice &device : plan.devices) {
    auto it = placeOf.find(device.name);
    if (it == placeOf.end())
      return userError("device '" + device.name + "' of the plan is not in the cluster");
    places.push_back(it->second);
  }
  return places;
}

/// Returns the work per device of the plan. The task order of `ordered` shows which cells have a
/// backward in two parts.
std::map<uint32_t, Work> worksOf(const Problem &problem, const step::Plan &ordered,
                                 const std::vector<uint32_t> &places, const Kinds &kinds) {
  std::vector<bool> split(ordered.cells.size(), false);
  for (const auto &order : ordered.order)
    for (const step::TaskId &task : order)
      if (task.kind == step::TaskKind::Weights)
        split[task.cell] = true;
  std::map<uint32_t, Work> works;
  for (size_t c = 0; c < ordered.cells.size(); ++c) {
    const step::Cell &cell = ordered.cells[c];
    Work &work = works[cell.device];
    work.place = places[cell.device];
    work.seconds.resize(kinds.unit.size(), 0);
    work.pieces.resize(kinds.unit.size(), 0);
    work.rows[cell.rows()] += static_cast<double>(cell.rows());
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u) {
      const step::UnitRef unit{u, cell.group, cell.member};
      double seconds = problem.costs.unit(work.place, unit, step::UnitTask::Forward, cell.rows()) +
                       backwardSeconds(problem, work.place, unit, cell.rows(), split[c]);
      work.busy += seconds;
      if (step::recomputes(problem.summary, cell, ordered.schedule.splitBackward))
        if (auto task = step::repeatedTask(problem.summary, cell, u))
          work.again += problem.costs.unit(work.place, unit, *task, cell.rows());
      work.seconds[kinds.of[u]] += seconds;
      work.pieces[kinds.of[u]] += partOf(problem.summary, unit) * static_cast<double>(cell.rows());
    }
  }
  return works;
}

/// Returns the seconds of a sample on a unit of every kind, as planned; for kinds without work on
/// the device, with the device's row counts.
std::vector<double> secondsAsPlanned(const Problem &problem, const Kinds &kinds, const Work &work) {
  std::vector<double> chosen;
  for (size_t l = 0; l < kinds.unit.size(); ++l) {
    if (work.pieces[l] > 0) {
      chosen.push_back(work.seconds[l] / work.pieces[l]);
      continue;
    }
    double seconds = 0, samples = 0;
    for (auto [rows, count] : work.rows) {
      double perSample =
          problem.costs.unit(work.place, kinds.unit[l], step::UnitTask::Forward, rows) +
          std::min(backwardSeconds(problem, work.place, kinds.unit[l], rows, false),
                   backwardSeconds(problem, work.place, kinds.unit[l], rows, true));
      seconds += perSample / static_cast<double>(rows) * count;
      samples += count;
    }
    chosen.push_back(seconds / samples);
  }
  return chosen;
}

} // namespace

double zorse::planning::lowerBound(const Problem &problem, const std::vector<uint32_t> &devices,
                                   int64_t maxRows) {
  return boundOver(problem, devices, rowsUpTo(maxRows, problem.batch));
}

double zorse::planning::byteBound(const Problem &problem, int64_t maxRows) {
  return byteBound(problem, rowsUpTo(maxRows, problem.batch));
}

Result<Efficiency> zorse::planning::efficiency(const Problem &problem, const step::Plan &given) {
  step::Plan plan = given;
  plan.durations.reset(); // all times from one source
  const Result<std::vector<uint32_t>> places = placesOf(problem, plan);
  if (places.failed())
    return places.error();
  if (plan.batch != problem.batch)
    return userError("the plan is for a batch of " + std::to_string(plan.batch) +
                     ", the problem for " + std::to_string(problem.batch));

  PlanCosts costs(problem.costs, *places, problem.cluster.topology);
  step::LoweringOptions options;
  options.functions = problem.functions;
  options.costs = &costs;
  options.checkMemory = false;
  Result<step::StepGraph> graph = step::lowerPlan(problem.summary, plan, options);
  if (graph.failed())
    return graph.error();
  UnitsOnly unitsOnly(costs, plan.devices.size());
  options.costs = &unitsOnly;
  step::Plan ordered = withOrder(plan, *graph);
  Result<step::StepGraph> compute = step::lowerPlan(problem.summary, ordered, options);
  if (compute.failed())
    return compute.error();

  Kinds kinds(problem);
  const std::map<uint32_t, Work> works = worksOf(problem, ordered, *places, kinds);
  std::set<int64_t> rowCounts = rowsUpTo(64, problem.batch);
  for (const step::Cell &cell : plan.cells)
    rowCounts.insert(cell.rows());
  std::vector<uint32_t> working;
  std::vector<std::vector<double>> chosen;
  double balance = 0, recompute = 0;
  for (auto &[device, work] : works) {
    working.push_back(work.place);
    chosen.push_back(secondsAsPlanned(problem, kinds, work));
    balance = std::max(balance, work.busy);
    recompute = std::max(recompute, work.busy + work.again);
  }
  const double idle = solve(problem, kinds, minSeconds(problem, kinds, working, rowCounts)),
               kernel = solve(problem, kinds, chosen);

  Efficiency e;
  e.bound = boundOver(problem, {}, rowCounts);
  Problem asPlanned = problem;
  asPlanned.gradientWire = plan.gradientWire;
  e.bytes = byteBound(asPlanned, rowCounts);
  e.step = graph->stepTime;
  e.idle = ratio(e.bound, idle);
  e.kernel = ratio(idle, kernel);
  e.balance = ratio(kernel, balance);
  e.recompute = ratio(balance, recompute);
  e.bubble = ratio(recompute, compute->stepTime);
  e.exposed = ratio(compute->stepTime, e.step);
  e.eta = ratio(e.bound, e.step);
  return e;
}
