// Imports Slice, Split, Pad and Trilu. They become views; values are copied only if a view cannot
// express the operator.
#include "Decomposition.h"
#include "Known.h"
#include "Lengths.h"
#include "LoopNest.h"
#include "Parts.h"

#include "zorse/Dialect/Zorse/SampleOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// Every element of one sample of inputs as a number that is known before the step: a sum over all
/// samples in which samples with `isThis` [B] false count as 0.
/// \param count  returns the number that is the sum of a value [B]
static std::vector<Number> numbersOfSample(Decomposition &make, const ImportedValue &x,
                                           int64_t axis, const ImportedValue &isThis,
                                           function_ref<Number(ImportedValue)> count) {
  const int64_t elements = x.view.elements() / x.view.size(axis);
  ImportedValue flat = make.reshape(make.move(x, axis, 0), {x.view.size(axis), elements});
  std::vector<Number> numbers;
  for (int64_t i = 0; i < elements && !make.hasFailed(); ++i) {
    ImportedValue single = make.squeeze(make.slice(flat, 1, i, 1), 1);
    if (single.type == ElementKind::Bool)
      single = make.cast(single, ElementKind::I64);
    ImportedValue counted = make("Where", {isThis, single, make.number(0, single)});
    if (!make.hasFailed())
      numbers.push_back(count(std::move(counted)));
  }
  return numbers;
}

// A sum over all samples in which all samples except one count as 0 is known before the step.
LogicalResult zorse::onnx_import::takeSample(OpContext &op, ImportedValue &x, int64_t axis,
                                             int64_t place) {
  constexpr int64_t kMaxPicked = 64;
  std::vector<int64_t> shape = x.shape();
  shape.erase(shape.begin() + axis);
  if (x.view.elements() / op.state.rows > kMaxPicked)
    return op.error("reads one sample of " + Twine(x.view.elements() / op.state.rows) +
                    " numbers in all samples, at most " + Twine(kMaxPicked) +
                    " are possible; make it an input of every sample");
  const auto type = RankedTensorType::get({ShapedType::kDynamic}, op.state.builder.getI64Type());
  const auto real = RankedTensorType::get({ShapedType::kDynamic}, op.state.builder.getF64Type());
  Decomposition make(op);
  const ImportedValue wanted =
      knownScalar(ElementKind::I64, place == 0 ? Number(0.0) : Number::samples() - Number(1.0));
  const ImportedValue isThis = make(
      "Equal",
      {wrap(create<SampleNumberOp>(op.state, type), ElementKind::I64, {op.state.rows}), wanted});
  auto numbers = numbersOfSample(make, x, axis, isThis, [&](ImportedValue value) {
    const Number scale = value.takeScale();
    Value numerator = materialise(op.state, value, groupsOf(value.view, true), true);
    if (!isFloat(value.type)) // f64 represents the integers
      numerator = create<arith::SIToFPOp>(op.state, real, numerator);
    return scale * countOf(op.state, numerator, ReduceKind::Sum);
  });
  if (make.hasFailed())
    return failure();
  x = knownOver(x.type, std::move(numbers), contiguousView(shape, false));
  x.view.dims.insert(x.view.dims.begin() + axis, FactorList{});
  return success();
}

bool zorse::onnx_import::isKnownOfSample(const ImportState &state, const ImportedValue &x,
                                         int64_t axis, int64_t place) {
  return (place == 0 || place == -1) && isBatched(x) && state.isFromInputs(x.value()) &&
         x.view.sampleAxis() == axis && x.view.dims[axis].size() == 1 && !state.rowsBaked &&
         state.options.groupRows == 0;
}

