#include "CostTables.h"

#include "GpuTimes.h"
#include "zorse/Base/Format.h"

#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Planning/DeviceDefaults.h"
#include "zorse/Summary/Optimizers.h"
#include "zorse/Summary/Summary.h"

#include "bundle.pb.h"

#include <algorithm>
#include <cmath>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr int64_t kDenseRows = 1024; ///< maximum number of rows with an entry each
constexpr int64_t kEstimatedRows = 64;
constexpr double kUnknownCopy = 5e9; ///< bytes/s of copies if no bandwidth is known

constexpr size_t F = size_t(step::UnitTask::Forward), B = size_t(step::UnitTask::Backward),
                 I = size_t(step::UnitTask::InputGradients),
                 W = size_t(step::UnitTask::WeightGradients), R = size_t(step::UnitTask::Recompute);

} // namespace

Curve Curve::roofline(const ClusterDevice &device, double speed, const Work &work) {
  Curve curve;
  if (work.flops <= 0 && work.bytes <= 0)
    return curve;
  // FLOPs · r / (speed · r p / (r p + halfPeakRows)): linear in r.
  curve.perRow = work.flops / speed;
  curve.fixed = curve.perRow * device.halfPeakRows / work.positions;
  curve.memoryPerRow = device.memoryBandwidth > 0 ? work.bytes / device.memoryBandwidth : 0;
  curve.launchOverhead = device.launchOverhead;
  return curve;
}

Curve Curve::estimated(std::function<double(int64_t)> seconds) {
  Curve curve;
  for (int64_t rows = 0; rows <= kEstimatedRows; ++rows)
    curve.dense.push_back(rows == 0 ? 0 : seconds(rows));
  curve.model = std::make_shared<const std::function<double(int64_t)>>(std::move(seconds));
  return curve;
}

Curve Curve::measured(std::vector<Point> points) {
  Curve curve;
  curve.points = std::move(points);
  int64_t last = std::min(curve.points.back().rows, kDenseRows);
  curve.dense.resize(static_cast<size_t>(last) + 1);
  for (int64_t rows = 0; rows <= last; ++rows)
    curve.dense[static_cast<size_t>(rows)] = rows == 0 ? 0 : curve.onLine(rows);
  return curve;
}

double Curve::onLine(int64_t rows) const {
  auto after = std::lower_bound(points.begin(), points.end(), rows,
                                [](const Point &p, int64_t r) { return p.rows < r; });
  if (after == points.begin() || after->rows == rows)
    return after->seconds;
  const Point &a = *std::prev(after), &b = *after;
  return a.seconds + (b.seconds - a.seconds) * static_cast<double>(rows - a.rows) /
                         static_cast<double>(b.rows - a.rows);
}

double Curve::beyond(int64_t rows) const {
  if (model)
    return scale * (*model)(rows);
  const Point &last = points.back();
  return rows >= last.rows
             ? last.seconds * static_cast<double>(rows) / static_cast<double>(last.rows)
             : onLine(rows);
}

Curve Curve::scaled(double factor) const {
  Curve curve = *this;
  for (double *value :
       {&curve.scale, &curve.launchOverhead, &curve.fixed, &curve.perRow, &curve.memoryPerRow})
    *value *= factor;
  for (Point &point : curve.points)
    point.seconds *= factor;
  for (double &seconds : curve.dense)
    seconds *= factor;
  return curve;
}

const DeviceProfile *zorse::planning::findProfile(const Profile &profile,
                                                  const ClusterDevice &device) {
  auto named = [&](const std::string &name) -> const DeviceProfile * {
    for (const DeviceProfile &entry : profile.devices)
      if (!name.empty() && entry.device == name)
        return &entry;
    return nullptr;
  };
  if (const DeviceProfile *entry = named(device.name))
    return entry;
  if (const DeviceProfile *entry = named(device.name.substr(0, device.name.rfind(':'))))
    return entry;
  return named(device.type);
}

