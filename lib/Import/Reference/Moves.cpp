// Operators that move elements to places given by shapes and constants: Transpose, Concat, Split,
// Slice, Pad, Tile, Trilu.
#include "Call.h"

#include <algorithm>
#include <numeric>

using namespace zorse::onnx_reference;

Array zorse::onnx_reference::transposed(const Array &x, const std::vector<int64_t> &order) {
  Shape shape, strides;
  const Shape own = stridesOf(x.shape);
  for (int64_t axis : order) {
    shape.push_back(x.shape[axis]);
    strides.push_back(own[axis]);
  }
  Array y = Array::of(x.type, shape);
  int64_t i = 0;
  walk<1>(shape, {strides}, [&](const std::array<int64_t, 1> &at) { y.set(i++, x, at[0]); });
  return y;
}

Array zorse::onnx_reference::cut(const Array &x, int64_t axis, int64_t start, int64_t step,
                                 int64_t count) {
  Shape shape = x.shape, strides = stridesOf(x.shape);
  const int64_t base = start * strides[axis];
  shape[axis] = count;
  strides[axis] *= step;
  Array y = Array::of(x.type, shape);
  int64_t i = 0;
  walk<1>(shape, {strides}, [&](const std::array<int64_t, 1> &at) { y.set(i++, x, base + at[0]); });
  return y;
}

