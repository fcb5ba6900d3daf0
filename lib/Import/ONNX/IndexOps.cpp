// Operators that index: embeddings, picks by constant or sampled ids, and their forms on constants.
#include "Importer.h"

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
    if (isSampled(x) || axis != 0)
      return error(node, "picks activations by constant ids that are not evenly spaced");
    int64_t count = static_cast<int64_t>(picked->size());
    Val idVector = constantOf(ElementKind::I64, makeInts(ElementKind::I64, *picked), {count});
    Value table = materialise(x, groupsOf(x.view, false), false);
    Value y = create<GatherOp>(table, materialise(idVector, {{Factor{count, 1, false}}}, false), padding);
    std::vector<int64_t> shape = x.shape();
    shape[0] = count;
    value = wrap(y, x.type, shape);
  }
  if (failed(spreadAxis(node, value, ids, axis, moving)))
    return failure();
  return out(node, 0, std::move(value)), success();
}

LogicalResult Importer::gatherByData(const GraphNode &node, Val x, const Val &ids, int64_t axis) {
  if (isSampled(x))
    return error(node, "picks activations by ids that are data; only tables that carry no samples are supported");
  if (axis != 0)
    return error(node, "picks along axis " + Twine(axis) + " by ids that are data; expects axis 0");
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

// One element per vector along an axis: x[.., ids[..], ..] with ids of size 1 along it.
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
      return error(node, "picks from a constant by ids that are data");
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
  if (!x.isGraph() || ids.view.size(axis) != 1)
    return error(node, "is supported with one id per vector only");
  if (x.view.sampleAxis() == axis)
    return error(node, "picks samples by data");
  FactorList classes = x.view.dims[axis];
  std::vector<Val> operands{x, ids};
  for (Val &operand : operands)
    operand.view.dims.erase(operand.view.dims.begin() + axis);
  std::vector<Axis> axes;
  std::vector<int64_t> shape;
  if (operands[0].shape() != operands[1].shape())
    return error(node, "expects ids of the operand's shape in the other dimensions");
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
  Value index = operandOf(ids, 1, loop);
  Value y;
  if (auto logp = data.getDefiningOp<LogSoftmaxOp>()) {
    // A picked log-probability is a cross-entropy with the other sign.
    auto type = cast<RankedTensorType>(logp.getX().getType());
    auto op = CrossEntropyOp::create(builder, location, logp.getX(), index, Value(), std::nullopt);
    y = merge(op);
    scale = -scale;
    losses.push_back({index, logp.getX(), std::nullopt, type.getShape().back()});
  } else {
    y = create<TakeOp>(data, index);
  }
  Val result = resultOf(y, x.type, axes, loop, shape);
  result.view.dims.insert(result.view.dims.begin() + axis, FactorList{});
  result.scale = scale;
  return out(node, 0, std::move(result)), success();
}

