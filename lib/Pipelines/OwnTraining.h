#pragma once

#include "zorse/Import/ONNX/FileTraining.h"
#include "zorse/Pipelines/Compile.h"

#include <string>

namespace zorse::pipelines {

/// Puts the optimizer that a file brings in the place of defaults; what the caller has said stays. Returns a line for people, or nothing.
std::string adoptOptimizer(const FileTraining &training, const CompileOptions &options, bundle::TrainingOptions &to, std::string &decay);

} // namespace zorse::pipelines
