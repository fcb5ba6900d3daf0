// Imports ScatterElements, ScatterND and OneHot. Every place reads all updates of its vector in
// order. The result and its gradients therefore do not depend on how the work is divided.
#include "Arithmetic.h"
#include "Decomposition.h"
#include "Parts.h"

#include <algorithm>
#include <limits>
#include <tuple>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// Limit on the (place, update) pairs per vector; more are too expensive.
static constexpr int64_t kMaxPairs = int64_t(1) << 26;

/// Scatters updates [lead..., J] at ids [lead..., J] into data [lead..., V]. With reduction "none",
/// the ids of a vector differ, as ONNX requires.
static ImportedValue scatteredAlongLast(Decomposition &make, const ImportedValue &data,
                                        const ImportedValue &ids, const ImportedValue &updates,
                                        const std::string &reduction) {
  const int64_t rank = data.rank(), size = data.view.size(rank - 1);
  std::vector<int64_t> numbers(size);
  for (int64_t i = 0; i < size; ++i)
    numbers[i] = i;
  ImportedValue places =
      make.cast(make.reshape(make.ints(std::move(numbers)), {size, 1}), ids.type);
  ImportedValue hit = make("Equal", {make.unsqueeze(ids, rank - 1), places}); // [lead..., V, J]
  ImportedValue spread = make.unsqueeze(updates, rank - 1);
  auto combined = [&](const char *reduce, double neutral) {
    return make.reduce(reduce, make("Where", {hit, spread, make.number(neutral, updates)}), {rank});
  };
  const double min = isFloat(data.type) ? -std::numeric_limits<double>::infinity()
                                        : -9223372036854775808.0;
  const double max = isFloat(data.type) ? std::numeric_limits<double>::infinity()
                                        : 9223372036854774784.0;
  if (reduction == "add")
    return make("Add", {data, combined("ReduceSum", 0)});
  if (reduction == "mul")
    return make("Mul", {data, combined("ReduceProd", 1)});
  if (reduction == "max")
    return make("Max", {data, combined("ReduceMax", min)});
  if (reduction == "min")
    return make("Min", {data, combined("ReduceMin", max)});
  ImportedValue any =
      make("Greater",
           {make.reduce("ReduceSum", make.cast(hit, ElementKind::I64), {rank}), make.ints({0})});
  return make("Where", {any, combined("ReduceSum", 0), data});
}

static LogicalResult importScatterElements(OpContext &op) {
  ImportedValue x = op.operand(0), ids = op.operand(1), updates = op.operand(2);
  const int64_t axis = op.axis(x.rank()), last = x.rank() - 1;
  if (axis < 0 || ids.rank() != x.rank() || isFloat(ids.type))
    return op.error("expects a valid axis and integer ids of the first operand's rank");
  if (ids.shape() != updates.shape())
    return op.error("expects updates of the same shape as its ids");
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != axis && ids.view.size(i) != x.view.size(i))
      return op.error(
          "its ids have " + Twine(ids.view.size(i)) + " of " + Twine(x.view.size(i)) +
          " elements in dimension " + Twine(i) +
          "; only the axis may be shorter. Scatter into a slice, and join it with the rest");
  if (x.view.sampleAxis() == axis || ids.view.sampleAxis() == axis ||
      updates.view.sampleAxis() == axis)
    return op.error("scatters over the samples; every op must treat samples apart");
  if (ids.view.elements() == 0)
    return importIdentity(op);
  if (x.view.size(axis) > kMaxPairs / ids.view.size(axis))
    return op.error("scatters " + Twine(ids.view.size(axis)) + " updates to " +
                    Twine(x.view.size(axis)) + " places; at most 2^26 pairs are supported");
  auto counted = countedFromFront(op, ids, x.view.size(axis));
  if (failed(counted))
    return failure();
  Decomposition make(op);
  const bool flags = x.type == ElementKind::Bool && updates.type == ElementKind::Bool; // scattered
                                                                                       // as 0 and 1
  auto cast = [&](const ImportedValue &value, ElementKind to) {
    return make("Cast", {value}, {{"to", static_cast<int64_t>(to)}});
  };
  if (flags) {
    x = cast(x, ElementKind::F32);
    updates = cast(updates, ElementKind::F32);
  }
  ImportedValue moved = make.move(x, axis, last), index = make.move(*counted, axis, last),
                values = make.move(updates, axis, last);
  if (make.hasFailed())
    return failure();
  ImportedValue result =
      make.move(scatteredAlongLast(make, moved, index, values, op.text("reduction")), last, axis);
  return make.result(flags && !make.hasFailed() ? cast(result, ElementKind::Bool) : result);
}

