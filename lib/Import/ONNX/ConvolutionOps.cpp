// Imports convolutions as matmuls. The elements of a window form the row that is multiplied by the
// kernel matrix.
#include "Arithmetic.h"
#include "Windows.h"

#include <algorithm>
#include <numeric>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// Max slices of one operand. Each spatial dimension needs one slice per kernel element.
static constexpr int64_t kMaxSlices = 256;

/// A convolution with windows that tile its input (stride = kernel, as in patch embedding) is a
/// matmul of regrouped elements:
///
///     x [N, C, H, W] -> [N, H/h, W/w, C, h, w] -> [N, patches, C*h*w],
///     times the kernel [D, C*h*w] transposed -> [N, D, H/h, W/w]
static LogicalResult tiledConvolution(OpContext &op, const ImportedValue &x,
                                      const ImportedValue &w) {
  int64_t spatial = x.rank() - 2;
  std::vector<int64_t> from = x.shape(), kernel = w.shape();

  int64_t patches = 1, inner = from[1];
  std::vector<int64_t> apart{from[0], from[1]}, permutation{0}, result{from[0], kernel[0]};
  for (int64_t i = 0; i < spatial; ++i) {
    apart.push_back(from[2 + i] / kernel[2 + i]);
    apart.push_back(kernel[2 + i]);
    permutation.push_back(2 + 2 * i);
    result.push_back(from[2 + i] / kernel[2 + i]);
    patches *= result.back();
    inner *= kernel[2 + i];
  }
  permutation.push_back(1);
  for (int64_t i = 0; i < spatial; ++i)
    permutation.push_back(3 + 2 * i);
  auto windows = reshaped(op, x, apart);
  if (failed(windows))
    return failure();
  std::vector<FactorList> dims;
  dims.reserve(permutation.size());
  for (int64_t axis : permutation)
    dims.push_back(windows->view.dims[axis]);
  windows->view.dims = std::move(dims);
  auto rows = reshaped(op, *windows, {from[0], patches, inner});
  auto matrix = reshaped(op, w, {kernel[0], inner});
  if (failed(rows) || failed(matrix))
    return failure();
  std::swap(matrix->view.dims[0], matrix->view.dims[1]);
  auto value = product(op, *rows, *matrix);
  if (failed(value))
    return failure();
  ImportedValue sum = *value;
  if (op.has(2)) {
    if (failed(binary(op, "Add", sum, op.operand(2))))
      return failure();
    sum = op.result();
  }
  std::swap(sum.view.dims[1], sum.view.dims[2]);
  return op.result(reshaped(op, sum, result));
}