namespace {

/// Copies `part` into `whole`, from position `at` of an axis on.
void paste(Array &whole, const Array &part, int64_t axis, int64_t at) {
  const Shape strides = stridesOf(whole.shape);
  int64_t i = 0;
  walk<1>(part.shape, {strides}, [&](const std::array<int64_t, 1> &to) {
    whole.set(to[0] + at * strides[axis], part, i++);
  });
}

bool onTranspose(Call &call) {
  const Array &x = *call.in(0);
  std::vector<int64_t> order;
  for (int64_t i = x.rank(); i-- > 0;)
    order.push_back(i);
  if (auto given = call.integers("perm"))
    order = *given;
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    return call.fail("names an axis twice");
  if (static_cast<int64_t>(order.size()) != x.rank())
    return call.fail("its permutation has another rank");
  for (int64_t &axis : order)
    if (!call.axis(axis, x.rank(), axis))
      return false;
  return call.out(transposed(x, order));
}

bool onConcat(Call &call) {
  int64_t axis = 0;
  if (!call.in(0) || !call.axis(call.integer("axis", 0), call.in(0)->rank(), axis))
    return false;
  Shape shape = call.in(0)->shape;
  shape[axis] = 0;
  for (const Array *part : call.inputs) {
    if (!part || part->rank() != static_cast<int64_t>(shape.size()) ||
        part->isFloat() != call.in(0)->isFloat())
      return call.fail("joins different ranks");
    for (int64_t i = 0; i < part->rank(); ++i)
      if (i != axis && part->shape[i] != shape[i])
        return call.fail("joins " + text(call.in(0)->shape) + " and " + text(part->shape));
    shape[axis] += part->shape[axis];
  }
  Array y = Array::of(call.in(0)->type, shape);
  int64_t at = 0;
  for (const Array *part : call.inputs) {
    paste(y, *part, axis, at);
    at += part->shape[axis];
  }
  return call.out(std::move(y));
}

bool onSplit(Call &call) {
  const Array &x = *call.in(0);
  int64_t axis = 0;
  if (!call.axis(call.integer("axis", 0), x.rank(), axis))
    return false;
  const auto parts = static_cast<int64_t>(call.outputs.size());
  std::vector<int64_t> sizes(parts, (x.shape[axis] + parts - 1) / parts);
  if (auto given = call.integers(1, "split"))
    sizes = *given;
  else
    sizes.back() = x.shape[axis] - sizes[0] * (parts - 1);
  int64_t at = 0;
  for (int64_t i = 0; i < parts && i < static_cast<int64_t>(sizes.size()); ++i) {
    if (sizes[i] < 0 || at + sizes[i] > x.shape[axis])
      return call.fail("takes more than there is");
    call.outputs[i] = cut(x, axis, at, 1, sizes[i]);
    at += sizes[i];
  }
  return at == x.shape[axis] || call.fail("leaves elements out");
}

bool onSlice(Call &call) {
  const Array *starts = call.in(1), *ends = call.in(2), *axes = call.in(3), *steps = call.in(4);
  for (size_t i = 1; i < call.inputs.size(); ++i)
    if (call.in(i) && (call.in(i)->isFloat() || call.in(i)->size() != starts->size()))
      return call.fail("expects bounds, axes and steps of one size");
  if (!starts || !ends)
    return false;
  Array y = *call.in(0);
  for (int64_t i = 0; i < starts->size(); ++i) {
    int64_t axis = 0;
    if (!call.axis(axes ? axes->integers[i] : i, y.rank(), axis))
      return false;
    const int64_t size = y.shape[axis], step = steps ? steps->integers[i] : 1;
    if (step == 0)
      return call.fail("has a step of 0");
    auto bound = [&](int64_t at, int64_t low, int64_t high) {
      return std::clamp(at < 0 ? at + size : at, low, high);
    };
    const int64_t begin = step > 0 ? bound(starts->integers[i], 0, size)
                                   : bound(starts->integers[i], 0, size - 1);
    const int64_t end = step > 0 ? bound(ends->integers[i], 0, size)
                                 : bound(ends->integers[i], -1, size - 1);
    const int64_t count = step > 0 ? (end - begin + step - 1) / step
                                   : (begin - end - step - 1) / -step;
    y = cut(y, axis, begin, step, std::max<int64_t>(0, count));
  }
  return call.out(std::move(y));
}

/// The position, in an axis of `size`, of the element at position `at` of the padded axis; -1 for
/// the constant.
int64_t source(const std::string &mode, int64_t at, int64_t size) {
  if (at >= 0 && at < size)
    return at;
  if (mode == "edge")
    return at < 0 ? 0 : size - 1;
  if (mode == "wrap")
    return ((at % size) + size) % size;
  if (mode != "reflect" || size < 1)
    return -1;
  const int64_t period = std::max<int64_t>(1, 2 * (size - 1)),
                place = ((at % period) + period) % period;
  return place < size ? place : period - place;
}

bool onPad(Call &call) {
  const Array &x = *call.in(0);
  auto pads = call.integers(1, "pads");
  if (!pads)
    return false;
  std::vector<int64_t> axes(static_cast<size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  if (call.in(3))
    axes = call.in(3)->isFloat() ? axes : call.in(3)->integers;
  if (pads->size() != 2 * axes.size())
    return call.fail("expects two pads per axis");
  const std::string mode = call.string("mode", "constant");
  Shape shape = x.shape, before(x.shape.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t axis = 0;
    if (!call.axis(axes[i], x.rank(), axis))
      return false;
    before[axis] = (*pads)[i];
    shape[axis] += (*pads)[i] + (*pads)[i + axes.size()];
  }
  Array y = Array::of(x.type, shape);
  const Shape strides = stridesOf(shape), own = stridesOf(x.shape);
  int64_t i = 0;
  walk<1>(shape, {strides}, [&](const std::array<int64_t, 1> &at) {
    int64_t from = 0;
    bool outside = false;
    for (size_t k = 0; k < shape.size(); ++k) {
      const int64_t place = source(mode, at[0] / strides[k] % shape[k] - before[k], x.shape[k]);
      outside |= place < 0;
      from += place * own[k];
    }
    if (!outside)
      y.set(i, x, from);
    else if (call.in(2) && call.in(2)->size() == 1 && call.in(2)->isFloat() == x.isFloat())
      y.set(i, *call.in(2), 0);
    ++i;
  });
  return call.out(std::move(y));
}

bool onTile(Call &call) {
  const Array *x = call.in(0), *repeats = call.in(1);
  if (!call.integral({1}) || repeats->size() != x->rank())
    return false;
  Shape shape = x->shape;
  for (size_t i = 0; i < shape.size(); ++i)
    shape[i] *= repeats->integers[i];
  Array y = Array::of(x->type, shape);
  const Shape strides = stridesOf(shape), own = stridesOf(x->shape);
  int64_t i = 0;
  walk<1>(shape, {strides}, [&](const std::array<int64_t, 1> &at) {
    int64_t from = 0;
    for (size_t k = 0; k < shape.size(); ++k)
      from += at[0] / strides[k] % shape[k] % x->shape[k] * own[k];
    y.set(i++, *x, from);
  });
  return call.out(std::move(y));
}

bool onTrilu(Call &call) {
  Array y = *call.in(0);
  if (y.rank() < 2 || (call.in(1) && (call.in(1)->isFloat() || call.in(1)->size() != 1)))
    return false;
  const int64_t k = call.in(1) ? call.in(1)->integers[0] : 0, columns = y.shape.back(),
                lines = y.shape[y.rank() - 2];
  const bool upper = call.integer("upper", 1) != 0;
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t line = i / columns % lines, column = i % columns;
    if (upper ? column - line >= k : column - line <= k)
      continue;
    if (y.isFloat())
      y.reals[i] = 0;
    else
      y.integers[i] = 0;
  }
  return call.out(std::move(y));
}

} // namespace

void zorse::onnx_reference::addMoves(OperatorMap &map) {
  map["Transpose"] = onTranspose;
  map["Concat"] = onConcat;
  map["Split"] = onSplit;
  map["Slice"] = onSlice;
  map["Pad"] = onPad;
  map["Tile"] = onTile;
  map["Trilu"] = onTrilu;
}
