// Changes of stages and pipelines that keep everything else. Seeds, moves and descents use them to
// make strategies. Internal to Planning.
#pragma once

#include "StagePartitioner.h"

#include <cstdint>
#include <vector>

namespace zorse::planning {

struct Candidate;

/// Returns the members of a stage with their samples; devices without samples are omitted.
Stage makeStage(const StageModel &model, const std::vector<uint32_t> &devices, int32_t unitBegin,
                int32_t unitEnd, int64_t samples, size_t rows);

/// Returns the pipeline of a partition of atoms.
Pipeline makePipeline(const StageModel &model, const std::vector<DeviceSet> &deviceSets,
                      const Partition &partition, int64_t samples);

std::vector<uint32_t> devicesOf(const Stage &stage);
/// Returns a pipeline's devices per stage, each ascending.
std::vector<DeviceSet> groupsOf(const Pipeline &pipeline);
/// Returns the index in StageModel::rows() of the rows of a stage's largest cell, or of the next
/// larger choice.
size_t rowsOf(const StageModel &model, const Stage &stage);

/// Redistributes a stage's samples after its units, rows, members or samples have changed. Returns
/// false if no member has any.
bool shareAgain(const StageModel &model, Stage &stage, int64_t samples);
/// Gives a pipeline `by` more samples, or fewer if negative. Returns false if there are not enough,
/// or if a stage is left without members.
bool giveSamples(const StageModel &model, Pipeline &pipeline, int64_t by);

/// Partitions the units of pipeline `p` again for these groups; empty groups are removed. If memory
/// does not suffice for the current samples in flight (`candidate.inFlight`), half of them are
/// tried. Returns false if there is no such partition; the candidate is then unchanged except for
/// `inFlight`.
bool cutAgain(StagePartitioner &partitioner, const StageModel &model, std::vector<DeviceSet> groups,
              size_t p, Candidate &candidate);

/// Whether every pipeline has the samples and stages of the first one, on devices of the same
/// classes. Gradients are then reduced among few devices.
bool areAlike(const StageModel &model, const Strategy &strategy);
/// Applies the change of pipeline `changed` to all other pipelines, with corresponding devices.
/// Returns false if a device has no counterpart.
bool mirror(const Strategy &before, Strategy &strategy, size_t changed);

} // namespace zorse::planning
