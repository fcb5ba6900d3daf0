#include "Intervals.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr uint32_t kSkip = UINT32_MAX;
/// Part of a sample's way that a stage behind waits for before it can be busy, where W fills the rest.
constexpr double kFillWithSplit = 0.4;

} // namespace

double CutSolver::leastTime(const std::vector<Atom> &atoms, const CutOptions &options) const {
  double rate = 0;
  for (const Atom &atom : atoms)
    for (uint32_t d : atom.devices)
      rate += 1 / model.leastPerSample(model.classOf(d), 0, model.units());
  return static_cast<double>(options.samples) / rate;
}

double CutSolver::passage(const Stage &stage, size_t r, int32_t u, int32_t v) const {
  double sum = 0, rate = 0; // weighted by what each class passes
  for (uint32_t i = 0; i < stage.classCount; ++i) {
    uint32_t c = stage.classList[i];
    double part = stage.counts[c] / model.cell(c, r, u, v);
    rate += part;
    sum += part * (model.forward(c, r, u, v) + model.backward(c, r, u, v));
  }
  return sum / rate;
}

bool CutSolver::fits(const Stage &stage, const CutOptions &options, size_t r, int32_t u, int32_t v, double way, bool firstAtom, bool lastAtom, double time) const {
  const double samples = static_cast<double>(options.samples), cells = stage.cells;
  double start = way * (options.split ? kFillWithSplit : 1), sync = 0, reduce = 0;
  if (stage.wire > 0) {
    double gather = stage.ring * model.gatherBytes(u, v) / stage.wire;
    reduce = stage.ring * model.reduceBytes(u, v) / stage.wire;
    start = std::max(start, gather);
    if (stage.shared)
      sync = gather + reduce;
  }
  double budget = (time - start - reduce) * (1 + 1e-12);
  if (budget <= 0)
    return false;
  double seconds[kMostClasses], rate = 0;
  if (stage.classCount == 1) {
    seconds[0] = model.cell(stage.classList[0], r, u, v);
    if (stage.cellsEach * seconds[0] > budget)
      return false;
    rate = stage.devices / seconds[0];
  } else {
    for (uint32_t i = 0; i < stage.classCount; ++i) {
      seconds[i] = model.cell(stage.classList[i], r, u, v);
      rate += stage.counts[stage.classList[i]] / seconds[i];
    }
    if (cells / rate > budget)
      return false;
    uint32_t counts[kMostClasses];
    for (uint32_t i = 0; i < stage.classCount; ++i)
      counts[i] = stage.counts[stage.classList[i]];
    if (makespan(static_cast<int64_t>(cells), counts, seconds, stage.classCount) > budget)
      return false;
  }
  if (stage.card > 0) { // the cards of the stage, one direction
    double bytes = samples * ((firstAtom ? 0 : model.tables.backwardBytesAt(u)) + (lastAtom ? 0 : model.tables.forwardBytesAt(v)));
    if (bytes / (stage.nodes * stage.card) + sync > time)
      return false;
  }
  double rows = static_cast<double>(model.rows()[r]);
  double held = model.heldBytes(u, v) + model.sharedBytes(u, v) / stage.members, act = model.activationBytes(u, v);
  double inFlight = samples * std::max(0.0, options.latency - way) / time / rate;
  for (uint32_t i = 0; i < stage.classCount; ++i) {
    double alive = std::min(inFlight / seconds[i] + rows, samples);
    if (held + alive * act > stage.memory[i])
      return false;
  }
  return true;
}