/// Takes a strided slice of the axis, which becomes one dimension.
static void takeStrided(ImportState &state, ImportedValue &x, int64_t axis, int64_t start,
                        int64_t step, int64_t count) {
  ImportedValue whole = copied(state, x);
  Groups groups = groupsOf(whole.view, false);
  Value value = materialise(state, whole, groups, false);
  auto type = cast<RankedTensorType>(value.getType());
  int64_t front = isBatched(value) ? 1 : 0, dim = front;
  for (int64_t i = 0; i < axis; ++i) {
    bool pureSample = whole.view.dims[i].size() == 1 && whole.view.dims[i][0].sample;
    dim += pureSample ? 0 : 1;
  }
  SmallVector<int64_t> offsets(type.getRank(), 0), sizes(type.getShape()),
      strides(type.getRank(), 1);
  offsets[dim] = start;
  sizes[dim] = count;
  strides[dim] = step;
  x.content = Tensor{create<SliceOp>(state, value, offsets, sizes, strides)};
  x.view.offset = 0;
  std::vector<int64_t> shape = whole.shape();
  shape[axis] = count;
  int64_t stride = 1;
  for (int64_t i = x.rank(); i-- > 0;) {
    std::optional<Factor> sample;
    for (const Factor &factor : whole.view.dims[i])
      if (factor.sample)
        sample = factor;
    const int64_t size = shape[i] / (sample ? sample->size : 1);
    x.view.dims[i].clear();
    if (sample)
      x.view.dims[i].push_back(*sample);
    if (size != 1)
      x.view.dims[i].push_back(Factor{size, stride, false});
    stride *= size;
  }
}

// Takes elements start, start + step, ... of one axis, as a view if possible.
LogicalResult zorse::onnx_import::take(OpContext &op, ImportedValue &x, int64_t axis, int64_t start,
                                       int64_t step, int64_t count) {
  int64_t whole = x.view.size(axis);
  if (start == 0 && step == 1 && count == whole)
    return success();
  const FactorList &along = x.view.dims[axis];
  const bool holdsSamples =
      std::any_of(along.begin(), along.end(), [](const Factor &factor) { return factor.sample; });
  if (holdsSamples) { // factors outside of the samples may be cut
    const int64_t inside = along.front().sample ? 0 : whole / along.front().size;
    if (inside == 0 || step != 1 || start % inside != 0 || count % inside != 0 || count == 0)
      return op.error("selects some of the samples: it cuts the axis that holds them, and a "
                      "program has its own samples alone. Of inputs, the "
                      "first and the last sample may be read (x[:1], x[-1:]); make values of other "
                      "samples an input");
  }
  if (count == 0) {
    std::vector<int64_t> shape = x.shape();
    shape[axis] = 0;
    x = constantOf(x.type, makeFill(x.type, 0, 0), shape);
    return success();
  }
  View before = x.view;
  if (sliceView(x.view, axis, start, step, count) &&
      (x.isConstant() || x.isKnown() || isCuttable(x.view, perRow(x.value()))))
    return success();
  x.view = before;
  if (holdsSamples && isBatched(x)) {
    x = copied(op.state, x);
    if (sliceView(x.view, axis, start, step, count) && isCuttable(x.view, perRow(x.value())))
      return success();
    return op.error("cuts an axis that holds the samples in a way that is not supported");
  }
  if (x.isConstant() || x.isKnown()) {
    x = copied(op.state, x);
    if (sliceView(x.view, axis, start, step, count))
      return success();
    return op.error("this slice is not supported");
  }
  if (step < 0) {
    std::vector<int64_t> places;
    places.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      places.push_back(start + i * step);
    auto reversed = pickedFromGraph(op, x, axis, places, std::nullopt);
    if (failed(reversed))
      return failure();
    return x = std::move(*reversed), success();
  }
  takeStrided(op.state, x, axis, start, step, count);
  return success();
}

