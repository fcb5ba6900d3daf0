// Imports Gather: embeddings, and selection of slices by constant or sampled ids.
#include "Decomposition.h"
#include "Initializers.h"
#include "Known.h"
#include "LoopNest.h"
#include "Parts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static bool isIncreasing(const std::vector<int64_t> &ids) {
  return std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<int64_t>()) == ids.end();
}

/// The row of an embedding weight that gets no gradient.
static std::optional<int64_t> paddingOf(OpContext &op, const ImportedValue &table) {
  std::optional<int64_t> row;
  std::string name;
  if (auto argument = table.isTensor() ? dyn_cast<BlockArgument>(table.value()) : BlockArgument())
    if (auto found = op.state.weightOfArgument.find(argument.getArgNumber());
        found != op.state.weightOfArgument.end())
      name = op.state.weights[found->second].parameter;
  for (const std::string &other : op.state.metadata.namesOf(name))
    if (auto found = op.state.metadata.padding.find(other);
        found != op.state.metadata.padding.end()) {
      row = found->second;
      op.state.padded.insert(found->first);
    }
  if (op.node.padding)
    row = *op.node.padding;
  return row && *row >= 0 && *row < table.view.size(0) ? row : std::nullopt;
}

LogicalResult zorse::onnx_import::checkPadding(ImportState &state) {
  // Facts recorded in a run name the tables that are looked up. Without a run, only declarations of
  // modules are known.
  for (auto &[name, row] : state.metadata.padding)
    if (auto fact = state.metadata.parameters.find(name);
        fact != state.metadata.parameters.end() && fact->second.reached == true &&
        fact->second.trained && !state.padded.count(name) && !state.options.trustGuess &&
        !forced(state, name))
      return error(state, "row " + Twine(row) + " of embedding '" + name +
                              "' is padding and gets no gradient (padding_idx), but the file does "
                              "not look that table up under its name: the exporter has folded it. "
                              "Export with torch.onnx.export(..., dynamo=True, optimize=False); "
                              "--infer-trainable trains that row, too");
  return success();
}

static FailureOr<ImportedValue> pickedFromConstant(OpContext &op, const ImportedValue &x,
                                                   int64_t axis,
                                                   const std::vector<int64_t> &picked) {
  if (x.isKnown())
    return pickedFromKnown(op, x, axis, picked);
  ImportedValue whole = copied(op.state, x);
  if (whole.view.sampleAxis() >= 0)
    return op.error("picks from a constant that repeats for every sample");
  std::vector<int64_t> shape = whole.shape();
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < x.rank(); ++i)
    (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
  int64_t count = static_cast<int64_t>(picked.size());
  if (outer * inner * count > (int64_t(1) << 25))
    return op.error("picks from a large constant, which is not folded");
  shape[axis] = count;
  std::vector<int64_t> begins;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t id : picked)
      begins.push_back((o * x.view.size(axis) + id) * inner);
  return runsOf(whole, begins, inner, shape);
}

/// Splits the picked axis of `value` into the ids' `moving` factors and inserts their repeats.
static LogicalResult spreadAxis(OpContext &op, ImportedValue &value, const ImportedValue &ids,
                                int64_t axis, const FactorList &moving) {
  FactorList along = value.view.dims[axis];
  std::vector<FactorList> dims(value.view.dims.begin(), value.view.dims.begin() + axis);
  std::vector<int64_t> movingSizes;
  for (const Factor &factor : moving)
    movingSizes.push_back(factor.size);
  View line;
  line.offset = value.view.offset;
  line.dims = {along};
  View parts;
  bool guessed = false;
  if (value.view.size(axis) > 1 &&
      reshapeView(line, movingSizes, parts, guessed) != ReshapeResult::Done) {
    value = copied(op.state, value);
    line.dims = {value.view.dims[axis]};
    line.offset = value.view.offset;
    if (reshapeView(line, movingSizes, parts, guessed) != ReshapeResult::Done)
      return op.error("its ids have a shape that is not supported");
  }
  size_t next = 0;
  for (const FactorList &list : ids.view.dims) {
    FactorList target;
    for (const Factor &factor : list) {
      if (factor.stride == 0) {
        target.push_back(Factor{factor.size, 0, factor.sample});
        continue;
      }
      const FactorList &part = parts.dims[next++];
      target.insert(target.end(), part.begin(), part.end());
    }
    coalesce(target);
    dims.push_back(target);
  }
  dims.insert(dims.end(), value.view.dims.begin() + axis + 1, value.view.dims.end());
  value.view.dims = std::move(dims);
  return success();
}

