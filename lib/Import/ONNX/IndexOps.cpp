// Operators that index: embeddings, picks by constant or sampled ids, and their forms on constants.
#include "Composition.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// start, start + step, ... with step other than 0, if that is what the ids are.
static std::optional<std::pair<int64_t, int64_t>> arithmeticProgression(const std::vector<int64_t> &ids) {
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

static bool isIncreasing(const std::vector<int64_t> &ids) {
  return std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<int64_t>()) == ids.end();
}

std::optional<int64_t> Importer::paddingOf(const GraphNode &node, const Val &table) {
  std::optional<int64_t> row;
  std::string name;
  if (auto argument = table.isGraph() ? dyn_cast<BlockArgument>(table.value) : BlockArgument())
    if (auto found = weightOfArgument.find(argument.getArgNumber()); found != weightOfArgument.end())
      name = weights[found->second].parameter;
  for (const std::string &other : facts.namesOf(name))
    if (auto found = facts.padding.find(other); found != facts.padding.end()) {
      row = found->second;
      padded.insert(found->first);
    }
  if (node.padding)
    row = *node.padding;
  return row && *row >= 0 && *row < table.view.size(0) ? row : std::nullopt;
}

LogicalResult Importer::checkPadding() {
  // Facts of a run name tables that are looked up; without a run only what modules declare is known.
  for (auto &[name, row] : facts.padding)
    if (auto fact = facts.parameters.find(name); fact != facts.parameters.end() && fact->second.reached == true && fact->second.trained &&
                                                 !padded.count(name) && !options.trustGuess && !forced(name))
      return error(
          "row " + Twine(row) + " of embedding '" + name +
          "' is padding and gets no gradient (padding_idx), but the file does not look that table up under its name: the exporter has folded it. "
          "Export with torch.onnx.export(..., dynamo=True, optimize=False); --trust-guess trains that row, too");
  return success();
}

FailureOr<Val> Importer::pickedFromConstant(const GraphNode &node, const Val &x, int64_t axis, const std::vector<int64_t> &picked) {
  Val whole = copied(x);
  std::vector<int64_t> shape = whole.shape();
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < x.rank(); ++i)
    (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
  int64_t count = static_cast<int64_t>(picked.size());
  if (outer * inner * count > (int64_t(1) << 25))
    return error(node, "picks from a large constant, which is not folded");
  shape[axis] = count;
  if (isFloat(x.type)) {
    std::vector<double> result(outer * count * inner);
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < count; ++i)
        whole.lazy->readFloats((o * x.view.size(axis) + picked[i]) * inner, 1, inner, result.data() + (o * count + i) * inner);
    return constantOf(x.type, makeFloats(x.type, std::move(result)), shape);
  }
  std::vector<int64_t> result(outer * count * inner);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < count; ++i)
      whole.lazy->readInts((o * x.view.size(axis) + picked[i]) * inner, 1, inner, result.data() + (o * count + i) * inner);
  return constantOf(x.type, makeInts(x.type, std::move(result)), shape);
}

