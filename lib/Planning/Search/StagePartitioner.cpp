#include "StagePartitioner.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr uint32_t kSkip = UINT32_MAX;
/// Share of a sample's path through the later stages and back that a stage waits before it can be
/// busy, if W fills the rest.
constexpr double kFillWithSplit = 0.5;
/// Share of the time that a card or a device's flow can be busy. A device sends and receives one
/// transfer at a time, and the first transfer may wait for the other end's card.
constexpr double kNicFraction = 0.75;
/// Ratio of a transfer's time to its time on an idle link, because transfers wait for others.
constexpr double kQueues = 1.5;
/// Factor for gaps between placed buffers.
constexpr double kFragmentationDivisor = 1.02;
/// Factor on the shortest time within which stages compute about equally long. 1.05 to 1.2 gave
/// equal plans for clusters E and F on average, 1.01 and 1.4 worse ones.
constexpr double kEvenWithin = 1.1;

} // namespace

double StagePartitioner::minTime(const std::vector<DeviceSet> &deviceSets,
                                 const PartitionOptions &options) const {
  double rate = 0;
  for (const DeviceSet &deviceSet : deviceSets)
    for (uint32_t d : deviceSet.devices)
      rate += 1 / model.minPerSample(model.deviceTypeOf(d), 0, model.units());
  return static_cast<double>(options.samples) / rate;
}

double StagePartitioner::passage(const StageChoice &stage, size_t r, int32_t u, int32_t v) const {
  if (stage.typeCount == 1)
    return model.forward(stage.typeList[0], r, u, v) + model.backward(stage.typeList[0], r, u, v);
  double sum = 0, rate = 0; // weighted by the throughput of each class
  for (uint32_t i = 0; i < stage.typeCount; ++i) {
    uint32_t c = stage.typeList[i];
    double part = stage.counts[c] / model.cell(c, r, u, v);
    rate += part;
    sum += part * (model.forward(c, r, u, v) + model.backward(c, r, u, v));
  }
  return sum / rate;
}

const StagePartitioner::CellMemory &StagePartitioner::cellMemory(size_t r, int32_t u, int32_t v,
                                                                 bool split) const {
  auto &list = memories[split];
  const size_t stride = static_cast<size_t>(model.units()) + 1;
  if (list.empty())
    list.resize(model.rows().size() * stride * stride);
  CellMemory &memory =
      list[(r * stride + static_cast<size_t>(u)) * stride + static_cast<size_t>(v)];
  if (memory.residentBytes < 0) {
    memory.residentBytes = 0;
    const int32_t ways = model.boundaryVariants();
    for (int32_t w = 0; w < ways; ++w) {
      int32_t begin = (u + w) / ways, end = (v + w) / ways;
      if (begin == end)
        continue;
      const StageModel::CellBytes bytes = model.cellBytes(split, r, begin, end);
      memory.residentBytes += bytes.residentBytes / ways;
      memory.transientBytes = std::max(memory.transientBytes,
                                       bytes.transientBytes + model.workspaceBytes(r, begin, end));
    }
  }
  return memory;
}

/// Returns the seconds of a sample's transfers into an atom's stage and back.
double StagePartitioner::hop(size_t deviceSet, int32_t cut, size_t rows) const {
  double bytes = model.forwardBytesAt(cut) + model.backwardBytesAt(cut);
  return 2 * linkLatency[deviceSet] +
         (linkBandwidth[deviceSet] > 0
              ? kQueues * bytes * static_cast<double>(model.rows()[rows]) / linkBandwidth[deviceSet]
              : 0);
}

double StagePartitioner::heldBytes(const StageChoice &stage, const CellMemory &cell, int32_t u,
                                   int32_t v) const {
  return model.heldBytes(u, v) + model.sharedBytes(u, v) / stage.members + cell.transientBytes;
}

