// Tensors of sums over samples: every element is a sum of factor * (sum over samples of a value of each sample). An operator that is linear in them
// is applied to the values of each sample, before the sum.
#include "Composition.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

constexpr int64_t kMostCounts = 64; // of one tensor

Val Importer::sumsOf(std::vector<Val> each) {
  Val value;
  value.kind = Val::Kind::Loss;
  value.type = each[0].type;
  std::vector<int64_t> shape = each[0].shape();
  shape.erase(shape.begin());
  value.view = contiguousView(shape, false);
  if (value.view.elements() != 1) {
    value.elements = std::move(each);
    return value;
  }
  value.view = View{};
  for (Val &summand : each) {
    LossSummand scalar;
    scalar.elementsPerRow = 1;
    scalar.factor = summand.scale;
    summand.scale = 1.0;
    scalar.numerator = sumPerSample(materialise(summand, groupsOf(summand.view, true), true));
    value.summands.push_back(std::move(scalar));
  }
  return value;
}

// The sum or mean over samples, and over other axes, where axes are left; of inputs the largest or smallest element as well.
LogicalResult Importer::reduceToSums(const GraphNode &node, const Val &x, const std::vector<bool> &reduced, bool keep) {
  const int64_t samples = x.view.sampleAxis();
  const bool extremum = (node.op == "ReduceMax" || node.op == "ReduceMin") && isFromInputs(x.value);
  if (x.view.dims[samples].size() != 1 || (node.op != "ReduceSum" && node.op != "ReduceMean" && !extremum))
    return mixes(node, "reduces samples to a tensor");
  std::vector<int64_t> others, order{samples};
  Val each = isFloat(x.type) ? x : castTo(x, ElementKind::F32);
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != samples)
      order.push_back(i);
    if (i != samples && reduced[i])
      others.push_back(i < samples ? i + 1 : i);
  }
  Composition make(*this, node);
  each = make.transpose(each, order);
  if (!others.empty())
    each = make.reduce(node.op.c_str(), each, others, keep);
  if (keep) // where the samples were
    each = make.unsqueeze(each, samples + 1);
  if (make.hasFailed())
    return failure();
  if (node.op == "ReduceMean")
    each.scale /= Number::samples();
  if (!isFromInputs(each.value))
    return out(node, 0, sumsOf({std::move(each)})), success();
  // Known before the step, one count for each element.
  const int64_t count = each.view.elements() / rows;
  if (count > kMostCounts)
    return error(node, "makes " + Twine(count) + " sums of inputs over all samples, at most " + Twine(kMostCounts) +
                           " are possible; compute them in the data and make them an input");
  const ReduceKind kind = !extremum ? ReduceKind::Sum : node.op == "ReduceMax" ? ReduceKind::Max : ReduceKind::Min;
  Val flat = make.reshape(each, {rows, count});
  std::vector<Number> numbers;
  for (int64_t i = 0; i < count && !make.hasFailed(); ++i) {
    Val single = make.slice(flat, 1, i, 1);
    if (make.hasFailed())
      break;
    Number scale = 1.0;
    if (!extremum) // a sum is linear
      std::swap(scale, single.scale);
    numbers.push_back(scale * countOf(sumPerSample(materialise(single, groupsOf(single.view, true), true)), kind));
  }
  if (make.hasFailed())
    return failure();
  std::vector<int64_t> shape = each.shape();
  shape.erase(shape.begin());
  return out(node, 0, simplified(knownOver(x.type, std::move(numbers), contiguousView(shape, false)))), success();
}

// A scalar sum, a number or a scalar of parameters as sums of the shape [1].
FailureOr<std::vector<Val>> Importer::summandsOf(const GraphNode &node, const Val &value) {
  if (value.kind == Val::Kind::Loss && !value.elements.empty())
    return value.elements;
  std::vector<LossSummand> scalars;
  if (failed(addSummand(node, value, 1, scalars)))
    return failure();
  std::vector<Val> each;
  for (const LossSummand &scalar : scalars) {
    Val summand = wrap(scalar.numerator, ElementKind::F32, {rows});
    summand.type = value.type;
    summand.scale = scalar.factor;
    summand.view.dims.emplace_back();
    each.push_back(std::move(summand));
  }
  return each;
}