LogicalResult Importer::spreadAxis(const GraphNode &node, Val &value, const Val &ids, int64_t axis, const FactorList &moving) {
  // Split the axis into the ids' moving factors, put repeats between.
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
  if (value.view.size(axis) > 1 && reshapeView(line, movingSizes, parts, guessed) != ReshapeResult::Done) {
    value = copied(value);
    line.dims = {value.view.dims[axis]};
    line.offset = value.view.offset;
    if (reshapeView(line, movingSizes, parts, guessed) != ReshapeResult::Done)
      return error(node, "its ids have a shape that is not supported");
  }
  size_t next = 0;
  for (const FactorList &list : ids.view.dims) {
    FactorList target;
    for (const Factor &factor : list) {
      if (factor.stride == 0) {
        target.push_back(Factor{factor.size, 0, false});
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

FailureOr<Val> Importer::pickedFromGraph(const GraphNode &node, const Val &x, int64_t axis, const std::vector<int64_t> &picked,
                                         std::optional<int64_t> padding) {
  constexpr size_t kMostRuns = 32; // more of them are gathered
  Composition make(*this, node);
  std::vector<int64_t> front{axis}, back;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != axis)
      front.push_back(i);
    back.push_back(i < axis ? i + 1 : i == axis ? 0 : i);
  }
  const auto count = static_cast<int64_t>(picked.size());
  Val picks;
  if (!isSampled(x)) {
    Val table = make.transpose(x, front);
    if (make.hasFailed())
      return failure();
    Val idVector = constantOf(ElementKind::I64, makeInts(ElementKind::I64, picked), {count});
    Value rows = materialise(table, groupsOf(table.view, false), false);
    Value y = create<GatherOp>(rows, materialise(idVector, {{Factor{count, 1, false}}}, false), padding);
    std::vector<int64_t> shape = table.shape();
    shape[0] = count;
    picks = make.transpose(wrap(y, x.type, shape), back);
  } else {
    std::vector<std::pair<int64_t, int64_t>> runs; // begin, count
    for (int64_t id : picked)
      if (!runs.empty() && runs.back().first + runs.back().second == id)
        ++runs.back().second;
      else
        runs.emplace_back(id, 1);
    if (runs.size() <= kMostRuns) {
      std::vector<Val> parts;
      for (auto [begin, length] : runs)
        parts.push_back(make.slice(x, axis, begin, length));
      picks = make("Concat", std::move(parts), {{"axis", axis}});
    } else {
      std::vector<int64_t> flat(x.rank(), 1), shape = x.shape();
      flat[axis] = shape[axis] = count;
      picks = make("GatherElements", {x, make("Expand", {make.reshape(make.ints(picked), flat), make.ints(shape)})}, {{"axis", axis}});
    }
  }
  return make.hasFailed() ? FailureOr<Val>(failure()) : picks;
}

LogicalResult Importer::gatherByConstant(const GraphNode &node, const Val &x, Val ids, int64_t axis) {
  int64_t size = x.view.size(axis);
  ids = compressed(ids);
  // Ids that repeat along an axis pick once.
  Val distinct = ids;
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
    return error(node, "its constant ids are too many");
  int64_t largest = *std::max_element(picked->begin(), picked->end());
  for (int64_t &id : *picked) {
    if (id < -size || id >= size)
      return error(node, "id " + Twine(id < 0 ? id : largest) + " is outside " + nameOf(node, 0) + ", which has " + Twine(size) +
                             " entries along axis " + Twine(axis) +
                             (id >= size && options.sequence > largest - size + 1 && isIncreasing(*picked)
                                  ? "; positions up to " + std::to_string(size - 1) + " exist: compile with --seq at most " +
                                        std::to_string(options.sequence - (largest - size + 1))
                                  : "; expects ids from 0 to " + std::to_string(size - 1)));
    id = id < 0 ? id + size : id;
  }
  if (x.view.sampleAxis() == axis)
    return error(node, "selects samples by constant ids");
  // The picked axis as one dimension, then the ids' shape in its place.
  Val value = x;
  auto progression = arithmeticProgression(*picked);
  std::optional<int64_t> padding = axis == 0 && !isSampled(x) ? paddingOf(node, x) : std::nullopt;
  if (padding && std::find(picked->begin(), picked->end(), *padding) == picked->end())
    padding.reset();
  if (progression && !padding) {
    if (failed(take(node, value, axis, progression->first, progression->second, static_cast<int64_t>(picked->size()))))
      return failure();
  } else if (x.isConstant()) {
    auto constant = pickedFromConstant(node, x, axis, *picked);
    if (failed(constant))
      return failure();
    value = std::move(*constant);
  } else {
    auto picks = pickedFromGraph(node, x, axis, *picked, padding);
    if (failed(picks))
      return failure();
    value = std::move(*picks);
  }
  if (failed(spreadAxis(node, value, ids, axis, moving)))
    return failure();
  return out(node, 0, std::move(value)), success();
}

// x [A..., V, B...] by ids [I...] that are the same for all samples, as elements of [A..., B..., V].
LogicalResult Importer::gatherPerSample(const GraphNode &node, const Val &x, const Val &ids, int64_t axis) {
  if (isSampled(ids))
    return error(node, "picks by ids of one sample from all samples; every op must treat samples apart. For picks within a sample use torch.gather, "
                       "whose ids have the dimensions of what they pick from");
  if (x.view.sampleAxis() == axis)
    return error(node, "picks samples by data");
  Composition make(*this, node);
  std::vector<int64_t> last, shape, back, ends = x.shape(), idShape = ids.shape();
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != axis) {
      last.push_back(i);
      shape.push_back(ends[i]);
    }
  last.push_back(axis);
  const int64_t others = x.rank() - 1, count = ids.view.elements();
  std::vector<int64_t> flat(others + 1, 1), whole = shape;
  flat[others] = count;
  whole.push_back(count);
  Val index = make("Expand", {make.reshape(ids, flat), make.ints(whole)});
  Val picks = make("GatherElements", {make.transpose(x, last), index}, {{"axis", others}});
  shape.insert(shape.end(), idShape.begin(), idShape.end());
  for (int64_t i = 0; i < axis; ++i)
    back.push_back(i);
  for (int64_t i = 0; i < ids.rank(); ++i)
    back.push_back(others + i);
  for (int64_t i = axis; i < others; ++i)
    back.push_back(i);
  return make.result(make.transpose(make.reshape(picks, shape), back));
}

LogicalResult Importer::gatherByData(const GraphNode &node, Val x, const Val &ids, int64_t axis) {
  if (isSampled(x))
    return gatherPerSample(node, x, ids, axis);
  if (axis != 0) {
    Composition make(*this, node);
    std::vector<int64_t> front{axis}, back;
    for (int64_t i = 0; i < x.rank(); ++i)
      if (i != axis)
        front.push_back(i);
    Val rows = make("Gather", {make.transpose(x, front), ids}); // [ids..., the dimensions before the axis, those behind it]
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
    x = compressed(x);
  Groups tableGroups;
  for (const FactorList &list : x.view.dims)
    if (!list.empty() || tableGroups.empty())
      tableGroups.push_back(list);
  Value table = materialise(x, tableGroups, false);
  std::vector<Val> operands{ids};
  std::vector<Axis> axes;
  std::vector<int64_t> shape;
  if (failed(align(node, operands, axes, shape)))
    return failure();
  orderAxes(operands, axes);
  Loop loop = makeLoop(axes);
  Value index = operandOf(ids, 0, loop);
  if (!cast<RankedTensorType>(index.getType()).getElementType().isInteger(64) &&
      !cast<RankedTensorType>(index.getType()).getElementType().isInteger(32))
    return error(node, "expects integer ids");
  Value y = create<GatherOp>(table, index, paddingOf(node, x));
  Val result = resultOf(y, x.type, axes, loop, shape);
  int64_t stride = elementsPerRow(cast<RankedTensorType>(table.getType())) / std::max<int64_t>(x.view.size(0), 1);
  for (int64_t i = 1; i < x.rank(); ++i) {
    int64_t extent = x.view.size(i);
    stride /= extent;
    result.view.dims.push_back(extent == 1 ? FactorList{} : FactorList{Factor{extent, stride, false}});
  }
  return out(node, 0, std::move(result)), success();
}

LogicalResult Importer::onGather(const GraphNode &node) {
  Val x = in(node, 0), ids = in(node, 1);
  if ((!x.isConstant() && !x.isGraph()) || (!ids.isConstant() && !ids.isGraph()) || x.rank() == 0)
    return error(node, "expects a tensor of rank 1 or more, and ids");
  int64_t axis = intAttribute(node, "axis", 0);
  axis = axis < 0 ? axis + x.rank() : axis;
  if (axis < 0 || axis >= x.rank())
    return error(node, "axis is outside the rank");
  std::vector<int64_t> picked = x.shape(), idShape = ids.shape();
  picked.erase(picked.begin() + axis);
  picked.insert(picked.begin() + axis, idShape.begin(), idShape.end());
  if (!isSensible(picked))
    return error(node, "its result is too large");

  if (ids.view.elements() == 0 || x.view.elements() == 0) {
    if (std::find(picked.begin(), picked.end(), 0) == picked.end())
      return error(node, "picks from an empty tensor");
    return out(node, 0, constantOf(x.type, makeFill(x.type, 0, 0), picked)), success();
  }
  return ids.isConstant() ? gatherByConstant(node, x, ids, axis) : gatherByData(node, x, ids, axis);
}

// y[.., j, ..] = x[.., ids[.., j, ..], ..] along one axis.
LogicalResult Importer::onGatherElements(const GraphNode &node) {
  Val x = in(node, 0), ids = in(node, 1);
  int64_t axis = intAttribute(node, "axis", 0);
  axis = axis < 0 ? axis + x.rank() : axis;
  if (axis < 0 || axis >= x.rank() || ids.rank() != x.rank())
    return error(node, "expects a valid axis and ids of the operand's rank");
  if (x.isConstant()) {
    if (auto uniform = uniformValue(x)) {
      std::vector<int64_t> shape = ids.shape();
      return out(node, 0, constantOf(x.type, makeFill(x.type, ids.view.elements(), *uniform), shape)), success();
    }
    auto index = constantInts(ids, int64_t(1) << 24);
    if (!index)
      return pickElements(node, x, ids, axis);
    Val whole = copied(x);
    std::vector<int64_t> from = x.shape(), shape = ids.shape();
    std::vector<int64_t> strides(from.size(), 1);
    for (size_t i = from.size(); i-- > 1;)
      strides[i - 1] = strides[i] * from[i];
    std::vector<double> floats;
    std::vector<int64_t> ints;
    for (size_t flat = 0; flat < index->size(); ++flat) {
      int64_t rest = static_cast<int64_t>(flat), at = 0;
      for (size_t i = shape.size(); i-- > 0;) {
        int64_t position = rest % shape[i];
        rest /= shape[i];
        if (static_cast<int64_t>(i) == axis) {
          position = (*index)[flat] < 0 ? (*index)[flat] + from[i] : (*index)[flat];
        }
        if (position < 0 || position >= from[i])
          return error(node, "an id is outside the operand");
        at += position * strides[i];
      }
      double f;
      int64_t n;
      if (isFloat(x.type)) {
        whole.lazy->readFloats(at, 1, 1, &f);
        floats.push_back(f);
      } else {
        whole.lazy->readInts(at, 1, 1, &n);
        ints.push_back(n);
      }
    }
    return out(node, 0, constantOf(x.type, isFloat(x.type) ? makeFloats(x.type, std::move(floats)) : makeInts(x.type, std::move(ints)), shape)),
           success();
  }
  return pickElements(node, x, ids, axis);
}

// The vectors along the axis, each repeated for all of its ids, and one element of every copy: copies are views.
LogicalResult Importer::pickElements(const GraphNode &node, Val x, Val ids, int64_t axis) {
  if ((!x.isGraph() && !x.isConstant()) || (!ids.isGraph() && !ids.isConstant()) || isFloat(ids.type))
    return error(node, "expects a tensor and integer ids");
  if (x.view.sampleAxis() == axis)
    return error(node, "picks samples by data");
  if (ids.view.elements() == 0 || x.view.elements() == 0)
    return error(node, "picks from or by an empty tensor");
  const int64_t size = x.view.size(axis);
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != axis && ids.view.size(i) > x.view.size(i))
      return error(node, "expects ids of at most the operand's size in dimension " + Twine(i) + ", found " + Twine(ids.view.size(i)) + " and " +
                             Twine(x.view.size(i)));
    else if (i != axis && failed(take(node, x, i, 0, 1, ids.view.size(i))))
      return failure();
  FactorList classes = x.view.dims[axis];
  std::vector<Val> operands{x, ids};
  operands[0].view.dims[axis].clear();
  std::vector<Axis> axes;
  std::vector<int64_t> shape;
  if (failed(align(node, operands, axes, shape)))
    return failure();
  orderAxes(operands, axes);
  Loop loop = makeLoop(axes);
  Groups groups;
  for (auto &group : loop.groups) {
    FactorList list;
    for (const Axis *own : group)
      list.push_back(Factor{own->size, own->strides[0], false});
    coalesce(list);
    groups.push_back(list);
  }
  groups.push_back(classes);
  double scale = x.scale;
  x.scale = 1;
  Value data = materialise(x, groups, loop.sampled);
  if (auto logp = data.getDefiningOp<LogSoftmaxOp>(); logp && ids.isGraph()) {
    // A picked log-probability is a cross-entropy with the other sign.
    Value index = operandOf(operands[1], 1, loop);
    auto type = cast<RankedTensorType>(logp.getX().getType());
    auto op = CrossEntropyOp::create(builder, location, logp.getX(), index, Value(), std::nullopt);
    Val result = resultOf(merge(op), x.type, axes, loop, shape);
    result.scale = -scale;
    losses.push_back({index, logp.getX(), std::nullopt, type.getShape().back()});
    return out(node, 0, std::move(result)), success();
  }
  auto counted = countedFromFront(node, operands[1], size);
  if (failed(counted))
    return failure();
  Val result = resultOf(create<TakeOp>(data, operandOf(*counted, 1, loop)), x.type, axes, loop, shape);
  result.scale = scale;
  return out(node, 0, std::move(result)), success();
}

FailureOr<Val> Importer::countedFromFront(const GraphNode &node, const Val &ids, int64_t size) {
  Composition make(*this, node);
  if (!ids.isConstant()) {
    Val whole = make("Where", {make("Less", {ids, make.number(0, ids)}), make("Add", {ids, make.number(static_cast<double>(size), ids)}), ids});
    return make.hasFailed() ? FailureOr<Val>(failure()) : whole;
  }
  auto numbers = constantInts(compressed(ids), int64_t(1) << 24);
  if (!numbers)
    return error(node, "has too many constant ids");
  for (int64_t &id : *numbers) {
    if (id < -size || id >= size)
      return error(node, "id " + Twine(id) + " is outside the " + Twine(size) + " entries it picks from");
    id = id < 0 ? id + size : id;
  }
  Val whole = constantOf(ids.type, makeInts(ids.type, std::move(*numbers)), ids.shape());
  return compressed(whole);
}

LogicalResult Importer::onGatherND(const GraphNode &node) {
  Val x = in(node, 0), ids = in(node, 1);
  const int64_t batch = intAttribute(node, "batch_dims", 0);
  if (ids.rank() == 0 || batch < 0 || batch >= ids.rank() || batch > x.rank())
    return error(node, "expects ids of rank 1 or more, and fewer batch dimensions than their rank");
  int64_t depth = ids.view.size(ids.rank() - 1);
  if (depth > x.rank() - batch || depth < 1)
    return error(node, "expects ids of 1 to " + Twine(x.rank() - batch) + " components, found " + Twine(depth));
  for (int64_t i = 0; i < batch; ++i)
    if (x.view.size(i) != ids.view.size(i))
      return error(node, "expects equal batch dimensions, found " + Twine(x.view.size(i)) + " and " + Twine(ids.view.size(i)));
  if (batch == 0 && ids.isConstant())
    if (auto done = gatherRanges(node, x, ids, depth))
      return *done;
  return gatherPlaces(node, x, ids, batch, depth);
}

// x [batch..., places..., rest...] by ids [batch..., I..., depth]: places are numbered in row-major order.
LogicalResult Importer::gatherPlaces(const GraphNode &node, const Val &x, const Val &ids, int64_t batch, int64_t depth) {
  Composition make(*this, node);
  std::vector<int64_t> from = x.shape(), idShape = ids.shape(), flat(from.begin(), from.begin() + batch), order, whole;
  auto numbers = placeNumbers(node, ids, {from.begin() + batch, from.begin() + batch + depth});
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
  for (int64_t i = 0; i < rank; ++i)
    if (i != batch) {
      order.push_back(i);
      whole.push_back(flat[i]);
    }
  order.push_back(batch);
  whole.push_back(count);
  Val source = make.transpose(make.reshape(x, flat), order);
  std::vector<int64_t> indexShape = whole;
  for (int64_t i = batch; i + 1 < rank; ++i)
    indexShape[i] = 1;
  Val index = make("Expand", {make.reshape(*numbers, indexShape), make.ints(whole)});
  Val picks = make("GatherElements", {source, index}, {{"axis", rank - 1}});
  // [batch..., rest..., count] -> [batch..., I..., rest...]
  std::vector<int64_t> back, shape(flat.begin(), flat.begin() + batch);
  for (int64_t i = 0; i < batch; ++i)
    back.push_back(i);
  back.push_back(rank - 1);
  for (int64_t i = batch; i + 1 < rank; ++i)
    back.push_back(i);
  shape.insert(shape.end(), idShape.begin() + batch, idShape.end() - 1);
  shape.insert(shape.end(), flat.begin() + batch + 1, flat.end());
  return make.result(make.reshape(make.transpose(picks, back), shape));
}

FailureOr<Val> Importer::placeNumbers(const GraphNode &node, const Val &ids, const std::vector<int64_t> &sizes) {
  Composition make(*this, node);
  Val sum;
  const int64_t axis = ids.rank() - 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Val component = make.squeeze(make.slice(ids, axis, static_cast<int64_t>(i), 1), axis);
    if (make.hasFailed())
      return failure();
    auto counted = countedFromFront(node, component, sizes[i]);
    if (failed(counted))
      return failure();
    sum = i == 0 ? *counted : make("Add", {make("Mul", {sum, make.number(static_cast<double>(sizes[i]), sum)}), *counted});
  }
  return make.hasFailed() ? FailureOr<Val>(failure()) : sum;
}

