// Imports operators on tensors of sums over samples. Every element is a sum of factor * (sum over
// samples of a value per sample). A linear operator is applied to the values of each sample, before
// the sum.
#include "Arithmetic.h"
#include "Decomposition.h"
#include "Interpret.h"
#include "Known.h"
#include "Lengths.h"
#include "Losses.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

constexpr int64_t kMaxCounts = 64; // maximum for one tensor

/// Sums over dimension 0, the samples, of each value. A single element becomes a loss.
static ImportedValue sumsOf(ImportState &state, std::vector<ImportedValue> each) {
  const ElementKind type = each[0].type;
  std::vector<int64_t> shape = each[0].shape();
  shape.erase(shape.begin());
  View view = contiguousView(shape, false);
  if (view.elements() != 1)
    return {type, std::move(view), Sums{std::move(each)}};
  Loss loss;
  for (ImportedValue &summand : each) {
    Number factor = summand.takeScale();
    loss.summands.push_back(
        {std::move(factor),
         sumPerSample(state, materialise(state, summand, groupsOf(summand.view, true), true)), 1});
  }
  return {type, {}, std::move(loss)};
}

// The sum or mean over samples and possibly other axes, if axes remain. For inputs, also the max or
// min.
LogicalResult zorse::onnx_import::reduceToSums(OpContext &op, const ImportedValue &x,
                                               const std::vector<bool> &reduced, bool keep) {
  const int64_t samples = x.view.sampleAxis();
  const bool extremum = (op.node.op == "ReduceMax" || op.node.op == "ReduceMin") &&
                        op.state.isFromInputs(x.value());
  if (x.view.dims[samples].size() != 1 ||
      (op.node.op != "ReduceSum" && op.node.op != "ReduceMean" && !extremum))
    return mixes(op, "reduces samples to a tensor");
  std::vector<int64_t> others;
  ImportedValue each = isFloat(x.type) ? x : castTo(op.state, x, ElementKind::F32);
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != samples && reduced[i])
      others.push_back(i < samples ? i + 1 : i);
  Decomposition make(op);
  each = make.move(each, samples, 0);
  if (!others.empty())
    each = make.reduce(op.node.op.c_str(), each, others, keep);
  if (keep) // restore the sample axis with size 1
    each = make.unsqueeze(each, samples + 1);
  if (make.hasFailed())
    return failure();
  if (op.node.op == "ReduceMean")
    each.tensor().scale /= Number::samples();
  if (!op.state.isFromInputs(each.value()))
    return op.result(sumsOf(op.state, {std::move(each)}));
  // Sums of inputs are known before the step: one count per element.
  const int64_t count = each.view.elements() / op.state.rows;
  if (count > kMaxCounts)
    return op.error("makes " + Twine(count) + " sums of inputs over all samples, at most " +
                    Twine(kMaxCounts) +
                    " are possible; compute them in the data and make them an input");
  const ReduceKind kind = !extremum                   ? ReduceKind::Sum
                          : op.node.op == "ReduceMax" ? ReduceKind::Max
                                                      : ReduceKind::Min;
  ImportedValue flat = make.reshape(each, {op.state.rows, count});
  std::vector<Number> numbers;
  for (int64_t i = 0; i < count && !make.hasFailed(); ++i) {
    ImportedValue single = make.slice(flat, 1, i, 1);
    if (make.hasFailed())
      break;
    const Number scale = extremum ? Number(1.0) : single.takeScale(); // a sum is linear
    numbers.push_back(
        scale * countOf(op.state,
                        sumPerSample(op.state, materialise(op.state, single,
                                                           groupsOf(single.view, true), true)),
                        kind));
  }
  if (make.hasFailed())
    return failure();
  std::vector<int64_t> shape = each.shape();
  shape.erase(shape.begin());
  return op.result(simplified(knownOver(x.type, std::move(numbers), contiguousView(shape, false))));
}

/// Converts a scalar sum, a number or a scalar of parameters to sums of shape [1].
static FailureOr<std::vector<ImportedValue>> summandsOf(OpContext &op, const ImportedValue &value) {
  if (value.isSums())
    return value.sums();
  std::vector<LossSummand> scalars;
  if (failed(addSummand(op, value, 1, scalars)))
    return failure();
  std::vector<ImportedValue> each;
  for (const LossSummand &scalar : scalars) {
    ImportedValue summand = wrap(scalar.numerator, value.type, {op.state.rows});
    summand.tensor().scale = scalar.factor;
    summand.view.dims.emplace_back();
    each.push_back(std::move(summand));
  }
  return each;
}

