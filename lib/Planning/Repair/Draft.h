// Changes of the devices of pipelines, before units are partitioned. Internal to Planning.
#pragma once

#include "../Search/Candidates.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace zorse::planning {

/// A place that a lost device leaves.
struct Hole {
  size_t pipeline = 0, stage = 0;
  uint32_t deviceType = UINT32_MAX; ///< of equal devices that are left; UINT32_MAX: none are
};

/// Devices per pipeline and stage. A stage may be empty until the draft becomes a candidate.
struct Draft {
  std::vector<std::vector<DeviceSet>> pipelines;
  std::vector<Hole> holes;
};

/// Adds devices one by one: each to the slowest pipeline, to a stage with equal devices of its node
/// if there is one, otherwise with equal devices, otherwise to the slowest stage.
void spread(const StageModel &model, const std::vector<uint32_t> &devices, Draft &draft);

/// Puts devices into holes that equal devices have left, and returns those that are left over.
std::vector<uint32_t> fillHoles(const StageModel &model, std::vector<uint32_t> devices,
                                Draft &draft);

/// Removes a pipeline and returns its devices.
std::vector<uint32_t> dissolve(size_t pipeline, Draft &draft);

/// Fills every hole with an equal device of the fastest pipeline that has one to spare. \returns
/// whether any hole was filled
bool fillFromFastest(const StageModel &model, Draft &draft);

/// Adds devices as one more stage of every pipeline, in front, behind, or next to the stage with
/// the most devices of their type. \returns nullopt if there are fewer devices than pipelines
enum class StagePlace : uint8_t { Front, Back, Beside };
std::optional<Draft> withFurtherStage(const StageModel &model, const std::vector<uint32_t> &devices,
                                      StagePlace place, Draft draft);

/// Adds devices as one more pipeline with the stages of an existing one. \returns nullopt if the
/// devices are not those of any pipeline
std::optional<Draft> withEqualPipeline(const StageModel &model,
                                       const std::vector<uint32_t> &devices, Draft draft);

/// Partitions samples by speed and units by the dynamic program. \param like  schedule, sharding,
/// memory optimizations and parts of units. \returns nullopt if the units do not fit
std::optional<Candidate> cut(SearchContext &context, Draft draft, const Strategy &like);

} // namespace zorse::planning
