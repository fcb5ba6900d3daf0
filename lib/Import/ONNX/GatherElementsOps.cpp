// Imports GatherElements and GatherND, which pick elements by one or several ids each.
#include "Decomposition.h"
#include "Lengths.h"
#include "LoopNest.h"
#include "Parts.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

std::optional<std::pair<int64_t, int64_t>> zorse::onnx_import::evenSteps(ArrayRef<int64_t> ids) {
  if (ids.empty())
    return std::nullopt;
  int64_t step = ids.size() > 1 ? ids[1] - ids[0] : 1;
  if (step <= 0)
    return std::nullopt;
  for (size_t i = 1; i < ids.size(); ++i)
    if (ids[i] - ids[i - 1] != step)
      return std::nullopt;
  return std::make_pair(ids[0], step);
}

/// The loop nest of ids and of x without one of its axes. Copies x if its other axes do not divide
/// those of ids. Fails after an error.
static FailureOr<LoopNest> nestOfPicks(OpContext &op, ImportedValue &x, const ImportedValue &ids,
                                       int64_t axis) {
  const auto nestOf = [&](ImportedValue outer) {
    outer.view.dims[axis].clear();
    return LoopNest::of(op, {std::move(outer), ids});
  };
  auto nest = nestOf(x);
  if (failed(nest) || !nest->isCopied(0))
    return nest;
  x = copied(op.state, x);
  return nestOf(x);
}

/// Picks elements along one axis. The vectors along the axis repeat for all of their ids, and one
/// element of every copy is picked. The copies are views.
static LogicalResult pickElements(OpContext &op, ImportedValue x, const ImportedValue &ids,
                                  int64_t axis) {
  if (!x.isArray() || !ids.isArray() || isFloat(ids.type))
    return op.error("expects a tensor and integer ids");
  if (x.view.sampleAxis() == axis)
    return op.error("picks samples by data");
  if (ids.view.elements() == 0 || x.view.elements() == 0)
    return op.error("picks from or by an empty tensor");
  const int64_t size = x.view.size(axis);
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != axis && ids.view.size(i) > x.view.size(i))
      return op.error("expects ids of at most the operand's size in dimension " + Twine(i) +
                      ", found " + Twine(ids.view.size(i)) + " and " + Twine(x.view.size(i)));
    else if (i != axis && failed(take(op, x, i, 0, 1, ids.view.size(i))))
      return failure();
  const Number scale = x.takeScale();
  auto nest = nestOfPicks(op, x, ids, axis);
  if (failed(nest))
    return failure();
  Value data = nest->emit(op.state, 0, x.view.dims[axis]);
  if (auto logp = data.getDefiningOp<LogSoftmaxOp>(); logp && ids.isTensor()) {
    // A picked log-probability is the negative of a cross-entropy.
    Value index = nest->emit(op.state, 1);
    auto type = cast<RankedTensorType>(logp.getX().getType());
    auto loss = CrossEntropyOp::create(op.state.builder, op.state.location, logp.getX(), index,
                                       Value(), std::nullopt);
    ImportedValue result = nest->result(merge(op.state, loss), x.type);
    result.tensor().scale = -scale;
    op.state.losses.push_back({index, logp.getX(), std::nullopt, type.getShape().back()});
    return op.result(std::move(result));
  }
  auto counted = countedFromFront(op, ids, size);
  if (failed(counted) || failed(nest = nestOfPicks(op, x, *counted,
                                                   axis))) // the memory order of `counted` differs
                                                           // from that of ids
    return failure();
  data = nest->emit(op.state, 0, x.view.dims[axis]);
  ImportedValue result =
      nest->result(create<TakeAlongDimOp>(op.state, data, nest->emit(op.state, 1)), x.type);
  result.tensor().scale = scale;
  return op.result(std::move(result));
}

