// What the tasks of a cell do with each of its units.
#pragma once

#include "zorse/Step/Costs.h"
#include "zorse/Step/Plan.h"

#include <optional>

namespace zorse::bundle {
class UnitFunction;
} // namespace zorse::bundle

namespace zorse::step {

/// What task `kind` of a cell does with one of its units; nullopt: nothing, the unit has no call in it.
///
/// Where the plan splits the backward, a unit that splits has a part in B and one in W. A unit whose inputs need no gradient (an embedding) has all
/// of its backward in W, any other unit that does not split all of it in B.
std::optional<UnitTask> unitTask(const bundle::ModelSummary &summary, int32_t unit, TaskKind kind, bool splitBackward);

/// Whether any unit of the cell has a call in its task `kind`. A task without has no entry in the programs, and orders may leave it out.
bool hasWork(const bundle::ModelSummary &summary, const Cell &cell, TaskKind kind, bool splitBackward);

/// Whether B of a cell begins with the forward of its units. Not where B has nothing to do: what W alone reads is kept.
bool recomputes(const bundle::ModelSummary &summary, const Cell &cell, bool splitBackward);

/// What B of a cell that recomputes begins with for one of its units: the forward or, for the last, whose results nobody reads again, what of it
/// makes the saved block; nullopt: nothing, there is none.
std::optional<UnitTask> repeatedTask(const bundle::ModelSummary &summary, const Cell &cell, int32_t unit);

inline constexpr UnitTask kUnitTasks[] = {UnitTask::Forward, UnitTask::Backward, UnitTask::InputGradients, UnitTask::WeightGradients,
                                          UnitTask::Recompute};

/// What the summary says of one of a unit's functions; nothing of one that its class does not have.
const bundle::UnitFunction &unitFunction(const bundle::ModelSummary &summary, int32_t unit, UnitTask task);

} // namespace zorse::step
