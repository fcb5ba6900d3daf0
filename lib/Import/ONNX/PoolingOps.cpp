// Poolings, one dimension of positions after the other, from slices of their windows.
#include "Windows.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// What `combine` makes of the elements of every window, along all dimensions of positions, the last one first.
template <typename Combine> static Val pooled(Composition &make, Val x, const Importer::Windows &windows, Combine combine) {
  for (size_t i = windows.rank(); i-- > 0 && !make.hasFailed();) {
    const auto axis = static_cast<int64_t>(i) + 2;
    Val all = atWindow(make, x, axis, windows, i, 0);
    for (int64_t k = 1; k < windows.kernel[i]; ++k)
      all = combine(all, atWindow(make, x, axis, windows, i, k));
    x = all;
  }
  return x;
}

LogicalResult Importer::readPooling(const GraphNode &node, Windows &windows) {
  constexpr int64_t kMostSlices = 256;
  const Val &x = in(node, 0);
  if ((!x.isGraph() && !x.isConstant()) || !isFloat(x.type))
    return error(node, "expects floats, found " + Twine(name(x.type)));
  if (failed(readWindows(node, x, intsAttribute(node, "kernel_shape").value_or(std::vector<int64_t>()), windows)))
    return failure();
  int64_t slices = 0;
  for (size_t i = 0; i < windows.rank(); ++i) {
    slices += windows.kernel[i];
    if (windows.before[i] >= windows.span(i) || windows.after[i] >= windows.span(i))
      return error(node, "has windows that lie in its pads alone, in dimension " + Twine(i + 2));
  }
  if (slices > kMostSlices)
    return error(node,
                 "has windows of " + Twine(slices) + " elements along its dimensions together; at most " + Twine(kMostSlices) + " are supported");
  return success();
}

// Of equal elements the first one has the gradient, as in PyTorch: a later one replaces it only if it is larger.
LogicalResult Importer::onMaxPool(const GraphNode &node) {
  Windows windows;
  if (failed(readPooling(node, windows)))
    return failure();
  if (node.outputs.size() > 1 && node.outputs[1] >= 0)
    for (const GraphNode &other : graph.body.nodes)
      if (std::find(other.inputs.begin(), other.inputs.end(), node.outputs[1]) != other.inputs.end())
        return error(node, "its second output (positions of the largest elements) is used; only its first output is supported");
  Composition make(*this, node);
  Val x = paddedPositions(make, in(node, 0), windows, -std::numeric_limits<double>::infinity());
  return make.result(pooled(make, x, windows, [&](const Val &a, const Val &b) { return make("Where", {make("Greater", {b, a}), b, a}); }));
}

// AveragePool and LpPool.
LogicalResult Importer::onAveragePool(const GraphNode &node) {
  Windows windows;
  if (failed(readPooling(node, windows)))
    return failure();
  Composition make(*this, node);
  const bool average = node.op == "AveragePool";
  const int64_t power = average ? 1 : intAttribute(node, "p", 2);
  Val x = in(node, 0);
  if (power < 1)
    return error(node, "expects a p of 1 or more, found " + Twine(power));
  if (!average)
    x = power == 2 ? make("Mul", {x, x}) : make("Abs", {x});
  if (power > 2)
    x = make("Pow", {x, make.number(static_cast<double>(power), x)});
  Val sum = pooled(make, paddedPositions(make, x, windows, 0), windows, [&](const Val &a, const Val &b) { return make("Add", {a, b}); });
  if (!average)
    return make.result(power == 1 ? sum : power == 2 ? make("Sqrt", {sum}) : make("Pow", {sum, make.number(1 / static_cast<double>(power), sum)}));
  // How many elements a window has: those of the operand, and of the pads that the file asks for if they count.
  const bool withPads = intAttribute(node, "count_include_pad", 0) != 0;
  std::vector<double> sizes{1};
  for (size_t i = 0; i < windows.rank(); ++i) {
    std::vector<double> next;
    const int64_t first = withPads ? -windows.before[i] : 0, end = windows.extents[i] + (withPads ? windows.after[i] : 0);
    for (double outer : sizes)
      for (int64_t window = 0; window < windows.counts[i]; ++window) {
        int64_t inside = 0;
        for (int64_t k = 0; k < windows.kernel[i]; ++k) {
          const int64_t at = window * windows.strides[i] + k * windows.dilations[i] - windows.before[i];
          inside += at >= first && at < end;
        }
        next.push_back(outer * static_cast<double>(inside));
      }
    sizes = std::move(next);
  }
  const bool uniform = std::all_of(sizes.begin(), sizes.end(), [&](double size) { return size == sizes[0]; });
  if (uniform)
    return make.result(make("Mul", {sum, make.number(1 / sizes[0], sum)}));
  return make.result(make("Div", {sum, constantOf(sum.type, makeFloats(sum.type, std::move(sizes)), windows.counts)}));
}

LogicalResult Importer::onGlobalPool(const GraphNode &node) {
  const Val &x = in(node, 0);
  if ((!x.isGraph() && !x.isConstant()) || !isFloat(x.type) || x.rank() < 3 || x.view.sampleAxis() > 0)
    return error(node, "expects floats of samples x channels x positions");
  std::vector<int64_t> axes;
  for (int64_t i = 2; i < x.rank(); ++i)
    axes.push_back(i);
  Composition make(*this, node);
  const char *op = node.op == "GlobalAveragePool"    ? "ReduceMean"
                   : node.op == "GlobalMaxPool"      ? "ReduceMax"
                   : intAttribute(node, "p", 2) == 1 ? "ReduceL1"
                                                     : "ReduceL2";
  return make.result(make.reduce(op, x, axes, true));
}

void Importer::addPoolingOps(OperatorTable &table) {
  const std::string windows = "auto_pad:s=NOTSET|VALID|SAME_UPPER|SAME_LOWER ceil_mode:i dilations:is kernel_shape:is! pads:is strides:is ";
  table.add({"MaxPool"}, 1, 1, (windows + "storage_order:i~").c_str(), &Importer::onMaxPool);
  table.add({"AveragePool"}, 1, 1, (windows + "count_include_pad:i").c_str(), &Importer::onAveragePool);
  table.add({"LpPool"}, 1, 1, (windows + "p:i").c_str(), &Importer::onAveragePool);
  table.add({"GlobalAveragePool", "GlobalMaxPool"}, 1, 1, "", &Importer::onGlobalPool);
  table.add({"GlobalLpPool"}, 1, 1, "p:i=1|2", &Importer::onGlobalPool);
}