/// y[.., j, ..] = x[.., ids[.., j, ..], ..] along one axis.
static LogicalResult importGatherElements(OpContext &op) {
  ImportedValue x = op.operand(0), ids = op.operand(1);
  const int64_t axis = op.axis(x.rank());
  if (axis < 0 || ids.rank() != x.rank())
    return op.error("expects a valid axis and ids of the operand's rank");
  if (x.isConstant()) {
    if (auto uniform = uniformValue(op.state, x)) {
      return op.result(fillOver(x.type, *uniform, ids.view));
    }
    auto index = constantInts(ids, int64_t(1) << 24);
    if (!index)
      return pickElements(op, x, ids, axis);
    ImportedValue whole = copied(op.state, x);
    std::vector<int64_t> from = x.shape(), shape = ids.shape();
    std::vector<int64_t> strides(from.size(), 1);
    for (size_t i = from.size(); i-- > 1;)
      strides[i - 1] = strides[i] * from[i];
    std::vector<int64_t> begins;
    for (size_t flat = 0; flat < index->size(); ++flat) {
      int64_t rest = static_cast<int64_t>(flat), at = 0;
      for (size_t i = shape.size(); i-- > 0;) {
        int64_t position = rest % shape[i];
        rest /= shape[i];
        if (static_cast<int64_t>(i) == axis) {
          position = (*index)[flat] < 0 ? (*index)[flat] + from[i] : (*index)[flat];
        }
        if (position < 0 || position >= from[i])
          return op.error("an id is outside the operand");
        at += position * strides[i];
      }
      begins.push_back(at);
    }
    return op.result(runsOf(whole, begins, 1, shape));
  }
  return pickElements(op, x, ids, axis);
}

FailureOr<ImportedValue>
zorse::onnx_import::countedFromFront(OpContext &op, const ImportedValue &ids, int64_t size) {
  Decomposition make(op);
  if (!ids.isConstant()) {
    ImportedValue whole =
        make("Where", {make("Less", {ids, make.number(0, ids)}),
                       make("Add", {ids, make.number(static_cast<double>(size), ids)}), ids});
    return make.hasFailed() ? FailureOr<ImportedValue>(failure()) : whole;
  }
  ImportedValue whole = copied(op.state, compressed(op.state, ids)); // keeps repeats over samples
  const int64_t count = whole.view.elements() / (whole.view.sampleAxis() < 0 ? 1 : op.state.rows);
  if (count > int64_t(1) << 24)
    return op.error("has too many constant ids");
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  whole.lazy()->readInts(0, whole.lazy()->isFill() ? 0 : 1, count, numbers.data());
  for (int64_t &id : numbers) {
    if (id < -size || id >= size)
      return op.error("id " + Twine(id) + " is outside the " + Twine(size) +
                      " entries it picks from");
    id = id < 0 ? id + size : id;
  }
  whole.constant().lazy = makeInts(ids.type, std::move(numbers));
  return compressed(op.state, whole);
}

/// Gathers from x [batch..., places..., rest...] by ids [batch..., I..., depth]. Places are
/// numbered in row-major order.
static LogicalResult gatherPlaces(OpContext &op, const ImportedValue &x, const ImportedValue &ids,
                                  int64_t batch, int64_t depth) {
  Decomposition make(op);
  std::vector<int64_t> from = x.shape(), idShape = ids.shape(),
                       flat(from.begin(), from.begin() + batch);
  auto numbers = placeNumbers(op, ids, {from.begin() + batch, from.begin() + batch + depth});
  if (failed(numbers))
    return failure();
  int64_t places = 1, count = 1;
  for (int64_t i = batch; i < batch + depth; ++i)
    places *= from[i];
  for (size_t i = batch; i + 1 < idShape.size(); ++i)
    count *= idShape[i];
  // [batch..., rest..., places] and ids [batch..., rest..., count]
  flat.push_back(places);
  flat.insert(flat.end(), from.begin() + batch + depth, from.end());
  const auto rank = static_cast<int64_t>(flat.size());
  std::vector<int64_t> whole = flat;
  whole.erase(whole.begin() + batch);
  whole.push_back(count);
  ImportedValue source = make.move(make.reshape(x, flat), batch, rank - 1);
  std::vector<int64_t> indexShape = whole;
  for (int64_t i = batch; i + 1 < rank; ++i)
    indexShape[i] = 1;
  ImportedValue index = make("Expand", {make.reshape(*numbers, indexShape), make.ints(whole)});
  ImportedValue picks = make("GatherElements", {source, index}, {{"axis", rank - 1}});
  // [batch..., rest..., count] -> [batch..., I..., rest...]
  std::vector<int64_t> shape(flat.begin(), flat.begin() + batch);
  shape.insert(shape.end(), idShape.begin() + batch, idShape.end() - 1);
  shape.insert(shape.end(), flat.begin() + batch + 1, flat.end());
  return make.result(make.reshape(make.move(picks, rank - 1, batch), shape));
}