// Constant ids only: every component of an id must pick the whole axis in order, or one place.
LogicalResult Importer::onGatherND(const GraphNode &node) {
  Val x = in(node, 0), ids = in(node, 1);
  if (ids.rank() == 0 || !ids.isConstant())
    return error(node, "expects constant ids");
  int64_t depth = ids.view.size(ids.rank() - 1);
  if (depth > x.rank() || depth < 1)
    return error(node, "expects ids of at most " + Twine(x.rank()) + " components");
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
      return error(node, "its ids are not supported");
    single.view.dims.pop_back();
    single = compressed(single);
    int64_t axis = -1;
    for (size_t i = 0; i < lead.size(); ++i)
      for (const Factor &factor : single.view.dims[i])
        if (factor.stride != 0) {
          if (axis >= 0 && axis != static_cast<int64_t>(i))
            return error(node, "its ids depend on two axes at once, which is not supported");
          axis = static_cast<int64_t>(i);
        }
    Val line = single;
    for (size_t i = 0; i < lead.size(); ++i)
      if (static_cast<int64_t>(i) != axis)
        line.view.dims[i].clear();
    auto picked = constantInts(line);
    if (!picked)
      return error(node, "has too many ids");
    int64_t size = value.view.size(component);
    for (int64_t &id : *picked) {
      id = id < 0 ? id + size : id;
      if (id < 0 || id >= size)
        return error(node, "an id is outside the operand");
    }
    auto progression = arithmeticProgression(*picked);
    if (!progression)
      return error(node, "its ids are not evenly spaced, which is not supported");
    if (axis >= 0 && owner[axis] >= 0)
      return error(node, "two components move along one axis, which is not supported");
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
  if (!ids.isConstant() || ids.rank() == 0)
    return error(node, "expects constant ids");
  int64_t depth = ids.view.size(ids.rank() - 1);
  auto index = constantInts(ids, int64_t(1) << 24);
  if (!index || depth < 1 || depth > x.rank())
    return error(node, "expects ids of at most " + Twine(x.rank()) + " components");
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
  if (axis < 0 || x.view.sampleAxis() == axis)
    return error(node, "scatters in a way that is not supported: expects a range of one axis");
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

LogicalResult Importer::onCumSum(const GraphNode &node) {
  Val x = in(node, 0);
  auto axisValue = uniformValue(in(node, 1));
  if (!x.isConstant() || !axisValue || x.view.elements() > (int64_t(1) << 25))
    return error(node, "is supported on constants only");
  int64_t axis = truncateToInt(*axisValue);
  axis = axis < 0 ? axis + x.rank() : axis;
  if (axis < 0 || axis >= x.rank())
    return error(node, "axis is outside the rank");
  // Sums of copies: only the axis itself and those that move need storage.
  x = compressed(x);
  Val small = x;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != axis) {
      FactorList kept;
      for (const Factor &factor : small.view.dims[i])
        if (factor.stride != 0)
          kept.push_back(factor);
      small.view.dims[i] = kept;
    }
  std::vector<int64_t> shape = small.shape();
  int64_t inner = 1, size = shape[axis];
  for (size_t i = axis + 1; i < shape.size(); ++i)
    inner *= shape[i];
  Val sums;
  if (isFloat(x.type)) {
    auto values = *constantFloats(small, int64_t(1) << 25);
    for (size_t i = 0; i < values.size(); ++i)
      if (static_cast<int64_t>(i) / inner % size)
        values[i] = roundTo(x.type, values[i] + values[i - inner]);
    sums = constantOf(x.type, makeFloats(x.type, std::move(values)), shape);
  } else {
    auto values = *constantInts(small, int64_t(1) << 25);
    for (size_t i = 0; i < values.size(); ++i)
      if (static_cast<int64_t>(i) / inner % size)
        values[i] = addInts(values[i], values[i - inner]);
    sums = constantOf(x.type, makeInts(x.type, std::move(values)), shape);
  }
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != axis) {
      // Repeats go back between the factors that move; a merged axis keeps its order.
      FactorList list;
      FactorList moving = sums.view.dims[i];
      bool repeatsOnly = moving.empty();
      for (const Factor &factor : x.view.dims[i])
        if (factor.stride == 0)
          list.push_back(factor);
        else if (!repeatsOnly) {
          list.insert(list.end(), moving.begin(), moving.end());
          moving.clear();
        }
      coalesce(list);
      sums.view.dims[i] = list;
    }
  return out(node, 0, std::move(sums)), success();
}

void Importer::addIndexOps(OperatorTable &table) {
  table.add({"Gather"}, 2, 2, "axis:i", &Importer::onGather);
  table.add({"GatherElements"}, 2, 2, "axis:i", &Importer::onGatherElements);
  table.add({"GatherND"}, 2, 2, "batch_dims:i=0", &Importer::onGatherND);
  table.add({"ScatterND"}, 3, 3, "reduction:s=none", &Importer::onScatterND);
  table.add({"CumSum"}, 2, 2, "exclusive:i=0 reverse:i=0", &Importer::onCumSum);
}