namespace {

/// The measured points of a class by task; empty if the task was not measured.
struct MeasuredPoints {
  std::vector<Curve::Point> tasks[kUnitTasks];
};

MeasuredPoints collect(const ClassProfile &profile) {
  MeasuredPoints measured;
  for (const ProfilePoint &point : profile.points) {
    const double seconds[kUnitTasks] = {point.forward, point.backward, point.inputGradients,
                                        point.weightGradients, -1}; // recomputation is not measured
    for (size_t task = 0; task < kUnitTasks; ++task)
      if (seconds[task] >= 0)
        measured.tasks[task].push_back({point.rows, seconds[task]});
    if (point.backward < 0 && point.inputGradients >= 0 && point.weightGradients >= 0)
      measured.tasks[B].push_back({point.rows, point.inputGradients + point.weightGradients});
  }
  return measured;
}

/// Ratio of measured to estimated time, summed over the points.
struct Ratio {
  double measured = 0, estimated = 0;
  void add(const std::vector<Curve::Point> &points, const Curve &roofline) {
    for (const Curve::Point &point : points) {
      measured += point.seconds;
      estimated += roofline.at(point.rows);
    }
  }
  void add(const Ratio &o) {
    measured += o.measured;
    estimated += o.estimated;
  }
  bool known() const { return measured > 0 && estimated > 0; }
  double value() const { return measured / estimated; }
};

/// Sets the curves of one class: measured tasks use the measurements, the others are scaled in the
/// proportions of the roofline.
void complete(const MeasuredPoints &measured, Curve *curves) {
  Ratio both;
  both.add(measured.tasks[F], curves[F]);
  both.add(measured.tasks[B], curves[B]);
  Curve rooflines[kUnitTasks] = {curves[F], curves[B], curves[I], curves[W], curves[R]};
  for (size_t task : {F, B})
    curves[task] = !measured.tasks[task].empty()
                       ? Curve::measured(measured.tasks[task])
                       : curves[task].scaled(both.known() ? both.value() : 1);
  if (measured.tasks[F].empty()) {
    curves[R] = curves[R].scaled(both.known() ? both.value() : 1);
  } else { // recomputation is a part of the forward
    std::vector<Curve::Point> points = measured.tasks[F];
    for (Curve::Point &point : points) {
      const double whole = rooflines[F].at(point.rows);
      point.seconds *= whole > 0 ? std::min(rooflines[R].at(point.rows) / whole, 1.0) : 0;
    }
    curves[R] = Curve::measured(std::move(points));
  }
  for (size_t task : {I, W}) {
    if (!measured.tasks[task].empty()) {
      curves[task] = Curve::measured(measured.tasks[task]);
      continue;
    }
    if (measured.tasks[B].empty()) {
      curves[task] = curves[task].scaled(both.known() ? both.value() : 1);
      continue;
    }
    std::vector<Curve::Point> points = measured.tasks[B];
    bool other = !measured.tasks[task == I ? W : I].empty();
    for (Curve::Point &point : points) {
      double whole = rooflines[I].at(point.rows) + rooflines[W].at(point.rows);
      point.seconds =
          other ? std::max(point.seconds - curves[task == I ? W : I].at(point.rows), 0.0)
                : point.seconds * (whole > 0 ? rooflines[task].at(point.rows) / whole : 0.5);
    }
    curves[task] = Curve::measured(std::move(points));
  }
}

} // namespace