/// Imports a ScatterND with arbitrary ids.
/// Scatters updates [I..., rest...] at ids [I..., depth] into data [places..., rest...], as
/// [rest..., places] with the same ids for all of rest.
static LogicalResult scatterPlaces(OpContext &op, int64_t depth) {
  ImportedValue x = op.operand(0), ids = op.operand(1), updates = op.operand(2);
  if (isFloat(ids.type))
    return op.error("expects integer ids");
  const int64_t sampleAxis = x.view.sampleAxis(), lead = ids.rank() - 1;
  if (sampleAxis >= 0 && sampleAxis < depth)
    return op.error("scatters over the samples; every op must treat samples apart. Use "
                    "torch.scatter, with ids that have the dimensions of the value "
                    "they change, or put the samples after the dimensions that ids select");
  if (isBatched(ids) || (updates.view.sampleAxis() >= 0 && updates.view.sampleAxis() < lead))
    return op.error(
        "puts updates of several samples into one tensor; every op must treat samples apart");
  std::vector<int64_t> from = x.shape(), idShape = ids.shape(),
                       expected(idShape.begin(), idShape.end() - 1);
  expected.insert(expected.end(), from.begin() + depth, from.end());
  if (updates.shape() != expected)
    return op.error("expects updates of the shape of ids without their last dimension, followed by "
                    "that of the first operand behind its first " +
                    Twine(depth));
  int64_t places = 1, count = 1;
  for (int64_t i = 0; i < depth; ++i)
    places *= from[i];
  for (int64_t i = 0; i < lead; ++i)
    count *= idShape[i];
  if (count == 0)
    return importIdentity(op);
  if (places > kMaxPairs / count)
    return op.error("scatters " + Twine(count) + " updates to " + Twine(places) +
                    " places; at most 2^26 pairs are supported");
  auto numbers = placeNumbers(op, ids, {from.begin(), from.begin() + depth});
  if (failed(numbers))
    return failure();
  Decomposition make(op);
  std::vector<int64_t> rest(from.begin() + depth, from.end()), flat{places}, flatUpdates{count},
      indexShape(rest.size(), 1), whole = rest;
  flat.insert(flat.end(), rest.begin(), rest.end());
  flatUpdates.insert(flatUpdates.end(), rest.begin(), rest.end());
  const auto last = static_cast<int64_t>(rest.size());
  indexShape.push_back(count);
  whole.push_back(count);
  ImportedValue moved = make.move(make.reshape(x, flat), 0, last),
                values = make.move(make.reshape(updates, flatUpdates), 0, last);
  ImportedValue index = make("Expand", {make.reshape(*numbers, indexShape), make.ints(whole)});
  if (make.hasFailed())
    return failure();
  ImportedValue changed = scatteredAlongLast(make, moved, index, values, op.text("reduction"));
  return make.result(make.reshape(make.move(changed, last, 0), from));
}