double StagePartitioner::needs(const StageChoice &stage, const PartitionOptions &options, size_t r,
                               int32_t u, int32_t v, double latencyBehind, double passage,
                               double time, double &gather) const {
  double seconds[kMaxDeviceTypes], rate = 0, busy;
  if (stage.typeCount == 1) {
    seconds[0] = model.cell(stage.typeList[0], r, u, v);
    busy = stage.cellsEach * seconds[0];
  } else {
    for (uint32_t i = 0; i < stage.typeCount; ++i) {
      seconds[i] = model.cell(stage.typeList[i], r, u, v);
      rate += stage.counts[stage.typeList[i]] / seconds[i];
    }
    busy = stage.cells / rate;
  }
  gather = stage.secondsPerByte * model.gatherBytes(u, v);
  const double rounded = model.roundedBytes();
  double reduce = stage.secondsPerByte * model.reduceBytes(u, v) * (stage.shared ? rounded : 1),
         sync = stage.shared ? gather + reduce : 0;
  // Gradients of units that are shared with an adjacent stage on another node are gathered and
  // reduced with it.
  if (model.boundaryVariants() > 1 && stage.nicWire > 0 && !stage.shared)
    for (int32_t cut : {u, v})
      if (model.isInsideUnit(cut) && (cut == u ? stage.crossFront : stage.crossBehind) > 0) {
        double in = model.gatherBytes(cut, cut + 1) / stage.nicWire,
               out = rounded * model.reduceBytes(cut, cut + 1) / stage.nicWire;
        gather += in;
        reduce += out;
        sync += in + out;
      }
  if (busy > std::min(time - reduce, maxBusy) * (1 + 1e-12))
    return kInfinity;
  // The stage's cards, one direction.
  const double front = u == 0 ? 0 : stage.crossFront * model.backwardBytesAt(u),
               behind = v == model.units() ? 0 : stage.crossBehind * model.forwardBytesAt(v),
               nic = stage.nic > 0 ? (front + behind) * stage.nicSecondsPerByte + sync : 0;
  if (nic > time)
    return kInfinity;
  const CellMemory &cell = cellMemory(r, u, v, options.split);
  const double held = heldBytes(stage, cell, u, v),
               inFlight = stage.cells / time * options.inFlight * (latencyBehind + passage);
  for (uint32_t i = 0; i < stage.typeCount; ++i) {
    const double each = stage.typeCount == 1 ? inFlight / stage.devices
                                             : inFlight / rate / seconds[i],
                 alive = std::min(each + 1, stage.cells);
    if (held + alive * cell.residentBytes * kFragmentationDivisor > stage.memory[i])
      return kInfinity;
  }
  if (stage.typeCount > 1) {
    uint32_t counts[kMaxDeviceTypes];
    for (uint32_t i = 0; i < stage.typeCount; ++i)
      counts[i] = stage.counts[stage.typeList[i]];
    busy = makespan(static_cast<int64_t>(stage.cells), counts, seconds, stage.typeCount);
  }
  return std::max(busy + reduce, nic);
}

double StagePartitioner::memoryTime(const StageChoice &stage, const PartitionOptions &options,
                                    size_t r, int32_t u, int32_t v, double latencyBehind) const {
  const CellMemory &cell = cellMemory(r, u, v, options.split);
  const double held = heldBytes(stage, cell, u, v);
  double seconds[kMaxDeviceTypes], rate = 0, longest = 0;
  for (uint32_t i = 0; i < stage.typeCount; ++i) {
    seconds[i] = model.cell(stage.typeList[i], r, u, v);
    rate += stage.counts[stage.typeList[i]] / seconds[i];
  }
  for (uint32_t i = 0; i < stage.typeCount; ++i) {
    const double fit = std::floor((stage.memory[i] - held) /
                                  (cell.residentBytes * kFragmentationDivisor)),
                 each = stage.cells / rate / seconds[i];
    longest = std::max(longest, each * (latencyBehind + seconds[i]) / std::max(fit, 1.0));
  }
  return longest;
}