// Every part is padded with zeros to the whole, so that the factors of the parts stay apart.
LogicalResult Importer::joinSums(const GraphNode &node) {
  int64_t axis = intAttribute(node, "axis", 0), total = 0, at = 0, rank = 1;
  std::vector<int64_t> extents;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    rank = std::max(rank, in(node, i).elements.empty() ? 1 : in(node, i).rank());
  axis += axis < 0 ? rank : 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Val &part = in(node, i);
    if (axis >= rank || (part.elements.empty() ? rank != 1 : part.rank() != rank))
      return error(node, "joins sums over samples of different ranks");
    extents.push_back(part.elements.empty() ? 1 : part.view.size(axis));
    total += extents.back();
  }
  Composition make(*this, node);
  std::vector<Val> all;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    auto each = summandsOf(node, in(node, i));
    if (failed(each))
      return failure();
    for (Val summand : *each) {
      const Number scale = summand.scale;
      summand.scale = 1.0;
      std::vector<int64_t> pads(2 * static_cast<size_t>(rank + 1), 0);
      pads[static_cast<size_t>(axis) + 1] = at;
      pads[static_cast<size_t>(axis + rank) + 2] = total - at - extents[i];
      summand = make("Pad", {summand, make.ints(pads)}, {{"mode", std::string("constant")}});
      summand.scale *= scale;
      all.push_back(std::move(summand));
    }
    at += extents[i];
  }
  if (make.hasFailed())
    return failure();
  if (all.empty())
    return error(node, "joins nothing but zeros");
  return out(node, 0, sumsOf(std::move(all))), success();
}

LogicalResult Importer::addSums(const GraphNode &node, const Val &a, const Val &b, double sign) {
  std::vector<Val> all;
  std::vector<int64_t> shape;
  for (const Val *operand : {&a, &b}) {
    std::vector<int64_t> own = operand->kind == Val::Kind::Loss && operand->elements.empty() ? std::vector<int64_t>{} : operand->shape();
    if (own.size() > shape.size() || (own.size() == shape.size() && operand->view.elements() > a.view.elements()))
      shape = own;
  }
  Composition make(*this, node);
  for (const Val *operand : {&a, &b}) {
    std::vector<Val> each;
    if (operand->kind == Val::Kind::Loss || operand->view.elements() == 1) {
      auto summands = summandsOf(node, *operand);
      if (failed(summands))
        return failure();
      each = std::move(*summands);
    } else if (operand->isGraph() && !isSampled(*operand)) { // parameters: the mean over rows that all have it
      Val same = *operand;
      same.view.dims.insert(same.view.dims.begin(), FactorList{Factor{rows, 0, true}});
      same.scale /= samplesPerRow();
      each.push_back(std::move(same));
    } else if (isSampled(*operand)) {
      return mixes(node, "adds a sum over samples to values of samples");
    } else {
      return error(node, "adds a tensor of numbers to sums over samples, which is not supported; reduce the sums first");
    }
    for (Val summand : each) {
      const Number scale = operand == &b ? summand.scale * Number(sign) : summand.scale;
      summand.scale = 1.0;
      while (summand.rank() > static_cast<int64_t>(shape.size()) + 1)
        summand.view.dims.erase(summand.view.dims.begin() + 1); // of size 1
      while (summand.rank() < static_cast<int64_t>(shape.size()) + 1)
        summand.view.dims.insert(summand.view.dims.begin() + 1, FactorList{});
      std::vector<int64_t> whole = shape;
      whole.insert(whole.begin(), rows);
      summand = make("Expand", {summand, make.ints(whole)});
      summand.scale *= scale;
      all.push_back(std::move(summand));
    }
  }
  return make.hasFailed() ? failure() : (out(node, 0, sumsOf(std::move(all))), success());
}

