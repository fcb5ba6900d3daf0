// Schedule rules. Every schedule is one file of lib/Step/Schedules that implements this interface,
// and one table lists them all. The reader and writer of plans, the test of the JSON schema, the
// command line and the report use the table, so the name of a schedule is defined in one place.
#pragma once

#include "zorse/Step/Plan.h"

#include <string>
#include <variant>
#include <vector>

namespace zorse::step {

struct PlanLowering;
struct Order;

/// A parameter of a schedule: its key in plan.json and its field of Schedule. A list has one number
/// for every device of the plan; plan.json lists it by device name. The default is the value in
/// Schedule{}.
struct ScheduleParameter {
  const char *key;
  std::variant<double Schedule::*, uint32_t Schedule::*, std::vector<uint32_t> Schedule::*> field;
  bool positive = false; ///< a number must be above 0; otherwise it must not be negative
};

/// Whether an order can run on every tiling that the rule accepts, or may contain a cycle.
enum class DeadlockFreedom : uint8_t { Guaranteed, MustCheck };

class ScheduleRule {
public:
  ScheduleRule(ScheduleKind kind, const char *name, std::vector<ScheduleParameter> parameters = {})
      : kind(kind), name(name), parameters(std::move(parameters)) {}
  virtual ~ScheduleRule() = default;

  const ScheduleKind kind;
  const char *const name; ///< name in plan.json, on the command line and in reports
  const std::vector<ScheduleParameter> parameters;

  /// Returns the reason why this schedule does not support the plan's tiling, with the expected and
  /// the found tiling; empty if it does. Precondition: the tiling itself is valid.
  virtual std::string whyUnsupported(const Plan &plan, const bundle::ModelSummary &summary) const;

  /// Sets edges between tasks of the expansion, their priorities, and the limits on cells in
  /// flight. `result` has been reset.
  /// \param less  per device: bytes by which activations must stay below the available memory, for
  ///   rules that give way; empty: none
  virtual DeadlockFreedom order(const PlanLowering &x, const std::vector<uint64_t> &less,
                                Order &result) const = 0;

  /// Sets another order in place of one that contains a cycle. \returns false if the rule has none;
  /// the plan is then refused
  virtual bool fallbackOrder(const PlanLowering &x, Order &result) const;

  /// Whether fewer samples in flight are tried (see `less`) if a device's memory is insufficient.
  virtual bool canReduceInFlight() const { return false; }

  /// Returns a change of the schedule for messages if several micro-batches in flight do not fit
  /// ("schedule \"1f1b\""); empty: no change helps.
  virtual std::string memoryHint() const { return {}; }
};

const ScheduleRule &scheduleRule(ScheduleKind kind);

/// Returns the schedule with this name in plans, or null.
const ScheduleRule *findSchedule(const std::string &name);

/// The present name of a schedule that had another one, or null.
const char *renamedSchedule(const std::string &name);

/// Those that plans can name: all but the explicit order, in the order of documentation.
const std::vector<const ScheduleRule *> &namedSchedules();

/// "\"1f1b\", \"gpipe\" and \"steady_state\"", with the given word before the last.
std::string listSchedules(const char *lastWord);

} // namespace zorse::step