void StagePartitioner::addDevices(StageChoice &stage, const DeviceSet &deviceSet,
                                  uint32_t &lastNode) const {
  const auto &topology = model.problem.cluster.topology;
  auto lower = [](double a, double b) { return b > 0 && !(a > 0 && a < b) ? b : a; };
  for (uint32_t d : deviceSet.devices) {
    uint32_t c = model.deviceTypeOf(d), node = model.nodeOf(d);
    if (stage.counts[c]++ == 0) {
      stage.memory[stage.typeCount] = model.memoryOf(c);
      stage.typeList[stage.typeCount++] = c;
    }
    ++stage.devices;
    // This device's share of the card.
    const double part = model.nicBandwidth(node) / std::max(1u, model.devicesOfNode(node));
    stage.nic += part;
    if (node != lastNode) {
      // Gathered data crosses every card; other devices of the node use a share of it.
      if (stage.nodes > 0)
        stage.oneFlow = lower(stage.oneFlow, stage.nicHere);
      lastNode = node;
      stage.nicHere = 0;
      stage.fewestBefore = stage.nodes > 0 ? std::min(stage.fewestBefore, stage.devicesHere)
                                           : UINT32_MAX;
      stage.devicesHere = 0;
      ++stage.nodes;
    }
    ++stage.devicesHere;
    stage.nicHere += part;
    stage.port = lower(stage.port, model.portBandwidth(node));
    stage.flow =
        lower(stage.flow, topology.nodes(static_cast<int>(node)).nic().per_flow_bandwidth());
  }
}

void StagePartitioner::close(StageChoice &stage, const PartitionOptions &options, size_t begin,
                             size_t end) const {
  stage.members = static_cast<double>(stage.devices) * options.replicas;
  // Replicas on the same nodes are summed there, and use these nodes' cards together.
  const double together = model.sumsByLevel() ? options.replicasOnNode : 1,
               nodes = double(stage.nodes) * options.replicas / together;
  stage.shared = nodes > 1;
  const double fewest = together * std::min(stage.fewestBefore, stage.devicesHere),
               parties = stage.shared && model.sumsByLevel() ? nodes : stage.members;
  stage.ring = parties > 1 ? (parties - 1) / parties : 0;
  auto lower = [](double a, double b) { return b > 0 && !(a > 0 && a < b) ? b : a; };
  // Transfers to devices of the same node do not use the card. Following stages are assumed to have
  // the same size.
  auto inside = [&](size_t deviceSet, double shared, double rest) {
    return nodeOf[deviceSet - 1] == nodeOf[deviceSet]
               ? std::min(1.0, shared / stage.devices) * std::min(1.0, rest / stage.devices)
               : 0;
  };
  stage.crossFront = begin > 0 ? 1 - inside(begin, behindIn[begin], frontIn[begin]) : 1;
  stage.crossBehind = end + 1 < nodeOf.size() ? 1 - inside(end, frontIn[end], behindIn[end]) : 1;
  stage.nicWire = lower(lower(stage.oneFlow, stage.nicHere) * together, stage.flow * fewest);
  const double wire = stage.shared ? stage.nicWire : stage.port;
  stage.secondsPerByte = wire > 0 ? stage.ring / wire : 0;
  if (stage.nic > 0)
    stage.nicSecondsPerByte =
        static_cast<double>(options.samples) *
        std::max(1 / stage.nic, stage.flow > 0 ? 1 / (stage.devices * stage.flow) : 0) /
        kNicFraction;
}

void StagePartitioner::setCells(StageChoice &stage, const PartitionOptions &options,
                                size_t r) const {
  const int64_t rows = model.rows()[r];
  stage.cells = static_cast<double>((options.samples + rows - 1) / rows);
  stage.cellsEach = std::ceil(stage.cells / stage.devices);
}

