// Overflows on one device of several. Trains two bundles of one model, one of them on a single
// device, through the same random schedules. In some steps of a schedule, the gradients or the loss
// are not finite on one device. Compares the final states.
//
//   overflow-runs ONE MANY DATA [SCHEDULES] [FIRST SEED]
//
// Half of the schedules submit the next step before the last one is done. The other half pauses
// after every step and checks that a skipped step left the state unchanged bit by bit. Prints a
// summary; fails on the first difference.

#include "zorse/Summary/Summary.h"
#include "zorse/runtime/Data.h"
#include "zorse/runtime/State.h"
#include "zorse/runtime/Training.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <random>

using namespace zorse;
using namespace zorse::runtime;

namespace {

constexpr uint64_t kSteps = 8;

[[noreturn]] void fail(const std::string &what) {
  std::fprintf(stderr, "overflow-runs: %s\n", what.c_str());
  std::exit(1);
}

template <typename T> T must(Result<T> result) {
  if (result.failed())
    fail(result.message());
  return std::move(*result);
}
void must(const Status &status) {
  if (status.failed())
    fail(status.message());
}

/// Per step: 0 none, 1 a gradient, 2 the loss; and a number that selects the device.
struct Schedule {
  int kind[kSteps];
  uint32_t choice[kSteps];
};

class Job {
public:
  Job(const char *directory, const char *data)
      : bundle_(must(loadBundle(directory))),
        data_(must(DataSource::open(bundle_, data, std::nullopt))) {
    std::vector<std::unique_ptr<Transport>> transports =
        makeLocalTransports(uint32_t(bundle_.devices.size()));
    std::vector<LocalDevice> locals;
    locals.reserve(bundle_.devices.size());
    for (uint32_t d = 0; d < bundle_.devices.size(); ++d)
      locals.push_back({d, must(makeDevice(bundle_, d, 0, int(bundle_.devices.size()))),
                        std::move(transports[d])});
    ExecutorOptions options;
    options.beforeCall = [this](const ObservedCall &call) { inject(call); };
    executor_ = must(Executor::create(bundle_, std::move(locals), options));
    for (uint32_t d = 0; d < bundle_.programs.size(); ++d)
      for (const bundle::Instruction &instruction : bundle_.programs[d].instructions()) {
        auto note = [&](std::vector<uint32_t> &list) {
          if (list.empty() || list.back() != d)
            list.push_back(d);
        };
        if (instruction.has_compute() && instruction.compute().task() == bundle::Compute::NORM &&
            instruction.compute().calls_size())
          note(owners_);
        if (instruction.has_compute() && instruction.compute().task() == bundle::Compute::SUM_LOSS)
          note(losers_);
      }
  }

  void start(const Schedule &schedule) {
    schedule_ = schedule;
    must(loadState(*executor_, bundle_, ""));
    reports.clear();
    first_ = submitted_;
    done_ = 0;
  }

  void train(uint64_t steps) {
    TrainingRun run;
    run.steps = steps;
    run.firstStep = done_ + 1;
    run.firstSample = done_ * uint64_t(bundle_.batch);
    run.options = bundle_.summary.training();
    run.data = data_.get();
    run.report = [this](const StepReport &report) { reports.push_back(report); };
    must(runtime::train(*executor_, bundle_, run));
    done_ += steps;
    submitted_ += steps;
  }

  /// All state that is kept between steps, except the state of the clip/skip decision.
  std::string state() const {
    std::string all;
    eachState([&](uint32_t device, const bundle::PersistentState &state) {
      if (state.value().kind() == bundle::Value::OPTIMIZER_STEP)
        return;
      std::string bytes(state.region().bytes(), 0);
      must(executor_->read(device, state.region(), 0, bytes.data(), bytes.size()));
      all += bytes;
    });
    return all;
  }

  /// By (kind, group, moment), then by element.
  std::map<std::tuple<int, uint32_t, uint32_t>, std::vector<double>> numbers() const {
    std::map<std::tuple<int, uint32_t, uint32_t>, std::vector<double>> out;
    eachState([&](uint32_t device, const bundle::PersistentState &state) {
      const bundle::Value &value = state.value();
      if (value.kind() == bundle::Value::OPTIMIZER_STEP)
        return;
      std::vector<double> &all = out[{value.kind(), value.id(), value.cut()}];
      all.resize(size_t(bundle_.summary.groups(int(value.id())).elements()));
      std::vector<std::byte> bytes(state.region().bytes());
      must(executor_->read(device, state.region(), 0, bytes.data(), bytes.size()));
      convertElements(bytes.data(), storedType(state.type()), all.data() + value.begin(),
                      StoredType::F64, value.end() - value.begin());
    });
    return out;
  }

  std::vector<abi::OptimizerStep> decisions() const {
    std::vector<abi::OptimizerStep> out;
    eachState([&](uint32_t device, const bundle::PersistentState &state) {
      if (state.value().kind() == bundle::Value::OPTIMIZER_STEP)
        must(executor_->read(device, state.region(), 0, &out.emplace_back(),
                             sizeof(abi::OptimizerStep)));
    });
    return out;
  }

  size_t devices() const { return bundle_.devices.size(); }
  const bundle::ModelSummary &summary() const { return bundle_.summary; }
  std::vector<StepReport> reports;

private:
  template <typename Visit> void eachState(const Visit &visit) const {
    for (uint32_t device = 0; device < bundle_.programs.size(); ++device)
      for (const bundle::PersistentState &state : bundle_.programs[device].state())
        visit(device, state);
  }

