// Imports sequences of tensors and concatenations.
#include "Known.h"
#include "Lengths.h"
#include "LoopNest.h"
#include "OpContext.h"
#include "Parts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/Sequence.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static LogicalResult importSplitToSequence(OpContext &op) {
  constexpr int64_t kMaxParts = 1 << 16;
  const ImportedValue &x = op.operand(0);
  const int64_t axis = op.axis(x.rank());
  bool keep = op.integer("keepdims") != 0;
  if (axis < 0)
    return op.error("axis is outside the rank");
  int64_t size = x.view.size(axis);
  std::vector<int64_t> sizes;
  if (op.has(1)) {
    auto given = constantInts(op.operand(1));
    if (!given || given->empty())
      return op.error("expects constant sizes");
    keep = true;
    if (op.operand(1).rank() == 0) {
      if ((*given)[0] < 1)
        return op.error("expects a positive size");
      const int64_t each = std::min((*given)[0], std::max<int64_t>(size, 1));
      if (size / each > kMaxParts)
        return op.error("would make a sequence of " + Twine(size / each) + " tensors, at most " +
                        Twine(kMaxParts) + " are possible");
      for (int64_t at = 0; at < size; at += each)
        sizes.push_back(std::min(each, size - at));
    } else
      sizes = *given;
  } else if (size > kMaxParts)
    return op.error("would make a sequence of " + Twine(size) + " tensors, at most " +
                    Twine(kMaxParts) + " are possible");
  else
    sizes.assign(size, 1);
  Sequence sequence;
  int64_t at = 0;
  for (int64_t part : sizes) {
    if (part < 0 || part > size - at)
      return op.error("its sizes exceed the dimension of " + Twine(size));
    ImportedValue value = x;
    if (failed(take(op, value, axis, at, 1, part)))
      return failure();
    if (!keep)
      value.view.dims.erase(value.view.dims.begin() + axis);
    sequence.elements.push_back(std::move(value));
    at += part;
  }
  return op.result({x.type, {}, std::move(sequence)});
}

static LogicalResult importSequenceAt(OpContext &op) {
  const ImportedValue &sequence = op.operand(0);
  auto index = uniformValue(op.state, op.operand(1));
  if (!sequence.isSequence() || !index)
    return op.error("expects a sequence and a constant position");
  int64_t at = truncateToInt(*index), size = static_cast<int64_t>(sequence.elements().size());
  at = at < 0 ? at + size : at;
  if (at < 0 || at >= size)
    return op.error("position " + Twine(at) + " is outside a sequence of " + Twine(size));
  return op.result(sequence.elements()[at]);
}

static LogicalResult importSequenceConstruct(OpContext &op) {
  return op.result({ElementKind::Undefined, {}, Sequence{op.operands()}});
}

static LogicalResult importConcatFromSequence(OpContext &op) {
  if (!op.operand(0).isSequence() || op.operand(0).elements().empty())
    return op.error("expects a sequence of at least one tensor");
  std::vector<ImportedValue> parts = op.operand(0).elements();
  int64_t axis = op.integer("axis");
  if (op.integer("new_axis")) {
    axis = op.axis(parts[0].rank() + 1);
    if (axis < 0)
      return op.error("axis is outside the rank");
    for (ImportedValue &part : parts)
      part.view.dims.insert(part.view.dims.begin() + std::min<int64_t>(axis, part.rank()),
                            FactorList{});
  }
  return concatenate(op, parts, axis);
}