FailureOr<ImportedValue> zorse::onnx_import::pickedFromGraph(OpContext &op, const ImportedValue &x,
                                                             int64_t axis,
                                                             const std::vector<int64_t> &picked,
                                                             std::optional<int64_t> padding) {
  constexpr size_t kMaxRuns = 32; // more runs are gathered
  Decomposition make(op);
  const auto count = static_cast<int64_t>(picked.size());
  ImportedValue picks;
  if (!isBatched(x)) {
    ImportedValue table = make.move(x, axis, 0);
    if (make.hasFailed())
      return failure();
    ImportedValue idVector =
        constantOf(ElementKind::I64, makeInts(ElementKind::I64, picked), {count});
    Value rows = materialise(op.state, table, groupsOf(table.view, false), false);
    Value y = create<GatherOp>(op.state, rows,
                               materialise(op.state, idVector, {{Factor{count, 1, false}}}, false),
                               padding);
    std::vector<int64_t> shape = table.shape();
    shape[0] = count;
    picks = make.move(wrap(y, x.type, shape), 0, axis);
  } else {
    std::vector<std::pair<int64_t, int64_t>> runs; // begin and count of each run
    for (int64_t id : picked)
      if (!runs.empty() && runs.back().first + runs.back().second == id)
        ++runs.back().second;
      else
        runs.emplace_back(id, 1);
    if (runs.size() <= kMaxRuns) {
      std::vector<ImportedValue> parts;
      parts.reserve(runs.size());
      for (auto [begin, length] : runs)
        parts.push_back(make.slice(x, axis, begin, length));
      picks = make("Concat", std::move(parts), {{"axis", axis}});
    } else {
      std::vector<int64_t> flat(x.rank(), 1), shape = x.shape();
      flat[axis] = shape[axis] = count;
      picks = make("GatherElements",
                   {x, make("Expand", {make.reshape(make.ints(picked), flat), make.ints(shape)})},
                   {{"axis", axis}});
    }
  }
  return make.hasFailed() ? FailureOr<ImportedValue>(failure()) : picks;
}

/// Handles gathers within each sample that are written over the elements of all samples. Ids are
/// sample * inner + position along an axis of samples * inner elements. Flattened strided accesses
/// have this form.
static std::optional<LogicalResult> gatherWithinSamples(OpContext &op, const ImportedValue &x,
                                                        const ImportedValue &ids, int64_t axis) {
  const FactorList &along = x.view.dims[axis];
  const std::vector<int64_t> idShape = ids.shape();
  const bool told = ids.sampleStep() != 0;
  if (along.empty() || !along[0].sample || idShape.empty() || idShape[0] != op.state.rows ||
      (!told && !op.state.rowsBaked))
    return std::nullopt;
  const int64_t inner = x.view.size(axis) / op.state.rows;
  auto numbers = constantInts(ids);
  if (!numbers || (told && (ids.sampleStep() != inner || ids.view.sampleAxis() != 0)))
    return std::nullopt;
  const size_t count = numbers->size() / static_cast<size_t>(op.state.rows);
  std::vector<int64_t> places(numbers->begin(), numbers->begin() + static_cast<int64_t>(count));
  for (size_t i = 0; i < numbers->size(); ++i)
    if (places[i % count] < 0 || places[i % count] >= inner ||
        (*numbers)[i] != (told ? 0 : static_cast<int64_t>(i / count) * inner) + places[i % count])
      return std::nullopt;
  Decomposition make(op);
  std::vector<int64_t> split = x.shape();
  split[axis] = inner;
  split.insert(split.begin() + axis, op.state.rows);
  ImportedValue place =
      make.reshape(make.ints(std::move(places)), {idShape.begin() + 1, idShape.end()});
  return make.result(make("Gather", {make.reshape(x, split), place}, {{"axis", axis + 1}}));
}

