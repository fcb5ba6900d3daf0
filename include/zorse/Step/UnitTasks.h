// Functions of units that the tasks of a cell execute.
#pragma once

#include "zorse/Step/Costs.h"
#include "zorse/Step/Plan.h"

#include <optional>

namespace zorse::bundle {
class UnitFunction;
class UnitInfo;
} // namespace zorse::bundle

namespace zorse::step {

/// Returns the function that task `kind` of a cell executes for one of its units; nullopt: none,
/// the unit has no call in the task.
///
/// If the plan splits the backward, a unit that splits has one part in B and one in W. A unit with
/// inputs that need no gradient (an embedding) has its whole backward in W. Any other unit that
/// does not split has it in B.
std::optional<UnitTask> unitTask(const bundle::ModelSummary &summary, int32_t unit, TaskKind kind,
                                 bool splitBackward);

/// Whether any unit of the cell has a call in its task `kind`. A task without calls has no
/// instruction in the programs, and orders may omit it.
bool hasWork(const bundle::ModelSummary &summary, const Cell &cell, TaskKind kind,
             bool splitBackward);

/// Whether B of a cell begins with the forward of its units. It does not if B has no work, because
/// activations that only W reads are kept.
bool recomputes(const bundle::ModelSummary &summary, const Cell &cell, bool splitBackward);

/// Returns the function with which B of a recomputing cell begins for one of its units: the forward
/// or, for the last unit (its results are not read again), the part of it that makes the saved
/// block; nullopt: none.
std::optional<UnitTask> repeatedTask(const bundle::ModelSummary &summary, const Cell &cell,
                                     int32_t unit);

inline constexpr UnitTask kUnitTasks[] = {UnitTask::Forward, UnitTask::Backward,
                                          UnitTask::InputGradients, UnitTask::WeightGradients,
                                          UnitTask::Recompute};

/// Returns a unit. The group must have it.
const bundle::UnitInfo &unitInfo(const bundle::ModelSummary &summary, UnitRef unit);

/// Returns the summary's data about a unit's function; an empty message for one that its class does
/// not have.
const bundle::UnitFunction &unitFunction(const bundle::ModelSummary &summary, UnitRef unit,
                                         UnitTask task);

} // namespace zorse::step
