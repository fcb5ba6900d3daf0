#include "StageModel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Converts sums over real units, in lists of `stride` each, to sums over parts of units.
void refine(std::vector<double> &sums, size_t stride, int32_t parts) {
  if (parts == 1)
    return;
  std::vector<double> fine;
  for (size_t list = 0; list < sums.size(); list += stride)
    for (size_t u = 0; u < stride; ++u)
      for (int32_t p = 0; p < (u + 1 < stride ? parts : 1); ++p)
        fine.push_back(p == 0 ? sums[list + u]
                              : sums[list + u] + (sums[list + u + 1] - sums[list + u]) * p / parts);
  sums = std::move(fine);
}

/// Returns the seconds of units [0, u). A backward in two parts may be slower than the whole one;
/// estimates use the faster.
double total(const UnitTimes::Prefix &p, size_t u, bool split) {
  return p.forward[u] + std::min(p.backward[u], split ? p.inputGradients[u] + p.weightGradients[u]
                                                      : p.backward[u]);
}

} // namespace

StageModel::StageModel(const Problem &problem, const UnitTables &tables, int64_t rowLimit,
                       int32_t ways)
    : problem(problem), tables(tables), boundaryDenominator(ways),
      stride(static_cast<size_t>(tables.units()) + 1) {
  for (uint32_t d = 0; d < problem.cluster.devices.size(); ++d) {
    uint32_t c = problem.costs.deviceClass(d);
    if (c >= devicesOf.size())
      devicesOf.resize(c + 1);
    devicesOf[c].push_back(d);
  }
  UnitTimes times(problem, tables);
  chooseRows(times, rowLimit);
  sumTimes(times);
  sumMin(times);
  sumState();
  for (int32_t u = 0; u <= tables.units(); ++u) {
    forwardAt.push_back(tables.forwardBytesAt(u));
    backwardAt.push_back(tables.backwardBytesAt(u));
  }
  measureCells();
  for (std::vector<double> *sums :
       {&whole, &forwards, &backwards, &minWhole, &shared, &forwardAt, &backwardAt})
    refine(*sums, stride, boundaryDenominator);
  stride = static_cast<size_t>(this->units()) + 1;
  for (int32_t cut = 0; cut <= this->units(); ++cut) {
    begins.push_back(cut / boundaryDenominator);
    ends.push_back((cut + boundaryDenominator - 1) / boundaryDenominator);
  }
  describeCluster();
}

void StageModel::chooseRows(UnitTimes &times, int64_t rowLimit) {
  const SearchEffort effort =
      SearchEffort::forDevices(problem.cluster.devices.size(), tables.units(), problem.batch);
  const int64_t max = std::min<int64_t>(problem.batch, rowLimit > 0 ? rowLimit : effort.maxRows);
  const bool few = effort.everyRow;
  auto next = [&](int64_t rows) {
    return !few || rows == 1 ? 2 * rows : rows % 3 == 0 ? rows / 3 * 4 : rows / 2 * 3;
  }; // small problems: 1, 2, 3, 4, 6, 8, 12, 16
  for (int64_t rows = 1, last = 1; rows <= max; last = rows, rows = next(rows)) {
    bool pays = rows == 1;
    for (uint32_t c = 0; c < deviceTypes() && !pays; ++c)
      pays = total(times.of(c, rows), stride - 1, splits()) / static_cast<double>(rows) <
             (few ? 1 - 1e-6 : 0.99) * total(times.of(c, last), stride - 1, splits()) /
                 static_cast<double>(last);
    if (!pays)
      break;
    rowChoices.push_back(rows);
  }
}

void StageModel::sumTimes(UnitTimes &times) {
  size_t count = deviceTypes() * rowChoices.size() * stride;
  whole.resize(count);
  forwards.resize(count);
  backwards.resize(count);
  for (uint32_t c = 0; c < deviceTypes(); ++c)
    for (size_t r = 0; r < rowChoices.size(); ++r) {
      const UnitTimes::Prefix &p = times.of(c, rowChoices[r]);
      for (size_t u = 0; u < stride; ++u) {
        whole[at(c, r, static_cast<int32_t>(u))] = total(p, u, splits());
        forwards[at(c, r, static_cast<int32_t>(u))] = p.forward[u];
        backwards[at(c, r, static_cast<int32_t>(u))] = splits() ? p.inputGradients[u]
                                                                : p.backward[u];
      }
    }
}

