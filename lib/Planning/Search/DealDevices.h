// Divides the devices of a cluster among pipelines. Internal to Planning.
#pragma once

#include "StageModel.h"

#include <cstdint>
#include <vector>

namespace zorse::planning {

/// Which devices of a node equal pipelines get.
enum class Dealing : uint8_t {
  WholeNodes, ///< all, if there are enough nodes: activations stay on the node
  BySite,     ///< all of a site
  AcrossNodes ///< one or a few of every node: gradients of a stage are summed on the node first
};

/// Returns samples per second of devices that share all units evenly.
double rateOf(const StageModel &model, const std::vector<uint32_t> &devices);

/// Divides devices into `copies` equal sets; empty if that is impossible, or if AcrossNodes has the
/// sets of WholeNodes.
std::vector<std::vector<uint32_t>> dealCopies(const StageModel &model,
                                              const std::vector<uint32_t> &devices, uint32_t copies,
                                              Dealing dealing);

/// Divides devices into `copies` sets of about equal speed: nodes if there are enough, otherwise
/// devices, the fastest first, to the slowest set so far.
std::vector<std::vector<uint32_t>>
dealBySpeed(const StageModel &model, const std::vector<uint32_t> &devices, uint32_t copies);

/// Returns the number of sets with devices of the node of the first one.
uint32_t replicasOnNode(const StageModel &model, const std::vector<std::vector<uint32_t>> &sets);

} // namespace zorse::planning