static LogicalResult importSlice(OpContext &op) {
  constexpr int64_t kEverything = (int64_t(1) << 31) - 2; // an end from here on means the whole
                                                          // axis
  ImportedValue x = op.operand(0);
  auto starts = constantInts(op.operand(1)), ends = constantInts(op.operand(2));
  if (op.operand(1).isKnown() || op.operand(2).isKnown())
    return sliceByNumbers(op);
  if (!starts || !ends || starts->size() != ends->size())
    return op.error("expects constant starts and ends; they depend on data");
  std::vector<int64_t> axes, steps;
  if (op.has(3)) {
    auto given = constantInts(op.operand(3));
    if (!given)
      return op.error("expects constant axes");
    axes = *given;
  } else
    for (size_t i = 0; i < starts->size(); ++i)
      axes.push_back(static_cast<int64_t>(i));
  if (op.has(4)) {
    auto given = constantInts(op.operand(4));
    if (!given)
      return op.error("expects constant steps");
    steps = *given;
  } else
    steps.assign(starts->size(), 1);
  if (axes.size() != starts->size() || steps.size() != starts->size())
    return op.error("expects equal numbers of starts, axes and steps");
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t axis = axes[i] < 0 ? axes[i] + x.rank() : axes[i], step = steps[i];
    if (axis < 0 || axis >= x.rank() || step == 0 || step == std::numeric_limits<int64_t>::min())
      return op.error("axis or step is not valid");
    int64_t size = x.view.size(axis), start = (*starts)[i], end = (*ends)[i];
    if (step == 1 && ((start == 0 && end == 1) || (start == -1 && end >= kEverything)) &&
        isKnownOfSample(op.state, x, axis, start)) {
      if (failed(takeSample(op, x, axis, start)))
        return failure();
      continue;
    }
    if (failed(checkBounds(op, x, axis, start, end)))
      return failure();
    start = start < 0 ? std::max<int64_t>(start, -size - 1) + size : start;
    end = end < 0 ? std::max<int64_t>(end, -size - 1) + size : end;
    int64_t count;
    if (step > 0) {
      start = std::clamp<int64_t>(start, 0, size);
      end = std::clamp<int64_t>(end, 0, size);
      count = end > start ? (end - start - 1) / step + 1 : 0;
    } else {
      start = std::clamp<int64_t>(start, -1, size - 1);
      end = std::clamp<int64_t>(end, -1, size - 1);
      count = start > end ? (start - end - 1) / -step + 1 : 0;
    }
    if (failed(take(op, x, axis, start, step, count)))
      return failure();
  }
  return op.result(std::move(x));
}

static LogicalResult importSplit(OpContext &op) {
  const ImportedValue &x = op.operand(0);
  const int64_t axis = op.axis(x.rank());
  if (axis < 0)
    return op.error("axis is outside the rank");
  int64_t size = x.view.size(axis), parts = static_cast<int64_t>(op.node.outputs.size());
  if (int64_t said = op.integer("num_outputs", parts); said != parts)
    return op.error("num_outputs is " + Twine(said) + ", but it has " + Twine(parts) + " outputs");
  std::vector<int64_t> sizes;
  if (op.has(1)) {
    auto given = lengthsOf(op, 1);
    if (failed(given))
      return failure();
    for (const Length &length : *given)
      sizes.push_back(length.size);
  } else {
    int64_t each = (size + parts - 1) / parts;
    for (int64_t i = 0; i < parts; ++i)
      sizes.push_back(std::min(each, size - std::min(size, i * each)));
  }
  int64_t at = 0;
  if (static_cast<int64_t>(sizes.size()) != parts)
    return op.error("expects " + Twine(parts) + " sizes, found " + Twine(sizes.size()));
  for (int64_t i = 0; i < parts; ++i) {
    if (sizes[i] < 0 || sizes[i] > size - at)
      return op.error("its sizes exceed the dimension of " + Twine(size));
    ImportedValue part = x;
    if (op.node.outputs[i] >= 0 && failed(take(op, part, axis, at, 1, sizes[i])))
      return failure();
    op.set(i, std::move(part));
    at += sizes[i];
  }
  return success();
}

