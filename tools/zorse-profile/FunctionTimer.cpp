#include "FunctionTimer.h"

#include "Arguments.h"

#include "zorse/runtime/Measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>

#include <ctime>

using namespace zorse;
using namespace zorse::profile;
using namespace zorse::runtime;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

enum Task { Forward, Backward, InputGradients, WeightGradients, kTasks };
constexpr const char *kTaskNames[kTasks] = {"forward", "backward", "input gradients",
                                            "weight gradients"};
constexpr size_t kMaxSets = 4; ///< copies of a class's memory that are used round-robin, so that
                               ///< weights are not cached between calls, as in a step
constexpr size_t kMinRounds = 3, kMaxRounds = 15;
constexpr double kLongestCall = 4; ///< seconds; batch sizes that take longer are omitted

struct UnitClass {
  std::string name;
  int32_t unit = 0; ///< first unit of the class
  int units = 0;
  std::vector<std::pair<Task, uint32_t>> tasks;
  std::vector<Arguments> sets;
  std::vector<int64_t> rows;
  std::vector<uint32_t> functions() const {
    std::vector<uint32_t> all;
    for (auto [task, function] : tasks)
      all.push_back(function);
    return all;
  }
};

/// A quantity that is measured in several rounds.
struct Point {
  size_t unitClass = 0;
  Task task = Forward;
  uint32_t function = 0;
  int64_t rows = 1;
  std::vector<double> samples;
  bool stable(double limit) const {
    double spread = 0;
    median(samples, &spread);
    return samples.size() >= kMinRounds && spread <= limit;
  }
};

class Timer {
public:
  Timer(Device &device, const Bundle &bundle, const TimerOptions &options)
      : device(device), bundle(bundle), options(options) {}

  double had = 0; ///< CPUs that the process had during the measurement of the classes

  Result<planning::DeviceProfile> run() {
    begin = now();
    findClasses();
    if (Status status = makeSets(); status.failed())
      return status;
    if (Status status = warmUp(); status.failed())
      return status;
    if (Status status = rounds(); status.failed())
      return status;
    planning::DeviceProfile profile;
    collect(profile);
    if (Status status = otherCosts(profile); status.failed())
      return status;
    return profile;
  }

private:
  void findClasses() {
    std::vector<std::string> names = planning::classNames(bundle.summary);
    std::map<uint32_t, size_t> index;
    for (int32_t u = 0; u < bundle.summary.units_size(); ++u) {
      const bundle::UnitInfo &unit = bundle.summary.units(u);
      auto [it, isNew] = index.emplace(unit.class_id(), classes.size());
      if (isNew) {
        UnitClass c;
        c.name = unit.class_id() < names.size() ? names[unit.class_id()] : "class";
        c.unit = u;
        // Order of execution: each task reads outputs of earlier ones (saved block of the forward,
        // deferred block of the input gradients).
        auto bodyOf = [&](bundle::UnitFunction::Task task) {
          return functionOf(bundle.summary, unit, task).function();
        };
        c.tasks = {{Forward, bodyOf(bundle::UnitFunction::FORWARD)},
                   {Backward, bodyOf(bundle::UnitFunction::BACKWARD)}};
        const uint32_t inputs = bodyOf(bundle::UnitFunction::INPUT_GRADIENTS),
                       weights = bodyOf(bundle::UnitFunction::WEIGHT_GRADIENTS);
        // The two parts exist only if the plan splits backwards.
        if (unit.splits() && inputs < uint32_t(bundle.functions.functions_size()))
          c.tasks.insert(c.tasks.end(), {{InputGradients, inputs}, {WeightGradients, weights}});
        classes.push_back(std::move(c));
      }
      ++classes[it->second].units;
    }
  }

