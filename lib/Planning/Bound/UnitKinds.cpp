#include "UnitKinds.h"

#include "zorse/Step/UnitTasks.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace zorse;
using namespace zorse::planning;

Kinds::Kinds(const Problem &problem) {
  std::map<uint32_t, uint32_t> number;
  for (int32_t u = 0; u < problem.summary.units_size(); ++u) {
    auto [it, fresh] =
        number.emplace(problem.costs.unitClass(u), static_cast<uint32_t>(unit.size()));
    if (fresh) {
      unit.push_back(u);
      count.push_back(0);
    }
    ++count[it->second];
    of.push_back(it->second);
  }
}

std::vector<double> Kinds::amounts(int64_t samples) const {
  std::vector<double> result;
  result.reserve(count.size());
  for (double units : count)
    result.push_back(units * static_cast<double>(samples));
  return result;
}

std::vector<uint32_t> planning::allDevices(const Problem &problem) {
  std::vector<uint32_t> devices(problem.cluster.devices.size());
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

std::set<int64_t> planning::rowsUpTo(int64_t max, int64_t batch) {
  std::set<int64_t> rows{1};
  for (int64_t r = 2; r <= std::min(max, batch); ++r)
    rows.insert(r);
  return rows;
}

double planning::backwardSeconds(const Problem &problem, uint32_t device, step::UnitRef unit,
                                 int64_t rows, bool split) {
  using step::UnitTask;
  if (!split || !step::unitInfo(problem.summary, unit).splits())
    return problem.costs.unit(device, unit, UnitTask::Backward, rows);
  return problem.costs.unit(device, unit, UnitTask::InputGradients, rows) +
         problem.costs.unit(device, unit, UnitTask::WeightGradients, rows);
}

namespace {

/// Returns a device's minimum seconds per sample on a unit, over row counts. Forward and backward
/// each use their best row count, so no plan is faster.
double secondsPerSample(const Problem &problem, uint32_t device, int32_t unit,
                        const std::set<int64_t> &rowCounts) {
  double forward = INFINITY, backward = INFINITY;
  for (int64_t rows : rowCounts) {
    double n = static_cast<double>(rows);
    forward =
        std::min(forward, problem.costs.unit(device, unit, step::UnitTask::Forward, rows) / n);
    backward = std::min(backward, std::min(backwardSeconds(problem, device, unit, rows, false),
                                           backwardSeconds(problem, device, unit, rows, true)) /
                                      n);
  }
  return forward + backward;
}

} // namespace

std::vector<std::vector<double>> planning::minSeconds(const Problem &problem, const Kinds &kinds,
                                                      const std::vector<uint32_t> &devices,
                                                      const std::set<int64_t> &rowCounts) {
  std::map<uint32_t, std::vector<double>> ofClass;
  std::vector<std::vector<double>> result;
  for (uint32_t d : devices) {
    auto [it, fresh] = ofClass.try_emplace(problem.costs.deviceClass(d));
    if (fresh)
      for (int32_t u : kinds.unit)
        it->second.push_back(secondsPerSample(problem, d, u, rowCounts));
    result.push_back(it->second);
  }
  return result;
}

std::vector<Machines> planning::machinesOf(const std::vector<std::vector<double>> &seconds) {
  std::map<std::vector<double>, double> counts;
  for (const auto &s : seconds)
    ++counts[s];
  std::vector<Machines> machines;
  machines.reserve(counts.size());
  for (auto &[s, count] : counts)
    machines.push_back({count, s});
  return machines;
}