void StagePartitioner::leaveOut(size_t i) {
  const size_t stride = static_cast<size_t>(model.units()) + 1;
  for (size_t u = 0; u < stride; ++u)
    if (label[(i + 1) * stride + u] < kInfinity) {
      label[i * stride + u] = label[(i + 1) * stride + u];
      predecessors[i * stride + u] = {static_cast<uint32_t>(i + 1), static_cast<int32_t>(u), kSkip};
    }
}

int32_t StagePartitioner::minInFront(const Goal &goal, size_t i) const {
  if (goal.options.mayLeaveOut || i == 0)
    return 0;
  return static_cast<int32_t>((i - 1) / goal.options.maxDeviceSets + 1);
}

int32_t StagePartitioner::maxInFront(const Goal &goal, size_t i) const {
  const int32_t units = model.units();
  const size_t stride = static_cast<size_t>(units) + 1, classes = model.deviceTypes();
  int32_t max = 0;
  for (; max < units; ++max) {
    double share = 0;
    for (size_t c = 0; c < classes && share < 1; ++c)
      if (prefixCounts[i * classes + c] > 0)
        share += prefixCounts[i * classes + c] * goal.time /
                 (static_cast<double>(goal.options.samples) *
                  minSeconds[c * stride + static_cast<size_t>(max) + 1]);
    if (share < 1)
      break;
  }
  return max;
}

/// Finds the cuts behind which later stages fit, and the latency there of cells of each row count.
void StagePartitioner::findCutsBehind(const Goal &goal, size_t j, size_t maxRows) {
  const int32_t units = model.units();
  const size_t stride = static_cast<size_t>(units) + 1;
  const double *there = &label[j * stride];
  cutsBehind.resize(label.size() / stride * model.rows().size());
  for (size_t r = goal.options.minRows; r <= maxRows; ++r) {
    std::vector<CutBehind> &list = cutsBehind[j * model.rows().size() + r];
    list.clear();
    for (int32_t v = units; v > 0; --v) {
      if (!(there[v] < kInfinity))
        continue;
      double latencyBehind = there[v];
      if (v < units) { // there are atoms behind; otherwise only the end is reachable
        latencyBehind += hop(j, v, r);
        int64_t behind = model.rows()[std::min<size_t>(
            predecessors[j * stride + static_cast<size_t>(v)].rows, model.rows().size() - 1)];
        // Wait for the samples of the larger cell.
        latencyBehind += static_cast<double>(std::abs(behind - model.rows()[r])) * goal.period;
      }
      list.push_back({v, latencyBehind});
    }
  }
}

void StagePartitioner::extend(const Goal &goal, const StageChoice &stage, size_t i, size_t j,
                              size_t r, int32_t maxFront) {
  const size_t stride = static_cast<size_t>(model.units()) + 1;
  const int32_t minFront = minInFront(goal, i);
  double *here = &label[i * stride];
  int32_t u = maxFront;
  for (const auto &[v, latencyBehind] : cutsBehind[j * model.rows().size() + r]) {
    if (v <= minFront)
      break;
    u = std::max(std::min(u, v - 1), minFront);
    auto ok = [&, v = v, latencyBehind = latencyBehind](int32_t begin) {
      if (stage.typeCount == 1 &&
          stage.cellsEach * model.cell(stage.typeList[0], r, begin, v) > goal.time * (1 + 1e-12))
        return false;
      double gather,
          pass = passage(stage, r, begin, v),
          need = needs(stage, goal.options, r, begin, v, latencyBehind, pass, goal.time, gather);
      return need + goal.late +
                 std::max(goal.fill * std::max(0.0, goal.latency - latencyBehind - pass),
                          gather - goal.late) <=
             goal.time * (1 + 1e-12);
    };
    const int32_t last = std::min(v - 1, maxFront);
    if (ok(u)) {
      while (u > minFront && ok(u - 1))
        --u;
    } else {
      do
        ++u;
      while (u <= last && !ok(u));
    }
    if (u > last) {
      u = last;
      continue;
    }
    for (int32_t begin = u; begin <= last && begin < u + 2; ++begin) {
      double total = latencyBehind + passage(stage, r, begin, v);
      if (total < here[begin]) {
        here[begin] = total;
        predecessors[i * stride + static_cast<size_t>(begin)] = {static_cast<uint32_t>(j), v,
                                                                 static_cast<uint32_t>(r)};
      }
    }
  }
}

