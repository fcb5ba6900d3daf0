// What the dynamo exporter writes about the call of PyTorch that a node was made from (metadata property pkg.torch.onnx.fx_node).
#pragma once

#include "onnx_wire.pb.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse::onnx_import {

struct TorchCall {
  std::string result, target;         ///< "detach_1", "aten.detach.default"
  std::vector<std::string> arguments; ///< top level, as written: "%p_w", "0", "[4]"

  bool calls(const char *function) const { return target.rfind(function, 0) == 0; }
};
std::optional<TorchCall> torchCall(const onnx::Node &node);

/// The row that the embedding a node was made from declares as padding; -1: none. Empty: the file does not say.
std::optional<int64_t> recordedPadding(const onnx::Node &node);
/// Whether a node was made from a detach.
bool isDetach(const onnx::Node &node);
/// Whether a Squeeze was made from PyTorch's, which leaves dimensions of other sizes than 1 as they are. Exporters write it nevertheless.
bool isTorchSqueeze(const onnx::Node &node);

} // namespace zorse::onnx_import