static LogicalResult gatherByConstant(OpContext &op, const ImportedValue &x, ImportedValue ids,
                                      int64_t axis) {
  int64_t size = x.view.size(axis);
  ids = compressed(op.state, ids);
  // Ids that repeat along an axis are looked up once.
  ImportedValue distinct = ids;
  FactorList moving;
  for (FactorList &list : distinct.view.dims) {
    FactorList kept;
    for (const Factor &factor : list)
      if (factor.stride != 0)
        kept.push_back(factor);
    moving.insert(moving.end(), kept.begin(), kept.end());
    list = kept;
  }
  auto picked = constantInts(distinct, int64_t(1) << 24);
  if (!picked)
    return op.error("its constant ids are too many");
  if (ids.sampleStep() == 0 && picked->size() == 1 &&
      isKnownOfSample(op.state, x, axis, picked->front())) {
    ImportedValue value = x;
    if (failed(takeSample(op, value, axis, picked->front())) ||
        failed(spreadAxis(op, value, ids, axis, moving)))
      return failure();
    return op.result(std::move(value));
  }
  int64_t largest = *std::max_element(picked->begin(), picked->end());
  for (int64_t &id : *picked) {
    if (id < -size || id >= size)
      return op.error(
          "id " + Twine(id < 0 ? id : largest) + " is outside " + op.nameOf(0) + ", which has " +
          Twine(size) + " entries along axis " + Twine(axis) +
          (id >= size && op.state.options.sequence > largest - size + 1 && isIncreasing(*picked)
               ? "; positions up to " + std::to_string(size - 1) +
                     " exist: compile with --seq-length at most " +
                     std::to_string(op.state.options.sequence - (largest - size + 1))
               : "; expects ids from 0 to " + std::to_string(size - 1)));
    id = id < 0 ? id + size : id;
  }
  if (x.view.sampleAxis() == axis) {
    if (auto done = gatherWithinSamples(op, x, ids, axis))
      return *done;
    return op.error("selects samples by constant ids, and a program has its own samples alone. Of "
                    "inputs, the first and the last sample may be "
                    "read (x[0], x[-1]); make what is read of others an input");
  }
  if (ids.sampleStep() != 0)
    return op.error("picks by the numbers of the samples in the batch (arange) from what does not "
                    "hold the samples there");
  // First the picked axis becomes one dimension, which is then replaced by the shape of the ids.
  ImportedValue value = x;
  auto progression = evenSteps(*picked);
  std::optional<int64_t> padding = axis == 0 && !isBatched(x) ? paddingOf(op, x) : std::nullopt;
  if (padding && std::find(picked->begin(), picked->end(), *padding) == picked->end())
    padding.reset();
  if (progression && !padding) {
    if (failed(take(op, value, axis, progression->first, progression->second,
                    static_cast<int64_t>(picked->size()))))
      return failure();
  } else if (x.isConstant() || x.isKnown()) {
    auto constant = pickedFromConstant(op, x, axis, *picked);
    if (failed(constant))
      return failure();
    value = std::move(*constant);
  } else {
    auto picks = pickedFromGraph(op, x, axis, *picked, padding);
    if (failed(picks))
      return failure();
    value = std::move(*picks);
  }
  if (failed(spreadAxis(op, value, ids, axis, moving)))
    return failure();
  return op.result(std::move(value));
}

