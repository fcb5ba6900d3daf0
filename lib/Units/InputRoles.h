// Roles of graph inputs: token ids, labels, and the range of their values.
#pragma once

#include "ModelGraph.h"
#include "bundle.pb.h"

namespace zorse::units {

/// Sets the role, bounds and ignore index of every input of `@model`, and whether the graph shifts
/// labels itself. They are inferred from the use of the input: as indices of `gather` or
/// `take_along_dim`, or labels of `cross_entropy`, through operations that only move elements.
/// Attributes that the importer set on the argument take precedence: zorse.role ("ids" or
/// "labels"), zorse.lower_bound, zorse.upper_bound, zorse.ignore_index, zorse.shifted_in_graph.
void describeInputs(const ModelGraph &graph);

/// Reads the attributes of argument `i` of `@model`.
void readInput(mlir::func::FuncOp model, unsigned i, bundle::GraphInput &info);

} // namespace zorse::units
