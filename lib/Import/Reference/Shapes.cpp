// Operators that make arrays from shapes or change the shape of an array. The order of elements
// stays.
#include "Call.h"

#include <algorithm>
#include <cmath>

using namespace zorse::onnx_reference;

Array zorse::onnx_reference::reshaped(const Array &x, Shape shape) {
  Array y = x;
  y.shape = std::move(shape);
  return y;
}

Array zorse::onnx_reference::expanded(const Array &x, const Shape &shape) {
  Array y = Array::of(x.type, shape);
  int64_t i = 0;
  walk<1>(shape, {stridesOnto(x.shape, shape)},
          [&](const std::array<int64_t, 1> &at) { y.set(i++, x, at[0]); });
  return y;
}

namespace {

bool onConstant(Call &call) {
  if (auto values = call.integers("value_ints")) {
    const auto count = static_cast<int64_t>(values->size());
    return call.out(Array::ofInts({count}, *values));
  }
  if (call.has("value_int"))
    return call.out(Array::ofInts({}, {call.integer("value_int", 0)}));
  Array y;
  if (call.has("value_float")) {
    y = Array::ofReals({}, {call.real("value_float", 0)});
  } else if (call.has("value_floats")) {
    const auto &values = call.node.attributes.at("value_floats")->floats();
    y = Array::ofReals({values.size()}, std::vector<double>(values.begin(), values.end()));
  } else {
    return call.fail("a constant without numbers");
  }
  y.type = ElementKind::F32;
  return call.out(std::move(y));
}

bool onReshape(Call &call) {
  const Array *x = call.in(0), *target = call.in(1);
  if (!target || !call.integral({1}))
    return false;
  Shape shape = target->integers;
  int64_t open = -1, rest = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && call.integer("allowzero", 0) == 0) {
      if (i >= x->shape.size())
        return call.fail("keeps a dimension that is not there");
      shape[i] = x->shape[i];
    }
    if (shape[i] == -1)
      open = static_cast<int64_t>(i);
    else
      rest *= shape[i];
  }
  if (open >= 0)
    shape[open] = rest == 0 ? 0 : product(x->shape) / rest;
  if (product(shape) != product(x->shape))
    return call.fail("cannot give " + text(x->shape) + " the shape " + text(shape));
  return call.out(reshaped(*x, std::move(shape)));
}

bool onFlatten(Call &call) {
  const Array &x = *call.in(0);
  int64_t axis = call.integer("axis", 1);
  axis = axis < 0 ? axis + x.rank() : axis;
  if (axis < 0 || axis > x.rank())
    return call.fail("has an axis that is out of range");
  return call.out(reshaped(x, {product(x.shape, 0, axis), product(x.shape, axis)}));
}

bool onSqueeze(Call &call) {
  const Array &x = *call.in(0);
  auto axes = call.integers(1, "axes");
  std::vector<bool> gone(x.shape.size(), false);
  for (int64_t i = 0; i < x.rank(); ++i)
    gone[i] = !axes && x.shape[i] == 1;
  for (size_t i = 0; axes && i < axes->size(); ++i) {
    int64_t axis = 0;
    if (!call.axis((*axes)[i], x.rank(), axis))
      return false;
    if (x.shape[axis] != 1)
      return call.fail("removes an axis of " + std::to_string(x.shape[axis]));
    gone[axis] = true;
  }
  Shape shape;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (!gone[i])
      shape.push_back(x.shape[i]);
  return call.out(reshaped(x, std::move(shape)));
}

bool onUnsqueeze(Call &call) {
  const Array &x = *call.in(0);
  auto axes = call.integers(1, "axes");
  if (!axes)
    return false;
  const int64_t rank = x.rank() + static_cast<int64_t>(axes->size());
  Shape shape(rank, -1);
  for (int64_t given : *axes) {
    int64_t axis = 0;
    if (!call.axis(given, rank, axis))
      return false;
    shape[axis] = 1;
  }
  size_t next = 0;
  for (int64_t &size : shape)
    if (size < 0 && next < x.shape.size())
      size = x.shape[next++];
  return call.out(reshaped(x, std::move(shape)));
}

bool onExpand(Call &call) {
  const Array *x = call.in(0), *target = call.in(1);
  Shape shape;
  if (!call.integral({1}) || !broadcast(x->shape, target->integers, shape))
    return call.fail("its shapes do not broadcast");
  return call.out(expanded(*x, shape));
}

bool onConstantOfShape(Call &call) {
  Array y;
  if (!call.integral({0}))
    return false;
  auto given = call.node.attributes.find("value");
  if (given == call.node.attributes.end()) {
    y = Array::of(ElementKind::F32, call.in(0)->integers);
    return call.out(std::move(y));
  }
  // `value` stores the element in one of many fields. The evaluator decodes it and passes it as an
  // additional operand.
  return call.inputs.size() > 1 && call.in(1) && call.in(1)->size() == 1 &&
         call.out(expanded(reshaped(*call.in(1), {}), call.in(0)->integers));
}

bool onRange(Call &call) {
  const Array *start = call.in(0), *limit = call.in(1), *step = call.in(2);
  for (const Array *bound : {start, limit, step})
    if (!bound || bound->size() != 1 || bound->isFloat() != start->isFloat())
      return call.fail("expects three scalars of one type");
  if (step->real(0) == 0)
    return call.fail("has a step of 0");
  const auto count = std::max<int64_t>(
      0, static_cast<int64_t>(std::ceil((limit->real(0) - start->real(0)) / step->real(0))));
  Array y = Array::of(start->type, {count});
  for (int64_t i = 0; i < count; ++i)
    if (y.isFloat())
      y.reals[i] = start->reals[0] + static_cast<double>(i) * step->reals[0];
    else
      y.integers[i] = start->integers[0] + i * step->integers[0];
  return call.out(std::move(y));
}

bool onEyeLike(Call &call) {
  const Array &x = *call.in(0);
  if (x.rank() != 2)
    return false;
  Array y = Array::of(
      call.has("dtype") ? static_cast<ElementKind>(call.integer("dtype", 1)) : x.type, x.shape);
  for (int64_t i = 0, k = call.integer("k", 0); i < x.shape[0]; ++i)
    if (const int64_t j = i + k; j >= 0 && j < x.shape[1]) {
      if (y.isFloat())
        y.reals[i * x.shape[1] + j] = 1;
      else
        y.integers[i * x.shape[1] + j] = 1;
    }
  return call.out(std::move(y));
}

} // namespace

void zorse::onnx_reference::addShapes(OperatorMap &map) {
  map["Constant"] = onConstant;
  map["Reshape"] = onReshape;
  map["Flatten"] = onFlatten;
  map["Squeeze"] = onSqueeze;
  map["Unsqueeze"] = onUnsqueeze;
  map["Expand"] = onExpand;
  map["ConstantOfShape"] = onConstantOfShape;
  map["Range"] = onRange;
  map["EyeLike"] = onEyeLike;
}