// By constant ids each of whose components picks an axis in even steps, or one place: a view. None where they are otherwise.
std::optional<LogicalResult> Importer::gatherRanges(const GraphNode &node, const Val &x, const Val &ids, int64_t depth) {
  std::vector<int64_t> lead = ids.shape();
  lead.pop_back();
  if (x.isConstant()) {
    std::vector<int64_t> whole = x.shape(), shape = lead;
    shape.insert(shape.end(), whole.begin() + depth, whole.end());
    if (!isSensible(shape))
      return error(node, "its result is too large");
    if (auto uniform = uniformValue(x)) {
      int64_t elements = 1;
      for (int64_t size : shape)
        elements *= size;
      return out(node, 0, constantOf(x.type, makeFill(x.type, elements, *uniform), shape)), success();
    }
  }
  // Component c as a tensor of the lead shape; it may move along one axis of it.
  Val value = x;
  std::vector<FactorList> dims(lead.size());
  std::vector<int> owner(lead.size(), -1);
  for (int64_t component = 0; component < depth; ++component) {
    Val single = ids;
    if (!sliceView(single.view, single.rank() - 1, component, 1, 1))
      return std::nullopt;
    single.view.dims.pop_back();
    single = compressed(single);
    int64_t axis = -1;
    for (size_t i = 0; i < lead.size(); ++i)
      for (const Factor &factor : single.view.dims[i])
        if (factor.stride != 0) {
          if (axis >= 0 && axis != static_cast<int64_t>(i))
            return std::nullopt;
          axis = static_cast<int64_t>(i);
        }
    Val line = single;
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
        return error(node, "an id is outside the operand");
    }
    auto progression = arithmeticProgression(*picked);
    if (!progression)
      return std::nullopt;
    if (axis >= 0 && owner[axis] >= 0)
      return std::nullopt;
    if (failed(take(node, value, component, progression->first, progression->second, static_cast<int64_t>(picked->size()))))
      return failure();
    if (axis >= 0) {
      owner[axis] = static_cast<int>(component);
      dims[axis] = value.view.dims[component];
    } else if (value.view.dims[component].size() == 1 && value.view.dims[component][0].sample) {
      if (dims.empty())
        return error(node, "drops the sample axis of its operand");
      dims[0].insert(dims[0].begin(), value.view.dims[component][0]);
    }
  }
  for (size_t i = 0; i < lead.size(); ++i)
    if (owner[i] < 0 && lead[i] != 1 && dims[i].empty())
      dims[i] = {Factor{lead[i], 0, false}};
  dims.insert(dims.end(), value.view.dims.begin() + depth, value.view.dims.end());
  value.view.dims = std::move(dims);
  if (isSampled(value) && value.view.sampleAxis() < 0)
    return error(node, "drops the sample axis of its operand");
  return out(node, 0, std::move(value)), success();
}

