// Exports the parameters of a snapshot into an ONNX file.
#pragma once

#include "zorse/runtime/CheckpointFiles.h"

#include <string>

namespace zorse::exporting {

/// Writes the ONNX file `original` with the trained parameters to `path`. The initializers keep
/// their types. External data, if the original has any, is written next to `path`. Parameters are
/// read one at a time.
/// \param note  receives the frozen parameters that differ between the original and the run
runtime::Status exportOnnx(const runtime::CheckpointReader &source, const std::string &original,
                           const std::string &path, std::string &note);

} // namespace zorse::exporting
