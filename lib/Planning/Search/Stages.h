// Changes of stages and pipelines that keep everything else as it is: what seeds, moves and descents make layouts with. Internal to Planning.
#pragma once

#include "Intervals.h"

#include <cstdint>
#include <vector>

namespace zorse::planning {

struct Candidate;

/// The members of a stage with their samples; devices that get none are left out.
Stage makeStage(const StageModel &model, const std::vector<uint32_t> &devices, int32_t unitBegin, int32_t unitEnd, int64_t samples, size_t rows);

/// A pipeline of cut atoms.
Pipeline makePipeline(const StageModel &model, const std::vector<Atom> &atoms, const Cut &cut, int64_t samples);

std::vector<uint32_t> devicesOf(const Stage &stage);
/// A pipeline's devices by stage, each ascending.
std::vector<Atom> groupsOf(const Pipeline &pipeline);
/// The index in StageModel::rows() of the rows of a stage's largest cell, or of the next larger choice.
size_t rowsOf(const StageModel &model, const Stage &stage);

/// Shares a stage's samples out again, after its units, rows, members or samples have changed. False: no member has any.
bool shareAgain(const StageModel &model, Stage &stage, int64_t samples);
/// More samples for a pipeline, or fewer if `by` is negative. False: there are not enough, or a stage is left without members.
bool giveSamples(const StageModel &model, Pipeline &pipeline, int64_t by);

/// Cuts the units of pipeline `p` again for these groups, of which empty ones vanish. Where memory for as many samples under way as before
/// (`candidate.inFlight`) does not suffice, half of them are tried. False: there is no such cut, and the candidate is as it was but for that.
bool cutAgain(CutSolver &solver, const StageModel &model, std::vector<Atom> groups, size_t p, Candidate &candidate);

/// Whether every pipeline has the samples and the stages of the first, on devices of the same classes: then gradients are summed among few.
bool areAlike(const StageModel &model, const Layout &layout);
/// What a move did to pipeline `changed`, to all others as well, each device's part played by its counterpart. False: a device has none.
bool mirror(const Layout &before, Layout &layout, size_t changed);

} // namespace zorse::planning