  Status makeSets() {
    // Finds the largest batch size at which one unit of every class fits, then the number of units
    // of each class that fit.
    std::vector<int64_t> rows = options.rows;
    uint64_t workspace = 0, min = 0;
    auto measure = [&] {
      workspace = min = 0;
      for (const UnitClass &c : classes)
        min += Arguments::bytesOf(bundle, c.functions(), rows.back(), &workspace);
      return min + workspace;
    };
    while (measure() > options.memory && rows.size() > 1) {
      say("omitted: " + std::to_string(rows.back()) + " samples need " +
          std::to_string((min + workspace) >> 20) + " MiB of the " +
          std::to_string(options.memory >> 20) + " MiB available");
      rows.pop_back();
    }
    if (min + workspace > options.memory)
      return userError(
          "the unit functions need " + std::to_string((min + workspace) >> 20) + " MiB for " +
          std::to_string(rows.back()) + " samples, but the limit is " +
          std::to_string(options.memory >> 20) +
          " MiB; set smaller batch sizes with --batch-sizes or a higher limit with --max-memory");
    Result<std::unique_ptr<DeviceMemory>> shared =
        device.allocate(bundle::DEVICE, std::max<uint64_t>(workspace, 64), {});
    if (shared.failed())
      return shared.error();
    scratch = std::move(*shared);
    uint64_t left = options.memory - min - workspace;
    for (UnitClass &c : classes) {
      c.rows = rows;
      uint64_t ignored = 0, one = Arguments::bytesOf(bundle, c.functions(), rows.back(), &ignored);
      for (size_t set = 0; set < std::min<size_t>(kMaxSets, static_cast<size_t>(c.units)); ++set) {
        if (set > 0 && one > left)
          break;
        left -= set > 0 ? one : 0;
        Result<Arguments> arguments = Arguments::make(device, bundle, c.unit, c.functions(),
                                                      rows.back(), scratch->base(),
                                                      static_cast<uint32_t>(7 * c.unit + set));
        if (arguments.failed())
          return arguments.error();
        c.sets.push_back(std::move(*arguments));
      }
    }
    return Status::success();
  }

  Status call(const UnitClass &c, size_t set, uint32_t function, int64_t rows) {
    std::vector<DeviceAddress> addresses =
        c.sets[set].of(bundle.functions.functions(static_cast<int>(function)));
    FunctionArguments arguments;
    arguments.addresses = addresses.data();
    arguments.rows = rows;
    return device.runFunction(function, arguments);
  }

  /// Runs every function once for every set. Omits batch sizes that take too long.
  Status warmUp() {
    for (size_t i = 0; i < classes.size(); ++i) {
      UnitClass &c = classes[i];
      for (size_t r = 0; r < c.rows.size(); ++r) {
        double longest = 0;
        for (auto [task, function] : c.tasks) {
          double start = now();
          for (size_t set = 0; set < c.sets.size(); ++set)
            if (Status status = call(c, set, function, c.rows[r]); status.failed())
              return status;
          longest = std::max(longest, (now() - start) / static_cast<double>(c.sets.size()));
        }
        if (r > 0 && longest > kLongestCall) {
          say("omitted: " + c.name + " takes " + std::to_string(longest) + " s for " +
              std::to_string(c.rows[r]) + " samples");
          c.rows.resize(r);
        }
      }
      for (int64_t rows : c.rows)
        for (auto [task, function] : c.tasks)
          points.push_back({i, task, function, rows, {}});
    }
    return Status::success();
  }

  /// Seconds per call. Under a CPU quota, CPU seconds per call, which are independent of throttling
  /// pauses that may take the time of several calls; `pace` converts them to wall-clock seconds.
  double timed(const std::function<void()> &once) {
    double used = cpuSeconds();
    int64_t calls = 0;
    double seconds = timedSample(options.sampleSeconds, [&]() -> int64_t {
      once();
      ++calls;
      return 1;
    });
    return options.quota > 0 ? (cpuSeconds() - used) / static_cast<double>(calls) : seconds;
  }

  Status sample(Point &point) {
    UnitClass &c = classes[point.unitClass];
    // Run the earlier tasks first, so that the inputs exist for this batch size.
    for (auto [task, function] : c.tasks) {
      bool before = (task == Forward && point.task != Forward) ||
                    (task == InputGradients && point.task == WeightGradients);
      for (size_t set = 0; set < c.sets.size() && before; ++set)
        if (Status status = call(c, set, function, point.rows); status.failed())
          return status;
    }
    Status failure;
    size_t set = 0;
    point.samples.push_back(timed([&] {
      if (Status status = call(c, set, point.function, point.rows); status.failed())
        failure = status;
      set = (set + 1) % c.sets.size();
    }));
    return failure;
  }

  Status rounds() {
    double start = now(), used = cpuSeconds();
    Status status = allRounds();
    double share = (cpuSeconds() - used) / std::max(now() - start, 1e-9);
    had = share;
    if (options.quota > 0) // the full quota, even if other processes use part of it now: a run can
                           // use all of it
      pace = 1 / options.quota;
    if (status.succeeded() && options.cpus > 0 && share < 0.9 * options.cpus) {
      char text[160];
      std::snprintf(text, sizeof text,
                    "other processes use this machine: the functions had %.2f of %.2f CPUs, so "
                    "their measured times are too long",
                    share, options.cpus);
      say(text);
    }
    return status;
  }

