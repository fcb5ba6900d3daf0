// The file "checkpoint" of onnxruntime's training artifacts, a flat buffer with the identifier ODTC, of which the parameters are read.
#pragma once

#include <cstdint>
#include <optional>
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

/// Nothing: `error` says why. Trusts nothing in the file.
std::optional<Checkpoint> readCheckpoint(const std::string &path, std::string &error);
/// The same of bytes in memory. `path`: for messages.
std::optional<Checkpoint> readCheckpoint(const uint8_t *data, uint64_t size, const std::string &path, std::string &error);

} // namespace zorse::onnx_import