bool CutSolver::reach(const std::vector<Atom> &atoms, const CutOptions &options, double time) {
  int32_t units = model.units();
  size_t n = atoms.size(), stride = static_cast<size_t>(units) + 1, classes = model.classes();
  label.assign((n + 1) * stride, kInfinity);
  from.resize((n + 1) * stride);
  label[0] = 0;
  size_t mostRows = std::min(options.mostRows, model.rows().size() - 1);
  for (size_t i = 0; i < n; ++i) {
    const double *here = &label[i * stride];
    int32_t least = 0, most = units; // units that any state here has
    while (least < units && !(here[least] < kInfinity))
      ++least;
    while (most > least && !(here[most - 1] < kInfinity))
      --most;
    if (options.mayLeaveOut)
      for (int32_t u = 0; u <= units; ++u)
        if (here[u] < label[(i + 1) * stride + u]) {
          label[(i + 1) * stride + u] = here[u];
          from[(i + 1) * stride + u] = {static_cast<uint32_t>(i), u, kSkip};
        }
    if (least >= most)
      continue;
    Stage stage{};
    size_t last = n - i < options.mostAtoms ? n : i + options.mostAtoms;
    uint32_t lastNode = UINT32_MAX;
    double card = kInfinity, port = kInfinity, oneFlow = kInfinity;
    for (size_t j = i + 1; j <= last; ++j) {
      for (uint32_t d : atoms[j - 1].devices) {
        uint32_t c = model.classOf(d), node = model.nodeOf(d);
        if (stage.counts[c]++ == 0) {
          stage.memory[stage.classCount] = model.memoryOf(c);
          stage.classList[stage.classCount++] = c;
        }
        ++stage.devices;
        if (node != lastNode) {
          lastNode = node;
          ++stage.nodes;
          auto lower = [](double a, double b) { return b > 0 ? std::min(a, b) : a; };
          card = lower(card, model.cardBandwidth(node));
          oneFlow = lower(oneFlow, model.problem.cluster.topology.nodes(static_cast<int>(node)).nic().flow());
          port = lower(port, model.portBandwidth(node));
        }
      }
      if (static_cast<int64_t>(stage.devices) > options.samples)
        break;
      // Of many atoms not every number is tried.
      size_t length = j - i;
      if (j != n && length > 8 && length % (length > 16 ? 4 : 2) != 0)
        continue;
      if (j != n && stage.devices > options.mostDevices)
        continue;
      stage.card = card < kInfinity ? card : 0;
      stage.members = static_cast<double>(stage.devices) * options.copies;
      stage.shared = stage.nodes * options.copies > 1;
      stage.ring = stage.members > 1 ? (stage.members - 1) / stage.members : 0;
      // A ring of several nodes is one flow through every card.
      double between = std::min(card, oneFlow);
      stage.wire = stage.shared ? (between < kInfinity ? between : 0) : port < kInfinity ? port : 0;
      for (size_t r = options.leastRows; r <= mostRows; ++r) {
        int64_t rows = model.rows()[r];
        if (r > options.leastRows && rows * static_cast<int64_t>(stage.devices) * 4 > options.samples)
          break;
        stage.cells = static_cast<double>((options.samples + rows - 1) / rows);
        stage.cellsEach = std::ceil(stage.cells / stage.devices);
        int32_t v = least + 1;
        for (int32_t u = least; u < most; ++u) {
          if (!(here[u] < kInfinity))
            continue;
          double way = here[u];
          if (i > 0) {
            double bytes = model.tables.forwardBytesAt(u) + model.tables.backwardBytesAt(u);
            way += 2 * linkLatency[i] + (linkBandwidth[i] > 0 ? bytes * static_cast<double>(rows) / linkBandwidth[i] : 0);
          }
          v = std::max(v, u + 1);
          auto ok = [&](int32_t end) { return fits(stage, options, r, u, end, way, i == 0 && u == 0, end == units, time); };
          if (ok(v)) {
            while (v < units && ok(v + 1))
              ++v;
          } else {
            while (v > u && !ok(v))
              --v;
          }
          if (v <= u) {
            v = u + 1;
            continue;
          }
          for (int32_t end = v; end > u && end + 2 > v; --end) {
            // What is left must be possible for the atoms behind.
            double share = 0;
            if (end < units) {
              const double *counts = &suffixCounts[j * classes];
              for (size_t c = 0; c < classes && share < 1; ++c)
                if (counts[c] > 0)
                  share += counts[c] * time / (static_cast<double>(options.samples) * model.leastPerSample(static_cast<uint32_t>(c), end, units));
              if (share < 1)
                break; // fewer units leave even more
            }
            double total = way + passage(stage, r, u, end);
            size_t at = j * stride + static_cast<size_t>(end);
            if (total < label[at]) {
              label[at] = total;
              from[at] = {static_cast<uint32_t>(i), u, static_cast<uint32_t>(r)};
            }
          }
        }
      }
    }
  }
  for (size_t i = 1; i <= n; ++i)
    if (label[i * stride + static_cast<size_t>(units)] < kInfinity && (i == n || options.mayLeaveOut))
      return true;
  return false;
}