/// Joins sums along an axis. Every part is padded with zeros to the shape of the result, so that
/// the factors of the parts stay separate.
static LogicalResult joinSums(OpContext &op) {
  int64_t axis = op.integer("axis"), total = 0, at = 0, rank = 1;
  std::vector<int64_t> extents;
  for (size_t i = 0; i < op.node.inputs.size(); ++i)
    rank = std::max(rank, op.operand(i).isSums() ? op.operand(i).rank() : 1);
  axis += axis < 0 ? rank : 0;
  for (size_t i = 0; i < op.node.inputs.size(); ++i) {
    const ImportedValue &part = op.operand(i);
    if (axis >= rank || (part.isSums() ? part.rank() : 1) != rank)
      return op.error("joins sums over samples of different ranks");
    extents.push_back(part.isSums() ? part.view.size(axis) : 1);
    total += extents.back();
  }
  Decomposition make(op);
  std::vector<ImportedValue> all;
  for (size_t i = 0; i < op.node.inputs.size(); ++i) {
    auto each = summandsOf(op, op.operand(i));
    if (failed(each))
      return failure();
    for (ImportedValue summand : *each) {
      const Number scale = summand.takeScale();
      std::vector<int64_t> pads(2 * static_cast<size_t>(rank + 1), 0);
      pads[static_cast<size_t>(axis) + 1] = at;
      pads[static_cast<size_t>(axis + rank) + 2] = total - at - extents[i];
      summand = make("Pad", {summand, make.ints(pads)});
      if (make.hasFailed())
        return failure();
      summand.tensor().scale *= scale;
      all.push_back(std::move(summand));
    }
    at += extents[i];
  }
  if (all.empty())
    return op.error("joins nothing but zeros");
  return op.result(sumsOf(op.state, std::move(all)));
}

static LogicalResult addSums(OpContext &op, const ImportedValue &a, const ImportedValue &b,
                             double sign) {
  std::vector<ImportedValue> all;
  std::vector<int64_t> shape;
  for (const ImportedValue *operand : {&a, &b}) {
    std::vector<int64_t> own = operand->shape();
    if (own.size() > shape.size() ||
        (own.size() == shape.size() && operand->view.elements() > a.view.elements()))
      shape = own;
  }
  Decomposition make(op);
  for (const ImportedValue *operand : {&a, &b}) {
    std::vector<ImportedValue> each;
    if (operand->isLoss() || operand->view.elements() == 1) {
      auto summands = summandsOf(op, *operand);
      if (failed(summands))
        return failure();
      each = std::move(*summands);
    } else if (operand->isTensor() && !isBatched(*operand)) { // parameters: the mean of equal
                                                              // values over the rows
      ImportedValue same = *operand;
      same.view.dims.insert(same.view.dims.begin(), FactorList{Factor{op.state.rows, 0, true}});
      same.tensor().scale /= samplesPerRow(op.state);
      each.push_back(std::move(same));
    } else if (isBatched(*operand)) {
      return mixes(op, "adds a sum over samples to values of samples");
    } else {
      return op.error("adds a tensor of numbers to sums over samples, which is not supported; "
                      "reduce the sums first");
    }
    for (ImportedValue summand : each) {
      Number scale = summand.takeScale();
      if (operand == &b)
        scale *= Number(sign);
      while (summand.rank() > static_cast<int64_t>(shape.size()) + 1)
        summand.view.dims.erase(summand.view.dims.begin() + 1); // of size 1
      while (summand.rank() < static_cast<int64_t>(shape.size()) + 1)
        summand.view.dims.insert(summand.view.dims.begin() + 1, FactorList{});
      std::vector<int64_t> whole = shape;
      whole.insert(whole.begin(), op.state.rows);
      summand = make("Expand", {summand, make.ints(whole)});
      if (make.hasFailed())
        return failure();
      summand.tensor().scale *= scale;
      all.push_back(std::move(summand));
    }
  }
  return op.result(sumsOf(op.state, std::move(all)));
}

