// The sections of plan.json that refer to devices, groups and cells by name. ReadPlan.cpp reads
// what they refer to.
#pragma once

#include "zorse/Step/Plan.h"
#include "zorse/Support/JsonFields.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zorse::step {

/// What names and numbers of a plan's file refer to.
struct PlanNames {
  const Plan &plan; ///< its devices and groups have been read
  std::map<std::string, uint32_t> devices = {}, groups = {};
  /// By cell of the file, in a plan with groups: the cell of the group's first device.
  std::vector<uint32_t> firstCells = {};

  uint32_t toDevice(const fields::Json &value, const std::string &path) const;
  /// Returns the device with a name, or the devices of the group.
  std::vector<uint32_t> devicesNamed(const std::string &name, const std::string &path) const;
};

/// Returns a number that is not negative.
int64_t toCount(const fields::Json &value, const std::string &path);

// They throw fields::Bad with the JSON path, the expected and the found value.

/// ReadPlanState.cpp
void readPlanState(const fields::Json &state, const bundle::ModelSummary &summary,
                   const PlanNames &names, Plan &plan);
void readOffload(const fields::Json &list, const bundle::ModelSummary &summary,
                 const PlanNames &names, Plan &plan);

/// ReadPlanSchedule.cpp
void readSchedule(const fields::Json &schedule, const PlanNames &names, Plan &plan);
CellDurations readDurations(const fields::Json &durations);

} // namespace zorse::step