static LogicalResult importPad(OpContext &op) {
  ImportedValue x = op.operand(0);
  auto pads = constantInts(op.operand(1));
  if (!pads)
    return op.error("expects constant pads");
  double fill = 0;
  if (op.has(2)) {
    auto value = uniformValue(op.state, op.operand(2));
    if (!value)
      return op.error("expects a constant value");
    fill = *value;
  }
  std::vector<int64_t> axes;
  if (op.has(3)) {
    auto given = constantInts(op.operand(3));
    if (!given)
      return op.error("expects constant axes");
    axes = *given;
  } else
    for (int64_t i = 0; i < x.rank(); ++i)
      axes.push_back(i);
  if (pads->size() != 2 * axes.size())
    return op.error("expects two pads per axis");
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t axis = axes[i] < 0 ? axes[i] + x.rank() : axes[i], before = (*pads)[i],
            after = (*pads)[i + axes.size()];
    if (axis < 0 || axis >= x.rank())
      return op.error("axis is outside the rank");
    if (before == 0 && after == 0)
      continue;
    int64_t size = x.view.size(axis);
    constexpr int64_t kMax = 1 << 24;
    std::vector<int64_t> padded = x.shape();
    if (before < -kMax || before > kMax || after < -kMax || after > kMax ||
        (padded[axis] += before + after, !isSensible(padded)))
      return op.error("its pads are out of range");
    int64_t cutFront = std::max<int64_t>(0, -before), cutBack = std::max<int64_t>(0, -after);
    if (cutFront + cutBack > size)
      return op.error("its pads are out of range");
    if (failed(take(op, x, axis, cutFront, 1, size - cutFront - cutBack)))
      return failure();
    std::vector<ImportedValue> parts;
    auto filler = [&](int64_t count) {
      View view = x.view;
      view.dims[axis] = {Factor{count, 0, false}};
      return fillOver(x.type, fill, std::move(view));
    };
    if (before > 0)
      parts.push_back(filler(before));
    parts.push_back(x);
    if (after > 0)
      parts.push_back(filler(after));
    if (failed(concatenate(op, parts, axis)))
      return failure();
    x = op.result();
  }
  return op.result(std::move(x));
}

static LogicalResult importTrilu(OpContext &op) {
  const ImportedValue &x = op.operand(0);
  if (x.rank() < 2)
    return op.error("expects a tensor of rank 2 or more");
  int64_t diagonal = 0;
  if (op.has(1)) {
    auto given = uniformValue(op.state, op.operand(1));
    if (!given)
      return op.error("expects a constant diagonal");
    diagonal = truncateToInt(*given);
  }
  bool upper = op.integer("upper") != 0;
  int64_t height = x.view.size(x.rank() - 2), width = x.view.size(x.rank() - 1);
  ImportedValue row =
      constantOf(ElementKind::I64, makeIota(ElementKind::I64, height, 0, 1), {height, 1});
  ImportedValue column =
      constantOf(ElementKind::I64, makeIota(ElementKind::I64, width, 0, 1), {1, width});
  Kernel keep;
  keep.ints = [=](int64_t n, const int64_t *const *operands, int64_t *to) {
    for (int64_t i = 0; i < n; ++i) {
      int64_t distance = operands[1][i] - operands[0][i];
      to[i] = upper ? distance >= diagonal : distance <= diagonal;
    }
  };
  ImportedValue mask = foldElementwise(op.state, {row, column}, ElementKind::Bool, keep);
  ImportedValue zero = constantOf(x.type, makeFill(x.type, 1, 0), {});
  if (x.isConstant()) {
    Kernel select;
    select.select = true;
    return op.result(foldElementwise(op.state, {mask, x, zero}, x.type, select));
  }
  return emitElementwise(op, {mask, x, zero}, x.type, [&](ValueRange operands, RankedTensorType) {
    return create<arith::SelectOp>(op.state, operands[0], operands[1], operands[2]);
  });
}

void zorse::onnx_import::registerSliceOps(OperatorRegistry &registry) {
  registry.add({
      {{"Slice"}, 3, 5, {}, importSlice},
      {{"Split"}, 1, 2, {integer("axis", 0), integer("num_outputs")}, importSplit},
      {{"Pad"}, 2, 4, {only(text("mode"), {"constant"})}, importPad},
      {{"Trilu"}, 1, 2, {integer("upper", 1)}, importTrilu},
  });
}
