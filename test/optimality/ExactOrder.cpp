// Branch and bound over active schedules (Giffler and Thompson). The lower bound of a device is its
// earliest head, plus its remaining work, plus its shortest tail.

#include "ExactOrder.h"

#include "zorse/Step/StepGraph.h"
#include "zorse/Step/UnitTasks.h"

#include <algorithm>
#include <string>
#include <vector>

using namespace zorse;
using namespace zorse::planning;

namespace {

struct Dependence {
  uint32_t task;
  double delay;
};

struct Task {
  step::TaskId name;
  uint32_t device = 0;
  double seconds = 0,
         tail = 0; ///< tail: lower bound on the time from its end to the end of the step
  std::vector<Dependence> before, after;
};

class OrderSearch {
public:
  OrderSearch(const bundle::ModelSummary &summary, const step::Plan &plan, const step::Costs &costs,
              uint64_t maxNodes)
      : summary(summary), plan(plan), costs(costs), nodesLeft(maxNodes) {}

  std::optional<double> run() {
    if (step::validatePlan(plan, summary).failed())
      return std::nullopt;
    makeTasks();
    findTails();
    // Start from the existing schedules.
    for (auto kind : {step::ScheduleKind::SteadyState, step::ScheduleKind::OneForwardOneBackward,
                      step::ScheduleKind::GPipe})
      for (double inFlight : {1.0, 2.0, 8.0}) {
        step::Plan other = plan;
        other.schedule = {};
        other.schedule.kind = kind;
        other.schedule.splitBackward = plan.schedule.splitBackward;
        other.schedule.inFlightFactor = inFlight;
        time(other);
      }
    plan.schedule.kind = step::ScheduleKind::Explicit;
    plan.schedule.warmupForwards.clear();
    plan.order.assign(plan.devices.size(), {});
    missing.resize(tasks.size());
    head.assign(tasks.size(), 0);
    done.assign(tasks.size(), 0);
    free.assign(plan.devices.size(), 0);
    for (size_t t = 0; t < tasks.size(); ++t)
      missing[t] = tasks[t].before.size();
    bool complete = extend(0);
    return complete && best < 1e300 ? std::optional(best) : std::nullopt;
  }

private:
  double alone(uint32_t from, uint32_t to, double bytes) const {
    sim::Route route = costs.network().route(from, to);
    double perByte = route.perFlowBandwidth > 0 ? 1 / route.perFlowBandwidth : 0;
    for (uint32_t r = 0; r < route.count; ++r)
      perByte = std::max(perByte, costs.network().secondsPerByte(route.resources[r]));
    return bytes * perByte + route.latency;
  }

  void makeTasks() {
    size_t n = plan.cells.size();
    std::vector<uint32_t> index(3 * n, UINT32_MAX);
    for (uint32_t kind = 0; kind < 3; ++kind)
      for (uint32_t c = 0; c < n; ++c) {
        const step::Cell &cell = plan.cells[c];
        Task task;
        bool works = false;
        for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
          if (auto part = step::unitTask(summary, u, static_cast<step::TaskKind>(kind),
                                         plan.schedule.splitBackward)) {
            works = true;
            task.seconds += costs.unit(cell.device, u, *part, cell.rows());
          }
        if (kind == 2 && !works)
          continue;
        task.name = {static_cast<step::TaskKind>(kind), c};
        task.device = cell.device;
        index[kind * n + c] = static_cast<uint32_t>(tasks.size());
        tasks.push_back(task);
      }
    auto link = [&](uint32_t before, uint32_t after, double delay) {
      tasks[before].after.push_back({after, delay});
      tasks[after].before.push_back({before, delay});
    };
    for (uint32_t c = 0; c < n; ++c) {
      link(index[c], index[n + c], 0);
      if (index[2 * n + c] != UINT32_MAX)
        link(index[n + c], index[2 * n + c], 0);
    }
    auto holds = [&](const step::Cell &cell, uint32_t unit) {
      return cell.unitBegin <= static_cast<int32_t>(unit) &&
             static_cast<int32_t>(unit) < cell.unitEnd;
    };
    for (uint32_t a = 0; a < n; ++a)
      for (uint32_t b = 0; b < n; ++b) {
        const step::Cell &p = plan.cells[a], &q = plan.cells[b];
        int64_t rows = std::min(p.sampleEnd, q.sampleEnd) - std::max(p.sampleBegin, q.sampleBegin);
        if (rows <= 0 || p.unitEnd > q.unitBegin)
          continue;
        for (const auto &value : summary.values()) {
          if (!holds(p, value.producer()) ||
              std::none_of(value.users().begin(), value.users().end(),
                           [&](uint32_t u) { return holds(q, u); }))
            continue;
          // A value that passes through cells in between takes longer; omitting this keeps the
          // bound valid.
          double delay =
              p.unitEnd == q.unitBegin && p.device != q.device
                  ? alone(p.device, q.device, static_cast<double>(rows * value.bytes_per_row()))
                  : 0;
          link(index[a], index[b], delay);
          if (value.needs_gradient())
            link(
                index[n + b], index[n + a],
                p.device == q.device || delay == 0
                    ? 0
                    : alone(q.device, p.device, static_cast<double>(rows * value.bytes_per_row())));
        }
      }
    symmetric = findSymmetry();
  }