/// Replaces a part of ids that contains the sample index by zeros, if the ids are used only by
/// GatherND. \returns whether it did. Exporters write x[arange(samples), places] as a GatherND with
/// both stacked to ids, and x[arange(samples)] with ids of one component. The IR has no value for
/// such an index.
static bool dropSampleNumbers(OpContext &op, std::vector<ImportedValue> &parts, int64_t axis) {
  if (parts.empty() || !parts[0].isConstant() || isFloat(parts[0].type) || parts[0].rank() < 2)
    return false;
  axis += axis < 0 ? parts[0].rank() : 0;
  const bool told = parts[0].sampleStep() != 0;
  const bool last = axis == parts[0].rank() - 1 && parts[0].view.size(axis) == 1 &&
                    parts[0].view.size(0) == op.state.rows;
  const bool sampled = std::any_of(parts.begin() + 1, parts.end(), [&](const ImportedValue &part) {
    return (isBatched(part) || told) && part.sampleStep() == 0 && part.view.sampleAxis() == 0;
  });
  if (!last || !(sampled || (told && parts.size() == 1)))
    return false;
  for (const GraphNode &other : op.state.graph.body.nodes)
    for (size_t i = 0; i < other.inputs.size(); ++i)
      if (other.inputs[i] == op.node.outputs[0] && (other.op != "GatherND" || i != 1))
        return false;
  auto numbers = constantInts(parts[0]);
  if (!numbers || numbers->empty() ||
      (told && (parts[0].sampleStep() != 1 || parts[0].view.sampleAxis() != 0)) ||
      (!told && !op.state.rowsBaked))
    return false;
  const size_t each = numbers->size() / static_cast<size_t>(op.state.rows);
  for (size_t i = 0; i < numbers->size(); ++i)
    if ((*numbers)[i] != (told ? 0 : static_cast<int64_t>(i / each)))
      return false;
  parts[0] = fillOver(parts[0].type, 0, parts[0].view);
  return true;
}

static LogicalResult importConcat(OpContext &op) {
  std::vector<ImportedValue> parts = op.operands();
  const int64_t axis = op.integer("axis");
  const bool countsSamples = dropSampleNumbers(op, parts, axis);
  if (failed(concatenate(op, parts, axis)))
    return failure();
  op.result().countsSamples = countsSamples;
  return success();
}

static ImportedValue joinedConstants(ImportState &state, const std::vector<ImportedValue> &parts,
                                     int64_t axis, const std::vector<int64_t> &shape) {
  std::vector<LazyPtr> bases;
  std::vector<int64_t> runs;
  int64_t outer = 1, inner = 1;
  View like = parts[0].view; // keeps repeats over samples
  like.dims[axis] = {Factor{shape[axis], 1, false}};
  for (int64_t i = 0; i < parts[0].rank(); ++i)
    for (const Factor &factor : like.dims[i])
      (i < axis ? outer : inner) *= i == axis || factor.sample ? 1 : factor.size;
  for (const ImportedValue &part : parts) {
    bases.push_back(copied(state, part).lazy());
    runs.push_back(part.view.size(axis) * inner);
    if (bases.back()->isFill() && bases.back()->size() != outer * runs.back()) {
      double value;
      bases.back()->readFloats(0, 0, 1, &value);
      bases.back() = makeFill(part.type, outer * runs.back(), value);
    }
  }
  ImportedValue joined = knownOver(parts[0].type, {}, like);
  joined.content = Constant{makeInterleaved(parts[0].type, bases, runs, outer)};
  return joined;
}

static FailureOr<ImportedValue>
joinedActivations(OpContext &op, const std::vector<ImportedValue> &parts, int64_t axis) {
  // The operands have all axes in common except the joined one, which is a separate dimension of
  // each operand.
  std::vector<ImportedValue> outers = parts;
  for (ImportedValue &part : outers)
    part.view.dims.erase(part.view.dims.begin() + axis);
  // An axis that repeats in one operand must be materialized if another operand moves along it. The
  // loop nest contains all axes along which an operand moves.
  auto nest = LoopNest::of(op, std::move(outers));
  if (failed(nest))
    return failure();
  for (size_t k = 0; k < parts.size(); ++k)
    if (nest->isCopied(k))
      return op.error("its operands group their axes in ways that do not match");
  // Position of the joined dimension: its memory position in the first operand that carries
  // samples, after all axes with larger strides.
  size_t primary = 0;
  for (size_t k = parts.size(); k-- > 0;)
    if (isBatched(parts[k]))
      primary = k;
  const FactorList &own = parts[primary].view.dims[axis];
  const auto strideOf = [&](size_t group) { return nest->innermost(group).strides[primary]; };
  size_t place = nest->size();
  if (own.empty())
    place = llvm::count_if(llvm::seq(place),
                           [&](size_t group) { return nest->innermost(group).dim < axis; });
  else
    while (place > 0 && strideOf(place - 1) != 0 && strideOf(place - 1) < own.back().stride)
      --place;
  SmallVector<Value> operands;
  for (size_t k = 0; k < parts.size(); ++k)
    operands.push_back(nest->emit(op.state, k, parts[k].view.dims[axis], place));
  const int64_t dim = static_cast<int64_t>(place) + nest->hasSamples();
  Value joined = create<ConcatOp>(op.state, operands, dim);
  return nest->result(joined, parts[0].type,
                      cast<RankedTensorType>(joined.getType()).getDimSize(dim), axis, place);
}

