// Operators that take parts of a value or put more around them: views, and copies only where a view cannot say it.
#include "Composition.h"

#include "zorse/Dialect/Zorse/SampleOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// Every element of one sample of inputs as a number of the step: a sum over all samples in which those that are not `isThis` [B] count as 0.
/// \param count  the number that sums a value [B]
static std::vector<Number> numbersOfSample(Composition &make, const Val &x, int64_t axis, const Val &isThis, function_ref<Number(Val)> count) {
  std::vector<int64_t> order{axis};
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != axis)
      order.push_back(i);
  const int64_t elements = x.view.elements() / x.view.size(axis);
  Val flat = make.reshape(make.transpose(x, order), {x.view.size(axis), elements});
  std::vector<Number> numbers;
  for (int64_t i = 0; i < elements && !make.hasFailed(); ++i) {
    Val single = make.squeeze(make.slice(flat, 1, i, 1), 1);
    if (single.type == ElementKind::Bool)
      single = make.cast(single, ElementKind::I64);
    Val counted = make("Where", {isThis, single, make.number(0, single)});
    if (!make.hasFailed())
      numbers.push_back(count(std::move(counted)));
  }
  return numbers;
}

// A sum over all samples in which all but one count as 0 is known before the step.
LogicalResult Importer::takeSample(const GraphNode &node, Val &x, int64_t axis, int64_t place) {
  constexpr int64_t kMostPicked = 64;
  std::vector<int64_t> shape = x.shape();
  shape.erase(shape.begin() + axis);
  if (x.view.elements() / rows > kMostPicked)
    return error(node, "reads one sample of " + Twine(x.view.elements() / rows) + " numbers in all samples, at most " + Twine(kMostPicked) +
                           " are possible; make it an input of every sample");
  const auto type = RankedTensorType::get({ShapedType::kDynamic}, builder.getI64Type());
  const auto real = RankedTensorType::get({ShapedType::kDynamic}, builder.getF64Type());
  Composition make(*this, node);
  const Val wanted = knownScalar(ElementKind::I64, place == 0 ? Number(0.0) : Number::samples() - Number(1.0));
  const Val isThis = make("Equal", {wrap(create<SampleNumberOp>(type), ElementKind::I64, {rows}), wanted});
  auto numbers = numbersOfSample(make, x, axis, isThis, [&](Val value) {
    Number scale = 1.0;
    std::swap(scale, value.scale);
    Value numerator = materialise(value, groupsOf(value.view, true), true);
    if (!isFloat(value.type)) // f64 holds them
      numerator = create<arith::SIToFPOp>(real, numerator);
    return scale * countOf(numerator, ReduceKind::Sum);
  });
  if (make.hasFailed())
    return failure();
  x = knownOver(x.type, std::move(numbers), contiguousView(shape, false));
  x.view.dims.insert(x.view.dims.begin() + axis, FactorList{});
  return success();
}

bool Importer::isKnownOfSample(const Val &x, int64_t axis, int64_t place) const {
  return (place == 0 || place == -1) && isSampled(x) && isFromInputs(x.value) && x.view.sampleAxis() == axis && x.view.dims[axis].size() == 1 &&
         !rowsBaked && options.batchNormRows == 0;
}

