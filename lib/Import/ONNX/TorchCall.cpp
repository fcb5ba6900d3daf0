#include "TorchCall.h"

using namespace zorse;
using namespace zorse::onnx_import;

static std::string trimmed(const std::string &text) {
  size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  return first == std::string::npos ? std::string() : text.substr(first, last - first + 1);
}

/// The text between the parenthesis at `at` and its partner, split at commas outside brackets.
static std::vector<std::string> topLevel(const std::string &text, size_t at) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  for (size_t i = at + 1; i < text.size(); ++i) {
    char c = text[i];
    if (c == '(' || c == '[' || c == '{')
      ++depth;
    if ((c == ')' || c == ']' || c == '}') && depth-- == 0)
      break;
    if (c == ',' && depth == 0) {
      parts.push_back(trimmed(part));
      part.clear();
      continue;
    }
    part += c;
  }
  if (!trimmed(part).empty())
    parts.push_back(trimmed(part));
  return parts;
}

// Format: "%detach : [num_users=1] = call_function[target=torch.ops.aten.detach.default](args =
// (%add_4,), kwargs = {})"
std::optional<TorchCall> zorse::onnx_import::torchCall(const onnx::Node &node) {
  const std::string *text = nullptr;
  for (const onnx::StringPair &entry : node.metadata_props())
    if (entry.key() == "pkg.torch.onnx.fx_node")
      text = &entry.value();
  if (!text || text->empty() || text->front() != '%')
    return std::nullopt;
  static const std::string opening = "target=torch.ops.", arguments = "](args = ";
  size_t end = text->find_first_of(" :"), target = text->find(opening),
         args = text->find(arguments);
  if (end == std::string::npos || target == std::string::npos || args == std::string::npos ||
      args < target + opening.size())
    return std::nullopt;
  TorchCall call;
  call.result = text->substr(1, end - 1);
  call.target = text->substr(target + opening.size(), args - target - opening.size());
  call.arguments = topLevel(*text, args + arguments.size());
  return call;
}

std::optional<int64_t> zorse::onnx_import::recordedPadding(const onnx::Node &node) {
  if (node.op_type() != "Gather")
    return std::nullopt;
  std::optional<TorchCall> call = torchCall(node);
  if (!call || !call->calls("aten.embedding."))
    return std::nullopt;
  if (call->arguments.size() < 3)
    return -1;
  const std::string &row = call->arguments[2];
  bool digits = !row.empty() && row.size() < 19 &&
                row.find_first_not_of("0123456789") == std::string::npos;
  return digits ? std::stoll(row) : -1;
}

bool zorse::onnx_import::isDetach(const onnx::Node &node) {
  std::optional<TorchCall> call = torchCall(node);
  return call && call->calls("aten.detach.");
}

bool zorse::onnx_import::isTorchSqueeze(const onnx::Node &node) {
  std::optional<TorchCall> call = node.op_type() == "Squeeze" ? torchCall(node) : std::nullopt;
  return call && call->calls("aten.squeeze.");
}
