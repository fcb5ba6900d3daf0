// The first half of a compilation: what planning needs to know of an ONNX model.
#pragma once

#include "zorse/Pipelines/Compile.h"

namespace zorse::pipelines {

/// Runs the phases from import to bodies. Diagnostics and a line per phase go to standard error.
/// \returns whether everything went well; what went wrong has been printed.
bool summarizeModel(const CompileOptions &options, bundle::ModelSummary &summary, bundle::BodyLibrary &bodies);

} // namespace zorse::pipelines