/// A strided slice of the axis as one dimension.
void Importer::takeStrided(Val &x, int64_t axis, int64_t start, int64_t step, int64_t count) {
  Val whole = copied(x);
  Groups groups = groupsOf(whole.view, false);
  Value value = materialise(whole, groups, false);
  auto type = cast<RankedTensorType>(value.getType());
  int64_t front = isSampled(value) ? 1 : 0, dim = front;
  for (int64_t i = 0; i < axis; ++i) {
    bool pureSample = whole.view.dims[i].size() == 1 && whole.view.dims[i][0].sample;
    dim += pureSample ? 0 : 1;
  }
  SmallVector<int64_t> offsets(type.getRank(), 0), sizes(type.getShape()), strides(type.getRank(), 1);
  offsets[dim] = start;
  sizes[dim] = count;
  strides[dim] = step;
  x.value = create<SliceOp>(value, offsets, sizes, strides);
  x.scale = whole.scale;
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

// Elements start, start + step, ... of one axis, by view where possible.
LogicalResult Importer::take(const GraphNode &node, Val &x, int64_t axis, int64_t start, int64_t step, int64_t count) {
  int64_t whole = x.view.size(axis);
  if (start == 0 && step == 1 && count == whole)
    return success();
  const FactorList &along = x.view.dims[axis];
  const bool holdsSamples = std::any_of(along.begin(), along.end(), [](const Factor &factor) { return factor.sample; });
  if (holdsSamples) { // what is outside of the samples may be cut
    const int64_t inside = along.front().sample ? 0 : whole / along.front().size;
    if (inside == 0 || step != 1 || start % inside != 0 || count % inside != 0 || count == 0)
      return error(node, "selects some of the samples: it cuts the axis that holds them, and a program has its own samples alone. Of inputs, the "
                         "first and the last sample may be read (x[:1], x[-1:]); make what is read of others an input");
  }
  if (count == 0) {
    std::vector<int64_t> shape = x.shape();
    shape[axis] = 0;
    x = constantOf(x.type, makeFill(x.type, 0, 0), shape);
    return success();
  }
  View before = x.view;
  if (sliceView(x.view, axis, start, step, count) && (x.isConstant() || x.isKnown() || isCuttable(x.view, perRow(x.value))))
    return success();
  x.view = before;
  if (holdsSamples && isSampled(x)) {
    x = copied(x);
    if (sliceView(x.view, axis, start, step, count) && isCuttable(x.view, perRow(x.value)))
      return success();
    return error(node, "cuts an axis that holds the samples in a way that is not supported");
  }
  if (x.isConstant() || x.isKnown()) {
    x = copied(x);
    if (sliceView(x.view, axis, start, step, count))
      return success();
    return error(node, "this slice is not supported");
  }
  if (step < 0) {
    std::vector<int64_t> places;
    places.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      places.push_back(start + i * step);
    auto reversed = pickedFromGraph(node, x, axis, places, std::nullopt);
    if (failed(reversed))
      return failure();
    return x = std::move(*reversed), success();
  }
  takeStrided(x, axis, start, step, count);
  return success();
}

LogicalResult Importer::onSlice(const GraphNode &node) {
  constexpr int64_t kEverything = (int64_t(1) << 31) - 2; // an end that means all
  Val x = in(node, 0);
  auto starts = constantInts(in(node, 1)), ends = constantInts(in(node, 2));
  if (in(node, 1).isKnown() || in(node, 2).isKnown())
    return sliceByNumbers(node);
  if (!starts || !ends || starts->size() != ends->size())
    return error(node, "expects constant starts and ends; they depend on data");
  std::vector<int64_t> axes, steps;
  if (has(node, 3)) {
    auto given = constantInts(in(node, 3));
    if (!given)
      return error(node, "expects constant axes");
    axes = *given;
  } else
    for (size_t i = 0; i < starts->size(); ++i)
      axes.push_back(static_cast<int64_t>(i));
  if (has(node, 4)) {
    auto given = constantInts(in(node, 4));
    if (!given)
      return error(node, "expects constant steps");
    steps = *given;
  } else
    steps.assign(starts->size(), 1);
  if (axes.size() != starts->size() || steps.size() != starts->size())
    return error(node, "expects as many axes and steps as starts");
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t axis = axes[i] < 0 ? axes[i] + x.rank() : axes[i], step = steps[i];
    if (axis < 0 || axis >= x.rank() || step == 0 || step == std::numeric_limits<int64_t>::min())
      return error(node, "axis or step is not valid");
    int64_t size = x.view.size(axis), start = (*starts)[i], end = (*ends)[i];
    if (step == 1 && ((start == 0 && end == 1) || (start == -1 && end >= kEverything)) && isKnownOfSample(x, axis, start)) {
      if (failed(takeSample(node, x, axis, start)))
        return failure();
      continue;
    }
    if (failed(checkBounds(node, x, axis, start, end)))
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
    if (failed(take(node, x, axis, start, step, count)))
      return failure();
  }
  return out(node, 0, std::move(x)), success();
}

