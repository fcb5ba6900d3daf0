// Imports the discrete Fourier transform as matmuls with constant matrices of cosines and sines.
#include "Decomposition.h"

#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// Maps x [..., positions, ..., 1 or 2], real or complex, to [..., frequencies, ..., 2].
static LogicalResult importFourier(OpContext &op) {
  constexpr int64_t kMaxElements = 1 << 24;
  ImportedValue x = op.operand(0);
  const int64_t rank = x.rank(), last = rank - 1;
  if (!isFloat(x.type) || rank < 2 || x.view.elements() == 0 ||
      (x.view.size(last) != 1 && x.view.size(last) != 2))
    return op.error(
        "expects floats whose last dimension holds real numbers (1) or complex ones (2)");
  int64_t axis = op.integer("axis");
  if (op.has(2)) {
    auto given = constantInt(op.operand(2));
    if (!given)
      return op.error("expects a constant axis");
    axis = *given;
  }
  axis += axis < 0 ? rank : 0;
  if (axis < 0 || axis >= last)
    return op.error("expects an axis before the last, found " + Twine(axis) + " of " + Twine(rank));
  if (x.view.sampleAxis() == axis)
    return op.error("transforms along the samples; every op must treat samples apart");
  const int64_t positions = x.view.size(axis);
  int64_t length = positions;
  if (op.has(1)) {
    length = constantInt(op.operand(1)).value_or(0);
    if (length < 1)
      return op.error("expects a constant length of at least 1");
  }
  const bool inverse = op.integer("inverse") != 0, half = op.integer("onesided") != 0,
             complex = x.view.size(last) == 2;
  if (half && (inverse || complex))
    return op.error(
        "asks for one side of a transform that is not of real numbers, which is not supported");
  const int64_t frequencies = half ? length / 2 + 1 : length;
  if (frequencies > kMaxElements / positions)
    return op.error("transforms " + Twine(positions) + " positions to " + Twine(frequencies) +
                    " frequencies; products with their matrix are too large");

  // The matrix ignores positions beyond the length and pads missing positions with 0.
  std::vector<double> cosines(static_cast<size_t>(positions * frequencies)), sines(cosines.size());
  const double scale = inverse ? 1 / static_cast<double>(length) : 1;
  for (int64_t n = 0; n < std::min(positions, length); ++n)
    for (int64_t k = 0; k < frequencies; ++k) {
      const double angle = 2 * M_PI * static_cast<double>(n * k % length) /
                           static_cast<double>(length);
      const auto at = static_cast<size_t>(n * frequencies + k);
      cosines[at] = scale * std::cos(angle);
      sines[at] = (inverse ? -scale : scale) * std::sin(angle);
    }
  Decomposition make(op);
  ImportedValue cosine =
      constantOf(x.type, makeFloats(x.type, std::move(cosines)), {positions, frequencies});
  ImportedValue sine =
      constantOf(x.type, makeFloats(x.type, std::move(sines)), {positions, frequencies});
  std::vector<int64_t> order; // moves the axis to the end; the permutation is its own inverse
  for (int64_t d = 0; d < last; ++d)
    order.push_back(d);
  std::swap(order[static_cast<size_t>(axis)], order.back());
  auto part = [&](int64_t which) {
    return make.transpose(make.squeeze(make.slice(x, last, which, 1), last), order);
  };
  auto times = [&](const ImportedValue &a, const ImportedValue &b) {
    return make("MatMul", {a, b});
  };
  ImportedValue real = part(0), realOut = times(real, cosine),
                imaginaryOut = make("Neg", {times(real, sine)});
  if (complex) {
    ImportedValue imaginary = part(1);
    realOut = make("Add", {realOut, times(imaginary, sine)});
    imaginaryOut = make("Add", {imaginaryOut, times(imaginary, cosine)});
  }
  auto back = [&](const ImportedValue &y) {
    return make.unsqueeze(make.transpose(y, order), last);
  };
  return make.result(make("Concat", {back(realOut), back(imaginaryOut)}, {{"axis", last}}));
}

void zorse::onnx_import::registerFourierOps(OperatorRegistry &registry) {
  const std::vector<AttributeInfo> others = {integer("inverse", 0), integer("onesided", 0)};
  registry.add({
      {{"DFT"}, 1, 3, with(others, {integer("axis", 1)}), importFourier, until(19)},
      {{"DFT"}, 1, 3, with(others, {integer("axis", -2)}), importFourier, since(20)},
  });
}
