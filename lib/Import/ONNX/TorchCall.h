// Parses the PyTorch call that a node was exported from, as the dynamo exporter records it
// (metadata property pkg.torch.onnx.fx_node).
#pragma once

#include "onnx_wire.pb.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse::onnx_import {

struct TorchCall {
  std::string result, target;         ///< "detach_1", "aten.detach.default"
  std::vector<std::string> arguments; ///< top-level arguments as written: "%p_w", "0", "[4]"

  bool calls(const char *function) const { return target.rfind(function, 0) == 0; }
};
std::optional<TorchCall> torchCall(const onnx::Node &node);

/// The padding row of the embedding that a node was exported from, -1 if it has none. Nothing if
/// the file does not record it.
std::optional<int64_t> recordedPadding(const onnx::Node &node);
/// Whether a node was exported from a detach.
bool isDetach(const onnx::Node &node);
/// Whether a Squeeze was exported from a PyTorch squeeze. PyTorch keeps dimensions with a size
/// other than 1, but exporters list them as axes of the Squeeze.
bool isTorchSqueeze(const onnx::Node &node);

} // namespace zorse::onnx_import