/// x is padded. A depthwise convolution is a sum of slices. Otherwise
///
///     x [N, C, H, W] -> [N, C, h, w, H', W'], a slice per element of the kernel, first along H,
///                       then along W
///                    -> [N, H'*W', groups, C/groups*h*w]
static ImportedValue convolved(Decomposition &make, const ImportedValue &x, const ImportedValue &w,
                               int64_t groups, const Windows &windows) {
  if (make.hasFailed())
    return {};
  const auto rank = static_cast<int64_t>(windows.rank());
  const std::vector<int64_t> shape = x.shape(), kernel = w.shape();
  const int64_t samples = shape[0], channels = shape[1], results = kernel[0];
  int64_t elements = 1, positions = 1;
  for (int64_t i = 0; i < rank; ++i) {
    elements *= windows.kernel[i];
    positions *= windows.counts[i];
  }
  std::vector<int64_t> resultShape{samples, results};
  resultShape.insert(resultShape.end(), windows.counts.begin(), windows.counts.end());
  constexpr int64_t kMaxTerms = 32;
  if (groups == channels && results == channels && elements <= kMaxTerms) {
    ImportedValue flat = make.reshape(w, {channels, elements}), sum;
    for (int64_t k = 0; k < elements && !make.hasFailed(); ++k) {
      ImportedValue part = x;
      for (int64_t i = rank, rest = k; i-- > 0; rest /= windows.kernel[i])
        part = atWindow(make, part, 2 + i, windows, i, rest % windows.kernel[i]);
      std::vector<int64_t> perChannel(rank + 1, 1);
      perChannel[0] = channels;
      part = make("Mul", {part, make.reshape(make.slice(flat, 1, k, 1), perChannel)});
      sum = k == 0 ? part : make("Add", {sum, part});
    }
    return sum;
  }
  ImportedValue columns = x;
  for (int64_t i = 0; i < rank; ++i) { // dimension 2 + i gets the kernel elements; the operand's
                                       // positions follow the finished dimensions
    std::vector<ImportedValue> parts;
    parts.reserve(windows.kernel[i]);
    for (int64_t k = 0; k < windows.kernel[i]; ++k)
      parts.push_back(make.unsqueeze(atWindow(make, columns, 2 + 2 * i, windows, i, k), 2 + i));
    columns = parts.size() == 1 ? parts[0] : make("Concat", std::move(parts), {{"axis", 2 + i}});
  }
  const int64_t depth = channels / groups * elements;
  ImportedValue rows =
      make.transpose(make.reshape(columns, {samples, groups, depth, positions}), {0, 3, 1, 2});
  ImportedValue matrix =
      make.transpose(make.reshape(w, {groups, results / groups, depth}), {0, 2, 1});
  if (make.hasFailed())
    return {};
  ImportedValue y =
      groups == 1 ? make("MatMul", {make.squeeze(rows, 2), make.squeeze(matrix, 0)})
                  : make.reshape(groupedProduct(make, rows, matrix), {samples, positions, results});
  return make.reshape(make.transpose(y, {0, 2, 1}), resultShape);
}

static ImportedValue withBias(Decomposition &make, const ImportedValue &y,
                              const ImportedValue &bias) {
  if (!bias || make.hasFailed())
    return y;
  std::vector<int64_t> shape(y.rank() - 1, 1);
  shape[0] = bias.view.elements();
  return make("Add", {y, make.reshape(bias, shape)});
}

/// Rejects kernels that need more slices than can be unrolled.
static LogicalResult checkSlices(OpContext &op, const Windows &windows) {
  const int64_t slices = std::accumulate(windows.kernel.begin(), windows.kernel.end(), int64_t(0));
  if (slices > kMaxSlices)
    return op.error("has a kernel of " + Twine(slices) +
                    " elements along its dimensions together; at most " + Twine(kMaxSlices) +
                    " are supported");
  return success();
}

static LogicalResult importConv(OpContext &op) {
  ImportedValue x = op.operand(0), w = op.operand(1), bias = op.operand(2);
  if (!x.isArray() || !isFloat(x.type) || x.rank() < 3 || w.rank() != x.rank())
    return op.error(
        "expects floats of samples x channels x positions and a kernel of the same rank");
  if (isBatched(w) || isBatched(bias))
    return op.error("expects a kernel and a bias that carry no samples");
  std::vector<int64_t> from = x.shape(), kernel = w.shape();
  const int64_t groups = op.integer("group");
  if (groups < 1 || from[1] % groups != 0 || kernel[0] % groups != 0 ||
      kernel[1] != from[1] / groups)
    return op.error("expects a kernel of " +
                    Twine(groups > 0 && from[1] % groups == 0 ? from[1] / groups : 0) +
                    " channels in each of " + Twine(groups) + " groups, found one of " +
                    Twine(kernel[1]) + " for " + Twine(from[1]) + " channels");
  if (bias && (bias.rank() != 1 || bias.view.size(0) != kernel[0]))
    return op.error("expects a bias of " + Twine(kernel[0]) + " elements");
  Windows windows;
  if (std::vector<int64_t> own(kernel.begin() + 2, kernel.end());
      op.integers("kernel_shape").value_or(own) != own)
    return op.error("its kernel_shape is not that of its kernel");
  if (failed(readWindows(op, x, {kernel.begin() + 2, kernel.end()}, windows)))
    return failure();
  if (groups == 1 && windows.tile())
    return tiledConvolution(op, x, w);
  if (failed(checkSlices(op, windows)))
    return failure();
  Decomposition make(op);
  return make.result(withBias(
      make, convolved(make, paddedPositions(make, x, windows, 0), w, groups, windows), bias));
}

