// Imports matmuls (MatMul, Gemm), softmax, and layer norms.
#include "Arithmetic.h"
#include "Decomposition.h"
#include "Kernels.h"
#include "LoopNest.h"
#include "Losses.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <algorithm>
#include <cmath>
#include <functional>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static int64_t innerStride(const FactorList &list) {
  for (size_t i = list.size(); i-- > 0;)
    if (list[i].stride != 0)
      return list[i].stride;
  return 0;
}

// Exporters compute 1/sqrt(channels) as products of square roots rounded to f32. A scale close to
// it is replaced by the exact value, so that all exporters give the same model.
double zorse::onnx_import::attentionScale(const ImportState &state, double scale,
                                          int64_t channels) {
  double exact = 1.0 / std::sqrt(static_cast<double>(channels));
  if (std::fabs(scale - exact) > 1e-6 * exact)
    return scale;
  return state.options.compute == ComputeType::F64 ? exact
                                                   : static_cast<double>(static_cast<float>(exact));
}

/// Whether the value is a matrix: it carries no samples, and all dimensions except the last two
/// repeat.
static bool isMatrix(const ImportedValue &value) {
  if (isBatched(value))
    return false;
  for (int64_t i = 0; i + 2 < value.rank(); ++i)
    for (const Factor &factor : value.view.dims[i])
      if (factor.stride != 0)
        return false;
  return true;
}

static FailureOr<ImportedValue> productOfConstants(OpContext &op, const ImportedValue &a,
                                                   const ImportedValue &b) {
  if (!isFloat(a.type) || !isFloat(b.type))
    return op.error("multiplies constants of " + Twine(name(a.type)) + " and " + name(b.type) +
                    "; only floating-point ones are folded");
  // Typical case: tables of positions times frequencies, with one or a few products per element.
  int64_t inner = a.view.size(a.rank() - 1);
  ImportedValue left = a, right = b;
  left.view.dims.insert(left.view.dims.end() - 1, FactorList{}); // [.., M, 1, K]
  FactorList k = right.view.dims[right.rank() - 2];
  FactorList columns = right.view.dims.back();
  right.view.dims.pop_back();
  right.view.dims.pop_back();
  right.view.dims.push_back({});
  right.view.dims.push_back(columns);
  right.view.dims.push_back(k); // [.., 1, N, K]
  ImportedValue out = foldElementwise(op.state, {left, right},
                                      inner == 1 ? a.type : ElementKind::F64,
                                      floatKernel2(std::multiplies<double>()));
  if (!out)
    return op.error("expects shapes that broadcast");
  if (inner > 1) {
    if (out.view.elements() > (int64_t(1) << 24))
      return op.error("multiplies large constants; this is not folded");
    ImportedValue whole = copied(op.state, out);
    std::vector<int64_t> shape = whole.shape();
    shape.pop_back();
    auto products = constantFloats(whole, int64_t(1) << 24);
    std::vector<double> sums(products->size() / inner, 0.0);
    for (size_t i = 0; i < products->size(); ++i)
      sums[i / inner] += (*products)[i];
    for (double &sum : sums)
      sum = roundTo(a.type, sum);
    out = constantOf(a.type, makeFloats(a.type, std::move(sums)), shape);
  } else {
    out.view.dims.pop_back();
  }
  return out;
}

/// x [lead..., K] times a matrix. With `swap`, the matrix is the left operand and the product is
/// transposed.
static FailureOr<ImportedValue> timesMatrix(OpContext &op, const ImportedValue &x,
                                            const ImportedValue &w, bool swap) {
  int64_t kAxis = swap ? x.rank() - 2 : x.rank() - 1;
  ImportedValue lead = x;
  lead.view.dims.erase(lead.view.dims.begin() + kAxis);
  // Broadcast batch dimensions of the matrix repeat the result.
  std::vector<int64_t> other = w.shape();
  for (size_t i = 0; i + 2 < other.size(); ++i) {
    int64_t axis = static_cast<int64_t>(i) + x.rank() - static_cast<int64_t>(other.size());
    if (axis < 0 && other[i] != 1)
      return op.error("broadcasts its first operand, which is not supported");
    if (axis >= 0 && other[i] != 1 && lead.view.size(axis) == 1)
      for (const Factor &factor : w.view.dims[i])
        lead.view.dims[axis].push_back(Factor{factor.size, 0, factor.sample});
    else if (axis >= 0 && other[i] != 1 && lead.view.size(axis) != other[i])
      return op.error("expects batch dimensions that broadcast");
  }
  auto nest = LoopNest::of(op, {lead});
  if (failed(nest))
    return failure();
  Value left = nest->emit(op.state, 0, x.view.dims[kAxis]);
  FactorList wK = w.view.dims[swap ? w.rank() - 1 : w.rank() - 2],
             wN = w.view.dims[swap ? w.rank() - 2 : w.rank() - 1];
  bool transposed = innerStride(wN) > innerStride(wK);
  Value right = materialise(op.state, w, transposed ? Groups{wN, wK} : Groups{wK, wN}, false);
  if (auto type = cast<RankedTensorType>(left.getType()); type.getRank() == 1)
    left = reshapeTo(op.state, left, {1, type.getDimSize(0)});
  Value y = create<MatmulOp>(op.state, left, right, false, transposed);
  // The K axis of x is removed. The columns take the position that the matmul gives them.
  return nest->result(y, (swap ? w : x).type, cast<RankedTensorType>(y.getType()).getShape().back(),
                      swap ? kAxis : LoopNest::kEnd);
}