/// Per unit: the minimum over rows, including those that rowChoices omits.
void StageModel::sumMin(UnitTimes &times) {
  minWhole.assign(deviceTypes() * stride, 0);
  for (uint32_t c = 0; c < deviceTypes(); ++c) {
    std::vector<const UnitTimes::Prefix *> all;
    std::vector<double> rowsOf;
    for (int64_t rows = 1; rows <= std::min<int64_t>(problem.batch, 64);
         rows = rows < 8 ? rows + 1 : rows * 2) {
      all.push_back(&times.of(c, rows));
      rowsOf.push_back(static_cast<double>(rows));
    }
    for (size_t u = 0; u + 1 < stride; ++u) {
      double min = std::numeric_limits<double>::infinity();
      for (size_t i = 0; i < all.size(); ++i) {
        auto unit = [&](const std::vector<double> &p) { return p[u + 1] - p[u]; };
        double b = unit(all[i]->backward),
               parts = splits() ? unit(all[i]->inputGradients) + unit(all[i]->weightGradients) : b;
        min = std::min(min, (unit(all[i]->forward) + std::min(b, parts)) / rowsOf[i]);
      }
      minWhole[c * stride + u + 1] = minWhole[c * stride + u] + min;
    }
  }
}

void StageModel::sumState() {
  held.assign(stride, 0);
  shared.assign(stride, 0);
  gathered.assign(stride, 0);
  reduced.assign(stride, 0);
  for (int32_t u = 0; u < tables.units(); ++u) {
    size_t i = static_cast<size_t>(u);
    double h = 0, s = 0, g = 0, r = 0;
    for (uint32_t index : tables.groupsOfUnit(u)) {
      const GroupTable &group = tables.groups()[index];
      // A group that adjacent units use counts once; a group that distant units use (tied weights)
      // counts once for each.
      if (u > 0 && std::binary_search(tables.groupsOfUnit(u - 1).begin(),
                                      tables.groupsOfUnit(u - 1).end(), index))
        continue;
      double n = static_cast<double>(group.elements), size = static_cast<double>(group.elementSize),
             compute = static_cast<double>(group.computeSize);
      h += n * (compute + (group.trainable ? size : 0));
      if (group.trainable) {
        const StateOffload offload = problem.memoryOptimizations.defaultOptimization.state;
        s += n * ((keepsMoments(offload) ? group.stateBytes : 0) +
                  (group.computeSize != group.elementSize && keepsMasters(offload) ? size : 0.0));
        g += n * compute;
        r += n * size;
      }
    }
    held[i + 1] = held[i] + h;
    shared[i + 1] = shared[i] + s;
    gathered[i + 1] = gathered[i] + g;
    reduced[i + 1] = reduced[i] + r;
  }
}

void StageModel::describeCluster() {
  for (int n = 0; n < problem.cluster.topology.nodes_size(); ++n) {
    nics.push_back(problem.cluster.topology.nodes(n).nic().bandwidth());
    ports.push_back(problem.cluster.topology.nodes(n).port().bandwidth());
  }
  nics.resize(std::max(nics.size(), problem.cluster.nodes.size()), 0);
  ports.resize(nics.size(), 0);
  devicesIn.assign(nics.size(), 0);
  for (const ClusterDevice &device : problem.cluster.devices)
    ++devicesIn[device.node];
  for (uint32_t c = 0; c < deviceTypes(); ++c) {
    const ClusterDevice &device =
        problem.cluster.devices[devicesOf[c].empty() ? 0 : devicesOf[c].front()];
    memory.push_back(device.capacity() ? static_cast<double>(device.capacity())
                                       : std::numeric_limits<double>::infinity());
  }
}

void StageModel::measureCells() {
  const int32_t units = tables.units();
  const std::shared_ptr<step::LoweringTables> lowering =
      step::makeLoweringTables(problem.summary, problem.functions, &problem.costs);
  for (bool split : {false, true}) {
    if (split && !splits())
      break;
    auto cell = [&](int32_t u, int32_t v, int64_t rows) {
      step::Cell one{u, v, 0, rows, 0};
      one.activations = problem.memoryOptimizations.defaultOptimization.activations;
      return step::cellMemory(*lowering, one, split);
    };
    auto bytesOfCell = [](const step::CellMemory &memory) {
      return CellBytes{static_cast<double>(memory.residentBytes - memory.deferred),
                       static_cast<double>(memory.transientBytes + memory.deferred)};
    };
    // Bytes grow with rows: the other sizes are interpolated between the smallest and the largest.
    const int64_t max = rowChoices.back();
    std::vector<CellBytes> ends[2][2]; // single units and pairs; for one row and for the maximum
    std::vector<double> spaces[2];
    for (int e = 0; e < 2; ++e)
      for (int32_t u = 0; u < units; ++u) {
        const step::CellMemory one = cell(u, u + 1, e ? max : 1);
        ends[e][0].push_back(bytesOfCell(one));
        spaces[e].push_back(static_cast<double>(one.workspace));
        if (u > 0) {
          const CellBytes both = bytesOfCell(cell(u - 1, u + 1, e ? max : 1)),
                          &front = ends[e][0][static_cast<size_t>(u) - 1],
                          &behind = ends[e][0].back();
          ends[e][1].push_back(
              {both.residentBytes - front.residentBytes - behind.residentBytes,
               both.transientBytes - front.transientBytes - behind.transientBytes});
        }
      }
    for (int64_t rows : rowChoices) {
      const double at = max > 1 ? static_cast<double>(rows - 1) / static_cast<double>(max - 1) : 0;
      UnitBytes list;
      for (int kind = 0; kind < 2; ++kind) {
        auto &sums = kind ? list.pair : list.single;
        sums.push_back({0, 0});
        for (size_t i = 0; i < ends[0][kind].size(); ++i) {
          const CellBytes &low = ends[0][kind][i], &high = ends[1][kind][i];
          sums.push_back({sums.back().residentBytes + low.residentBytes +
                              at * (high.residentBytes - low.residentBytes),
                          sums.back().transientBytes + low.transientBytes +
                              at * (high.transientBytes - low.transientBytes)});
        }
      }
      for (int32_t u = 0; u < units; ++u)
        list.workspace.push_back(
            spaces[0][static_cast<size_t>(u)] +
            at * (spaces[1][static_cast<size_t>(u)] - spaces[0][static_cast<size_t>(u)]));
      bytesOf[split].push_back(std::move(list));
    }
  }
}