FailureOr<Val> Importer::movedSum(const GraphNode &node, Composition &make, const Val &each) {
  const std::string &op = node.op;
  const int64_t rank = each.rank() - 1;
  std::optional<std::vector<int64_t>> axes;
  if (op == "ReduceSum" || op == "ReduceMean" || op == "Squeeze") {
    if (failed(axesOf(node, 1, rank, axes)))
      return failure();
    std::vector<int64_t> shifted;
    for (int64_t i = 0; i < rank; ++i)
      if (!axes || axes->empty() ? op != "Squeeze" || each.view.size(i + 1) == 1 : llvm::is_contained(*axes, i))
        shifted.push_back(i + 1);
    if (op == "Squeeze")
      return make(op.c_str(), {each, make.ints(shifted)});
    return make.reduce(op.c_str(), each, shifted, intAttribute(node, "keepdims", 1) != 0);
  }
  if (op == "Unsqueeze") {
    auto given = has(node, 1) ? constantInts(in(node, 1)) : intsAttribute(node, "axes");
    if (!given)
      return error(node, "expects constant axes");
    for (int64_t &axis : *given)
      axis = axis < 0 ? axis + rank + static_cast<int64_t>(given->size()) + 1 : axis + 1;
    return make("Unsqueeze", {each, make.ints(*given)});
  }
  if (op == "Transpose") {
    std::vector<int64_t> permutation{0};
    auto given = intsAttribute(node, "perm");
    for (int64_t i = 0; i < rank; ++i)
      permutation.push_back(1 + (given ? (*given)[static_cast<size_t>(i)] : rank - 1 - i));
    return make.transpose(each, permutation);
  }
  if (op == "Gather" && in(node, 1).isConstant()) {
    const int64_t axis = intAttribute(node, "axis", 0);
    return make("Gather", {each, in(node, 1)}, {{"axis", axis < 0 ? axis + rank + 1 : axis + 1}});
  }
  if (op == "Reshape" || op == "Expand") {
    auto shape = constantInts(in(node, 1));
    if (!shape)
      return error(node, "expects a constant shape");
    shape->insert(shape->begin(), rows);
    for (size_t i = 1; op == "Reshape" && i < shape->size(); ++i)
      if ((*shape)[i] == 0 && static_cast<int64_t>(i) <= rank)
        (*shape)[i] = each.view.size(static_cast<int64_t>(i));
    return op == "Reshape" ? make.reshape(each, *shape) : make("Expand", {each, make.ints(*shape)});
  }
  const bool right = in(node, 0).kind == Val::Kind::Loss;
  const Val &other = in(node, right ? 1 : 0);
  if ((op == "Mul" || (op == "Div" && right)) && other.rank() <= rank && !isSampled(other))
    return make(op.c_str(), {each, other});
  if (op == "MatMul" && rank == 1 && other.rank() == 1 && !isSampled(other))
    return make("MatMul", {each, other});
  return notAffine(node, "uses");
}

std::optional<LogicalResult> Importer::applyToSums(const GraphNode &node) {
  bool tensors = false, losses = false;
  int64_t sums = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    tensors |= in(node, i).kind == Val::Kind::Loss && !in(node, i).elements.empty();
    losses |= in(node, i).kind == Val::Kind::Loss;
    sums += in(node, i).kind == Val::Kind::Loss;
  }
  const std::string &op = node.op;
  if (losses && op == "Concat")
    return joinSums(node);
  if (!tensors || op == "Identity" || op == "Shape" || op == "Size")
    return std::nullopt;
  if (op == "Cast" && isFloat(static_cast<ElementKind>(intAttribute(node, "to", 0))))
    return onIdentity(node);
  if (op == "Add" || op == "Sub")
    return addSums(node, in(node, 0), in(node, 1), op == "Sub" ? -1 : 1);
  if (sums > 1 && op != "Sum")
    return notAffine(node, op == "Div" ? "divides by" : "multiplies");
  Composition make(*this, node);
  std::vector<Val> all;
  for (Val each : in(node, in(node, 0).kind == Val::Kind::Loss ? 0 : 1).elements) {
    if (op == "Neg") {
      each.scale = -each.scale;
      all.push_back(std::move(each));
      continue;
    }
    auto moved = movedSum(node, make, each);
    if (failed(moved) || make.hasFailed())
      return LogicalResult(failure());
    all.push_back(std::move(*moved));
  }
  return out(node, 0, sumsOf(std::move(all))), success();
}

// A product of vectors along the samples is the sum over them of the products.
FailureOr<Val> Importer::dotOfSamples(const GraphNode &node, const Val &a, Val b) {
  const bool columns = a.rank() == 1 && (b.rank() == 1 || (b.rank() == 2 && b.view.size(1) == 1));
  if (!columns)
    return error(node,
                 "sums over the samples; every op must treat samples apart. In the loss, write the sum over samples of products of two vectors");
  const int64_t rank = b.rank();
  if (rank == 2)
    b.view.dims.pop_back();
  Composition make(*this, node);
  Val sum = make.reduce("ReduceSum", make("Mul", {a, b}), {0});
  if (make.hasFailed())
    return failure();
  if (rank == 2 && sum.kind != Val::Kind::Loss)
    sum.view.dims.emplace_back();
  return sum;
}