namespace {

/// Returns the index of the compiled target whose work a GPU of this architecture executes; -1: the
/// model was never compiled for one.
int targetOf(const bundle::ModelSummary &summary, const std::string &arch) {
  int found = summary.gpu_targets_size() > 0 ? 0 : -1;
  for (int t = 0; t < summary.gpu_targets_size(); ++t)
    if (summary.gpu_targets(t) == arch)
      found = t;
  return found;
}

/// Returns nullptr if the work is unknown.
const bundle::FunctionCost *workOf(const bundle::UnitClass &unitClass,
                                   bundle::UnitFunction::Task task, int target) {
  const bundle::UnitFunction &function = functionOf(unitClass, task);
  return target < function.costs_size() ? &function.costs(target) : nullptr;
}

/// Sets the curves of one class of units to times modeled kernel by kernel.
void model(const UnitWork &unit, const bundle::UnitClass &unitClass, int target,
           const GpuRates &rates, Curve *curves) {
  using Function = bundle::UnitFunction;
  auto task = [&](Function::Task what, bool backward) {
    const bundle::FunctionCost *of = workOf(unitClass, what, target);
    return !of || of->launches() == 0 ? Curve()
                                      : Curve::estimated([of = *of, backward, rates](int64_t rows) {
                                          return gpuSeconds(of, backward, rows, rates);
                                        });
  };
  curves[F] = task(Function::FORWARD, false);
  curves[B] = task(Function::BACKWARD, true);
  const double whole = unit.tasks[F].flops,
               again = unit.tasks[R].flops; // summaries made from dimensions do not contain the
                                            // launches of a recomputation
  curves[R] = workOf(unitClass, Function::RECOMPUTE, target)
                  ? task(Function::RECOMPUTE, false)
                  : curves[F].scaled(whole > 0 ? std::min(again / whole, 1.0) : 1);
  if (unit.splits) {
    curves[I] = task(Function::INPUT_GRADIENTS, true);
    curves[W] = task(Function::WEIGHT_GRADIENTS, true);
    return;
  }
  curves[I] = curves[B].scaled(unit.inputPart);
  curves[W] = curves[B].scaled(1 - unit.inputPart);
}

std::string rooflineSource(const ClusterDevice &device, double speed) {
  std::string text = speed >= 1e12 ? format("a roofline of %.4g TFLOP/s", speed / 1e12)
                                   : format("a roofline of %.4g GFLOP/s", speed / 1e9);
  if (device.halfPeakRows > 0)
    text += format(" (half of it at %.4g rows)", device.halfPeakRows);
  return text +
         (device.memoryBandwidth > 0 ? format(" and %.4g GB/s", device.memoryBandwidth / 1e9) : "");
}

/// Returns the factor on all modeled times.
double timeFactor(ExecutionMode mode) {
  switch (mode) {
  case ExecutionMode::Compiled:
    return 1;
  case ExecutionMode::Tuned:
    return kTunedTimes;
  case ExecutionMode::Eager:
    return kEagerTimes;
  }
  return 1;
}

/// Estimates the curves of all classes. Returns whether any class has attention.
bool estimateUnits(const bundle::ModelSummary &summary, const std::vector<UnitWork> &units,
                   const ClusterDevice &device, double speed, int target, const GpuRates &rates,
                   std::vector<Curve> &all) {
  bool attention = false;
  for (size_t u = 0; u < units.size(); ++u) {
    Curve *curves = &all[u * kUnitTasks];
    for (size_t task = 0; task < kUnitTasks; ++task)
      curves[task] = Curve::roofline(device, speed, units[u].tasks[task]);
    if (target >= 0 && units[u].classId < static_cast<uint32_t>(summary.classes_size())) {
      const bundle::UnitClass &unitClass = summary.classes(static_cast<int>(units[u].classId));
      model(units[u], unitClass, target, rates, curves);
      const bundle::FunctionCost *forward =
          workOf(unitClass, bundle::UnitFunction::FORWARD, target);
      attention = attention || (forward && forward->attention_flops_per_row() > 0);
    }
    for (size_t task = 0; task < kUnitTasks; ++task)
      if (device.executionMode != ExecutionMode::Compiled)
        curves[task] = curves[task].scaled(timeFactor(device.executionMode));
  }
  return attention;
}

/// Replaces curves by measured ones if the profile has them, and scales the others by the same
/// ratio.
void applyMeasured(const bundle::ModelSummary &summary, const std::vector<UnitWork> &units,
                   const DeviceProfile &profile, DeviceTimes &times) {
  std::vector<std::string> names = classNames(summary);
  std::vector<bool> covered(units.size(), false);
  size_t measuredClasses = 0;
  Ratio whole;
  for (size_t u = 0; u < units.size(); ++u) {
    auto entry = units[u].classId < names.size() ? profile.classes.find(names[units[u].classId])
                                                 : profile.classes.end();
    if (entry == profile.classes.end())
      continue;
    for (const ClassProfile &atDegree : entry->second) {
      if (atDegree.degree != 1 || atDegree.points.empty())
        continue;
      MeasuredPoints measured = collect(atDegree);
      whole.add(measured.tasks[F], times.curves[u * kUnitTasks + F]);
      whole.add(measured.tasks[B], times.curves[u * kUnitTasks + B]);
      complete(measured, &times.curves[u * kUnitTasks]);
      measuredClasses += !covered[u];
      covered[u] = true;
    }
  }
  if (measuredClasses > 0)
    times.source = measuredClasses == units.size()
                       ? "measured (profile)"
                       : "measured (profile) for " + std::to_string(measuredClasses) + " of " +
                             std::to_string(units.size()) +
                             " classes of units; in proportion to these, " + times.source;
  if (whole.known())
    for (size_t u = 0; u < units.size(); ++u)
      for (size_t task = 0; task < kUnitTasks && !covered[u]; ++task)
        times.curves[u * kUnitTasks + task] =
            times.curves[u * kUnitTasks + task].scaled(whole.value());
}

/// Estimates elementwise work over 4-byte state: parameters and optimizer states are read and
/// written, gradients are read.
void estimateState(const bundle::ModelSummary &summary, const ClusterDevice &device, double speed,
                   double pcie, double port, DeviceTimes &times) {
  double flopsPerSecond = device.flopsPerSecond[speedIndex(bundle::F32)] > 0
                              ? device.flopsPerSecond[speedIndex(bundle::F32)]
                              : speed;
  const double bandwidth = device.multiprocessors > 0 ? gpuBandwidth(device)
                                                      : device.memoryBandwidth,
               longer = timeFactor(device.executionMode);
  auto elementwise = [&](double flops, double bytes) {
    return Rate{longer * device.launchOverhead,
                longer * std::max(flops / flopsPerSecond, bandwidth > 0 ? bytes / bandwidth : 0)};
  };
  const uint32_t states = maxOptimizerStates(summary);
  const double bytes = meanStateBytes(summary);
  times.update = elementwise(2 + 5.0 * states, 4 * 3 + 2 * bytes);
  times.updatePerFlop = longer / flopsPerSecond;
  times.norm = elementwise(2, 4);
  double memory = bandwidth > 0 ? bandwidth / 2
                  : port > 0    ? port
                                : kUnknownCopy; // a copy reads and writes
  times.copy = {device.launchOverhead, 1 / memory};
  times.load = {device.launchOverhead,
                1 / (!deviceKindOf(device.kind).sharesHostMemory && pcie > 0 ? pcie : memory)};
  // A device that is a CPU of its host updates equally fast there. The CPUs of other hosts are
  // unknown.
  times.hostUpdate = deviceKindOf(device.kind).sharesHostMemory
                         ? times.update
                         : Rate{0, step::hostUpdateSeconds({1}, 4, bytes)};
  times.hostUpdatePerFlop = deviceKindOf(device.kind).sharesHostMemory ? times.updatePerFlop
                                                                       : 1 / step::kHostUpdateSpeed;
}

void applyMeasuredState(const DeviceProfile &profile, bool sharesHostMemory, DeviceTimes &times) {
  auto use = [](Rate &rate, double each, double fixed) {
    if (each >= 0)
      rate = {fixed, each};
  };
  if (sharesHostMemory)
    use(times.hostUpdate, profile.updatePerElement, profile.updateFixed);
  use(times.update, profile.updatePerElement, profile.updateFixed);
  use(times.hostUpdate, profile.hostUpdatePerElement, profile.hostUpdateFixed);
  use(times.norm, profile.normPerElement, profile.normFixed);
  use(times.copy, profile.copyPerByte, profile.copyFixed);
  use(times.load, profile.loadPerByte, profile.loadFixed);
}

/// Multiplies the times of computing. Of a CPU, copies take its threads, too.
void slowDown(const ClusterDevice &device, DeviceTimes &times) {
  auto scale = [factor = device.slowdown](Rate &rate) {
    rate.fixed *= factor;
    rate.each *= factor;
  };
  for (Curve &curve : times.curves)
    curve = curve.scaled(device.slowdown);
  scale(times.update);
  scale(times.norm);
  times.updatePerFlop *= device.slowdown;
  if (deviceKindOf(device.kind).sharesHostMemory) {
    for (Rate *rate : {&times.copy, &times.load, &times.hostUpdate})
      scale(*rate);
    times.hostUpdatePerFlop *= device.slowdown;
  }
  times.source += format("; computing times are multiplied by %.3g (slowdown)", device.slowdown);
}

} // namespace