LogicalResult Importer::onSplit(const GraphNode &node) {
  const Val &x = in(node, 0);
  int64_t axis = intAttribute(node, "axis", 0);
  axis = axis < 0 ? axis + x.rank() : axis;
  if (axis < 0 || axis >= x.rank())
    return error(node, "axis is outside the rank");
  int64_t size = x.view.size(axis), parts = static_cast<int64_t>(node.outputs.size());
  if (int64_t said = intAttribute(node, "num_outputs", parts); said != parts)
    return error(node, "num_outputs is " + Twine(said) + ", and it has " + Twine(parts) + " outputs");
  std::vector<int64_t> sizes;
  if (has(node, 1)) {
    auto given = lengthsOf(node, 1);
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
    return error(node, "expects " + Twine(parts) + " sizes, found " + Twine(sizes.size()));
  for (int64_t i = 0; i < parts; ++i) {
    if (sizes[i] < 0 || sizes[i] > size - at)
      return error(node, "its sizes exceed the dimension of " + Twine(size));
    Val part = x;
    if (node.outputs[i] >= 0 && failed(take(node, part, axis, at, 1, sizes[i])))
      return failure();
    out(node, i, std::move(part));
    at += sizes[i];
  }
  return success();
}

LogicalResult Importer::onPad(const GraphNode &node) {
  Val x = in(node, 0);
  auto pads = constantInts(in(node, 1));
  if (!pads)
    return error(node, "expects constant pads");
  double fill = 0;
  if (has(node, 2)) {
    auto value = uniformValue(in(node, 2));
    if (!value)
      return error(node, "expects a constant value");
    fill = *value;
  }
  std::vector<int64_t> axes;
  if (has(node, 3)) {
    auto given = constantInts(in(node, 3));
    if (!given)
      return error(node, "expects constant axes");
    axes = *given;
  } else
    for (int64_t i = 0; i < x.rank(); ++i)
      axes.push_back(i);
  if (pads->size() != 2 * axes.size())
    return error(node, "expects two pads per axis");
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t axis = axes[i] < 0 ? axes[i] + x.rank() : axes[i], before = (*pads)[i], after = (*pads)[i + axes.size()];
    if (axis < 0 || axis >= x.rank())
      return error(node, "axis is outside the rank");
    if (before == 0 && after == 0)
      continue;
    int64_t size = x.view.size(axis);
    constexpr int64_t kMost = 1 << 24;
    std::vector<int64_t> padded = x.shape();
    if (before < -kMost || before > kMost || after < -kMost || after > kMost || (padded[axis] += before + after, !isSensible(padded)))
      return error(node, "its pads are not sensible");
    int64_t cutFront = std::max<int64_t>(0, -before), cutBack = std::max<int64_t>(0, -after);
    if (cutFront + cutBack > size)
      return error(node, "its pads are not sensible");
    if (failed(take(node, x, axis, cutFront, 1, size - cutFront - cutBack)))
      return failure();
    std::vector<Val> parts;
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
    if (failed(concatenate(node, parts, axis)))
      return failure();
    x = values[node.outputs[0]];
  }
  return out(node, 0, std::move(x)), success();
}

LogicalResult Importer::onTrilu(const GraphNode &node) {
  const Val &x = in(node, 0);
  if (x.rank() < 2)
    return error(node, "expects a tensor of rank 2 or more");
  int64_t diagonal = 0;
  if (has(node, 1)) {
    auto given = uniformValue(in(node, 1));
    if (!given)
      return error(node, "expects a constant diagonal");
    diagonal = truncateToInt(*given);
  }
  bool upper = intAttribute(node, "upper", 1) != 0;
  int64_t height = x.view.size(x.rank() - 2), width = x.view.size(x.rank() - 1);
  Val row = constantOf(ElementKind::I64, makeIota(ElementKind::I64, height, 0, 1), {height, 1});
  Val column = constantOf(ElementKind::I64, makeIota(ElementKind::I64, width, 0, 1), {1, width});
  Kernel keep;
  keep.ints = [=](int64_t n, const int64_t *const *operands, int64_t *to) {
    for (int64_t i = 0; i < n; ++i) {
      int64_t distance = operands[1][i] - operands[0][i];
      to[i] = upper ? distance >= diagonal : distance <= diagonal;
    }
  };
  Val mask = foldElementwise({row, column}, ElementKind::Bool, keep);
  Val zero = constantOf(x.type, makeFill(x.type, 1, 0), {});
  if (x.isConstant()) {
    Kernel select;
    select.select = true;
    return out(node, 0, foldElementwise({mask, x, zero}, x.type, select)), success();
  }
  return emitElementwise(node, {mask, x, zero}, x.type,
                         [&](ValueRange operands, RankedTensorType) { return create<arith::SelectOp>(operands[0], operands[1], operands[2]); });
}

void Importer::addSliceOps(OperatorTable &table) {
  table.add({"Slice"}, 3, 5, "", &Importer::onSlice);
  table.add({"Split"}, 1, 2, "axis:i num_outputs:i", &Importer::onSplit);
  table.add({"Pad"}, 2, 4, "mode:s=constant", &Importer::onPad);
  table.add({"Trilu"}, 1, 2, "upper:i", &Importer::onTrilu);
}
