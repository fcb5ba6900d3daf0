// Operators that move elements by indices from data: Gather operators, scatters, OneHot, TopK,
// ArgMax.
#include "Call.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace zorse::onnx_reference;

namespace {

bool wrap(Call &call, int64_t &id, int64_t size) {
  const int64_t given = id;
  id = id < 0 ? id + size : id;
  return (id >= 0 && id < size) ||
         call.fail("index " + std::to_string(given) + " of " + std::to_string(size));
}

bool onGather(Call &call) {
  const Array *x = call.in(0), *ids = call.in(1);
  int64_t axis = 0;
  if (!call.integral({1}) || !call.axis(call.integer("axis", 0), x->rank(), axis))
    return false;
  const int64_t outer = product(x->shape, 0, axis), inner = product(x->shape, axis + 1),
                size = x->shape[axis];
  Shape shape(x->shape.begin(), x->shape.begin() + axis);
  shape.insert(shape.end(), ids->shape.begin(), ids->shape.end());
  shape.insert(shape.end(), x->shape.begin() + axis + 1, x->shape.end());
  Array y = Array::of(x->type, shape);
  int64_t to = 0;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t id : ids->integers) {
      if (!wrap(call, id, size))
        return false;
      for (int64_t i = 0; i < inner; ++i)
        y.set(to++, *x, (o * size + id) * inner + i);
    }
  return call.out(std::move(y));
}

bool onGatherElements(Call &call) {
  const Array *x = call.in(0), *ids = call.in(1);
  int64_t axis = 0;
  if (!call.integral({1}) || ids->rank() != x->rank() ||
      !call.axis(call.integer("axis", 0), x->rank(), axis))
    return false;
  Shape strides = stridesOf(x->shape);
  const int64_t along = strides[axis];
  strides[axis] = 0;
  Array y = Array::of(x->type, ids->shape);
  int64_t i = 0;
  bool ok = true;
  walk<1>(ids->shape, {strides}, [&](const std::array<int64_t, 1> &at) {
    int64_t id = ids->integers[i];
    ok = ok && wrap(call, id, x->shape[axis]);
    if (ok)
      y.set(i, *x, at[0] + id * along);
    ++i;
  });
  return ok && call.out(std::move(y));
}

/// Offset of the first element that a tuple of indices selects, among axes from `first` on.
bool place(Call &call, const Array &x, const Array &ids, int64_t tuple, int64_t depth,
           int64_t first, int64_t &at) {
  const Shape strides = stridesOf(x.shape);
  at = 0;
  for (int64_t k = 0; k < depth; ++k) {
    int64_t id = ids.integers[tuple * depth + k];
    if (!wrap(call, id, x.shape[first + k]))
      return false;
    at += id * strides[first + k];
  }
  return true;
}

bool onGatherND(Call &call) {
  const Array *x = call.in(0), *ids = call.in(1);
  const int64_t batch = call.integer("batch_dims", 0);
  if (!call.integral({1}) || batch < 0 || ids->rank() <= batch ||
      batch + ids->shape.back() > x->rank())
    return false;
  const int64_t depth = ids->shape.back(), outer = product(x->shape, 0, batch),
                whole = product(x->shape, batch);
  const int64_t tuples = product(ids->shape, 0, ids->rank() - 1),
                inner = product(x->shape, batch + depth);
  Shape shape(ids->shape.begin(), ids->shape.end() - 1);
  shape.insert(shape.end(), x->shape.begin() + batch + depth, x->shape.end());
  Array y = Array::of(x->type, shape);
  for (int64_t t = 0; t < tuples; ++t) {
    int64_t at = 0;
    if (!place(call, *x, *ids, t, depth, batch, at))
      return false;
    const int64_t base = t / std::max<int64_t>(1, tuples / std::max<int64_t>(1, outer)) * whole +
                         at;
    for (int64_t i = 0; i < inner; ++i)
      y.set(t * inner + i, *x, base + i);
  }
  return call.out(std::move(y));
}

/// Applies an update to its place. ONNX does not define the result of several updates of one place
/// without a reduction; `taken` marks the places that have one.
bool combine(Call &call, Array &y, int64_t to, const Array &updates, int64_t from,
             const std::string &reduction, std::vector<bool> &taken) {
  if (reduction == "none") {
    taken.resize(y.size());
    if (taken[to])
      return call.fail("puts several updates into one place");
    taken[to] = true;
    return y.set(to, updates, from), true;
  }
  const double a = y.real(to), b = updates.real(from);
  const double value = reduction == "add"   ? a + b
                       : reduction == "mul" ? a * b
                       : reduction == "max" ? std::max(a, b)
                                            : std::min(a, b);
  if (y.isFloat())
    y.reals[to] = value;
  else
    y.integers[to] = static_cast<int64_t>(value);
  return true;
}

bool onScatterElements(Call &call) {
  const Array *ids = call.in(1), *updates = call.in(2);
  int64_t axis = 0;
  if (!call.integral({1}) || !updates || updates->isFloat() != call.in(0)->isFloat() ||
      ids->rank() != call.in(0)->rank() || updates->size() != ids->size() ||
      !call.axis(call.integer("axis", 0), call.in(0)->rank(), axis))
    return false;
  Array y = *call.in(0);
  std::vector<bool> taken;
  Shape strides = stridesOf(y.shape);
  const int64_t along = strides[axis];
  strides[axis] = 0;
  int64_t i = 0;
  bool ok = true;
  walk<1>(ids->shape, {strides}, [&](const std::array<int64_t, 1> &at) {
    int64_t id = ids->integers[i];
    ok = ok && wrap(call, id, y.shape[axis]) &&
         combine(call, y, at[0] + id * along, *updates, i, call.string("reduction", "none"), taken);
    ++i;
  });
  return ok && call.out(std::move(y));
}

