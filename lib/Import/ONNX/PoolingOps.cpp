// Imports poolings from slices of their windows, one dimension of positions at a time.
#include "Windows.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// Combines the elements of every window with `combine`, along all dimensions of positions, the
/// last one first.
template <typename Combine>
static ImportedValue pooled(Decomposition &make, ImportedValue x, const Windows &windows,
                            Combine combine) {
  for (size_t i = windows.rank(); i-- > 0 && !make.hasFailed();) {
    const auto axis = static_cast<int64_t>(i) + 2;
    ImportedValue all = atWindow(make, x, axis, windows, i, 0);
    for (int64_t k = 1; k < windows.kernel[i]; ++k)
      all = combine(all, atWindow(make, x, axis, windows, i, k));
    x = all;
  }
  return x;
}

static LogicalResult readPooling(OpContext &op, Windows &windows) {
  constexpr int64_t kMaxSlices = 256;
  const ImportedValue &x = op.operand(0);
  if (!x.isArray() || !isFloat(x.type))
    return op.error("expects floats, found " + Twine(name(x.type)));
  if (failed(readWindows(op, x, op.integers("kernel_shape").value_or(std::vector<int64_t>()),
                         windows)))
    return failure();
  int64_t slices = 0;
  for (size_t i = 0; i < windows.rank(); ++i) {
    slices += windows.kernel[i];
    if (windows.before[i] >= windows.span(i) || windows.after[i] >= windows.span(i))
      return op.error("has windows that lie in its pads alone, in dimension " + Twine(i + 2));
  }
  if (slices > kMaxSlices)
    return op.error("has windows of " + Twine(slices) +
                    " elements along its dimensions together; at most " + Twine(kMaxSlices) +
                    " are supported");
  return success();
}

/// Max pooling. The first of equal elements receives the gradient, as in PyTorch: a later one
/// replaces it only if it is larger.
static LogicalResult importMaxPool(OpContext &op) {
  Windows windows;
  if (failed(readPooling(op, windows)))
    return failure();
  if (op.node.outputs.size() > 1 && op.node.outputs[1] >= 0)
    for (const GraphNode &other : op.state.graph.body.nodes)
      if (std::find(other.inputs.begin(), other.inputs.end(), op.node.outputs[1]) !=
          other.inputs.end())
        return op.error("its second output (positions of the largest elements) is used; only its "
                        "first output is supported");
  Decomposition make(op);
  ImportedValue x =
      paddedPositions(make, op.operand(0), windows, -std::numeric_limits<double>::infinity());
  return make.result(pooled(make, x, windows, [&](const ImportedValue &a, const ImportedValue &b) {
    return make("Where", {make("Greater", {b, a}), b, a});
  }));
}

/// AveragePool and LpPool.
static LogicalResult importAveragePool(OpContext &op) {
  Windows windows;
  if (failed(readPooling(op, windows)))
    return failure();
  Decomposition make(op);
  const bool average = op.node.op == "AveragePool";
  const int64_t power = average ? 1 : op.integer("p");
  ImportedValue x = op.operand(0);
  if (power < 1)
    return op.error("expects a p of 1 or more, found " + Twine(power));
  if (!average)
    x = power == 2 ? make("Mul", {x, x}) : make("Abs", {x});
  if (power > 2)
    x = make("Pow", {x, make.number(static_cast<double>(power), x)});
  ImportedValue sum =
      pooled(make, paddedPositions(make, x, windows, 0), windows,
             [&](const ImportedValue &a, const ImportedValue &b) { return make("Add", {a, b}); });
  if (!average)
    return make.result(power == 1 ? sum
                       : power == 2
                           ? make("Sqrt", {sum})
                           : make("Pow", {sum, make.number(1 / static_cast<double>(power), sum)}));
  // Number of elements per window: elements of the operand, and with count_include_pad also the
  // pads of the file.
  const bool withPads = op.integer("count_include_pad") != 0;
  std::vector<double> sizes{1};
  for (size_t i = 0; i < windows.rank(); ++i) {
    std::vector<double> next;
    const int64_t first = withPads ? -windows.before[i] : 0,
                  end = windows.extents[i] + (withPads ? windows.after[i] : 0);
    for (double outer : sizes)
      for (int64_t window = 0; window < windows.counts[i]; ++window) {
        int64_t inside = 0;
        for (int64_t k = 0; k < windows.kernel[i]; ++k) {
          const int64_t at = window * windows.strides[i] + k * windows.dilations[i] -
                             windows.before[i];
          inside += at >= first && at < end;
        }
        next.push_back(outer * static_cast<double>(inside));
      }
    sizes = std::move(next);
  }
  const bool uniform =
      std::all_of(sizes.begin(), sizes.end(), [&](double size) { return size == sizes[0]; });
  if (uniform)
    return make.result(make("Mul", {sum, make.number(1 / sizes[0], sum)}));
  return make.result(make(
      "Div", {sum, constantOf(sum.type, makeFloats(sum.type, std::move(sizes)), windows.counts)}));
}

static LogicalResult importGlobalPool(OpContext &op) {
  const ImportedValue &x = op.operand(0);
  if (!x.isArray() || !isFloat(x.type) || x.rank() < 3 || x.view.sampleAxis() > 0)
    return op.error("expects floats of samples x channels x positions");
  std::vector<int64_t> axes;
  for (int64_t i = 2; i < x.rank(); ++i)
    axes.push_back(i);
  Decomposition make(op);
  const char *which = op.node.op == "GlobalAveragePool" ? "ReduceMean"
                      : op.node.op == "GlobalMaxPool"   ? "ReduceMax"
                      : op.integer("p") == 1            ? "ReduceL1"
                                                        : "ReduceL2";
  return make.result(make.reduce(which, x, axes, true));
}

void zorse::onnx_import::registerPoolingOps(OperatorRegistry &registry) {
  const std::vector<AttributeInfo> windows = {
      only(text("auto_pad", "NOTSET"), {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}),
      integer("ceil_mode", 0),
      integers("dilations"),
      required(integers("kernel_shape")),
      integers("pads"),
      integers("strides")};
  registry.add({
      {{"MaxPool"}, 1, 1, with(windows, {ignored(integer("storage_order"))}), importMaxPool},
      {{"AveragePool"}, 1, 1, with(windows, {integer("count_include_pad", 0)}), importAveragePool},
      {{"LpPool"}, 1, 1, with(windows, {integer("p", 2)}), importAveragePool},
      {{"GlobalAveragePool", "GlobalMaxPool"}, 1, 1, {}, importGlobalPool},
      {{"GlobalLpPool"}, 1, 1, {only(integer("p", 2), {"1", "2"})}, importGlobalPool},
  });
}