/// Adds zeros after every element, in a separate dimension that is then merged.
static ImportedValue spreadApart(Decomposition &make, const ImportedValue &x, int64_t axis,
                                 int64_t stride) {
  std::vector<int64_t> shape = x.shape(), zeros(2 * (x.rank() + 1), 0);
  ImportedValue apart = make.unsqueeze(x, axis + 1);
  zeros[x.rank() + 1 + axis + 1] = stride - 1;
  shape[axis] *= stride;
  return make.slice(make.reshape(make("Pad", {apart, make.ints(zeros)}), shape), axis, 0,
                    shape[axis] - stride + 1);
}

/// [C, M/groups, ...] -> [M, C/groups, ...], reversed along every spatial dimension.
static ImportedValue turnedKernel(Decomposition &make, ImportedValue w, int64_t groups) {
  const std::vector<int64_t> kernel = w.shape();
  const int64_t rank = w.rank() - 2;
  for (int64_t i = 0; i < rank; ++i) {
    std::vector<int64_t> backwards(kernel[2 + i]);
    for (int64_t k = 0; k < kernel[2 + i]; ++k)
      backwards[k] = kernel[2 + i] - 1 - k;
    if (backwards.size() > 1)
      w = make("Gather", {w, make.ints(std::move(backwards))}, {{"axis", 2 + i}});
  }
  std::vector<int64_t> apart{groups, kernel[0] / groups, kernel[1]}, order{0, 2, 1},
      turned{groups * kernel[1], kernel[0] / groups};
  for (int64_t i = 0; i < rank; ++i) {
    apart.push_back(kernel[2 + i]);
    order.push_back(3 + i);
    turned.push_back(kernel[2 + i]);
  }
  return make.reshape(make.transpose(make.reshape(w, apart), order), turned);
}

