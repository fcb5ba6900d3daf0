// Where the initial bytes of every parameter of the summary are.
#pragma once

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Import/ONNX/Import.h"

namespace zorse::pipelines {

/// One entry per ParameterInfo, in its order: from the file's initializers, or from constants that were lifted to parameters of `@model`.
/// An error names a parameter without bytes.
Result<std::vector<bundle::WeightData>> collectWeights(const ImportedModel &imported, mlir::ModuleOp model, const bundle::ModelSummary &summary);

/// What the file says about checkpoints of the hub, as bundles say it.
bundle::HubModel hubOf(const ImportedModel &imported);

} // namespace zorse::pipelines