  /// Whether samples are interchangeable: every stage has one device, and all stages have the same
  /// equal micro-batches.
  bool findSymmetry() const {
    for (const step::Cell &cell : plan.cells) {
      bool alike = cell.rows() == plan.cells[0].rows();
      size_t same = 0, beside = 0;
      for (const step::Cell &other : plan.cells) {
        same += other.unitBegin == cell.unitBegin && other.device == cell.device;
        beside += other.unitBegin == cell.unitBegin;
        alike = alike && (other.unitBegin != cell.unitBegin || other.unitEnd == cell.unitEnd);
      }
      if (!alike || same != beside || static_cast<int64_t>(same) * cell.rows() != plan.batch)
        return false;
    }
    return true;
  }

  /// Computes longest paths by repeated relaxation. Tasks are in the order F, B, W; plans are
  /// small.
  void findTails() {
    for (bool changed = true; changed;) {
      changed = false;
      for (Task &task : tasks)
        for (const Dependence &edge : task.after) {
          double tail = edge.delay + tasks[edge.task].seconds + tasks[edge.task].tail;
          if (tail > task.tail) {
            task.tail = tail;
            changed = true;
          }
        }
    }
  }

  void time(const step::Plan &candidate) {
    step::TimeOptions options;
    options.costs = &costs;
    if (auto times = step::timeStep(summary, candidate, options); !times.failed())
      best = std::min(best, times->stepTime);
  }

  double bound() {
    // Computes the heads of the remaining tasks from the known heads by repeated relaxation.
    std::vector<double> start(head);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t t = 0; t < tasks.size(); ++t) {
        if (done[t])
          continue;
        double at = std::max(start[t], free[tasks[t].device]);
        for (const Dependence &edge : tasks[t].before)
          if (!done[edge.task])
            at = std::max(at, start[edge.task] + tasks[edge.task].seconds + edge.delay);
        if (at > start[t]) {
          start[t] = at;
          changed = true;
        }
      }
    }
    double max = 0;
    std::vector<double> min(free.size(), 1e300), sum(free.size(), 0), tail(free.size(), 1e300);
    for (size_t t = 0; t < tasks.size(); ++t) {
      const Task &task = tasks[t];
      if (done[t])
        continue;
      max = std::max(max, start[t] + task.seconds + task.tail);
      min[task.device] = std::min(min[task.device], start[t]);
      tail[task.device] = std::min(tail[task.device], task.tail);
      sum[task.device] += task.seconds;
    }
    for (size_t d = 0; d < free.size(); ++d)
      if (sum[d] > 0)
        max = std::max(max, min[d] + sum[d] + tail[d]);
    return max;
  }

  /// \returns false if the limit on nodes is reached.
  bool extend(size_t count) {
    if (nodesLeft == 0)
      return false;
    --nodesLeft;
    if (count == tasks.size()) {
      time(plan);
      return true;
    }
    if (bound() >= best * (1 - 1e-9))
      return true;
    double earliest = 1e300;
    uint32_t device = 0;
    for (size_t t = 0; t < tasks.size(); ++t)
      if (!done[t] && missing[t] == 0) {
        double end = std::max(head[t], free[tasks[t].device]) + tasks[t].seconds;
        if (end < earliest) {
          earliest = end;
          device = tasks[t].device;
        }
      }
    std::vector<uint32_t> choices;
    bool entered = false;
    for (uint32_t t = 0; t < tasks.size(); ++t) {
      const Task &task = tasks[t];
      if (done[t] || missing[t] != 0 || task.device != device)
        continue;
      double start = std::max(head[t], free[device]);
      if (start >= earliest && start + task.seconds > earliest) // except zero-length tasks on free
                                                                // devices
        continue;
      if (symmetric && task.name.kind == step::TaskKind::Forward &&
          plan.cells[task.name.cell].unitBegin == 0) {
        if (entered)
          continue; // samples enter in order: tasks are in the order of cells, cells by sample
        entered = true;
      }
      choices.push_back(t);
    }
    for (uint32_t t : choices) {
      const Task &task = tasks[t];
      double wasFree = free[device], start = std::max(head[t], free[device]);
      std::vector<double> wasHead;
      done[t] = 1;
      free[device] = start + task.seconds;
      for (const Dependence &edge : task.after) {
        wasHead.push_back(head[edge.task]);
        head[edge.task] = std::max(head[edge.task], start + task.seconds + edge.delay);
        --missing[edge.task];
      }
      plan.order[device].push_back(task.name);
      bool more = extend(count + 1);
      plan.order[device].pop_back();
      for (size_t i = task.after.size(); i-- > 0;) {
        head[task.after[i].task] = wasHead[i];
        ++missing[task.after[i].task];
      }
      free[device] = wasFree;
      done[t] = 0;
      if (!more)
        return false;
    }
    return true;
  }

  const bundle::ModelSummary &summary;
  step::Plan plan;
  const step::Costs &costs;
  uint64_t nodesLeft;
  std::vector<Task> tasks;
  bool symmetric = false;
  double best = 1e300;
  std::vector<size_t> missing;
  std::vector<double> head, free;
  std::vector<uint8_t> done;
};

} // namespace

std::optional<double> zorse::planning::bestOrder(const bundle::ModelSummary &summary,
                                                 const step::Plan &plan, const step::Costs &costs,
                                                 uint64_t maxNodes) {
  return OrderSearch(summary, plan, costs, maxNodes).run();
}