  Status allRounds() {
    for (size_t round = 0; round < kMaxRounds; ++round) {
      size_t open = 0;
      for (Point &point : points) {
        if (point.stable(options.spread))
          continue;
        ++open;
        if (Status status = sample(point); status.failed())
          return status;
      }
      if (open == 0)
        break;
      say("round " + std::to_string(round + 1) + ": " + std::to_string(points.size() - open) +
          " of " + std::to_string(points.size()) + " points were stable before it, " +
          std::to_string(static_cast<int>(now() - begin)) + " s");
      if (round + 1 >= kMinRounds && now() - begin > options.budgetSeconds)
        break;
    }
    return Status::success();
  }

  void collect(planning::DeviceProfile &profile) {
    for (size_t i = 0; i < classes.size(); ++i) {
      planning::ClassProfile times;
      double worst = 0;
      size_t max = 0;
      std::string lines[kTasks];
      for (int64_t rows : classes[i].rows) {
        planning::ProfilePoint point;
        point.rows = rows;
        for (const Point &measured : points)
          if (measured.unitClass == i && measured.rows == rows) {
            double spread = 0;
            double seconds = pace * median(measured.samples, &spread);
            (measured.task == Forward          ? point.forward
             : measured.task == Backward       ? point.backward
             : measured.task == InputGradients ? point.inputGradients
                                               : point.weightGradients) = seconds;
            worst = std::max(worst, spread);
            max = std::max(max, measured.samples.size());
            char text[32];
            std::snprintf(text, sizeof text, " %.4g", seconds * 1e3);
            lines[measured.task] += text;
          }
        times.points.push_back(point);
      }
      profile.classes[classes[i].name] = {times};
      std::string line = classes[i].name + ": batch sizes";
      for (int64_t rows : classes[i].rows)
        line += " " + std::to_string(rows);
      for (size_t task = 0; task < kTasks; ++task)
        if (!lines[task].empty())
          line += std::string(", ") + kTaskNames[task] + lines[task] + " ms";
      char text[64];
      std::snprintf(text, sizeof text, "; %zu rounds, quartiles %.1f %% apart at most", max,
                    100 * worst);
      say(line + text);
    }
  }

  /// Fits a line through the times of a small and a large n: seconds per element and fixed seconds.
  Status line(int64_t small, int64_t large, double &each, double &fixed,
              const std::function<Status(int64_t)> &work) {
    double seconds[2];
    for (int i = 0; i < 2; ++i) {
      int64_t n = i ? large : small;
      Status failure = work(n); // warm-up
      std::vector<double> samples;
      for (size_t round = 0; round < 5 && failure.succeeded(); ++round)
        samples.push_back(timed([&] {
          if (Status status = work(n); status.failed())
            failure = status;
        }));
      if (failure.failed())
        return failure;
      seconds[i] = pace * median(samples);
    }
    each = std::max(seconds[1] - seconds[0], 0.0) / static_cast<double>(large - small);
    fixed = std::max(seconds[0] - each * static_cast<double>(small), 0.0);
    return Status::success();
  }

  /// Measures an element-wise function: seconds per element and per call.
  Status elementwiseCost(const char *name, uint32_t function, int64_t elements, double &each,
                         double &fixed, std::string &report) {
    if (elements < 4096 || function >= static_cast<uint32_t>(bundle.functions.functions_size()))
      return Status::success();
    Result<Arguments> slots =
        Arguments::make(device, bundle, -1, {function}, elements, scratch->base(), 11);
    if (slots.failed())
      return slots.error();
    std::vector<DeviceAddress> addresses =
        slots->of(bundle.functions.functions(static_cast<int>(function)));
    Status status = line(elements / 16, elements, each, fixed, [&](int64_t n) {
      FunctionArguments arguments;
      arguments.addresses = addresses.data();
      arguments.rows = n;
      return device.runFunction(function, arguments);
    });
    char text[96];
    std::snprintf(text, sizeof text, " %s %.3g ns an element and %.3g us,", name, each * 1e9,
                  fixed * 1e6);
    report += text;
    return status;
  }