static FailureOr<ImportedValue> productOfActivations(OpContext &op, const ImportedValue &a,
                                                     const ImportedValue &b) {
  int64_t m = a.rank() - 2, n = b.rank() - 1;
  FactorList aK = a.view.dims.back(), bK = b.view.dims[b.rank() - 2], aM = a.view.dims[m],
             bN = b.view.dims[n];
  // Batch axes are common to both operands.
  std::vector<ImportedValue> operands{a, b};
  for (ImportedValue &operand : operands) {
    operand.view.dims.pop_back();
    operand.view.dims.pop_back();
  }
  auto nest = LoopNest::of(op, std::move(operands), LoopNest::Order::File);
  if (failed(nest))
    return failure();
  if (nest->isCopied(0) || nest->isCopied(1))
    return op.error("its operands group batch axes in ways that do not match");
  if (a.view.sampleAxis() >= 0 && b.view.sampleAxis() >= 0 &&
      (a.view.sampleAxis() >= a.rank() - 2) != (b.view.sampleAxis() >= b.rank() - 2))
    return op.error("combines different samples");
  if (a.view.sampleAxis() == m || b.view.sampleAxis() == n)
    return op.error("multiplies samples with samples; every op must treat samples apart");
  bool transposeA = innerStride(aK) > innerStride(aM) && innerStride(aM) != 0,
       transposeB = innerStride(bN) > innerStride(bK) && innerStride(bK) != 0;
  Value left = nest->emit(op.state, 0, transposeA ? Groups{aK, aM} : Groups{aM, aK}),
        right = nest->emit(op.state, 1, transposeB ? Groups{bN, bK} : Groups{bK, bN});
  Value y = create<MatmulOp>(op.state, left, right, transposeA, transposeB);
  return nest->result(y, a.type, cast<RankedTensorType>(y.getType()).getShape().take_back(2));
}

FailureOr<ImportedValue> zorse::onnx_import::product(OpContext &op, ImportedValue a,
                                                     ImportedValue b) {
  for (const ImportedValue *operand : {&a, &b})
    if (!operand->isArray() || !isFloat(operand->type) || operand->view.elements() == 0)
      return op.error("expects two float tensors");
  const int64_t alongA = a.rank() - 1, alongB = std::max<int64_t>(b.rank() - 2, 0);
  if (a.rank() > 0 && b.rank() > 0 &&
      (a.view.sampleAxis() == alongA || b.view.sampleAxis() == alongB))
    return dotOfSamples(op, std::move(a), std::move(b));
  bool vectorA = a.rank() == 1, vectorB = b.rank() == 1;
  if (a.rank() == 0 || b.rank() == 0)
    return op.error("expects operands of rank 1 or more");
  if (vectorA)
    a.view.dims.insert(a.view.dims.begin(), FactorList{});
  if (vectorB)
    b.view.dims.push_back(FactorList{});
  if (a.view.size(a.rank() - 1) != b.view.size(b.rank() - 2))
    return op.error("expects inner dimensions to agree, got " + Twine(a.view.size(a.rank() - 1)) +
                    " and " + Twine(b.view.size(b.rank() - 2)));
  FailureOr<ImportedValue> result;
  Number scale = 1.0;
  if (a.isConstant() && b.isConstant()) {
    result = productOfConstants(op, a, b);
  } else {
    a = compressed(op.state, a);
    b = compressed(op.state, b);
    bool weightB = isMatrix(b), weightA = isMatrix(a);
    // The scale of operands moves to the result of a matmul of activations (attention matching
    // expects it there). It stays on the operands of a matmul with a weight, unless it depends on
    // the batch.
    const Number both = a.scale() * b.scale();
    if (auto constant = both.constant(); !constant || (!weightA && !weightB)) {
      scale = constant ? Number(attentionScale(op.state, *constant, a.view.size(a.rank() - 1)))
                       : both;
      a.takeScale();
      b.takeScale();
    }
    result = weightB   ? timesMatrix(op, a, b, /*swap=*/false)
             : weightA ? timesMatrix(op, b, a, /*swap=*/true)
                       : productOfActivations(op, a, b);
    if (succeeded(result))
      result->tensor().scale = scale;
  }
  if (failed(result))
    return failure();
  if (vectorA)
    result->view.dims.erase(result->view.dims.end() - 2);
  if (vectorB)
    result->view.dims.pop_back();
  return result;
}