// Constants only, or an update that overwrites a range of one axis of data.
LogicalResult Importer::onScatterND(const GraphNode &node) {
  Val x = in(node, 0), ids = in(node, 1), updates = in(node, 2);
  if (ids.rank() == 0)
    return error(node, "expects ids of rank 1 or more");
  int64_t depth = ids.view.size(ids.rank() - 1);
  if (depth < 1 || depth > x.rank())
    return error(node, "expects ids of 1 to " + Twine(x.rank()) + " components, found " + Twine(depth));
  if (!ids.isConstant() || stringAttribute(node, "reduction", "none") != "none")
    return scatterPlaces(node, depth);
  auto index = constantInts(ids, int64_t(1) << 24);
  if (!index)
    return error(node, "has too many constant ids");
  std::vector<int64_t> shape = x.shape();
  int64_t count = static_cast<int64_t>(index->size()) / depth, inner = 1;
  for (size_t i = depth; i < shape.size(); ++i)
    inner *= shape[i];
  if (x.isConstant() && updates.isConstant()) {
    if (x.view.elements() > (int64_t(1) << 25) || updates.view.elements() != count * inner)
      return error(node, "scatters into a large constant, which is not folded");
    auto base = constantFloats(x, int64_t(1) << 25), change = constantFloats(updates, int64_t(1) << 25);
    auto baseInts = constantInts(x, int64_t(1) << 25), changeInts = constantInts(updates, int64_t(1) << 25);
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = 0;
      for (int64_t c = 0; c < depth; ++c) {
        int64_t id = (*index)[i * depth + c];
        id = id < 0 ? id + shape[c] : id;
        if (id < 0 || id >= shape[c])
          return error(node, "an id is outside the operand");
        at = at * shape[c] + id;
      }
      for (int64_t k = 0; k < inner; ++k) {
        (*base)[at * inner + k] = (*change)[i * inner + k];
        (*baseInts)[at * inner + k] = (*changeInts)[i * inner + k];
      }
    }
    return out(node, 0, constantOf(x.type, isFloat(x.type) ? makeFloats(x.type, std::move(*base)) : makeInts(x.type, std::move(*baseInts)), shape)),
           success();
  }
  // x[:, a:b] = updates, as ids [rows, n, 2] that count both axes.
  std::vector<int64_t> lead = ids.shape();
  lead.pop_back();
  int64_t first = -1, length = 0, axis = -1;
  if (static_cast<int64_t>(lead.size()) == depth) {
    bool regular = true;
    std::vector<int64_t> begin(index->begin(), index->begin() + depth);
    for (int64_t i = 0; regular && i < count; ++i) {
      int64_t rest = i;
      for (int64_t c = depth; c-- > 0;) {
        regular &= (*index)[i * depth + c] == begin[c] + rest % lead[c];
        rest /= lead[c];
      }
    }
    for (int64_t c = 0; regular && c < depth; ++c) {
      if (begin[c] == 0 && lead[c] == shape[c])
        continue;
      regular = axis < 0;
      axis = c;
      first = begin[c];
      length = lead[c];
    }
    if (!regular)
      axis = -2;
  }
  if (axis == -1 && static_cast<int64_t>(lead.size()) == depth)
    return out(node, 0, updates), success();
  if (axis < 0)
    return scatterPlaces(node, depth);
  if (x.view.sampleAxis() == axis)
    return error(node, "overwrites some of the samples; every op must treat samples apart");
  std::vector<Val> parts;
  for (auto [start, size, part] : {std::make_tuple(int64_t(0), first, x), std::make_tuple(int64_t(0), length, updates),
                                   std::make_tuple(first + length, shape[axis] - first - length, x)}) {
    if (size <= 0)
      continue;
    Val piece = part;
    if (failed(take(node, piece, axis, start, 1, size)))
      return failure();
    parts.push_back(piece);
  }
  return concatenate(node, parts, axis);
}

void Importer::addIndexOps(OperatorTable &table) {
  table.add({"Gather"}, 2, 2, "axis:i", &Importer::onGather);
  table.add({"GatherElements"}, 2, 2, "axis:i", &Importer::onGatherElements);
  table.add({"GatherND"}, 2, 2, "batch_dims:i", &Importer::onGatherND);
  table.add({"ScatterND"}, 3, 3, "reduction:s=none|add|mul|max|min", &Importer::onScatterND);
}
