// Schedules as rules: every schedule is one file of lib/Step/Schedules behind one interface, and one table names them all. The reader and the writer
// of plans, the JSON schema's test, the command line and the report ask the table, so a schedule is spelled in one place.
#pragma once

#include "zorse/Step/Plan.h"

#include <string>
#include <variant>
#include <vector>

namespace zorse::step {

struct Expansion;
struct Order;

/// A parameter of a schedule: its key in plan.json and the field of Schedule that holds it. A list has one number for every device of the plan, and
/// plan.json lists it by the devices' names. Its value where plan.json does not give it is that of a Schedule{}.
struct ScheduleParameter {
  const char *key;
  std::variant<double Schedule::*, uint32_t Schedule::*, std::vector<uint32_t> Schedule::*> field;
  bool positive = false; ///< a number must be above 0, otherwise it must not be negative
};

/// Whether an order can run on any tiling that the rule takes, or may turn out to wait for itself.
enum class Runs : uint8_t { Always, IfAcyclic };

class ScheduleRule {
public:
  ScheduleRule(ScheduleKind kind, const char *name, std::vector<ScheduleParameter> parameters = {})
      : kind(kind), name(name), parameters(std::move(parameters)) {}
  virtual ~ScheduleRule() = default;

  const ScheduleKind kind;
  const char *const name; ///< in plan.json, on the command line and in reports
  const std::vector<ScheduleParameter> parameters;

  /// Why the plan's tiling is not one that this schedule orders, naming what was expected and found; empty: it is. The tiling itself has been
  /// checked.
  virtual std::string refuses(const Plan &plan, const bundle::ModelSummary &summary) const;

  /// Edges between tasks of the expansion, their priorities, and which cells may be in flight at once. `result` has been reset.
  /// \param less  bytes by device that activations shall stay below what seems to fit, for rules that give way; empty: none.
  virtual Runs order(const Expansion &x, const std::vector<uint64_t> &less, Order &result) const = 0;

  /// Another order in place of one that turned out to wait for itself. \returns false if the rule has none: the plan is then refused.
  virtual bool orderOtherwise(const Expansion &x, Order &result) const;

  /// Whether fewer samples in flight are tried, by `less`, where a device lacks memory.
  virtual bool givesWay() const { return false; }

  /// What to change about the schedule where several micro-batches alive do not fit, for messages ("schedule \"1f1b\""); empty: nothing helps.
  virtual std::string memoryRemedy() const { return {}; }
};

const ScheduleRule &scheduleRule(ScheduleKind kind);

/// The schedule that plans call `name`, or null.
const ScheduleRule *findSchedule(const std::string &name);

/// The present name of a schedule that had another one, or null.
const char *renamedSchedule(const std::string &name);

/// Those that plans can name: all but the explicit order, in the order of documentation.
const std::vector<const ScheduleRule *> &namedSchedules();

/// "\"1f1b\", \"gpipe\" and \"steady_state\"", with the given word before the last.
std::string listSchedules(const char *lastWord);

} // namespace zorse::step