StageModel::CellBytes StageModel::cellBytes(bool split, size_t r, int32_t u, int32_t v) const {
  const UnitBytes &of = bytesOf[split][r];
  const size_t begin = static_cast<size_t>(u), end = static_cast<size_t>(v);
  CellBytes bytes{of.single[end].residentBytes - of.single[begin].residentBytes,
                  of.single[end].transientBytes - of.single[begin].transientBytes};
  if (end > begin + 1) {
    bytes.residentBytes += of.pair[end - 1].residentBytes - of.pair[begin].residentBytes;
    bytes.transientBytes += of.pair[end - 1].transientBytes - of.pair[begin].transientBytes;
  }
  return {std::max(0.0, bytes.residentBytes), std::max(0.0, bytes.transientBytes)};
}

double StageModel::workspaceBytes(size_t r, int32_t u, int32_t v) const {
  const std::vector<double> &of = bytesOf[splits()][r].workspace;
  return *std::max_element(of.begin() + u, of.begin() + v);
}

/// Returns the whole number of cells in a positive number; as in std::floor, without its call.
static double wholeCells(double cells) {
  return static_cast<double>(static_cast<int64_t>(cells + 1e-9));
}

double zorse::planning::makespan(int64_t cells, const uint32_t *counts, const double *seconds,
                                 size_t n) {
  double rate = 0;
  for (size_t i = 0; i < n; ++i)
    if (counts[i])
      rate += counts[i] / seconds[i];
  double even = static_cast<double>(cells) / rate;
  double given = 0, longest = 0;
  for (size_t i = 0; i < n; ++i)
    if (counts[i]) {
      double each = wholeCells(even / seconds[i]);
      given += each * counts[i];
      longest = std::max(longest, each * seconds[i]);
    }
  double left = static_cast<double>(cells) - given, after = -1;
  while (left > 0) { // the next cells to end, per class; at most one more for each device
    double next = std::numeric_limits<double>::infinity();
    uint32_t count = 0;
    for (size_t i = 0; i < n; ++i)
      if (counts[i]) {
        double end = (wholeCells(even / seconds[i]) + 1) * seconds[i];
        if (end > after && end < next) {
          next = end;
          count = counts[i];
        } else if (end == next) {
          count += counts[i];
        }
      }
    if (count == 0)
      break;
    left -= count;
    longest = std::max(longest, next);
    after = next;
  }
  return longest;
}

std::vector<int64_t> zorse::planning::shareSamples(int64_t samples, int64_t rows,
                                                   const std::vector<double> &seconds) {
  int64_t cells = (samples + rows - 1) / rows;
  double rate = 0;
  for (double s : seconds)
    rate += 1 / s;
  double even = static_cast<double>(cells) / rate;
  std::vector<int64_t> given(seconds.size());
  int64_t left = cells;
  for (size_t i = 0; i < seconds.size(); ++i) {
    given[i] = std::min(left, static_cast<int64_t>(even / seconds[i]));
    left -= given[i];
  }
  using Next = std::pair<double, size_t>;
  std::priority_queue<Next, std::vector<Next>, std::greater<Next>> queue;
  for (size_t i = 0; i < seconds.size() && left > 0; ++i)
    queue.push({static_cast<double>(given[i] + 1) * seconds[i], i});
  for (; left > 0; --left) {
    size_t i = queue.top().second;
    queue.pop();
    ++given[i];
    queue.push({static_cast<double>(given[i] + 1) * seconds[i], i});
  }
  // The device that ends last gets the incomplete cell.
  size_t last = 0;
  for (size_t i = 1; i < seconds.size(); ++i)
    if (static_cast<double>(given[i]) * seconds[i] >
        static_cast<double>(given[last]) * seconds[last])
      last = i;
  for (int64_t &n : given)
    n *= rows;
  given[last] -= cells * rows - samples;
  return given;
}
