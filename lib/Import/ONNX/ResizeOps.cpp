// Imports Resize. Positions are picked, or are sums of neighbors with constant weights: a matmul
// with a constant matrix. Axes are processed one at a time, which all modes of the operator allow.
#include "Decomposition.h"
#include "Lengths.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

namespace {

struct Rule {
  std::string mode, coordinates, rounding;
  double cubic = -0.75;
  bool excludesOutside = false, antialias = false;
};

/// Coordinate, among `in` positions, of position `x` of `out` positions; `scale` is their ratio.
double originOf(const Rule &rule, double x, int64_t in, int64_t out, double scale) {
  const double width = scale * static_cast<double>(in);
  if (rule.coordinates == "align_corners")
    return width == 1 ? 0 : x * static_cast<double>(in - 1) / (width - 1);
  if (rule.coordinates == "asymmetric")
    return x / scale;
  if (rule.coordinates == "pytorch_half_pixel" && out == 1)
    return 0;
  const double middle = (x + 0.5) / scale - 0.5;
  if (rule.coordinates != "half_pixel_symmetric")
    return middle;
  return static_cast<double>(in) / 2 * (1 - static_cast<double>(out) / width) + middle;
}

int64_t nearestTo(const Rule &rule, double x, int64_t size) {
  const double at = rule.rounding == "floor"               ? std::floor(x)
                    : rule.rounding == "ceil"              ? std::ceil(x)
                    : rule.rounding == "round_prefer_ceil" ? std::floor(x + 0.5)
                                                           : std::ceil(x - 0.5);
  return std::clamp<int64_t>(static_cast<int64_t>(at), 0, size - 1);
}

/// The weight of a position at this distance (Keys, 1981, for "cubic").
double weightAt(const Rule &rule, double distance) {
  const double d = std::abs(distance), a = rule.cubic;
  if (rule.mode == "linear")
    return std::max(0.0, 1 - d);
  if (d <= 1)
    return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/// Matrix in x out: column x contains the weights of output position x.
std::vector<double> weightsOf(const Rule &rule, int64_t in, int64_t out, double scale) {
  std::vector<double> matrix(static_cast<size_t>(in * out), 0);
  const double narrow = rule.antialias ? std::min(scale, 1.0) : 1; // a wider kernel for
                                                                   // downsampling
  const int64_t reach =
      static_cast<int64_t>(std::floor((rule.mode == "linear" ? -1 : -2) / narrow)) + 1;
  for (int64_t x = 0; x < out; ++x) {
    const double origin = originOf(rule, static_cast<double>(x), in, out, scale);
    int64_t base = static_cast<int64_t>(std::floor(origin));
    if (static_cast<double>(base) == origin)
      --base; // the left one of two equally near positions
    const double ratio = origin - static_cast<double>(base);
    double sum = 0;
    std::vector<std::pair<int64_t, double>> taps;
    for (int64_t i = reach; i < 2 - reach; ++i) {
      const int64_t at = base + i;
      if (rule.excludesOutside && (at < 0 || at >= in))
        continue;
      taps.push_back({std::clamp<int64_t>(at, 0, in - 1),
                      weightAt(rule, (static_cast<double>(i) - ratio) * narrow)});
      sum += taps.back().second;
    }
    for (auto [at, weight] : taps)
      matrix[static_cast<size_t>(at * out + x)] += sum != 0 ? weight / sum : 0;
  }
  return matrix;
}

struct Resizing {
  Rule rule;
  std::vector<int64_t> axes,
      sizes; ///< one of sizes and scales may be empty; both are set if the aspect ratio is kept
  std::vector<double> scales;
};

} // namespace

static LogicalResult readResizing(OpContext &op, const ImportedValue &x, Resizing &resizing) {
  auto &[rule, axes, sizes, scales] = resizing;
  rule.mode = op.text("mode");
  rule.coordinates = op.text("coordinate_transformation_mode");
  rule.rounding = op.text("nearest_mode");
  rule.cubic = op.real("cubic_coeff_a");
  rule.excludesOutside = op.integer("exclude_outside") != 0;
  rule.antialias = op.integer("antialias") != 0;

  axes = op.integers("axes").value_or(std::vector<int64_t>());
  if (axes.empty())
    for (int64_t i = 0; i < x.rank(); ++i)
      axes.push_back(i);
  const auto hasElements = [&](size_t index) {
    return op.operand(index) && op.operand(index).view.elements() > 0;
  };
  if (hasElements(3)) {
    auto given = lengthsOf(op, 3);
    if (failed(given))
      return failure();
    for (auto [i, length] : llvm::enumerate(*given)) {
      const int64_t axis = i < axes.size() ? axes[i] + (axes[i] < 0 ? x.rank() : 0) : -1;
      if (length.perSample && axis != x.view.sampleAxis())
        return op.error("gives dimension " + Twine(axis) +
                        " a size that depends on the number of samples");
      sizes.push_back(length.size);
    }
  } else if (hasElements(2)) {
    auto given = constantFloats(op.operand(2));
    if (!given)
      return op.error("expects constant scales; they depend on data");
    scales = *given;
  }
  if (std::max(scales.size(), sizes.size()) != axes.size())
    return op.error("expects scales or sizes for " + Twine(axes.size()) + " axes, found " +
                    Twine(std::max(scales.size(), sizes.size())));
  for (int64_t &axis : axes) {
    axis += axis < 0 ? x.rank() : 0;
    if (axis < 0 || axis >= x.rank())
      return op.error("names an axis outside the rank");
  }
  // Keep the aspect ratio: the min (not_larger) or max (not_smaller) of the ratios applies to all
  // axes.
  if (const std::string policy = op.text("keep_aspect_ratio_policy");
      policy != "stretch" && !sizes.empty()) {
    double common = policy == "not_larger" ? INFINITY : 0;
    for (size_t i = 0; i < axes.size(); ++i) {
      const double ratio = static_cast<double>(sizes[i]) /
                           static_cast<double>(x.view.size(axes[i]));
      common = policy == "not_larger" ? std::min(common, ratio) : std::max(common, ratio);
    }
    for (size_t i = 0; i < axes.size(); ++i) {
      scales.push_back(common);
      sizes[i] = static_cast<int64_t>(
          std::floor(common * static_cast<double>(x.view.size(axes[i])) + 0.5));
    }
  }
  return success();
}

static LogicalResult importResize(OpContext &op) {
  ImportedValue x = op.operand(0);
  if (!x.isArray() || !isFloat(x.type))
    return op.error("expects a tensor of floats");
  Resizing resizing;
  if (failed(readResizing(op, x, resizing)))
    return failure();
  const auto &[rule, axes, sizes, scales] = resizing;
  Decomposition make(op);
  constexpr int64_t kMaxWeights = 1 << 24;
  for (size_t i = 0; i < axes.size() && !make.hasFailed(); ++i) {
    const int64_t axis = axes[i], size = x.view.size(axis);
    const double scale = scales.empty() ? static_cast<double>(sizes[i]) / static_cast<double>(size)
                                        : scales[i];
    const int64_t count = sizes.empty()
                              ? static_cast<int64_t>(std::floor(static_cast<double>(size) * scale))
                              : sizes[i];
    if (scale == 1 && count == size)
      continue;
    if (x.view.sampleAxis() == axis)
      return op.error("changes the number of samples; every op must treat samples apart");
    if (!(scale > 0) || count < 1 || count > kMaxWeights / std::max<int64_t>(size, 1))
      return op.error("makes " + Twine(count) + " of " + Twine(size) +
                      " positions, which is not supported");
    if (rule.mode == "nearest") {
      std::vector<int64_t> picked;
      for (int64_t p = 0; p < count; ++p)
        picked.push_back(
            nearestTo(rule, originOf(rule, static_cast<double>(p), size, count, scale), size));
      x = make("Gather", {x, make.ints(std::move(picked))}, {{"axis", axis}});
      continue;
    }
    ImportedValue matrix =
        constantOf(x.type, makeFloats(x.type, weightsOf(rule, size, count, scale)), {size, count});
    std::vector<int64_t> order;
    for (int64_t d = 0; d < x.rank(); ++d)
      order.push_back(d);
    std::swap(order[static_cast<size_t>(axis)], order.back()); // the permutation is its own inverse
    const bool last = axis + 1 == x.rank();
    ImportedValue product = make("MatMul", {last ? x : make.transpose(x, order), matrix});
    x = last ? product : make.transpose(product, order);
  }
  return make.result(x);
}

void zorse::onnx_import::registerResizeOps(OperatorRegistry &registry) {
  registry.add({
      {{"Resize"},
       1,
       4,
       {integer("antialias", 0), integers("axes"),
        only(text("coordinate_transformation_mode", "half_pixel"),
             {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
              "asymmetric"}),
        real("cubic_coeff_a", -0.75), integer("exclude_outside", 0),
        ignored(real("extrapolation_value")),
        only(text("keep_aspect_ratio_policy", "stretch"), {"stretch", "not_larger", "not_smaller"}),
        only(text("mode", "nearest"), {"nearest", "linear", "cubic"}),
        only(text("nearest_mode", "round_prefer_floor"),
             {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})},
       importResize},
  });
}
