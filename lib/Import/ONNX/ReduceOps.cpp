// Reductions of constants, activations and samples.
#include "Composition.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

Value Importer::sumPerSample(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() == 1)
    return value;
  SmallVector<int64_t> dims;
  for (int64_t i = 1; i < type.getRank(); ++i)
    dims.push_back(i);
  return create<ReduceOp>(value, ReduceKind::Sum, dims);
}

LogicalResult Importer::reduceConstant(const GraphNode &node, const Val &x, const Reduction &reduction) {
  const std::string &op = node.op;
  const std::vector<bool> &reduced = reduction.reduced;
  int64_t count = reduction.count;
  if (x.view.elements() > (int64_t(1) << 26) || x.view.elements() == 0)
    return error(node, "reduces a constant of " + Twine(x.view.elements()) + " elements, which is not folded");
  Val moved = x;
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
  if (isFloat(x.type)) {
    auto values = *constantFloats(moved, int64_t(1) << 26);
    std::vector<double> result(outer);
    for (int64_t o = 0; o < outer; ++o) {
      double total = op == "ReduceProd" ? 1 : op == "ReduceMax" ? -INFINITY : op == "ReduceMin" ? INFINITY : 0;
      for (int64_t i = 0; i < count; ++i) {
        double value = values[o * count + i];
        if (op == "ReduceMax")
          total = std::max(total, value);
        else if (op == "ReduceMin")
          total = std::min(total, value);
        else if (op == "ReduceProd")
          total *= value;
        else
          total += value;
      }
      if (op == "ReduceMean")
        total /= static_cast<double>(count);
      result[o] = roundTo(x.type, total);
    }
    return out(node, 0, constantOf(x.type, makeFloats(x.type, std::move(result)), reduction.shape)), success();
  }
  auto values = *constantInts(moved, int64_t(1) << 26);
  std::vector<int64_t> result(outer);
  for (int64_t o = 0; o < outer; ++o) {
    int64_t total = op == "ReduceProd" ? 1 : op == "ReduceMax" ? INT64_MIN : op == "ReduceMin" ? INT64_MAX : 0;
    for (int64_t i = 0; i < count; ++i) {
      int64_t value = values[o * count + i];
      total = op == "ReduceMax"    ? std::max(total, value)
              : op == "ReduceMin"  ? std::min(total, value)
              : op == "ReduceProd" ? mulInts(total, value)
                                   : addInts(total, value);
    }
    result[o] = op == "ReduceMean" ? total / count : total;
  }
  return out(node, 0, constantOf(x.type, makeInts(x.type, std::move(result)), reduction.shape)), success();
}

LogicalResult Importer::reduceSamples(const GraphNode &node, Val x, int64_t rank) {
  const ElementKind type = x.type;
  Number elements = 1.0;
  for (const FactorList &list : x.view.dims) {
    if (failed(checkExtent(node, list)))
      return failure();
    elements *= extentOf(list);
  }
  if (!isFloat(x.type))
    x = castTo(x, ElementKind::F32);
  LossSummand summand;
  summand.elementsPerRow = x.view.elements() / rows;
  summand.factor = node.op == "ReduceMean" ? x.scale / elements : x.scale;
  x.scale = 1.0;
  summand.numerator = sumPerSample(materialise(x, groupsOf(x.view, true), true));
  if (isFromInputs(summand.numerator)) { // known before the step
    Val known = knownScalar(type, summand.factor * countOf(summand.numerator, ReduceKind::Sum));
    known.view.dims.resize(static_cast<size_t>(rank));
    return out(node, 0, std::move(known)), success();
  }
  Val loss;
  loss.kind = Val::Kind::Loss;
  loss.type = type;
  loss.summands.push_back(summand);
  return out(node, 0, std::move(loss)), success();
}

// The largest or smallest element of all samples, which is known before the step where it follows from inputs alone.
LogicalResult Importer::extremumOfSamples(const GraphNode &node, const Val &x, int64_t rank) {
  std::vector<int64_t> others;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != x.view.sampleAxis())
      others.push_back(i);
  Val each = x;
  const FactorList along = x.view.dims[x.view.sampleAxis()];
  if (along.size() > 1) { // an axis of its own for what is inside of the samples
    each.view.dims[x.view.sampleAxis()] = {Factor{rows, 0, true}};
    each.view.dims.emplace_back();
    for (const Factor &factor : along)
      if (!factor.sample)
        each.view.dims.back().push_back(factor);
    others.push_back(x.rank());
  }
  if (!others.empty()) {
    Composition make(*this, node);
    each = make.reduce(node.op.c_str(), each, others, /*keep=*/true);
    if (make.hasFailed())
      return failure();
  }
  each = castTo(each, isFloat(x.type) ? x.type : ElementKind::F32);
  Value numerator = sumPerSample(materialise(each, groupsOf(each.view, true), true));
  if (!isFromInputs(numerator))
    return mixes(node, "takes the extremum of all samples");
  Val known = knownScalar(x.type, countOf(numerator, node.op == "ReduceMax" ? ReduceKind::Max : ReduceKind::Min));
  known.view.dims.resize(static_cast<size_t>(rank));
  return out(node, 0, std::move(known)), success();
}

LogicalResult Importer::mixes(const GraphNode &node, const Twine &what) {
  return error(node, what +
                         ": it combines samples of activations, which may be combined only in the loss, as a sum of terms factor * sum over samples. "
                         "Sums and extrema of inputs alone are known before the step and may be used anywhere in the loss");
}