/// The constant x with updates at the places that ids [..., depth] specify.
static FailureOr<ImportedValue> scatteredConstant(OpContext &op, const ImportedValue &x,
                                                  const ImportedValue &updates,
                                                  const std::vector<int64_t> &index,
                                                  int64_t depth) {
  std::vector<int64_t> shape = x.shape();
  int64_t count = static_cast<int64_t>(index.size()) / depth, inner = 1;
  for (size_t i = depth; i < shape.size(); ++i)
    inner *= shape[i];
  if (x.view.elements() > (int64_t(1) << 25) || updates.view.elements() != count * inner)
    return op.error("scatters into a large constant, which is not folded");
  auto base = constantFloats(x, int64_t(1) << 25),
       change = constantFloats(updates, int64_t(1) << 25);
  auto baseInts = constantInts(x, int64_t(1) << 25),
       changeInts = constantInts(updates, int64_t(1) << 25);
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = 0;
    for (int64_t c = 0; c < depth; ++c) {
      int64_t id = index[i * depth + c];
      id = id < 0 ? id + shape[c] : id;
      if (id < 0 || id >= shape[c])
        return op.error("an id is outside the operand");
      at = at * shape[c] + id;
    }
    for (int64_t k = 0; k < inner; ++k) {
      (*base)[at * inner + k] = (*change)[i * inner + k];
      (*baseInts)[at * inner + k] = (*changeInts)[i * inner + k];
    }
  }
  return constantOf(x.type,
                    isFloat(x.type) ? makeFloats(x.type, std::move(*base))
                                    : makeInts(x.type, std::move(*baseInts)),
                    shape);
}

namespace {
struct AxisRange {
  int64_t axis, first, length;
};
} // namespace

/// The range of one axis that ids [lead..., components] enumerate in row-major order, with all
/// other axes complete. Axis -1 if they enumerate everything; nothing if the ids have another
/// pattern.
static std::optional<AxisRange> rangeOf(const std::vector<int64_t> &index,
                                        const std::vector<int64_t> &lead,
                                        const std::vector<int64_t> &shape) {
  if (index.empty())
    return std::nullopt;
  const auto depth = static_cast<int64_t>(lead.size()),
             count = static_cast<int64_t>(index.size()) / depth;
  std::vector<int64_t> begin(index.begin(), index.begin() + depth);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (int64_t c = depth; c-- > 0;) {
      if (index[i * depth + c] != begin[c] + rest % lead[c])
        return std::nullopt;
      rest /= lead[c];
    }
  }
  AxisRange range{-1, 0, 0};
  for (int64_t c = 0; c < depth; ++c) {
    if (begin[c] == 0 && lead[c] == shape[c])
      continue;
    if (range.axis >= 0)
      return std::nullopt;
    range = {c, begin[c], lead[c]};
  }
  return range;
}