Cut CutSolver::solve(const std::vector<Atom> &atoms, const CutOptions &options) {
  Cut cut;
  size_t n = atoms.size(), classes = model.classes();
  int32_t units = model.units();
  if (n == 0 || units == 0)
    return cut;
  linkBandwidth.assign(n, 0);
  linkLatency.assign(n, 0);
  for (size_t i = 1; i < n; ++i) {
    sim::Route route = model.problem.costs.network().route(atoms[i - 1].devices.back(), atoms[i].devices.front());
    linkLatency[i] = route.latency;
    double least = route.flow > 0 ? route.flow : kInfinity;
    for (uint32_t k = 0; k < route.count; ++k)
      least = std::min(least, model.problem.costs.network().bandwidth(route.resources[k]));
    linkBandwidth[i] = least < kInfinity ? least : 0;
  }
  suffixCounts.assign((n + 1) * classes, 0);
  for (size_t i = n; i-- > 0;) {
    for (size_t c = 0; c < classes; ++c)
      suffixCounts[i * classes + c] = suffixCounts[(i + 1) * classes + c];
    for (uint32_t d : atoms[i].devices)
      suffixCounts[i * classes + model.classOf(d)] += 1;
  }
  // Times that are too short are found out quickly, generous ones are not: from below, in growing strides.
  double low = std::max(leastTime(atoms, options), options.leastTime), high = low;
  double growth = 0.01;
  int strides = 0;
  while (!reach(atoms, options, high)) {
    low = high;
    high *= 1 + growth;
    growth = std::min(growth * 1.7, 2.0);
    if (high > options.mostTime || high > low * 1e3 || !(high < 1e18) || ++strides > 60)
      return cut;
  }
  while (high > low * 1.004) {
    double middle = (low + high) / 2;
    (reach(atoms, options, middle) ? high : low) = middle;
  }
  reach(atoms, options, high);
  size_t stride = static_cast<size_t>(units) + 1, end = n;
  for (size_t i = 1; i <= n; ++i)
    if ((i == n || options.mayLeaveOut) && label[i * stride + stride - 1] < label[end * stride + stride - 1])
      end = i;
  cut.time = high;
  cut.latency = label[end * stride + stride - 1];
  for (size_t i = end, u = stride - 1; i > 0;) {
    From f = from[i * stride + u];
    if (f.rows != kSkip)
      cut.stages.push_back({f.atom, i, f.unit, static_cast<int32_t>(u), f.rows});
    i = f.atom;
    u = static_cast<size_t>(f.unit);
  }
  std::reverse(cut.stages.begin(), cut.stages.end());
  return cut;
}

Stage zorse::planning::makeStage(const StageModel &model, const std::vector<uint32_t> &devices, int32_t unitBegin, int32_t unitEnd, int64_t samples, size_t rows) {
  Stage stage;
  stage.unitBegin = unitBegin;
  stage.unitEnd = unitEnd;
  std::vector<double> seconds;
  for (uint32_t d : devices)
    seconds.push_back(model.cell(model.classOf(d), rows, unitBegin, unitEnd));
  std::vector<int64_t> shares = shareSamples(samples, model.rows()[rows], seconds);
  for (size_t i = 0; i < devices.size(); ++i)
    if (shares[i] > 0)
      stage.members.push_back({devices[i], shares[i], model.rows()[rows]});
  return stage;
}

Pipeline zorse::planning::makePipeline(const StageModel &model, const std::vector<Atom> &atoms, const Cut &cut, int64_t samples) {
  Pipeline pipeline;
  pipeline.samples = samples;
  for (const CutStage &stage : cut.stages) {
    std::vector<uint32_t> devices;
    for (size_t i = stage.atomBegin; i < stage.atomEnd; ++i)
      devices.insert(devices.end(), atoms[i].devices.begin(), atoms[i].devices.end());
    pipeline.stages.push_back(makeStage(model, devices, stage.unitBegin, stage.unitEnd, samples, stage.rows));
  }
  return pipeline;
}