/// Gathers by constant ids as a view. Each component of the ids must pick places of an axis in even
/// steps, or one place; returns nothing otherwise.
static std::optional<LogicalResult> gatherRanges(OpContext &op, const ImportedValue &x,
                                                 const ImportedValue &ids, int64_t depth) {
  std::vector<int64_t> lead = ids.shape();
  lead.pop_back();
  if (x.isConstant()) {
    std::vector<int64_t> whole = x.shape(), shape = lead;
    shape.insert(shape.end(), whole.begin() + depth, whole.end());
    if (!isSensible(shape))
      return op.error("its result is too large");
    if (auto uniform = uniformValue(op.state, x)) {
      View view = ids.view;
      view.dims.pop_back();
      view.dims.insert(view.dims.end(), x.view.dims.begin() + depth, x.view.dims.end());
      return op.result(fillOver(x.type, *uniform, std::move(view)));
    }
  }
  // Component c as a tensor of the lead shape. It may vary along one axis of it.
  ImportedValue value = x;
  std::vector<FactorList> dims(lead.size());
  std::vector<int> owner(lead.size(), -1);
  for (int64_t component = 0; component < depth; ++component) {
    ImportedValue single = ids;
    if (!sliceView(single.view, single.rank() - 1, component, 1, 1))
      return std::nullopt;
    single.view.dims.pop_back();
    single = compressed(op.state, single);
    int64_t axis = -1;
    for (size_t i = 0; i < lead.size(); ++i)
      for (const Factor &factor : single.view.dims[i])
        if (factor.stride != 0) {
          if (axis >= 0 && axis != static_cast<int64_t>(i))
            return std::nullopt;
          axis = static_cast<int64_t>(i);
        }
    ImportedValue line = single;
    for (size_t i = 0; i < lead.size(); ++i)
      if (static_cast<int64_t>(i) != axis)
        line.view.dims[i].clear();
    auto picked = constantInts(line);
    if (!picked)
      return std::nullopt;
    int64_t size = value.view.size(component);
    for (int64_t &id : *picked) {
      id = id < 0 ? id + size : id;
      if (id < 0 || id >= size)
        return op.error("an id is outside the operand");
    }
    auto progression = evenSteps(*picked);
    if (!progression)
      return std::nullopt;
    if (axis >= 0 && owner[axis] >= 0)
      return std::nullopt;
    if (failed(take(op, value, component, progression->first, progression->second,
                    static_cast<int64_t>(picked->size()))))
      return failure();
    if (axis >= 0) {
      owner[axis] = static_cast<int>(component);
      dims[axis] = value.view.dims[component];
    } else if (value.view.dims[component].size() == 1 && value.view.dims[component][0].sample) {
      if (dims.empty())
        return op.error("drops the sample axis of its operand");
      dims[0].insert(dims[0].begin(), value.view.dims[component][0]);
    }
  }
  for (size_t i = 0; i < lead.size(); ++i)
    if (owner[i] < 0 && lead[i] != 1 && dims[i].empty())
      for (const Factor &factor : ids.view.dims[i])
        dims[i].push_back(Factor{factor.size, 0, factor.sample});
  dims.insert(dims.end(), value.view.dims.begin() + depth, value.view.dims.end());
  value.view.dims = std::move(dims);
  if (isBatched(value) && value.view.sampleAxis() < 0)
    return op.error("drops the sample axis of its operand");
  return op.result(std::move(value));
}

