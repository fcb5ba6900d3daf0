// Where the initial bytes of every parameter of the summary are.
#pragma once

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Import/ONNX/Import.h"

namespace zorse::pipelines {

/// One entry per ParameterInfo, in its order: from the file's initializers, or from constants that were lifted to parameters of `@model`.
/// False: a parameter without bytes; `error` names it.
bool collectWeights(const ImportedModel &imported, mlir::ModuleOp model, const bundle::ModelSummary &summary,
                    std::vector<bundle::WeightData> &weights, std::string &error);

/// What the file says about checkpoints of the hub, as bundles say it.
bundle::HubModel hubOf(const ImportedModel &imported);

} // namespace zorse::pipelines