bool onScatterND(Call &call) {
  const Array *ids = call.in(1), *updates = call.in(2);
  if (!call.integral({1}) || !updates || updates->isFloat() != call.in(0)->isFloat() ||
      ids->rank() < 1 || ids->shape.back() > call.in(0)->rank())
    return false;
  Array y = *call.in(0);
  std::vector<bool> taken;
  const int64_t depth = ids->shape.back(), inner = product(y.shape, depth),
                tuples = product(ids->shape, 0, ids->rank() - 1);
  if (updates->size() != tuples * inner)
    return call.fail("its updates have another shape");
  for (int64_t t = 0; t < tuples; ++t) {
    int64_t at = 0;
    if (!place(call, y, *ids, t, depth, 0, at))
      return false;
    for (int64_t i = 0; i < inner; ++i)
      if (!combine(call, y, at + i, *updates, t * inner + i, call.string("reduction", "none"),
                   taken))
        return false;
  }
  return call.out(std::move(y));
}

bool onOneHot(Call &call) {
  const Array *ids = call.in(0), *depths = call.in(1), *values = call.in(2);
  if (!depths || depths->size() != 1 || !values || values->size() != 2)
    return false;
  const auto depth = static_cast<int64_t>(depths->real(0));
  int64_t axis = 0;
  if (!call.axis(call.integer("axis", -1), ids->rank() + 1, axis))
    return false;
  Shape shape = ids->shape;
  shape.insert(shape.begin() + axis, depth);
  Array y = Array::of(values->type, shape);
  const int64_t inner = product(shape, axis + 1);
  for (int64_t i = 0; i < y.size(); ++i) {
    const auto id = static_cast<int64_t>(ids->real(i / (inner * depth) * inner + i % inner));
    y.set(i, *values, (id < 0 ? id + depth : id) == i / inner % depth ? 1 : 0);
  }
  return call.out(std::move(y));
}

/// Order of the elements along an axis: best first, ties by index.
std::vector<int64_t> ranked(const Array &x, int64_t base, int64_t stride, int64_t size,
                            bool largest) {
  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const double u = x.real(base + a * stride), v = x.real(base + b * stride);
    return largest ? u > v : u < v;
  });
  return order;
}

bool onTopK(Call &call) {
  const Array *x = call.in(0), *count = call.in(1);
  int64_t axis = 0;
  if (!call.integral({1}) || count->size() != 1 ||
      !call.axis(call.integer("axis", -1), x->rank(), axis))
    return false;
  const int64_t k = count->integers[0], size = x->shape[axis], outer = product(x->shape, 0, axis),
                inner = product(x->shape, axis + 1);
  if (k < 0 || k > size)
    return call.fail("takes more than there is");
  Shape shape = x->shape;
  shape[axis] = k;
  Array values = Array::of(x->type, shape), places = Array::of(ElementKind::I64, shape);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      const std::vector<int64_t> order =
          ranked(*x, o * size * inner + i, inner, size, call.integer("largest", 1) != 0);
      for (int64_t n = 0; n < k; ++n) {
        values.set((o * k + n) * inner + i, *x, (o * size + order[n]) * inner + i);
        places.integers[(o * k + n) * inner + i] = order[n];
      }
    }
  if (call.outputs.size() > 1)
    call.outputs[1] = std::move(places);
  return call.out(std::move(values));
}

template <bool largest> bool onArgExtremum(Call &call) {
  const Array *x = call.in(0);
  int64_t axis = 0;
  if (!x || !call.axis(call.integer("axis", 0), x->rank(), axis))
    return false;
  const int64_t size = x->shape[axis], outer = product(x->shape, 0, axis),
                inner = product(x->shape, axis + 1);
  Shape shape = x->shape;
  shape[axis] = 1;
  if (call.integer("keepdims", 1) == 0)
    shape.erase(shape.begin() + axis);
  Array y = Array::of(ElementKind::I64, shape);
  const bool last = call.integer("select_last_index", 0) != 0;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      int64_t best = 0;
      for (int64_t n = 1; n < size; ++n) {
        const double u = x->real((o * size + n) * inner + i),
                     v = x->real((o * size + best) * inner + i);
        if ((largest ? u > v : u < v) || (last && u == v))
          best = n;
      }
      y.integers[o * inner + i] = best;
    }
  return call.out(std::move(y));
}

} // namespace

void zorse::onnx_reference::addPicks(OperatorMap &map) {
  map["Gather"] = onGather;
  map["GatherElements"] = onGatherElements;
  map["GatherND"] = onGatherND;
  map["ScatterElements"] = onScatterElements;
  map["ScatterND"] = onScatterND;
  map["OneHot"] = onOneHot;
  map["TopK"] = onTopK;
  map["ArgMax"] = onArgExtremum<true>;
  map["ArgMin"] = onArgExtremum<false>;
}
