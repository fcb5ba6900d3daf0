// Reads the sections "schedule" and "durations" of plan.json.

#include "PlanFormat.h"
#include "PlanSections.h"

#include "zorse/Step/Schedules.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::step;
using namespace zorse::fields;
using json = Json;

namespace {

class ScheduleReader {
public:
  ScheduleReader(const PlanNames &names, Plan &plan) : names(names), plan(plan) {}

  void readSchedule(const json &schedule) {
    if (schedule.is_object() && schedule.contains("order"))
      return readOrder(schedule);
    const json *name = schedule.is_string()                                ? &schedule
                       : schedule.is_object() && schedule.contains("name") ? &schedule["name"]
                                                                           : nullptr;
    const ScheduleRule *rule = name && name->is_string() ? findSchedule(name->get<std::string>())
                                                         : nullptr;
    if (const char *now = !rule && name && name->is_string()
                              ? renamedSchedule(name->get<std::string>())
                              : nullptr)
      fail("schedule", show(*name) + " is now \"" + now + "\"");
    if (!rule)
      fail("schedule",
           "expected " + listSchedules("or") +
               ", {\"name\": one of them, and its parameters} or {\"order\": ...}, got " +
               show(schedule));
    plan.schedule.kind = rule->kind;
    if (schedule.is_string())
      return;
    std::vector<const char *> known{"name"};
    for (const ScheduleParameter &parameter : rule->parameters)
      known.push_back(parameter.key);
    checkKeys(schedule, "schedule", known, kRenamedPlanKeys);
    for (const ScheduleParameter &parameter : rule->parameters)
      if (schedule.contains(parameter.key))
        std::visit(
            [&](auto field) {
              readParameter(schedule[parameter.key], std::string("schedule.") + parameter.key,
                            parameter.positive, plan.schedule.*field);
            },
            parameter.field);
  }

  void readParameter(const json &value, const std::string &path, bool positive, double &result) {
    result = toNumber(value, path);
    if (positive && !(result > 0))
      fail(path, "expected a number above 0, got " + show(value));
  }

  void readParameter(const json &value, const std::string &path, bool, uint32_t &result) {
    result = toUnsigned(value, path);
  }

  void readParameter(const json &value, const std::string &path, bool,
                     std::vector<uint32_t> &result) {
    if (!value.is_object())
      fail(path, "expected {device: number, ...}, got " + show(value));
    result.assign(value.empty() ? 0 : plan.devices.size(), 0);
    for (auto &[name, count] : value.items()) {
      const uint32_t number = toUnsigned(count, std::string(path).append(".").append(name));
      for (uint32_t device : names.devicesNamed(name, path))
        result[device] = number;
    }
  }

  uint32_t toUnsigned(const json &value, const std::string &path) {
    int64_t count = toCount(value, path);
    if (count > UINT32_MAX)
      fail(path, "number too large: " + show(value));
    return static_cast<uint32_t>(count);
  }

  void readOrder(const json &schedule) {
    checkKeys(schedule, "schedule", {"order"}, kRenamedPlanKeys);
    plan.schedule.kind = ScheduleKind::Explicit;
    plan.order.resize(plan.devices.size());
    if (!schedule["order"].is_object())
      fail("schedule", "expected {\"order\": {device: [\"F0\", \"B0\", ...]}}");
    for (auto &[name, tasks] : schedule["order"].items()) {
      const std::string path = "schedule.order." + name;
      const std::vector<uint32_t> devices = names.devicesNamed(name, path);
      for (size_t i = 0; i < toArray(tasks, path).size(); ++i) {
        TaskId task = toTask(tasks[i], at(path, i));
        if (!plan.groups.empty()) {
          if (task.cell >= names.firstCells.size())
            fail(at(path, i),
                 "names no cell: the plan has " + std::to_string(names.firstCells.size()));
          task.cell = names.firstCells[task.cell];
          const Cell &cell = plan.cells[task.cell];
          if (cell.device != devices.front())
            fail(at(path, i),
                 tasks[i].get<std::string>() + " belongs to '" +
                     (cell.group < 0 ? plan.devices[cell.device].name
                                     : plan.groups[static_cast<size_t>(cell.group)].name) +
                     "'");
        }
        for (uint32_t device : devices) {
          plan.order[device].push_back(task);
          ++task.cell; // the next device's
        }
      }
    }
  }

  TaskId toTask(const json &value, const std::string &path) {
    std::string text = toText(value, path);
    bool digits =
        text.size() > 1 && text.size() < 11 &&
        std::all_of(text.begin() + 1, text.end(), [](char c) { return c >= '0' && c <= '9'; });
    size_t kind = text.empty() ? std::string::npos : std::string("FBW").find(text[0]);
    if (!digits || kind == std::string::npos || std::stoll(text.substr(1)) > UINT32_MAX)
      fail(path, "expected F, B or W and the index of a cell, as in \"F0\", got \"" + text + "\"");
    return {static_cast<TaskKind>(kind), static_cast<uint32_t>(std::stoll(text.substr(1)))};
  }

private:
  const PlanNames &names;
  Plan &plan;
};

} // namespace

void zorse::step::readSchedule(const json &schedule, const PlanNames &names, Plan &plan) {
  ScheduleReader(names, plan).readSchedule(schedule);
}

CellDurations zorse::step::readDurations(const json &durations) {
  checkKeys(durations, "durations", {"forward", "backward", "weights"}, kRenamedPlanKeys);
  CellDurations result;
  for (auto [key, out] : {std::pair{"forward", &result.forward},
                          {"backward", &result.backward},
                          {"weights", &result.weights}}) {
    if (!durations.contains(key)) {
      if (out == &result.weights)
        continue;
      fail("durations", std::string("missing key \"") + key + "\"");
    }
    std::string path = std::string("durations.") + key;
    for (size_t i = 0; i < toArray(durations[key], path).size(); ++i)
      out->push_back(toNumber(durations[key][i], at(path, i)));
  }
  return result;
}