bool StagePartitioner::reach(const std::vector<DeviceSet> &deviceSets,
                             const PartitionOptions &options, double time, double latency) {
  const size_t n = deviceSets.size(), stride = static_cast<size_t>(model.units()) + 1;
  label.assign((n + 1) * stride, kInfinity);
  predecessors.resize((n + 1) * stride);
  label[n * stride + stride - 1] = 0;
  const size_t maxRows = std::min(options.maxRows, model.rows().size() - 1);
  const Goal goal{options,
                  time,
                  latency,
                  options.split ? kFillWithSplit : 1,
                  time / static_cast<double>(options.samples),
                  options.lateStart * time};
  for (size_t i = n; i-- > 0;) {
    findCutsBehind(goal, i + 1, maxRows);
    if (options.mayLeaveOut)
      leaveOut(i);
    const int32_t maxFront = maxInFront(goal, i);
    StageChoice stage{};
    uint32_t lastNode = UINT32_MAX;
    const size_t last = n - i < options.maxDeviceSets ? n : i + options.maxDeviceSets;
    for (size_t j = i + 1; j <= last; ++j) {
      addDevices(stage, deviceSets[j - 1], lastNode);
      if (static_cast<int64_t>(stage.devices) > options.samples)
        break;
      if (j != n &&
          (CutEffort::passesOver(j - i, options.rough) || stage.devices > options.maxDevices))
        continue;
      if (n > CutEffort::kMixed && stage.typeCount > 2 && j - i > 1)
        break;
      close(stage, options, i, j);
      for (size_t r = options.minRows; r <= maxRows; ++r) {
        if (r > options.minRows &&
            model.rows()[r] * static_cast<int64_t>(stage.devices) * 4 > options.samples)
          break;
        setCells(stage, options, r);
        extend(goal, stage, i, j, r, maxFront);
      }
    }
  }
  return label[0] < kInfinity;
}

bool StagePartitioner::bisect(const std::vector<DeviceSet> &deviceSets,
                              const PartitionOptions &options, double latency, double &time) {
  // Times that are too short are rejected quickly, generous ones are not. The search therefore
  // starts from below, in growing steps.
  double low = std::max(time, options.minTime), high = low, growth = options.rough ? 0.02 : 0.01;
  int strides = 0;
  auto suffices = [&](double t) {
    if (!reach(deviceSets, options, t, latency))
      return false;
    found.label.swap(label);
    found.predecessors.swap(predecessors);
    return true;
  };
  while (!suffices(high)) {
    low = high;
    high *= 1 + growth;
    growth = std::min(growth * 1.7, 2.0);
    if (high > options.maxTime || high > low * 1e3 || !(high < 1e18) ||
        ++strides > CutEffort::kStrides)
      return false;
  }
  while (high > low * (options.rough ? 1.02 : 1.004)) {
    double middle = (low + high) / 2;
    (suffices(middle) ? high : low) = middle;
  }
  time = high;
  return true;
}

