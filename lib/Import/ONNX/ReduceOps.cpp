// Imports reductions of constants, of activations and over samples.
#include "Arithmetic.h"
#include "Decomposition.h"
#include "Known.h"
#include "Lengths.h"
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

namespace {

/// The dimensions to reduce, the number of elements per result, and the shape of the result.
struct Reduction {
  std::vector<bool> reduced;
  int64_t count = 1;
  bool keep = false;
  std::vector<int64_t> shape;
};

} // namespace

Value zorse::onnx_import::sumPerSample(ImportState &state, Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() == 1)
    return value;
  SmallVector<int64_t> dims;
  for (int64_t i = 1; i < type.getRank(); ++i)
    dims.push_back(i);
  return create<ReduceOp>(state, value, ReduceKind::Sum, dims);
}

static LogicalResult reduceConstant(OpContext &op, const ImportedValue &x,
                                    const Reduction &reduction) {
  const std::string &which = op.node.op;
  const std::vector<bool> &reduced = reduction.reduced;
  int64_t count = reduction.count;
  if (x.view.elements() > (int64_t(1) << 26) || x.view.elements() == 0)
    return op.error("reduces a constant of " + Twine(x.view.elements()) +
                    " elements, which is not folded");
  ImportedValue moved = x;
  std::vector<FactorList> dims;
  int64_t outer = 1;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (!reduced[i]) {
      dims.push_back(x.view.dims[i]);
      outer *= x.view.size(i);
    }
  for (int64_t i = 0; i < x.rank(); ++i)
    if (reduced[i])
      dims.push_back(x.view.dims[i]);
  moved.view.dims = dims;
  // Reduce every `count` values to one. Floats are rounded at the end; integers wrap around.
  const auto reduceRows = [&](auto values, auto min, auto max, auto add, auto multiply) {
    using T = decltype(min);
    std::vector<T> result(outer, which == "ReduceProd"  ? 1
                                 : which == "ReduceMax" ? min
                                 : which == "ReduceMin" ? max
                                                        : 0);
    for (size_t i = 0; i < values.size(); ++i) {
      T &total = result[i / count];
      total = which == "ReduceMax"    ? std::max(total, values[i])
              : which == "ReduceMin"  ? std::min(total, values[i])
              : which == "ReduceProd" ? multiply(total, values[i])
                                      : add(total, values[i]);
    }
    for (T &total : result)
      total = which == "ReduceMean" ? total / static_cast<T>(count) : total;
    return result;
  };
  if (!isFloat(x.type)) {
    auto result =
        reduceRows(*constantInts(moved, int64_t(1) << 26), INT64_MIN, INT64_MAX, addInts, mulInts);
    return op.result(constantOf(x.type, makeInts(x.type, std::move(result)), reduction.shape));
  }
  auto result = reduceRows(*constantFloats(moved, int64_t(1) << 26), -double(INFINITY),
                           double(INFINITY), std::plus<double>(), std::multiplies<double>());
  for (double &total : result)
    total = roundTo(x.type, total);
  return op.result(constantOf(x.type, makeFloats(x.type, std::move(result)), reduction.shape));
}

/// Reduces samples to a loss, or to a number that is known before the step.
static LogicalResult reduceSamples(OpContext &op, ImportedValue x, int64_t rank) {
  const ElementKind type = x.type;
  Number elements = 1.0;
  for (const FactorList &list : x.view.dims) {
    if (failed(checkExtent(op, list)))
      return failure();
    elements *= extentOf(op.state, list);
  }
  if (!isFloat(x.type))
    x = castTo(op.state, x, ElementKind::F32);
  LossSummand summand;
  summand.elementsPerRow = x.view.elements() / op.state.rows;
  summand.factor = x.takeScale();
  if (op.node.op == "ReduceMean")
    summand.factor /= elements;
  summand.numerator =
      sumPerSample(op.state, materialise(op.state, x, groupsOf(x.view, true), true));
  if (op.state.isFromInputs(summand.numerator)) { // known before the step
    ImportedValue known =
        knownScalar(type, summand.factor * countOf(op.state, summand.numerator, ReduceKind::Sum));
    known.view.dims.resize(static_cast<size_t>(rank));
    return op.result(std::move(known));
  }
  return op.result({type, {}, Loss{{std::move(summand)}}});
}