static LogicalResult importMatMul(OpContext &op) {
  const ImportedValue &a = op.operand(0), &b = op.operand(1);
  if (a.rank() == 3 && b.rank() == 3 && isBatched(a) && !isBatched(b) && isFloat(a.type) &&
      b.isArray() && a.view.sampleAxis() == 1 && a.view.size(0) == b.view.size(0) &&
      a.view.size(2) == b.view.size(1) && a.view.elements() > 0 && b.view.elements() > 0) {
    // [groups, samples, inner] times one matrix per group
    Decomposition make(op);
    return make.result(
        make.transpose(groupedProduct(make, make.transpose(a, {1, 0, 2}), b), {1, 0, 2}));
  }
  return op.result(product(op, a, b));
}

static LogicalResult importGemm(OpContext &op) {
  ImportedValue a = op.operand(0), b = op.operand(1);
  if (a.rank() != 2 || b.rank() != 2)
    return op.error("expects two matrices");
  if (op.integer("transA"))
    std::swap(a.view.dims[0], a.view.dims[1]);
  if (op.integer("transB"))
    std::swap(b.view.dims[0], b.view.dims[1]);
  auto value = product(op, a, b);
  if (failed(value))
    return failure();
  double alpha = op.real("alpha"), beta = op.real("beta");
  if (value->isTensor()) {
    value->tensor().scale *= alpha;
  } else if (alpha != 1) {
    if (failed(binary(op, "Mul", *value, scalar(value->type, alpha))))
      return failure();
    value = op.result();
  }
  if (!op.has(2) || beta == 0)
    return op.result(std::move(*value));
  ImportedValue c = op.operand(2);
  if (beta != 1) {
    if (failed(binary(op, "Mul", c, scalar(c.type, beta))))
      return failure();
    c = op.result();
  }
  return binary(op, "Add", *value, c);
}

// Softmax over the samples. For values from inputs alone, the maximum and the sum over all samples
// are known before the step.
static ImportedValue normalisedOverSamples(Decomposition &make, const ImportedValue &x,
                                           int64_t axis, bool logarithm) {
  ImportedValue below = make("Sub", {x, make.reduce("ReduceMax", x, {axis}, /*keep=*/true)}),
                each = make("Exp", {below});
  ImportedValue sum = make.reduce("ReduceSum", each, {axis}, /*keep=*/true);
  return logarithm ? make("Sub", {below, make("Log", {sum})}) : make("Div", {each, sum});
}

static LogicalResult importSoftmax(OpContext &op) {
  ImportedValue x = op.operand(0);
  const int64_t axis = op.axis(x.rank());
  if (!x.isTensor() || !isFloat(x.type) || axis < 0)
    return op.error("expects float activations and a valid axis");
  if (x.view.sampleAxis() == axis && !op.state.isFromInputs(x.value()))
    return op.error("normalizes activations over the samples; every op must treat samples apart. A "
                    "softmax of inputs alone may run over them");
  if (x.view.sampleAxis() == axis) {
    Decomposition make(op);
    return make.result(normalisedOverSamples(make, x, axis, op.node.op == "LogSoftmax"));
  }
  ImportedValue outer = x;
  outer.view.dims.erase(outer.view.dims.begin() + axis);
  auto nest = LoopNest::of(op, {std::move(outer)});
  if (failed(nest))
    return failure();
  Value value = nest->emit(op.state, 0, x.view.dims[axis]);
  Value y = op.node.op == "LogSoftmax" ? create<LogSoftmaxOp>(op.state, value.getType(), value)
                                       : create<SoftmaxOp>(op.state, value.getType(), value);
  ImportedValue result = nest->result(y, x.type, x.view.size(axis), axis);
  result.hides = x.hides;
  return op.result(std::move(result));
}