/// Reconstructs the stages behind label[0] and their time, given the path to each.
void StagePartitioner::read(const std::vector<DeviceSet> &deviceSets,
                            const PartitionOptions &options, Partition &partition) const {
  const size_t n = deviceSets.size(), stride = static_cast<size_t>(model.units()) + 1;
  partition.stages.clear();
  const auto &[label, predecessors] = found;
  partition.latency = label[0];
  double slowest = 0, waiting = 0, start = 0; // slowest and start are those of a stage
  for (size_t i = 0, u = 0; u + 1 < stride && i < n;) {
    const Predecessor &f = predecessors[i * stride + u];
    if (f.rows != kSkip) {
      PartitionStage part{i, f.deviceSet, static_cast<int32_t>(u), f.unit, f.rows};
      StageChoice stage{};
      uint32_t lastNode = UINT32_MAX;
      for (size_t a = i; a < f.deviceSet; ++a)
        addDevices(stage, deviceSets[a], lastNode);
      close(stage, options, i, f.deviceSet);
      setCells(stage, options, f.rows);
      double pass = passage(stage, f.rows, part.unitBegin, part.unitEnd),
             behind = label[i * stride + u] - pass;
      double gather, need = needs(stage, options, f.rows, part.unitBegin, part.unitEnd, behind,
                                  pass, partition.time, gather);
      start = std::max(start, gather);
      if (need < kInfinity)
        slowest = std::max(slowest, start + need);
      waiting = std::max(waiting, start + memoryTime(stage, options, f.rows, part.unitBegin,
                                                     part.unitEnd, behind));
      start += (options.split ? kFillWithSplit : 1) *
               (label[i * stride + u] - label[f.deviceSet * stride + static_cast<size_t>(f.unit)]);
      partition.stages.push_back(part);
    }
    i = f.deviceSet;
    u = static_cast<size_t>(f.unit);
  }
  partition.time = std::max(slowest, options.minTime);
  partition.timeInMemory = std::max(partition.time, waiting);
}

void StagePartitioner::describe(const std::vector<DeviceSet> &deviceSets) {
  const size_t n = deviceSets.size(), classes = model.deviceTypes();
  linkBandwidth.assign(n, 0);
  linkLatency.assign(n, 0);
  for (size_t i = 1; i < n; ++i) {
    sim::Route route = model.problem.costs.network().route(deviceSets[i - 1].devices.back(),
                                                           deviceSets[i].devices.front());
    linkLatency[i] = route.latency;
    double min = route.perFlowBandwidth > 0 ? route.perFlowBandwidth : kInfinity;
    for (uint32_t k = 0; k < route.count; ++k)
      min = std::min(min, model.problem.costs.network().bandwidth(route.resources[k]));
    linkBandwidth[i] = min < kInfinity ? min : 0;
  }
  nodeOf.assign(n + 1, UINT32_MAX);
  frontIn.assign(n + 1, 0);
  behindIn.assign(n + 1, 0);
  for (size_t i = 0; i < n; ++i) {
    nodeOf[i] = model.nodeOf(deviceSets[i].devices.front());
    if (i > 0 && nodeOf[i] == model.nodeOf(deviceSets[i - 1].devices.back()))
      frontIn[i] = static_cast<double>(deviceSets[i - 1].devices.size()) +
                   (nodeOf[i - 1] == nodeOf[i] ? frontIn[i - 1] : 0);
  }
  for (size_t i = n; i-- > 0;)
    behindIn[i] = static_cast<double>(deviceSets[i].devices.size()) +
                  (nodeOf[i + 1] == nodeOf[i] ? behindIn[i + 1] : 0);
  prefixCounts.assign((n + 1) * classes, 0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t c = 0; c < classes; ++c)
      prefixCounts[(i + 1) * classes + c] = prefixCounts[i * classes + c];
    for (uint32_t d : deviceSets[i].devices)
      prefixCounts[(i + 1) * classes + model.deviceTypeOf(d)] += 1;
  }
}

void StagePartitioner::findMinSeconds(const PartitionOptions &options) {
  const uint32_t classes = model.deviceTypes();
  const int32_t units = model.units();
  const size_t stride = static_cast<size_t>(units) + 1;
  minSeconds.assign(classes * stride, 0);
  for (uint32_t c = 0; c < classes; ++c)
    for (int32_t u = 0; u < units; ++u) {
      double min = kInfinity;
      for (size_t r = options.minRows; r <= std::min(options.maxRows, model.rows().size() - 1); ++r)
        min = std::min(min, model.cell(c, r, u, u + 1) / static_cast<double>(model.rows()[r]));
      minSeconds[c * stride + static_cast<size_t>(u) + 1] =
          minSeconds[c * stride + static_cast<size_t>(u)] + min;
    }
}

