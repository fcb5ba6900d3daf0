// An ONNX file with the parameters of a snapshot.
#pragma once

#include "zorse/runtime/SnapshotFiles.h"

#include <string>

namespace zorse::exporting {

/// The ONNX file `original` with the trained parameters in it: the same initializers with the same types, and external data beside `path` where it
/// has some. Parameters are read one at a time.
/// \param note  frozen parameters in which the original differs from the run
runtime::Status exportOnnx(const runtime::SnapshotReader &source, const std::string &original, const std::string &path, std::string &note);

} // namespace zorse::exporting