/// Gathers x [A..., V, B...] by ids [I...] that are the same for all samples, as elements of [A...,
/// B..., V].
static LogicalResult gatherPerSample(OpContext &op, const ImportedValue &x,
                                     const ImportedValue &ids, int64_t axis) {
  if (isBatched(ids))
    return op.error("picks by ids of one sample from all samples; every op must treat samples "
                    "apart. For picks within a sample use torch.gather, "
                    "whose ids have the dimensions of what they pick from");
  if (x.view.sampleAxis() == axis)
    return op.error("picks samples by data");
  Decomposition make(op);
  std::vector<int64_t> shape = x.shape(), back, idShape = ids.shape();
  shape.erase(shape.begin() + axis);
  const int64_t others = x.rank() - 1, count = ids.view.elements();
  std::vector<int64_t> flat(others + 1, 1), whole = shape;
  flat[others] = count;
  whole.push_back(count);
  ImportedValue index = make("Expand", {make.reshape(ids, flat), make.ints(whole)});
  ImportedValue picks =
      make("GatherElements", {make.move(x, axis, others), index}, {{"axis", others}});
  shape.insert(shape.end(), idShape.begin(), idShape.end());
  for (int64_t i = 0; i < axis; ++i)
    back.push_back(i);
  for (int64_t i = 0; i < ids.rank(); ++i)
    back.push_back(others + i);
  for (int64_t i = axis; i < others; ++i)
    back.push_back(i);
  return make.result(make.transpose(make.reshape(picks, shape), back));
}

/// An embedding. The table carries no samples and has the picked axis first.
static LogicalResult gatherByData(OpContext &op, ImportedValue x, const ImportedValue &ids,
                                  int64_t axis) {
  if (isBatched(x))
    return gatherPerSample(op, x, ids, axis);
  if (axis != 0) {
    Decomposition make(op);
    std::vector<int64_t> back;
    // [ids..., dimensions before the axis, dimensions after it].
    ImportedValue rows = make("Gather", {make.move(x, axis, 0), ids});
    const int64_t others = ids.rank();
    for (int64_t i = 0; i < axis; ++i)
      back.push_back(others + i);
    for (int64_t i = 0; i < others; ++i)
      back.push_back(i);
    for (int64_t i = axis + 1; i < x.rank(); ++i)
      back.push_back(others + i - 1);
    return make.result(make.transpose(rows, back));
  }
  if (x.isConstant())
    x = compressed(op.state, x);
  Groups tableGroups;
  for (const FactorList &list : x.view.dims)
    if (!list.empty() || tableGroups.empty())
      tableGroups.push_back(list);
  Value table = materialise(op.state, x, tableGroups, false);
  auto nest = LoopNest::of(op, {ids});
  if (failed(nest))
    return failure();
  Value index = nest->emit(op.state, 0);
  if (!cast<RankedTensorType>(index.getType()).getElementType().isInteger(64) &&
      !cast<RankedTensorType>(index.getType()).getElementType().isInteger(32))
    return op.error("expects integer ids");
  Value y = create<GatherOp>(op.state, table, index, paddingOf(op, x));
  const std::vector<int64_t> shape = x.shape();
  return op.result(nest->result(y, x.type, ArrayRef(shape).drop_front()));
}

static LogicalResult importGather(OpContext &op) {
  ImportedValue x = op.operand(0), ids = op.operand(1);
  if ((!x.isArray() && !x.isKnown()) || !ids.isArray() || x.rank() == 0)
    return op.error("expects a tensor of rank 1 or more, and ids");
  const int64_t axis = op.axis(x.rank());
  if (axis < 0)
    return op.error("axis is outside the rank");
  std::vector<int64_t> picked = x.shape(), idShape = ids.shape();
  picked.erase(picked.begin() + axis);
  picked.insert(picked.begin() + axis, idShape.begin(), idShape.end());
  if (!isSensible(picked))
    return op.error("its result is too large");

  if (ids.view.elements() == 0 || x.view.elements() == 0) {
    if (std::find(picked.begin(), picked.end(), 0) == picked.end())
      return op.error("picks from an empty tensor");
    return op.result(constantOf(x.type, makeFill(x.type, 0, 0), picked));
  }
  return ids.isConstant() ? gatherByConstant(op, x, ids, axis) : gatherByData(op, x, ids, axis);
}

void zorse::onnx_import::registerIndexOps(OperatorRegistry &registry) {
  registry.add({
      {{"Gather"}, 2, 2, {integer("axis", 0)}, importGather},
  });
}