  /// Measures copies within the device memory and loads from the host.
  Status copyCosts(planning::DeviceProfile &profile, std::string &report) {
    size_t large = std::min<size_t>(64 << 20, std::max<size_t>(options.memory / 4, 1 << 20)),
           small = large / 16;
    Result<std::unique_ptr<DeviceMemory>> from = device.allocate(bundle::DEVICE, large, {}),
                                          to = device.allocate(bundle::DEVICE, large, {});
    if (from.failed() || to.failed())
      return from.failed() ? from.error() : to.error();
    Status status =
        line(static_cast<int64_t>(small), static_cast<int64_t>(large), profile.copyPerByte,
             profile.copyFixed, [&](int64_t bytes) {
               return device.copy((*to)->base(), (*from)->base(), static_cast<size_t>(bytes));
             });
    std::vector<std::byte> host(large, std::byte(1));
    if (status.succeeded())
      status = line(static_cast<int64_t>(small), static_cast<int64_t>(large), profile.loadPerByte,
                    profile.loadFixed, [&](int64_t bytes) {
                      return device.write((*to)->base(), host.data(), static_cast<size_t>(bytes));
                    });
    if (status.failed())
      return status;
    char text[128];
    std::snprintf(text, sizeof text, " copies %.3g GB/s, loads %.3g GB/s",
                  1e-9 / std::max(profile.copyPerByte, 1e-15),
                  1e-9 / std::max(profile.loadPerByte, 1e-15));
    report += text;
    return Status::success();
  }

  /// Measures the cost of a call with a nearly empty function.
  Status launchCost(planning::DeviceProfile &profile, std::string &report) {
    const uint32_t function = bundle.summary.clip_and_check_function();
    if (function >= static_cast<uint32_t>(bundle.functions.functions_size()) ||
        bundle.functions.functions(static_cast<int>(function)).arguments_size() == 0)
      return Status::success();
    Result<Arguments> slots =
        Arguments::make(device, bundle, -1, {function}, 1, scratch->base(), 13);
    if (slots.failed())
      return slots.error();
    std::vector<DeviceAddress> addresses =
        slots->of(bundle.functions.functions(static_cast<int>(function)));
    Status failure;
    std::vector<double> samples;
    for (int round = 0; round < 5; ++round)
      samples.push_back(timed([&] {
        FunctionArguments arguments;
        arguments.addresses = addresses.data();
        if (Status called = device.runFunction(function, arguments); called.failed())
          failure = called;
      }));
    if (failure.failed())
      return failure;
    profile.launchOverhead = pace * median(samples);
    char text[64];
    std::snprintf(text, sizeof text, ", a call %.3g us", profile.launchOverhead * 1e6);
    report += text;
    return Status::success();
  }

  Status otherCosts(planning::DeviceProfile &profile) {
    // The number of elements of the largest group, if memory permits, so that the data is not
    // cached.
    int64_t elements = 0;
    for (const bundle::FlatGroupInfo &group : bundle.summary.groups())
      elements = std::max<int64_t>(elements, group.trainable() ? group.elements() : 0);
    classes.clear();
    elements =
        std::min<int64_t>({elements, int64_t(16) << 20, static_cast<int64_t>(options.memory / 64)});
    std::string report = "other costs:";
    if (bundle.summary.update_rules().empty())
      return userError(bundle.directory + ": updates no parameter");
    if (Status status = elementwiseCost("update", bundle.summary.update_rules(0).function(),
                                        elements, profile.updatePerElement, profile.updateFixed,
                                        report);
        status.failed())
      return status;
    if (Status status = elementwiseCost("norm", bundle.summary.norm_function(), elements,
                                        profile.normPerElement, profile.normFixed, report);
        status.failed())
      return status;
    if (Status status = copyCosts(profile, report); status.failed())
      return status;
    if (Status status = launchCost(profile, report); status.failed())
      return status;
    say(report);
    return Status::success();
  }

  void say(const std::string &text) const {
    if (options.say)
      options.say(text);
  }

  Device &device;
  const Bundle &bundle;
  const TimerOptions &options;
  double begin = 0;
  double pace = 1; ///< wall-clock seconds per second returned by `timed`
  std::vector<UnitClass> classes;
  std::unique_ptr<DeviceMemory> scratch;
  std::vector<Point> points;
};

} // namespace

Result<planning::DeviceProfile> zorse::profile::timeFunctions(Device &device, const Bundle &bundle,
                                                              const TimerOptions &options,
                                                              double &cpus) {
  Timer timer(device, bundle, options);
  Result<planning::DeviceProfile> profile = timer.run();
  cpus = timer.had;
  return profile;
}
