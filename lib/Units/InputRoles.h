// What graph inputs are for: token ids, labels, and the range their values must have.
#pragma once

#include "ModelGraph.h"
#include "bundle.pb.h"

namespace zorse::units {

/// Says on every input of `@model` its role, bounds, ignore index and whether the graph shifts labels itself, from how the model uses it: an index of
/// `gather` or `take`, or labels of `cross_entropy`, reached through operations that only move elements. What the importer put on the argument wins:
/// zorse.role ("ids" or "labels"), zorse.lower_bound, zorse.upper_bound, zorse.ignore_index, zorse.shifted_in_graph.
void describeInputs(const ModelGraph &graph);

/// What is said on argument `i` of `@model`.
void readInput(mlir::func::FuncOp model, unsigned i, bundle::GraphInput &info);

} // namespace zorse::units
