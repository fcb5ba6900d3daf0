// What graph inputs are for: token ids, labels, and the range their values must have.
#pragma once

#include "ModelGraph.h"
#include "bundle.pb.h"

namespace zorse::units {

/// Fills role, bounds, ignore index and whether the graph shifts labels itself, from how the model uses the input: an index of `gather` or `take`, or
/// labels of `cross_entropy`, reached through operations that only move elements. What the importer put on the argument wins: zorse.role ("ids" or
/// "labels"), zorse.lower_bound, zorse.upper_bound, zorse.ignore_index, zorse.shifted_in_graph.
void describeInput(const ModelGraph &graph, mlir::BlockArgument input, bundle::GraphInput &info);

} // namespace zorse::units
