#include "Windows.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

bool Windows::tile() const {
  for (size_t i = 0; i < rank(); ++i)
    if (before[i] != 0 || after[i] != 0 || dilations[i] != 1 ||
        counts[i] * kernel[i] != extents[i] || (strides[i] != kernel[i] && counts[i] != 1))
      return false;
  return true;
}

LogicalResult zorse::onnx_import::readWindows(OpContext &op, const ImportedValue &x,
                                              std::vector<int64_t> kernel, Windows &w) {
  if (x.rank() < 3 || x.view.elements() == 0 || x.view.sampleAxis() > 0)
    return op.error("expects samples x channels x positions");
  const auto rank = static_cast<size_t>(x.rank() - 2);
  std::vector<int64_t> shape = x.shape();
  w.extents.assign(shape.begin() + 2, shape.end());
  w.kernel = std::move(kernel);
  auto given = [&](const char *name, size_t count, int64_t otherwise,
                   std::vector<int64_t> &values) -> LogicalResult {
    if (!op.rule->attribute(name)) {
      values.assign(count, otherwise);
      return success();
    }
    values = op.integers(name).value_or(std::vector<int64_t>(count, otherwise));
    if (values.size() != count)
      return op.error("expects " + Twine(count) + " " + name + " for " + Twine(rank) +
                      " dimensions of positions, found " + Twine(values.size()));
    return success();
  };
  std::vector<int64_t> pads;
  if (failed(given("strides", rank, 1, w.strides)) ||
      failed(given("dilations", rank, 1, w.dilations)) || failed(given("pads", 2 * rank, 0, pads)))
    return failure();
  if (w.kernel.size() != rank)
    return op.error("expects a kernel of " + Twine(rank) + " dimensions, found " +
                    Twine(w.kernel.size()));
  const std::string padding = op.text("auto_pad");
  const bool same = padding == "SAME_UPPER" || padding == "SAME_LOWER",
             ceil = op.rule->attribute("ceil_mode") && op.integer("ceil_mode");
  constexpr int64_t kMax = 1 << 20;
  for (size_t i = 0; i < rank; ++i) {
    for (auto [what, value, min] : {std::make_tuple("a kernel", w.kernel[i], int64_t(1)),
                                    std::make_tuple("a stride", w.strides[i], int64_t(1)),
                                    std::make_tuple("a dilation", w.dilations[i], int64_t(1)),
                                    std::make_tuple("a pad", pads[i], int64_t(0)),
                                    std::make_tuple("a pad", pads[i + rank], int64_t(0))})
      if (value < min || value > kMax)
        return op.error(Twine("has ") + what + " of " + Twine(value) + " in dimension " +
                        Twine(i + 2) + "; expects " + Twine(min) + " to " + Twine(kMax));
    const int64_t size = w.extents[i], stride = w.strides[i], span = w.span(i);
    if (same) {
      const int64_t count = (size + stride - 1) / stride,
                    total = std::max<int64_t>(0, (count - 1) * stride + span - size);
      const int64_t less = total / 2, more = total - less;
      w.before.push_back(padding == "SAME_UPPER" ? less : more);
      w.after.push_back(padding == "SAME_UPPER" ? more : less);
    } else {
      w.before.push_back(padding == "VALID" ? 0 : pads[i]);
      w.after.push_back(padding == "VALID" ? 0 : pads[i + rank]);
    }
    int64_t room = size + w.before[i] + w.after[i] - span;
    if (room < 0 && ceil && -room < stride && w.dilations[i] == 1) { // one window that exceeds the
                                                                     // end
      w.kernel[i] += room;
      room = 0;
    }
    if (room < 0)
      return op.error("has windows of " + Twine(span) + " elements over " +
                      Twine(size + w.before[i] + w.after[i]) + " in dimension " + Twine(i + 2) +
                      ", pads included");
    int64_t count = room / stride + 1;
    if (ceil && room % stride != 0 && count * stride < size + w.before[i]) // windows must not begin
                                                                           // in the pads at the end
      ++count;
    w.counts.push_back(count);
  }
  return success();
}

ImportedValue zorse::onnx_import::paddedPositions(Decomposition &make, const ImportedValue &x,
                                                  const Windows &windows, double value) {
  std::vector<int64_t> before{0, 0}, after{0, 0};
  bool any = false;
  for (size_t i = 0; i < windows.rank(); ++i) {
    before.push_back(windows.before[i]);
    after.push_back(std::max<int64_t>(0, windows.neededAfter(i)));
    any |= before.back() != 0 || after.back() != 0;
  }
  before.insert(before.end(), after.begin(), after.end());
  return any ? make("Pad", {x, make.ints(before), make.number(value, x)}) : x;
}

ImportedValue zorse::onnx_import::atWindow(Decomposition &make, const ImportedValue &x,
                                           int64_t axis, const Windows &windows, size_t i,
                                           int64_t at) {
  return make.slice(x, axis, at * windows.dilations[i], windows.counts[i], windows.strides[i]);
}