/// Second and third results of LayerNormalization: the mean and the reciprocal of the standard
/// deviation.
static LogicalResult normStatistics(OpContext &op, const ImportedValue &x, int64_t axis) {
  if (op.node.op != "LayerNormalization")
    return op.error("its statistics are used; those of LayerNormalization alone are supported");
  std::vector<int64_t> axes;
  for (int64_t i = axis; i < x.rank(); ++i)
    axes.push_back(i);
  Decomposition make(op);
  ImportedValue mean = make.reduce("ReduceMean", x, axes, /*keep=*/true),
                centred = make("Sub", {x, mean});
  ImportedValue variance =
      make.reduce("ReduceMean", make("Mul", {centred, centred}), axes, /*keep=*/true);
  ImportedValue spread =
      make("Sqrt", {make("Add", {variance, make.number(op.real("epsilon"), x)})});
  ImportedValue inverse = make("Reciprocal", {spread});
  if (make.hasFailed())
    return failure();
  if (op.isUsed(1))
    op.set(1, mean);
  if (op.isUsed(2))
    op.set(2, inverse);
  return success();
}

/// LayerNormalization and RMSNormalization over the axes from `axis` on, joined into one last
/// dimension.
static LogicalResult importNorm(OpContext &op) {
  ImportedValue x = op.operand(0);
  const int64_t axis = op.axis(x.rank());
  if (!x.isTensor() || !isFloat(x.type) || axis < 0)
    return op.error("expects float activations and a valid axis");
  if (x.view.sampleAxis() >= axis)
    return op.error("normalizes over the samples; every op must treat samples apart");
  if ((op.isUsed(1) || op.isUsed(2)) && failed(normStatistics(op, x, axis)))
    return failure();
  FactorList last;
  for (int64_t i = axis; i < x.rank(); ++i)
    last.insert(last.end(), x.view.dims[i].begin(), x.view.dims[i].end());
  coalesce(last);
  ImportedValue outer = x;
  outer.view.dims.resize(axis);
  auto nest = LoopNest::of(op, {std::move(outer)});
  if (failed(nest))
    return failure();
  Value value = nest->emit(op.state, 0, last);
  int64_t channels = cast<RankedTensorType>(value.getType()).getShape().back();
  auto parameterOf = [&](size_t index) -> FailureOr<Value> {
    if (!op.has(index))
      return Value();
    ImportedValue weight = op.operand(index);
    FactorList all;
    int64_t count = 1;
    for (const FactorList &list : weight.view.dims)
      all.insert(all.end(), list.begin(), list.end());
    coalesce(all);
    for (const Factor &factor : all)
      count *= factor.size;
    if (isBatched(weight) || (count != channels && count != 1))
      return op.error("expects a weight of " + Twine(channels) + " elements, got " + Twine(count));
    if (count == 1 && channels != 1)
      all = {Factor{channels, 0, false}};
    return materialise(op.state, weight, {all}, false);
  };
  auto weight = parameterOf(1), bias = parameterOf(2);
  if (failed(weight) || failed(bias))
    return failure();
  double epsilon = op.real("epsilon");
  if (!(epsilon > 0))
    return op.error("expects a positive epsilon");
  Value y;
  if (op.node.op == "LayerNormalization")
    y = create<LayerNormOp>(op.state, value, *weight, *bias, epsilon);
  else
    y = create<RmsNormOp>(op.state, value, *weight, epsilon);
  const std::vector<int64_t> shape = x.shape();
  return op.result(nest->result(y, x.type, ArrayRef(shape).drop_front(axis)));
}

void zorse::onnx_import::registerLinearOps(OperatorRegistry &registry) {
  registry.add({
      {{"MatMul"}, 2, 2, {}, importMatMul},
      {{"Gemm"},
       2,
       3,
       {real("alpha", 1), real("beta", 1), integer("transA", 0), integer("transB", 0)},
       importGemm},
      {{"Softmax", "LogSoftmax"}, 1, 1, {integer("axis", -1)}, importSoftmax},
      {{"LayerNormalization"},
       2,
       3,
       {integer("axis", -1), real("epsilon", 1e-5), only(integer("stash_type"), {"1"})},
       importNorm},
      {{"RMSNormalization", "SimplifiedLayerNormalization"},
       2,
       2,
       {integer("axis", -1), real("epsilon", 1e-5), only(integer("stash_type"), {"1"})},
       importNorm},
  });
}
