// Reductions composed of sums, maxima and elementwise operators: norms, logarithms of sums,
// positions of extrema.
#include "Decomposition.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// The square root of a sum of squares. At 0 its gradient is 0, as in PyTorch, although that of a
/// square root is infinite.
static ImportedValue normOf(Decomposition &make, const ImportedValue &squares) {
  if (!squares.isTensor())
    return make("Sqrt", {squares});
  ImportedValue isZero = make("Equal", {squares, make.number(0, squares)});
  ImportedValue root = make("Sqrt", {make("Where", {isZero, make.number(1, squares), squares})});
  return make("Where", {isZero, make.number(0, squares), root});
}

static LogicalResult importComposedReduce(OpContext &op) {
  ImportedValue x = op.operand(0);
  const std::string &which = op.node.op;
  if (!isFloat(x.type) && which != "ReduceL1" && which != "ReduceSumSquare")
    return op.error("is defined on floats only here, found " + Twine(name(x.type)));
  ImportedValue axes = op.operand(1);
  Decomposition make(op);
  if (!axes)
    if (auto given = op.integers("axes"))
      axes = make.ints(*given);
  const int64_t keep = op.integer("keepdims"), noop = op.integer("noop_with_empty_axes");
  auto reduce = [&](const char *reduction, const ImportedValue &value, int64_t keepdims) {
    return make(reduction, {value, axes}, {{"keepdims", keepdims}, {"noop_with_empty_axes", noop}});
  };
  if (which == "ReduceL1")
    return make.result(reduce("ReduceSum", make("Abs", {x}), keep));
  if (which == "ReduceSumSquare")
    return make.result(reduce("ReduceSum", make("Mul", {x, x}), keep));
  if (which == "ReduceL2")
    return make.result(normOf(make, reduce("ReduceSum", make("Mul", {x, x}), keep)));
  if (which == "ReduceLogSum")
    return make.result(make("Log", {reduce("ReduceSum", x, keep)}));
  // log sum exp(x) = m + log sum exp(x - m)
  ImportedValue largest = reduce("ReduceMax", x, 1);
  ImportedValue sum = reduce("ReduceSum", make("Exp", {make("Sub", {x, largest})}), keep);
  if (!keep && !make.hasFailed())
    largest = make.reshape(largest, sum.shape());
  return make.result(make("Add", {make("Log", {sum}), largest}));
}

/// x / |x| along an axis. 0 if the norm is 0, as in PyTorch because of its eps.
static LogicalResult importLpNormalization(OpContext &op) {
  ImportedValue x = op.operand(0);
  const int64_t axis = op.axis(x.rank());
  if (!isFloat(x.type) || axis < 0)
    return op.error("expects floats and a valid axis");
  Decomposition make(op);
  ImportedValue norm = make.reduce(op.integer("p") == 1 ? "ReduceL1" : "ReduceL2", x, {axis}, true);
  ImportedValue isZero = make("Equal", {norm, make.number(0, x)});
  return make.result(make("Div", {x, make("Where", {isZero, make.number(1, x), norm})}));
}

namespace {

/// 0, 1, ... along `axis` of a tensor of rank `rank`.
ImportedValue positions(Decomposition &make, int64_t rank, int64_t axis, int64_t size) {
  std::vector<int64_t> numbers(size), shape(rank, 1);
  for (int64_t i = 0; i < size; ++i)
    numbers[i] = i;
  shape[axis] = size;
  return make.reshape(make.ints(std::move(numbers)), shape);
}

/// The first or last position of the largest or smallest element along `axis`, which is kept with
/// size 1.
ImportedValue positionOfExtremum(Decomposition &make, const ImportedValue &x, int64_t axis,
                                 bool largest, bool last) {
  const int64_t size = x.view.size(axis);
  ImportedValue extremum = make.reduce(largest ? "ReduceMax" : "ReduceMin", x, {axis}, true);
  ImportedValue here = make("Equal", {x, extremum}),
                none = make.ints({last ? int64_t(-1) : size - 1});
  ImportedValue candidates = make("Where", {here, positions(make, x.rank(), axis, size), none});
  return make.reduce(last ? "ReduceMax" : "ReduceMin", candidates, {axis}, true);
}

} // namespace