DeviceTimes zorse::planning::deviceTimes(const bundle::ModelSummary &summary,
                                         const std::vector<UnitWork> &units,
                                         const ClusterDevice &described, double speed, double pcie,
                                         double port, const DeviceProfile *profile) {
  ClusterDevice device = described;
  if (profile && profile->launchOverhead >= 0)
    device.launchOverhead = profile->launchOverhead;
  DeviceTimes times;
  times.curves.resize(units.size() * kUnitTasks);
  const int target = device.multiprocessors > 0 ? targetOf(summary, device.arch) : -1;
  const GpuRates rates = gpuRates(device, productType(summary), speed);
  const bool attention = estimateUnits(summary, units, device, speed, target, rates, times.curves);
  times.source = target >= 0 ? "modeled: " + gpuAssumptions(device, rates, attention)
                             : rooflineSource(device, speed);
  if (device.executionMode != ExecutionMode::Compiled)
    times.source += format("; all times are multiplied by %.3g, as for a framework %s",
                           timeFactor(device.executionMode),
                           device.executionMode == ExecutionMode::Tuned
                               ? "with tuned kernels (tuned)"
                               : "that launches every operation (eager)");
  estimateState(summary, device, speed, pcie, port, times);
  if (profile) {
    applyMeasured(summary, units, *profile, times);
    applyMeasuredState(*profile, deviceKindOf(device.kind).sharesHostMemory, times);
  }
  if (device.slowdown != 1)
    slowDown(device, times);
  return times;
}