/// Computes the input gradient of a convolution: inserts zeros between the elements and around
/// them, then convolves with the reversed kernel.
static LogicalResult importConvTranspose(OpContext &op) {
  ImportedValue x = op.operand(0), w = op.operand(1), bias = op.operand(2);
  if (!x.isArray() || !isFloat(x.type) || x.rank() < 3 || w.rank() != x.rank() || isBatched(w) ||
      isBatched(bias))
    return op.error("expects floats of samples x channels x positions, and a kernel of the same "
                    "rank that carries no samples");
  std::vector<int64_t> from = x.shape(), kernel = w.shape();
  const int64_t groups = op.integer("group"), rank = x.rank() - 2;
  if (groups < 1 || from[1] % groups != 0 || kernel[0] != from[1])
    return op.error("expects a kernel for " + Twine(from[1]) +
                    " channels in groups that divide them, found one for " + Twine(kernel[0]) +
                    " in " + Twine(groups) + " groups");
  auto ints = [&](const char *name, int64_t count, int64_t otherwise) {
    std::vector<int64_t> values = op.integers(name).value_or(std::vector<int64_t>());
    return values.empty() ? std::vector<int64_t>(count, otherwise) : values;
  };
  std::vector<int64_t> strides = ints("strides", rank, 1), dilations = ints("dilations", rank, 1),
                       pads = ints("pads", 2 * rank, 0);
  std::vector<int64_t> more = ints("output_padding", rank, 0),
                       wanted = ints("output_shape", rank, -1);
  for (auto [name, values, count] :
       {std::make_tuple("strides", &strides, rank), std::make_tuple("dilations", &dilations, rank),
        std::make_tuple("pads", &pads, 2 * rank), std::make_tuple("output_padding", &more, rank)})
    if (static_cast<int64_t>(values->size()) != count)
      return op.error("expects " + Twine(count) + " " + name + " for " + Twine(rank) +
                      " dimensions of positions, found " + Twine(values->size()));
  if (static_cast<int64_t>(wanted.size()) != rank &&
      static_cast<int64_t>(wanted.size()) != rank + 2)
    return op.error("expects an output_shape of " + Twine(rank) + " dimensions, found " +
                    Twine(wanted.size()));
  wanted.erase(wanted.begin(), wanted.end() - rank);
  const std::string padding = op.text("auto_pad");
  Windows windows;
  windows.kernel.assign(kernel.begin() + 2, kernel.end());
  windows.dilations = dilations;
  windows.strides.assign(rank, 1);
  Decomposition make(op);
  ImportedValue spread = x;
  for (int64_t i = 0; i < rank; ++i) {
    if (strides[i] < 1 || dilations[i] < 1 || strides[i] > 1024 || dilations[i] > 1024 ||
        more[i] < 0 || pads[i] < 0 || pads[i + rank] < 0)
      return op.error("has a stride, a dilation or a pad that is not sensible in dimension " +
                      Twine(i + 2));
    const int64_t span = windows.span(i), whole = strides[i] * (from[2 + i] - 1) + span + more[i];
    if (padding == "SAME_UPPER" || padding == "SAME_LOWER")
      wanted[i] = wanted[i] < 0 ? from[2 + i] * strides[i] : wanted[i];
    if (wanted[i] >= 0) {
      const int64_t total = std::max<int64_t>(0, whole - wanted[i]), half = total / 2;
      pads[i] = padding == "SAME_UPPER" ? half : total - half;
      pads[i + rank] = total - pads[i];
      more[i] += std::max<int64_t>(0, wanted[i] - whole);
    } else if (padding == "VALID") {
      pads[i] = pads[i + rank] = 0;
    }
    const int64_t count = strides[i] * (from[2 + i] - 1) + span + more[i] - pads[i] -
                          pads[i + rank];
    if (count < 1)
      return op.error("has no positions left in dimension " + Twine(i + 2));
    if (strides[i] > 1)
      spread = spreadApart(make, spread, 2 + i, strides[i]);
    if (make.hasFailed())
      return failure();
    windows.extents.push_back(spread.view.size(2 + i));
    windows.counts.push_back(count);
    windows.before.push_back(span - 1 - pads[i]);
    windows.after.push_back(span - 1 - pads[i + rank] + more[i]);
  }
  if (failed(checkSlices(op, windows)))
    return failure();
  std::vector<int64_t> around{0, 0};
  around.insert(around.end(), windows.before.begin(), windows.before.end());
  around.insert(around.end(), {0, 0});
  around.insert(around.end(), windows.after.begin(), windows.after.end());
  spread = make("Pad", {spread, make.ints(around)});
  return make.result(withBias(
      make, convolved(make, spread, turnedKernel(make, w, groups), groups, windows), bias));
}

void zorse::onnx_import::registerConvolutionOps(OperatorRegistry &registry) {
  const std::vector<AttributeInfo> padding = {
      only(text("auto_pad", "NOTSET"), {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"})};
  registry.add({
      {{"Conv"},
       2,
       3,
       with(padding, {integers("dilations"), integer("group", 1), integers("kernel_shape"),
                      integers("pads"), integers("strides")}),
       importConv},
      {{"ConvTranspose"},
       2,
       3,
       with(padding, {integers("dilations"), integer("group", 1), ignored(integers("kernel_shape")),
                      integers("output_padding"), integers("output_shape"), integers("pads"),
                      integers("strides")}),
       importConvTranspose},
  });
}