  void inject(const ObservedCall &call) {
    if (!call.instruction.has_compute() || call.step < first_ || call.step - first_ >= kSteps)
      return;
    const uint64_t step = call.step - first_;
    const bool loss = schedule_.kind[step] == 2;
    const std::vector<uint32_t> &devices = loss ? losers_ : owners_;
    if (!schedule_.kind[step] || call.device != devices[schedule_.choice[step] % devices.size()] ||
        call.instruction.compute().task() !=
            (loss ? bundle::Compute::SUM_LOSS : bundle::Compute::NORM))
      return;
    for (int s = 0; s < call.function.arguments_size(); ++s)
      if (const bundle::FunctionArgument &argument = call.function.arguments(s);
          argument.kind() == (loss ? bundle::LOSS : bundle::STATE)) {
        const double wide = loss ? std::numeric_limits<double>::quiet_NaN()
                                 : std::numeric_limits<double>::infinity();
        const float narrow = float(wide);
        must(argument.type() == bundle::F64 ? call.memory.write(call.addresses[s], &wide, 8)
                                            : call.memory.write(call.addresses[s], &narrow, 4));
      }
  }

  Bundle bundle_;
  std::unique_ptr<DataSource> data_;
  std::unique_ptr<Executor> executor_;
  std::vector<uint32_t> owners_, losers_; ///< devices that compute norms, and that sum the loss
  Schedule schedule_ = {};
  uint64_t first_ = 0, submitted_ = 0, done_ = 0;
};

} // namespace

int main(int argc, char **argv) {
  if (argc < 4)
    fail("expects ONE MANY DATA [SCHEDULES] [FIRST SEED]");
  Job one(argv[1], argv[3]), many(argv[2], argv[3]);
  const unsigned schedules = argc > 4 ? unsigned(std::atoi(argv[4])) : 100,
                 seed = argc > 5 ? unsigned(std::atoi(argv[5])) : 0;
  if (one.devices() != 1 || !scalesLoss(one.summary()) || !scalesLoss(many.summary()))
    fail("expects a bundle for one device and another, in f16");
  const double start = many.summary().training().loss_scale(),
               interval = double(many.summary().training().loss_scale_interval());
  uint64_t overflows = 0, inARow = 0, skipsLookedAt = 0;
  double worst = 0;
  for (unsigned n = 0; n < schedules; ++n) {
    std::mt19937 random(seed + n);
    Schedule schedule;
    const unsigned chance = 2 + random() % 7; // of ten
    for (uint64_t s = 0; s < kSteps; ++s) {
      schedule.kind[s] = random() % 10 < chance ? 1 + random() % 4 / 3 : 0;
      schedule.choice[s] = random();
      overflows += schedule.kind[s] != 0;
      inARow += s && schedule.kind[s] && schedule.kind[s - 1];
    }
    const std::string name = "schedule " + std::to_string(seed + n);
    one.start(schedule);
    one.train(kSteps);
    many.start(schedule);
    if (n % 2) {
      many.train(kSteps);
    } else {
      for (uint64_t s = 0; s < kSteps; ++s) {
        const std::string before = many.state();
        many.train(1);
        if (!schedule.kind[s])
          continue;
        ++skipsLookedAt;
        if (many.state() != before)
          fail(name + ", step " + std::to_string(s + 1) +
               ": was skipped, and has changed the state");
      }
    }

    // The expected state, computed independently.
    abi::OptimizerStep expected = {0, start, 0, 0};
    for (uint64_t s = 0; s < kSteps; ++s) {
      for (const Job *job : {&one, &many}) {
        const StepReport &report = job->reports.at(s);
        if (report.lossScale != expected.lossScale || report.skipped != (schedule.kind[s] != 0))
          fail(name + ", step " + std::to_string(s + 1) + " on " + std::to_string(job->devices()) +
               " devices: a scale of " + std::to_string(report.lossScale) +
               (report.skipped ? ", skipped" : "") + "; expects " +
               std::to_string(expected.lossScale) + (schedule.kind[s] ? ", skipped" : ""));
      }
      if (schedule.kind[s]) {
        expected.lossScale = std::max(1.0, expected.lossScale / 2);
        expected.goodSteps = 0;
        expected.overflows += 1;
      } else {
        expected.updates += 1;
        if (++expected.goodSteps == interval) {
          expected.lossScale *= 2;
          expected.goodSteps = 0;
        }
      }
    }
    for (const Job *job : {&one, &many})
      for (const abi::OptimizerStep &found : job->decisions())
        if (!(found == expected))
          fail(name + ": a device of " + std::to_string(job->devices()) + " has " +
               std::to_string(found.updates) + " updates, a scale of " +
               std::to_string(found.lossScale) + " and " + std::to_string(found.overflows) +
               " overflows; expects " + std::to_string(expected.updates) + ", " +
               std::to_string(expected.lossScale) + " and " + std::to_string(expected.overflows));
    const auto there = many.numbers();
    for (const auto &[key, numbers] : one.numbers())
      for (size_t e = 0; e < numbers.size(); ++e) {
        const double difference = std::abs(there.at(key)[e] - numbers[e]) /
                                  std::max(1.0, std::abs(numbers[e]));
        if (!(difference <= 1e-9))
          fail(name + ": element " + std::to_string(e) + " of group " +
               std::to_string(std::get<1>(key)) + " differs by " + std::to_string(difference));
        worst = std::max(worst, difference);
      }
  }
  std::printf("%u schedules of %llu steps on %zu devices: %llu overflows, %llu right behind "
              "another; equal scales and skips on every device, %llu skips "
              "changed no bit; largest difference from one device %.2g\n",
              schedules, (unsigned long long)kSteps, many.devices(), (unsigned long long)overflows,
              (unsigned long long)inARow, (unsigned long long)skipsLookedAt, worst);
  return 0;
}