/// Max or min over all samples. It is known before the step if it is computed from inputs alone.
static LogicalResult extremumOfSamples(OpContext &op, const ImportedValue &x, int64_t rank) {
  std::vector<int64_t> others;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != x.view.sampleAxis())
      others.push_back(i);
  ImportedValue each = x;
  const FactorList along = x.view.dims[x.view.sampleAxis()];
  if (along.size() > 1) { // separate axis for the elements inside the samples
    each.view.dims[x.view.sampleAxis()] = {Factor{op.state.rows, 0, true}};
    each.view.dims.emplace_back();
    for (const Factor &factor : along)
      if (!factor.sample)
        each.view.dims.back().push_back(factor);
    others.push_back(x.rank());
  }
  if (!others.empty()) {
    Decomposition make(op);
    each = make.reduce(op.node.op.c_str(), each, others, /*keep=*/true);
    if (make.hasFailed())
      return failure();
  }
  each = castTo(op.state, each, isFloat(x.type) ? x.type : ElementKind::F32);
  Value numerator =
      sumPerSample(op.state, materialise(op.state, each, groupsOf(each.view, true), true));
  if (!op.state.isFromInputs(numerator))
    return mixes(op, "takes the extremum of all samples");
  ImportedValue known = knownScalar(
      x.type,
      countOf(op.state, numerator, op.node.op == "ReduceMax" ? ReduceKind::Max : ReduceKind::Min));
  known.view.dims.resize(static_cast<size_t>(rank));
  return op.result(std::move(known));
}

LogicalResult zorse::onnx_import::mixes(OpContext &op, const Twine &what) {
  return op.error(what + ": it combines samples of activations, which may be combined only in the "
                         "loss, as a sum of terms factor * sum over samples. "
                         "Sums and extrema of inputs alone are known before the step and may be "
                         "used anywhere in the loss");
}

static LogicalResult reduceActivation(OpContext &op, ImportedValue x, const Reduction &reduction) {
  const std::string &which = op.node.op;
  const std::vector<bool> &reduced = reduction.reduced;
  Number scale = which == "ReduceSum" || which == "ReduceMean" ? x.takeScale() : Number(1.0);
  auto nest = LoopNest::of(op, {x});
  if (failed(nest))
    return failure();
  Value y = nest->emit(op.state, 0);
  auto type = cast<RankedTensorType>(y.getType());
  // Repeated elements are counted, not looped over: a sum of n copies is a multiplication by n.
  SmallVector<int64_t> dims;
  int64_t copies = reduction.count;
  for (size_t g = 0; g < nest->size(); ++g)
    if (reduced[nest->innermost(g).dim]) {
      dims.push_back(static_cast<int64_t>(g) + nest->hasSamples());
      copies /= type.getDimSize(dims.back());
    }
  ReduceKind kind = which == "ReduceMax"    ? ReduceKind::Max
                    : which == "ReduceMin"  ? ReduceKind::Min
                    : which == "ReduceProd" ? ReduceKind::Prod
                                            : ReduceKind::Sum;
  if ((which == "ReduceSum" || which == "ReduceMean") && !isFloat(x.type) && copies != 1)
    return op.error("sums repeated integers, which is not supported");
  if (type.getElementType().isInteger(1))
    return op.error("reduces booleans, which is not supported");
  if (which == "ReduceProd" && copies != 1)
    return op.error("multiplies repeated elements, which is not supported");
  if (!dims.empty())
    y = create<ReduceOp>(op.state, y, kind, dims);
  nest->reduce(reduced);
  ImportedValue result = nest->result(y, x.type);
  for (int64_t i = x.rank(); i-- > 0;)
    if (reduced[i]) {
      result.view.dims[i].clear();
      if (!reduction.keep)
        result.view.dims.erase(result.view.dims.begin() + i);
    }
  if (which == "ReduceSum")
    scale *= static_cast<double>(copies);
  if (which == "ReduceMean")
    scale *= Number(static_cast<double>(copies)) / Number(static_cast<double>(reduction.count));
  result.tensor().scale = scale;
  if (!isFloat(x.type) && which == "ReduceMean")
    return op.error("is a mean of integers, which is not supported");
  return op.result(std::move(result));
}