void StagePartitioner::addProblem(const std::vector<DeviceSet> &deviceSets,
                                  const PartitionOptions &options) {
  const auto &topology = model.problem.cluster.topology;
  key.clear();
  key.add(options.samples).add(options.replicas).add(options.replicasOnNode);
  key.add(options.maxDeviceSets);
  key.add(options.mayLeaveOut).add(options.split).add(options.waits).add(options.rough);
  key.add(options.evenly);
  key.add(options.lateStart).add(options.inFlight).add(options.minTime).add(options.maxTime);
  key.add(options.maxDevices).add(options.minRows).add(options.maxRows);
  nodesOfKey.clear();
  key.add(deviceSets.size());
  for (size_t i = 0; i < deviceSets.size(); ++i) {
    key.add(linkBandwidth[i]).add(linkLatency[i]).add(deviceSets[i].devices.size());
    for (uint32_t d : deviceSets[i].devices) {
      const uint32_t node = model.nodeOf(d);
      const auto known = std::find(nodesOfKey.begin(), nodesOfKey.end(), node);
      key.add(model.deviceTypeOf(d)).add(known - nodesOfKey.begin());
      if (known != nodesOfKey.end())
        continue;
      nodesOfKey.push_back(node);
      key.add(model.nicBandwidth(node)).add(model.devicesOfNode(node));
      key.add(model.portBandwidth(node));
      key.add(topology.nodes(static_cast<int>(node)).nic().per_flow_bandwidth());
    }
  }
}

Partition StagePartitioner::solve(const std::vector<DeviceSet> &deviceSets,
                                  const PartitionOptions &options) {
  if (deviceSets.empty() || model.units() == 0)
    return Partition();
  describe(deviceSets);
  addProblem(deviceSets, options);
  if (const Partition *known = solved.find(key))
    return *known;
  return solved.keep(key, partition(deviceSets, options));
}

Partition StagePartitioner::partition(const std::vector<DeviceSet> &deviceSets,
                                      const PartitionOptions &options) {
  Partition partition;
  findMinSeconds(options);
  // First without the wait for the first sample, then with that of the previous result.
  partition.time = std::max(minTime(deviceSets, options), options.minTime);
  if (!bisect(deviceSets, options, 0, partition.time))
    return partition;
  if (options.evenly)
    return even(deviceSets, options, partition.time);
  Partition first = partition;
  read(deviceSets, options, first);
  if (first.stages.size() < 2 || options.rough || !options.waits)
    return first;
  if (!bisect(deviceSets, options, first.latency, partition.time))
    return first;
  read(deviceSets, options, partition);
  return partition.timeInMemory <= first.timeInMemory ? partition : first;
}

Partition StagePartitioner::even(const std::vector<DeviceSet> &deviceSets,
                                 const PartitionOptions &options, double time) {
  double low = minTime(deviceSets, options), high = time;
  Partition partition;
  partition.time = time * kEvenWithin;
  while (high > low * 1.01) {
    maxBusy = (low + high) / 2;
    if (reach(deviceSets, options, partition.time, 0)) {
      found.label.swap(label);
      found.predecessors.swap(predecessors);
      high = maxBusy;
    } else {
      low = maxBusy;
    }
  }
  maxBusy = kInfinity;
  read(deviceSets, options, partition);
  // The estimate is that of the shortest time, as of other partitions, which are rarely reached.
  partition.timeInMemory = std::max(partition.timeInMemory - partition.time, 0.0) + time;
  partition.time = time;
  return partition;
}