LogicalResult Importer::reduceActivation(const GraphNode &node, Val x, const Reduction &reduction) {
  const std::string &op = node.op;
  const std::vector<bool> &reduced = reduction.reduced;
  int64_t count = reduction.count;
  // Repeated elements are counted, not looped over: a sum of n copies is a product.
  double copies = 1;
  std::vector<Val> operands{x};
  std::vector<Axis> loopAxes;
  std::vector<int64_t> wholeShape;
  if (failed(align(node, operands, loopAxes, wholeShape)))
    return failure();
  x = operands[0];
  Number scale = x.scale;
  x.scale = 1.0;
  bool linear = op == "ReduceSum" || op == "ReduceMean";
  if (!linear && !scale.is(1)) {
    x.scale = scale;
    scale = 1.0;
  }
  orderAxes(operands, loopAxes);
  std::vector<Axis> kept, gone;
  for (const Axis &axis : loopAxes) {
    if (reduced[axis.dim] && axis.strides[0] == 0)
      copies *= static_cast<double>(axis.size);
    (reduced[axis.dim] ? gone : kept).push_back(axis);
  }
  Loop loop = makeLoop(loopAxes);
  Value value = operandOf(x, 0, loop);
  SmallVector<int64_t> dims;
  for (size_t g = 0; g < loop.groups.size(); ++g)
    if (reduced[loop.groups[g].front()->dim])
      dims.push_back(static_cast<int64_t>(g) + (loop.sampled ? 1 : 0));
  Value y = value;
  auto type = cast<RankedTensorType>(value.getType());
  ReduceKind kind = op == "ReduceMax"    ? ReduceKind::Max
                    : op == "ReduceMin"  ? ReduceKind::Min
                    : op == "ReduceProd" ? ReduceKind::Prod
                                         : ReduceKind::Sum;
  if ((op == "ReduceSum" || op == "ReduceMean") && !isFloat(x.type) && copies != 1)
    return error(node, "sums repeated integers, which is not supported");
  if (type.getElementType().isInteger(1))
    return error(node, "reduces booleans, which is not supported");
  if (op == "ReduceProd" && copies != 1)
    return error(node, "multiplies repeated elements, which is not supported");
  if (!dims.empty())
    y = create<ReduceOp>(y, kind, dims);
  Loop keptLoop = makeLoop(kept);
  Val result = resultOf(y, x.type, kept, keptLoop, wholeShape);
  for (int64_t i = 0; i < x.rank(); ++i)
    if (reduced[i])
      result.view.dims[i].clear();
  if (!reduction.keep)
    for (int64_t i = x.rank(); i-- > 0;)
      if (reduced[i])
        result.view.dims.erase(result.view.dims.begin() + i);
  if (op == "ReduceSum")
    scale *= copies;
  if (op == "ReduceMean")
    scale *= Number(copies) / Number(static_cast<double>(count));
  result.scale = scale;
  if (!isFloat(x.type) && op == "ReduceMean")
    return error(node, "is a mean of integers, which is not supported");
  return out(node, 0, std::move(result)), success();
}

LogicalResult Importer::reduceRepeats(const GraphNode &node, Val x, Reduction reduction) {
  const int64_t axis = x.view.sampleAxis();
  if (!x.isGraph()) {
    auto known = asKnown(node, x);
    return failed(known) ? failure() : reduceKnown(node, *known, reduction.reduced, reduction.keep);
  }
  llvm::erase_if(x.view.dims[axis], [](const Factor &factor) { return factor.sample; });
  reduction.count /= rows;
  if (failed(reduceActivation(node, x, reduction)))
    return failure();
  Val &result = values[node.outputs[0]];
  if (node.op == "ReduceSum" && isFloat(x.type))
    result.scale *= samplesPerRow();
  else if (node.op == "ReduceSum" || node.op == "ReduceProd")
    return error(node, "reduces repeats for every sample, which is not supported");
  return success();
}

LogicalResult Importer::onReduce(const GraphNode &node) {
  Val x = in(node, 0);
  const std::string &op = node.op;
  if (x.kind == Val::Kind::Loss)
    return onIdentity(node); // one element
  std::optional<std::vector<int64_t>> axes;
  if (failed(axesOf(node, 1, x.rank(), axes)))
    return failure();
  bool keep = intAttribute(node, "keepdims", 1) != 0;
  if (!axes || axes->empty()) {
    if (intAttribute(node, "noop_with_empty_axes", 0))
      return onIdentity(node);
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
      if (failed(checkExtent(node, x.view.dims[i])))
        return failure();
      reduction.count *= x.view.size(i);
      if (keep)
        reduction.shape.push_back(1);
    }

  const int64_t sampleAxis = x.view.sampleAxis();
  const bool overSamples = sampleAxis >= 0 && reduction.reduced[sampleAxis];
  if (x.isKnown())
    return reduceKnown(node, x, reduction.reduced, keep);
  if (x.isConstant() && sampleAxis < 0)
    return reduceConstant(node, x, reduction);
  if (x.isConstant() || (x.isGraph() && !isSampled(x) && overSamples))
    return reduceRepeats(node, x, reduction);
  if (!x.isGraph())
    return error(node, "expects a tensor");
  if (!overSamples)
    return reduceActivation(node, x, reduction);
  bool everything = std::all_of(reduction.shape.begin(), reduction.shape.end(), [](int64_t size) { return size == 1; });
  if (everything && (op == "ReduceMax" || op == "ReduceMin"))
    return extremumOfSamples(node, x, static_cast<int64_t>(reduction.shape.size()));
  if (!everything)
    return reduceToSums(node, x, reduction.reduced, keep);
  if (op != "ReduceSum" && op != "ReduceMean")
    return mixes(node, "takes the product of all samples");
  return reduceSamples(node, x, static_cast<int64_t>(reduction.shape.size()));
}

void Importer::addReduceOps(OperatorTable &table) {
  table.add({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"}, 1, 2, "axes:is keepdims:i noop_with_empty_axes:i",
            &Importer::onReduce);
}