/// Reduces values that repeat for every sample: constants, and values of parameters.
static LogicalResult reduceRepeats(OpContext &op, ImportedValue x, Reduction reduction) {
  const int64_t axis = x.view.sampleAxis();
  if (!x.isTensor()) {
    auto known = asKnown(op, x);
    return failed(known) ? failure() : reduceKnown(op, *known, reduction.reduced, reduction.keep);
  }
  llvm::erase_if(x.view.dims[axis], [](const Factor &factor) { return factor.sample; });
  reduction.count /= op.state.rows;
  if (failed(reduceActivation(op, x, reduction)))
    return failure();
  if (op.node.op == "ReduceSum" && isFloat(x.type))
    op.result().tensor().scale *= samplesPerRow(op.state);
  else if (op.node.op == "ReduceSum" || op.node.op == "ReduceProd")
    return op.error("reduces repeats for every sample, which is not supported");
  return success();
}

static LogicalResult importReduce(OpContext &op) {
  ImportedValue x = op.operand(0);
  const std::string &which = op.node.op;
  if (x.isLoss())
    return importIdentity(op); // one element
  std::optional<std::vector<int64_t>> axes;
  if (failed(op.axes(1, x.rank(), axes)))
    return failure();
  bool keep = op.integer("keepdims") != 0;
  if (!axes || axes->empty()) {
    if (op.integer("noop_with_empty_axes"))
      return importIdentity(op);
    axes.emplace();
    for (int64_t i = 0; i < x.rank(); ++i)
      axes->push_back(i);
  }
  Reduction reduction;
  reduction.keep = keep;
  reduction.reduced.assign(x.rank(), false);
  for (int64_t axis : *axes)
    reduction.reduced[axis] = true;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (!reduction.reduced[i]) {
      reduction.shape.push_back(x.view.size(i));
    } else {
      if (failed(checkExtent(op, x.view.dims[i])))
        return failure();
      reduction.count *= x.view.size(i);
      if (keep)
        reduction.shape.push_back(1);
    }

  const int64_t sampleAxis = x.view.sampleAxis();
  const bool overSamples = sampleAxis >= 0 && reduction.reduced[sampleAxis];
  if (x.isKnown())
    return reduceKnown(op, x, reduction.reduced, keep);
  if (x.isConstant() && sampleAxis < 0)
    return reduceConstant(op, x, reduction);
  if (x.isConstant() || (x.isTensor() && !isBatched(x) && overSamples))
    return reduceRepeats(op, x, reduction);
  if (!x.isTensor())
    return op.error("expects a tensor");
  if (!overSamples)
    return reduceActivation(op, x, reduction);
  bool everything = std::all_of(reduction.shape.begin(), reduction.shape.end(),
                                [](int64_t size) { return size == 1; });
  if (everything && (which == "ReduceMax" || which == "ReduceMin"))
    return extremumOfSamples(op, x, static_cast<int64_t>(reduction.shape.size()));
  if (!everything)
    return reduceToSums(op, x, reduction.reduced, keep);
  if (which != "ReduceSum" && which != "ReduceMean")
    return mixes(op, "takes the product of all samples");
  return reduceSamples(op, x, static_cast<int64_t>(reduction.shape.size()));
}

void zorse::onnx_import::registerReduceOps(OperatorRegistry &registry) {
  registry.add({
      {{"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"},
       1,
       2,
       {integers("axes"), integer("keepdims", 1), integer("noop_with_empty_axes", 0)},
       importReduce},
  });
}