static LogicalResult importArgExtremum(OpContext &op) {
  ImportedValue x = op.operand(0);
  const int64_t axis = op.axis(x.rank());
  if (!x.isArray() || axis < 0 || x.view.elements() == 0)
    return op.error("expects a tensor that is not empty and a valid axis");
  if (x.view.sampleAxis() == axis)
    return op.error("compares samples with each other; every op must treat samples apart");
  Decomposition make(op);
  ImportedValue position = positionOfExtremum(make, x, axis, op.node.op == "ArgMax",
                                              op.integer("select_last_index") != 0);
  return make.result(op.integer("keepdims") ? position : make.squeeze(position, axis));
}

/// 1 at the first of the largest elements, 0 elsewhere.
static LogicalResult importHardmax(OpContext &op) {
  ImportedValue x = op.operand(0);
  const int64_t axis = op.axis(x.rank());
  if (!isFloat(x.type) || axis < 0)
    return op.error("expects floats and a valid axis");
  if (x.view.sampleAxis() == axis)
    return op.error("compares samples with each other; every op must treat samples apart");
  Decomposition make(op);
  ImportedValue first = positionOfExtremum(make, x, axis, true, false);
  ImportedValue hit = make("Equal", {positions(make, x.rank(), axis, x.view.size(axis)), first});
  return make.result(make.cast(hit, x.type));
}

/// Computes the rank of each element: the number of larger elements plus the number of equal
/// elements at lower positions. Result i is the element of rank i. Its value is gathered, so that
/// the gradient flows to that element.
static LogicalResult importTopK(OpContext &op) {
  constexpr int64_t kMax = 4096; // each element is compared with all elements of its axis
  ImportedValue x = op.operand(0);
  auto count = constantInt(op.operand(1));
  const int64_t axis = op.axis(x.rank());
  if (!x.isArray() || axis < 0)
    return op.error("expects a tensor and a valid axis");
  const int64_t size = x.view.size(axis);
  if (!count)
    return op.error("expects a constant k; it depends on data");
  const int64_t k = *count;
  if (k < 1 || k > size)
    return op.error("expects a k from 1 to " + Twine(size) + ", the size of axis " + Twine(axis) +
                    ", found " + Twine(k));
  if (size > kMax)
    return op.error("picks from an axis of " + Twine(size) + " elements; at most " + Twine(kMax) +
                    " are supported");
  if (x.view.sampleAxis() == axis)
    return op.error("compares samples with each other; every op must treat samples apart");
  Decomposition make(op);
  const bool largest = op.integer("largest") != 0;
  const int64_t rank = x.rank();
  ImportedValue last = make.move(x, axis, rank - 1); // [..., size]
  // [..., size, 1], [..., 1, size].
  ImportedValue own = make.unsqueeze(last, rank), other = make.unsqueeze(last, rank - 1);
  ImportedValue before = make(largest ? "Greater" : "Less", {other, own}),
                equal = make("Equal", {other, own});
  ImportedValue lower = make("Less", {positions(make, 2, 1, size), positions(make, 2, 0, size)});
  before = make("Or", {before, make("And", {equal, lower})});
  ImportedValue place =
      make.reduce("ReduceSum", make.cast(before, ElementKind::I64), {rank}); // [..., size]
  // The position of the element of rank i: a sum with one nonzero term.
  ImportedValue hit =
      make("Equal", {make.unsqueeze(place, rank - 1), positions(make, 2, 0, k)}); // [..., k, size]
  ImportedValue chosen = make("Where", {hit, positions(make, 1, 0, size), make.ints({0})});
  ImportedValue index = make.reduce("ReduceSum", chosen, {rank}); // [..., k]
  ImportedValue value = make("GatherElements", {last, index}, {{"axis", rank - 1}});
  if (failed(make.result(make.move(value, rank - 1, axis))))
    return failure();
  return make.result(make.move(index, rank - 1, axis), 1);
}

void zorse::onnx_import::registerComposedReductions(OperatorRegistry &registry) {
  registry.add({
      {{"ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"},
       1,
       2,
       {integers("axes"), integer("keepdims", 1), integer("noop_with_empty_axes", 0)},
       importComposedReduce},
      {{"LpNormalization"},
       1,
       1,
       {integer("axis", -1), only(integer("p", 2), {"1", "2"})},
       importLpNormalization},
      {{"ArgMax", "ArgMin"},
       1,
       1,
       {integer("axis", 0), integer("keepdims", 1), integer("select_last_index", 0)},
       importArgExtremum},
      {{"Hardmax"}, 1, 1, {integer("axis", -1)}, importHardmax},
      {{"TopK"},
       2,
       2,
       {integer("axis", -1), integer("largest", 1), ignored(integer("sorted"))},
       importTopK},
  });
}
