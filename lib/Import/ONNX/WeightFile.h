// Reads the parameters from the file "checkpoint" of onnxruntime's training artifacts, a flat
// buffer with the identifier ODTC.
#pragma once

#include "zorse/Base/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::onnx_import {

struct WeightFileTensor {
  std::string name;
  int32_t type = 0; ///< ONNX element type
  std::vector<int64_t> dims;
  bool inOtherFile = false; ///< its bytes are in "<checkpoint>.data"
  uint64_t offset = 0, bytes = 0;
};

struct WeightFile {
  std::vector<WeightFileTensor> parameters; ///< trained and frozen
};

/// Reads a checkpoint file. All offsets and sizes are checked.
Result<WeightFile> readWeightFile(const std::string &path);
/// Reads a checkpoint from memory. `path` is used in messages.
Result<WeightFile> readWeightFile(const uint8_t *data, uint64_t size, const std::string &path);

} // namespace zorse::onnx_import
