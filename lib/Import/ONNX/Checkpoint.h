// The file "checkpoint" of onnxruntime's training artifacts, a flat buffer with the identifier ODTC, of which the parameters are read.
#pragma once

#include "zorse/Base/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::onnx_import {

struct CheckpointTensor {
  std::string name;
  int32_t type = 0; ///< as in ONNX
  std::vector<int64_t> dims;
  bool inOtherFile = false; ///< its bytes are in "<checkpoint>.data"
  uint64_t offset = 0, bytes = 0;
};

struct Checkpoint {
  std::vector<CheckpointTensor> parameters; ///< trained ones and frozen ones
};

/// Trusts nothing in the file.
Result<Checkpoint> readCheckpoint(const std::string &path);
/// The same of bytes in memory. `path`: for messages.
Result<Checkpoint> readCheckpoint(const uint8_t *data, uint64_t size, const std::string &path);

} // namespace zorse::onnx_import