static FailureOr<ImportedValue> movedSum(OpContext &op, Decomposition &make,
                                         const ImportedValue &each) {
  const std::string &which = op.node.op;
  const int64_t rank = each.rank() - 1;
  std::optional<std::vector<int64_t>> axes;
  if (which == "ReduceSum" || which == "ReduceMean" || which == "Squeeze") {
    if (failed(op.axes(1, rank, axes)))
      return failure();
    std::vector<int64_t> shifted;
    for (int64_t i = 0; i < rank; ++i)
      if (!axes || axes->empty() ? which != "Squeeze" || each.view.size(i + 1) == 1
                                 : llvm::is_contained(*axes, i))
        shifted.push_back(i + 1);
    if (which == "Squeeze")
      return make(which.c_str(), {each, make.ints(shifted)});
    return make.reduce(which.c_str(), each, shifted, op.integer("keepdims") != 0);
  }
  if (which == "Unsqueeze") {
    auto given = op.has(1) ? constantInts(op.operand(1)) : op.integers("axes");
    if (!given)
      return op.error("expects constant axes");
    for (int64_t &axis : *given)
      axis = axis < 0 ? axis + rank + static_cast<int64_t>(given->size()) + 1 : axis + 1;
    return make("Unsqueeze", {each, make.ints(*given)});
  }
  if (which == "Transpose") {
    std::vector<int64_t> permutation{0};
    auto given = op.integers("perm");
    for (int64_t i = 0; i < rank; ++i)
      permutation.push_back(1 + (given ? (*given)[static_cast<size_t>(i)] : rank - 1 - i));
    return make.transpose(each, permutation);
  }
  if (which == "Gather" && op.operand(1).isConstant()) {
    const int64_t axis = op.integer("axis");
    return make("Gather", {each, op.operand(1)}, {{"axis", axis < 0 ? axis + rank + 1 : axis + 1}});
  }
  if (which == "Reshape" || which == "Expand") {
    auto shape = constantInts(op.operand(1));
    if (!shape)
      return op.error("expects a constant shape");
    shape->insert(shape->begin(), op.state.rows);
    for (size_t i = 1; which == "Reshape" && i < shape->size(); ++i)
      if ((*shape)[i] == 0 && static_cast<int64_t>(i) <= rank)
        (*shape)[i] = each.view.size(static_cast<int64_t>(i));
    return which == "Reshape" ? make.reshape(each, *shape)
                              : make("Expand", {each, make.ints(*shape)});
  }
  const bool right = op.operand(0).isLoss();
  const ImportedValue &other = op.operand(right ? 1 : 0);
  if ((which == "Mul" || (which == "Div" && right)) && other.rank() <= rank && !isBatched(other))
    return make(which.c_str(), {each, other});
  if (which == "MatMul" && rank == 1 && other.rank() == 1 && !isBatched(other))
    return make("MatMul", {each, other});
  return notAffine(op, "uses");
}

std::optional<LogicalResult> zorse::onnx_import::applyToSums(OpContext &op) {
  bool tensors = false, losses = false;
  int64_t sums = 0;
  for (size_t i = 0; i < op.node.inputs.size(); ++i) {
    tensors |= op.operand(i).isSums();
    losses |= op.operand(i).isLoss();
    sums += op.operand(i).isLoss();
  }
  const std::string &which = op.node.op;
  if (losses && which == "Concat")
    return joinSums(op);
  if (!tensors || which == "Identity" || which == "Shape" || which == "Size")
    return std::nullopt;
  if (which == "Cast" && isFloat(static_cast<ElementKind>(op.integer("to"))))
    return importIdentity(op);
  if (which == "Add" || which == "Sub")
    return addSums(op, op.operand(0), op.operand(1), which == "Sub" ? -1 : 1);
  if (sums > 1 && which != "Sum")
    return notAffine(op, which == "Div" ? "divides by" : "multiplies");
  Decomposition make(op);
  std::vector<ImportedValue> all;
  for (ImportedValue each : op.operand(op.operand(0).isLoss() ? 0 : 1).sums()) {
    if (which == "Neg") {
      each.tensor().scale = -each.scale();
      all.push_back(std::move(each));
      continue;
    }
    auto moved = movedSum(op, make, each);
    if (failed(moved) || make.hasFailed())
      return LogicalResult(failure());
    all.push_back(std::move(*moved));
  }
  return op.result(sumsOf(op.state, std::move(all)));
}

// A dot product along the samples is the sum of the products over the samples.
FailureOr<ImportedValue> zorse::onnx_import::dotOfSamples(OpContext &op, const ImportedValue &a,
                                                          ImportedValue b) {
  const bool columns = a.rank() == 1 && (b.rank() == 1 || (b.rank() == 2 && b.view.size(1) == 1));
  if (!columns)
    return op.error("sums over the samples; every op must treat samples apart. In the loss, write "
                    "the sum over samples of products of two vectors");
  const int64_t rank = b.rank();
  if (rank == 2)
    b.view.dims.pop_back();
  Decomposition make(op);
  ImportedValue sum = make.reduce("ReduceSum", make("Mul", {a, b}), {0});
  if (make.hasFailed())
    return failure();
  if (rank == 2 && !sum.isLoss())
    sum.view.dims.emplace_back();
  return sum;
}