/// Concatenates along the sample axis. The joined axis becomes an axis outside of the samples.
static LogicalResult joinBySamples(OpContext &op, std::vector<ImportedValue> parts, int64_t axis) {
  const int64_t extent = parts[0].view.size(axis);
  for (ImportedValue &part : parts) {
    if (!part.view.dims[axis].front().sample || part.view.size(axis) != extent)
      return op.error("joins along the axis that holds the samples; expects parts with equal "
                      "numbers of elements per sample");
    part.view.dims.insert(part.view.dims.begin() + axis, FactorList{});
  }
  if (failed(concatenate(op, parts, axis)))
    return failure();
  ImportedValue &joined = op.result();
  FactorList inside = joined.view.dims[axis + 1];
  joined.view.dims[axis].insert(joined.view.dims[axis].end(), inside.begin(), inside.end());
  joined.view.dims.erase(joined.view.dims.begin() + axis + 1);
  return success();
}

LogicalResult zorse::onnx_import::concatenate(OpContext &op,
                                              const std::vector<ImportedValue> &given,
                                              int64_t axis) {
  std::vector<ImportedValue> parts;
  for (const ImportedValue &part : given) {
    if (!part.isArray() && !part.isKnown())
      return op.error("expects tensors");
    if (part.sampleStep() != 0)
      return op.error("joins the numbers of the samples in the batch (arange) with others; they "
                      "are supported in ids x[arange(B), places] alone");
    if (part.view.elements() > 0)
      parts.push_back(part);
  }
  if (parts.empty())
    return op.result(given.empty() ? ImportedValue{} : given[0]);
  int64_t rank = parts[0].rank();
  axis = axis < 0 ? axis + rank : axis;
  if (axis < 0 || axis >= rank)
    return op.error("axis is outside the rank");
  if (parts.size() == 1)
    return op.result(parts[0]);
  std::vector<int64_t> shape = parts[0].shape();
  int64_t total = 0;
  bool constant = true, known = false, graphs = false;
  for (const ImportedValue &part : parts) {
    std::vector<int64_t> own = part.shape();
    if (own.size() != shape.size())
      return op.error("expects operands of equal rank");
    for (int64_t i = 0; i < rank; ++i)
      if (i != axis && own[i] != shape[i])
        return op.error("expects operands that agree in every dimension but " + Twine(axis) +
                        ", found " + Twine(shape[i]) + " and " + Twine(own[i]) + " in dimension " +
                        Twine(i));
    total += own[axis];
    constant &= part.isConstant();
    known |= part.isKnown();
    graphs |= part.isTensor();
  }
  if (std::all_of(parts.begin(), parts.end(),
                  [&](const ImportedValue &part) { return part.view.sampleAxis() == axis; }))
    return joinBySamples(op, std::move(parts), axis);
  for (const ImportedValue &part : parts)
    if (part.view.sampleAxis() == axis)
      return op.error("joins samples and other values along one axis");
  shape[axis] = total;
  if (constant)
    return op.result(joinedConstants(op.state, parts, axis, shape));
  if (known && !graphs)
    return op.result(joinedKnown(op, parts, axis, shape));
  for (ImportedValue &part : parts)
    if (part.isKnown()) {
      auto value = asTensor(op, part);
      if (failed(value))
        return failure();
      part = std::move(*value);
    }
  return op.result(joinedActivations(op, parts, axis));
}

void zorse::onnx_import::registerSequenceOps(OperatorRegistry &registry) {
  registry.add({
      {{"SplitToSequence"},
       1,
       2,
       {integer("axis", 0), integer("keepdims", 1)},
       importSplitToSequence},
      {{"SequenceAt"}, 2, 2, {}, importSequenceAt},
      {{"SequenceConstruct"}, 0, kAny, {}, importSequenceConstruct},
      {{"ConcatFromSequence"},
       1,
       1,
       {required(integer("axis")), integer("new_axis", 0)},
       importConcatFromSequence},
      {{"Concat"}, 1, kAny, {required(integer("axis"))}, importConcat},
  });
}