/// Imports ScatterND. Folds constants, and turns an update of a range of one axis into a
/// concatenation.
static LogicalResult importScatterND(OpContext &op) {
  ImportedValue x = op.operand(0), ids = op.operand(1), updates = op.operand(2);
  if (ids.rank() == 0)
    return op.error("expects ids of rank 1 or more");
  int64_t depth = ids.view.size(ids.rank() - 1);
  if (depth < 1 || depth > x.rank())
    return op.error("expects ids of 1 to " + Twine(x.rank()) + " components, found " +
                    Twine(depth));
  if (!ids.isConstant() || op.text("reduction") != "none")
    return scatterPlaces(op, depth);
  auto index = constantInts(ids, int64_t(1) << 24);
  if (!index)
    return op.error("has too many constant ids");
  // A constant that all samples share stays a constant: its sample axis is removed, and restored
  // after the scatter.
  const int64_t along = x.view.sampleAxis(), alongUpdates = along - depth + ids.rank() - 1;
  auto isShared = [](const ImportedValue &value, int64_t axis) {
    return value.isConstant() && value.view.sampleAxis() == axis &&
           value.view.dims[axis].size() == 1 && value.view.dims[axis][0].stride == 0;
  };
  FactorList shared;
  if (along >= depth && isShared(x, along) && isShared(updates, alongUpdates)) {
    std::swap(shared, x.view.dims[along]);
    updates.view.dims[alongUpdates].clear();
  }
  if (x.isConstant() && updates.isConstant()) {
    if (index->empty())
      return importIdentity(op);
    auto changed = scatteredConstant(op, x, updates, *index, depth);
    if (failed(changed))
      return failure();
    if (!shared.empty())
      changed->view.dims[along] = std::move(shared);
    return op.result(std::move(*changed));
  }
  // x[:, a:b] = updates, exported with ids [rows, n, 2] that enumerate both axes.
  std::vector<int64_t> lead = ids.shape();
  lead.pop_back();
  const auto range = static_cast<int64_t>(lead.size()) == depth ? rangeOf(*index, lead, x.shape())
                                                                : std::nullopt;
  if (!range)
    return scatterPlaces(op, depth);
  const auto [axis, first, length] = *range;
  if (axis < 0)
    return op.result(updates);
  if (x.view.sampleAxis() == axis)
    return op.error("overwrites some of the samples; every op must treat samples apart");
  std::vector<ImportedValue> parts;
  for (auto [start, size, part] :
       {std::make_tuple(int64_t(0), first, x), std::make_tuple(int64_t(0), length, updates),
        std::make_tuple(first + length, x.view.size(axis) - first - length, x)}) {
    if (size <= 0)
      continue;
    ImportedValue piece = part;
    if (failed(take(op, piece, axis, start, 1, size)))
      return failure();
    parts.push_back(piece);
  }
  return concatenate(op, parts, axis);
}

/// values[1] at the class of the id, values[0] elsewhere. An id out of range selects no class.
static LogicalResult importOneHot(OpContext &op) {
  ImportedValue ids = op.operand(0), values = op.operand(2);
  auto depth = constantInt(op.operand(1));
  if (op.operand(1).isConstant() && isFloat(op.operand(1).type))
    if (auto number = uniformValue(op.state, op.operand(1)))
      depth = truncateToInt(*number);
  if (!ids.isArray() || !depth || *depth < 1)
    return op.error("expects ids and a constant, positive number of classes");
  if (values.rank() != 1 || values.view.size(0) != 2)
    return op.error("expects two values, those off and on");
  const int64_t axis = op.axis(ids.rank() + 1);
  if (axis < 0)
    return op.error("axis is outside the rank of its result");
  const int64_t size = *depth;
  if (size > op.state.options.maxComputed)
    return op.error("has " + Twine(size) + " classes; at most " +
                    Twine(op.state.options.maxComputed) + " are supported");
  Decomposition make(op);
  std::vector<int64_t> shape(ids.rank() + 1, 1);
  shape[axis] = size;
  const ImportedValue numbers =
      constantOf(ElementKind::I64, makeIota(ElementKind::I64, size, 0, 1), shape);
  if (isFloat(ids.type))
    ids = make.cast(ids, ElementKind::I64);
  ImportedValue wrapped =
      make("Where", {make("Less", {ids, make.number(0, ids)}),
                     make("Add", {ids, make.number(static_cast<double>(size), ids)}), ids});
  ImportedValue hit = make("Equal", {make.unsqueeze(wrapped, axis), make.cast(numbers, ids.type)});
  ImportedValue off = make.squeeze(make.slice(values, 0, 0, 1), 0),
                on = make.squeeze(make.slice(values, 0, 1, 1), 0);
  return make.result(make("Where", {hit, on, off}));
}

void zorse::onnx_import::registerScatterOps(OperatorRegistry &registry) {
  registry.add({
      {{"ScatterElements"},
       3,
       3,
       {integer("axis", 0), only(text("reduction", "none"), {"none", "add", "mul", "max", "min"})},
       importScatterElements},
      {{"ScatterND"},
       3,
       3,
       {only(text("reduction", "none"), {"none", "add", "mul", "max", "min"})},
       importScatterND},
      {{"OneHot"}, 3, 3, {integer("axis", -1)}, importOneHot},
  });
}