static LogicalResult importGatherND(OpContext &op) {
  ImportedValue x = op.operand(0), ids = op.operand(1);
  const int64_t batch = op.integer("batch_dims");
  if (ids.rank() == 0 || batch < 0 || batch >= ids.rank() || batch > x.rank())
    return op.error("expects ids of rank 1 or more, and fewer batch dimensions than their rank");
  int64_t depth = ids.view.size(ids.rank() - 1);
  if (depth > x.rank() - batch || depth < 1)
    return op.error("expects ids of 1 to " + Twine(x.rank() - batch) + " components, found " +
                    Twine(depth));
  if (ids.countsSamples) {
    if (batch != 0 || x.view.sampleAxis() != 0 || x.view.size(0) != op.state.rows)
      return op.error("picks by sample indices from a value that has its samples in another "
                      "dimension; every op must treat samples apart");
    if (depth == 1) { // every sample picks itself, for each of the other leading ids
      for (int64_t i = ids.rank() - 2; i > 0; --i)
        x.view.dims.insert(x.view.dims.begin() + 1, ids.view.size(i) == 1
                                                        ? FactorList{}
                                                        : FactorList{{ids.view.size(i), 0}});
      return op.result(std::move(x));
    }
    Decomposition make(op);
    ImportedValue places = make.slice(ids, ids.rank() - 1, 1, depth - 1);
    places.countsSamples = false;
    if (depth == 2 && places.isConstant() && !make.hasFailed()) { // the same places in every
                                                                  // sample: may be a view
      places.view.dims.erase(places.view.dims.begin());
      places.view.dims.pop_back();
      return make.result(make("Gather", {x, std::move(places)}, {{"axis", int64_t(1)}}));
    }
    return make.result(make("GatherND", {x, std::move(places)}, {{"batch_dims", int64_t(1)}}));
  }
  for (int64_t i = 0; i < batch; ++i)
    if (x.view.size(i) != ids.view.size(i))
      return op.error("expects equal batch dimensions, found " + Twine(x.view.size(i)) + " and " +
                      Twine(ids.view.size(i)));
  if (batch == 0 && ids.isConstant())
    if (auto done = gatherRanges(op, x, ids, depth))
      return *done;
  return gatherPlaces(op, x, ids, batch, depth);
}

FailureOr<ImportedValue> zorse::onnx_import::placeNumbers(OpContext &op, const ImportedValue &ids,
                                                          const std::vector<int64_t> &sizes) {
  Decomposition make(op);
  ImportedValue sum;
  const int64_t axis = ids.rank() - 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    ImportedValue component = make.squeeze(make.slice(ids, axis, static_cast<int64_t>(i), 1), axis);
    if (make.hasFailed())
      return failure();
    auto counted = countedFromFront(op, component, sizes[i]);
    if (failed(counted))
      return failure();
    sum = i == 0 ? *counted
                 : make("Add", {make("Mul", {sum, make.number(static_cast<double>(sizes[i]), sum)}),
                                *counted});
  }
  return make.hasFailed() ? FailureOr<ImportedValue>(failure()) : sum;
}

void zorse::onnx_import::registerPickOps(OperatorRegistry &registry) {
  registry.add({
      {{"GatherElements"}, 2, 2, {integer("axis", 0)}, importGatherElements},
      {{"GatherND"}, 2, 2, {integer("batch_dims", 0)}, importGatherND},
  });
}
