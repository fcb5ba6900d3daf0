// From views to IR: common axes of operands, and the reshape, slice, transpose and broadcast that bring an operand to them.
#include "Importer.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OperationSupport.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

Type Importer::elementType(ElementKind kind) const {
  if (isFloat(kind))
    return options.precision == Precision::F64 ? static_cast<Type>(Float64Type::get(&context)) : static_cast<Type>(Float32Type::get(&context));
  switch (kind) {
  case ElementKind::Bool: return IntegerType::get(&context, 1);
  case ElementKind::I32: return IntegerType::get(&context, 32);
  default: return IntegerType::get(&context, 64);
  }
}

bool Importer::isSampled(Value value) { return carriesSamples(value.getType()); }
bool Importer::isSampled(const Val &value) const { return value.isGraph() && isSampled(value.value); }
int64_t Importer::perRow(Value value) { return elementsPerRow(cast<RankedTensorType>(value.getType())); }

Val Importer::wrap(Value value, ElementKind type, std::vector<int64_t> shape) const {
  Val out;
  out.kind = Val::Kind::Graph;
  out.type = type;
  out.value = value;
  out.view = contiguousView(shape, isSampled(value));
  return out;
}

Val Importer::constantOf(ElementKind kind, LazyPtr lazy, std::vector<int64_t> shape) const {
  Val out;
  out.kind = Val::Kind::Constant;
  out.type = kind;
  out.view = contiguousView(shape, false);
  if (lazy->isFill())
    for (FactorList &list : out.view.dims)
      for (Factor &factor : list)
        factor.stride = 0;
  for (FactorList &list : out.view.dims)
    coalesce(list);
  out.lazy = std::move(lazy);
  return out;
}

Val Importer::scalar(ElementKind kind, double value) const { return constantOf(kind, makeFill(kind, 1, value), {}); }

// Equal ops with equal operands are one op: the importer's common-subexpression merging.
Value Importer::merge(Operation *op) {
  size_t hash = OperationEquivalence::computeHash(op, OperationEquivalence::directHashValue, OperationEquivalence::ignoreHashValue, OperationEquivalence::IgnoreLocations);
  auto &bucket = emitted[hash];
  for (Operation *other : bucket)
    if (OperationEquivalence::isEquivalentTo(op, other, OperationEquivalence::exactValueMatch, nullptr, OperationEquivalence::IgnoreLocations)) {
      op->erase();
      return other->getResult(0);
    }
  bucket.push_back(op);
  for (Value operand : op->getOperands())
    if (tainted.contains(operand)) {
      for (Value result : op->getResults())
        tainted.insert(result);
      break;
    }
  return op->getResult(0);
}

Value Importer::createNamed(StringRef name, ValueRange operands, Type type) {
  OperationState state(location, name);
  state.addOperands(operands);
  state.addTypes(type);
  return merge(builder.create(state));
}

static SmallVector<int64_t> withRows(ArrayRef<int64_t> shape, bool sampled) {
  SmallVector<int64_t> out;
  if (sampled)
    out.push_back(ShapedType::kDynamic);
  out.append(shape.begin(), shape.end());
  return out;
}

Value Importer::reshapeTo(Value value, ArrayRef<int64_t> shape) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getShape() == shape)
    return value;
  if (auto previous = value.getDefiningOp<ReshapeOp>())
    return reshapeTo(previous.getX(), shape);
  return create<ReshapeOp>(value, shape);
}

Value Importer::broadcastTo(Value value, ArrayRef<int64_t> dims, ArrayRef<int64_t> shape) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getShape() == shape)
    return value;
  return create<BroadcastOp>(RankedTensorType::get(shape, type.getElementType()), value, builder.getDenseI64ArrayAttr(dims));
}

Value Importer::splat(double value, RankedTensorType type) {
  Type element = type.getElementType();
  auto scalarType = RankedTensorType::get({}, element);
  TypedAttr attribute;
  if (isa<FloatType>(element))
    attribute = DenseElementsAttr::get(scalarType, static_cast<Attribute>(FloatAttr::get(element, value)));
  else
    attribute = DenseElementsAttr::get(scalarType, static_cast<Attribute>(IntegerAttr::get(element, static_cast<int64_t>(value))));
  Value constant = create<arith::ConstantOp>(attribute);
  return broadcastTo(constant, {}, type.getShape());
}

Value Importer::applyScale(Value value, double scale) {
  if (scale == 1.0)
    return value;
  if (scale == -1.0)
    return create<arith::NegFOp>(value);
  return create<arith::MulFOp>(value, splat(scale, cast<RankedTensorType>(value.getType())));
}

// The elements base[offset + sum i_k * stride_k] as a tensor of the factors' sizes, in the given order. Strides are not 0 and nest (isCuttable).
Value Importer::cut(Value base, int64_t offset, const FactorList &factors) {
  bool sampled = isSampled(base);
  int64_t total = perRow(base);
  std::vector<size_t> order(factors.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return factors[a].stride > factors[b].stride; });

  SmallVector<int64_t> extents, offsets, sizes, result;
  int64_t outer = total, rest = offset;
  for (size_t index : order) {
    const Factor &factor = factors[index];
    extents.push_back(outer / factor.stride);
    offsets.push_back(rest / factor.stride);
    sizes.push_back(factor.size);
    result.push_back(factor.size);
    rest %= factor.stride;
    outer = factor.stride;
  }
  if (outer > 1) {
    extents.push_back(outer);
    offsets.push_back(rest);
    sizes.push_back(1);
  }
  // An axis of one element in front belongs to the next one when nothing is cut from it.
  Value value = reshapeTo(base, withRows(extents, sampled));
  bool whole = extents == sizes;
  if (!whole) {
    SmallVector<int64_t> begin, extent = withRows(sizes, sampled), step(extent.size(), 1);
    if (sampled)
      begin.push_back(0);
    begin.append(offsets.begin(), offsets.end());
    value = create<SliceOp>(value, begin, extent, step);
  }
  value = reshapeTo(value, withRows(result, sampled));
  SmallVector<int64_t> permutation(factors.size() + (sampled ? 1 : 0), 0);
  bool identity = true;
  for (size_t position = 0; position < order.size(); ++position) {
    permutation[order[position] + (sampled ? 1 : 0)] = static_cast<int64_t>(position) + (sampled ? 1 : 0);
    identity &= order[position] == position;
  }
  if (!identity)
    value = create<TransposeOp>(value, permutation);
  return value;
}

/// Causal, with or without a window, exactly: what `visible` says of the pair (query i, key j) for all pairs; hidden floats are one number, `fill`. Streams the values.
static bool isCausal(const Lazy &lazy, int64_t offset, const Factor &queries, const Factor &keys, std::optional<int64_t> &window, double &fill) {
  int64_t shift = keys.size - queries.size;
  if (shift < 0 || keys.size < 2)
    return false;
  std::vector<double> floats(keys.size);
  std::vector<int64_t> ints(keys.size);
  int64_t width = keys.size;
  std::optional<double> hidden;
  for (int64_t i = queries.size; i-- > 0;) {
    int64_t at = offset + i * queries.stride;
    if (lazy.isFloat())
      lazy.readFloats(at, keys.stride, keys.size, floats.data());
    else
      lazy.readInts(at, keys.stride, keys.size, ints.data());
    int64_t last = i + shift;
    if (i == queries.size - 1) {
      // The last query sees every key of its window: so it tells how wide windows are.
      int64_t first = 0;
      while (first < keys.size && (lazy.isFloat() ? floats[first] != 0.0 : ints[first] == 0))
        ++first;
      width = keys.size - first;
      if (width < 1)
        return false;
    }
    for (int64_t j = 0; j < keys.size; ++j) {
      bool visible = j <= last && j > last - width;
      bool agrees = lazy.isFloat() ? (visible ? floats[j] == 0.0 : floats[j] <= -1e9 && floats[j] == hidden.value_or(floats[j])) : (ints[j] != 0) == visible;
      if (!agrees)
        return false;
      if (lazy.isFloat() && !visible)
        hidden = floats[j];
    }
  }
  if (width < keys.size)
    window = width;
  fill = hidden.value_or(-std::numeric_limits<double>::infinity());
  return true;
}

// A constant without repeating axes: a scalar, a mask recognised by value, an attribute, or, above 1 MiB, a parameter that is not trained.
Value Importer::materialiseConstant(const Val &operand, FactorList &factors, SmallVectorImpl<int64_t> &at) {
  for (size_t i = factors.size(); i-- > 0;)
    if (repeats(*operand.lazy, operand.view.offset, factors, i)) {
      factors.erase(factors.begin() + i);
      at.erase(at.begin() + i);
    }
  Type element = elementType(operand.type);
  SmallVector<int64_t> shape;
  int64_t count = 1;
  for (const Factor &factor : factors) {
    shape.push_back(factor.size);
    count *= factor.size;
  }
  auto type = RankedTensorType::get(shape, element);
  bool isBool = operand.type == ElementKind::Bool;
  if (factors.size() == 2 && (isBool || operand.lazy->isFloat())) {
    std::optional<int64_t> window;
    auto key = std::make_tuple(operand.lazy.get(), operand.view.offset, factors[0].stride, factors[1].stride, factors[0].size, factors[1].size);
    auto cached = maskCache.find(key);
    if (cached == maskCache.end()) {
      CausalPattern pattern;
      pattern.causal = isCausal(*operand.lazy, operand.view.offset, factors[0], factors[1], window, pattern.fill);
      pattern.window = window.value_or(0);
      cached = maskCache.emplace(key, pattern).first;
      keepAlive.push_back(operand.lazy);
    }
    if (const CausalPattern &pattern = cached->second; pattern.causal)
      return create<CausalMaskOp>(type, pattern.window ? builder.getI64IntegerAttr(pattern.window) : IntegerAttr(),
                                  isBool || std::isinf(pattern.fill) ? FloatAttr() : builder.getF64FloatAttr(pattern.fill));
  }

  // Row-major bytes of the compute type.
  bool asFloat = operand.lazy->isFloat();
  unsigned width = isBool ? 1 : element.getIntOrFloatBitWidth() / 8;
  auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(count) * width);
  int64_t inner = factors.empty() ? 1 : factors.back().size, innerStride = factors.empty() ? 1 : factors.back().stride;
  std::vector<double> floats(asFloat ? inner : 0);
  std::vector<int64_t> ints(asFloat ? 0 : inner);
  for (int64_t outer = 0; outer < count / inner; ++outer) {
    int64_t from = operand.view.offset, rest = outer;
    for (size_t i = factors.empty() ? 0 : factors.size() - 1; i-- > 0;) {
      from += rest % factors[i].size * factors[i].stride;
      rest /= factors[i].size;
    }
    uint8_t *to = bytes->data() + static_cast<size_t>(outer * inner) * width;
    if (asFloat)
      operand.lazy->readFloats(from, innerStride, inner, floats.data());
    else
      operand.lazy->readInts(from, innerStride, inner, ints.data());
    for (int64_t i = 0; i < inner; ++i, to += width) {
      if (asFloat && width == 8)
        std::memcpy(to, &floats[i], 8);
      else if (asFloat) {
        float value = static_cast<float>(floats[i]);
        std::memcpy(to, &value, 4);
      } else if (width == 8)
        std::memcpy(to, &ints[i], 8);
      else if (width == 4) {
        int32_t value = static_cast<int32_t>(ints[i]);
        std::memcpy(to, &value, 4);
      } else
        *to = ints[i] != 0;
    }
  }
  if (bytes->size() > (size_t(1) << 20))
    return liftedBytes(type, bytes);
  if (isBool) {
    SmallVector<bool> bits(bytes->begin(), bytes->end());
    return create<arith::ConstantOp>(static_cast<TypedAttr>(DenseElementsAttr::get(type, bits)));
  }
  return create<arith::ConstantOp>(static_cast<TypedAttr>(
      DenseElementsAttr::getFromRawBuffer(type, ArrayRef<char>(reinterpret_cast<const char *>(bytes->data()), bytes->size()))));
}

Value Importer::materialise(const Val &operand, const Groups &groups, bool sampled) {
  FactorList kept;
  SmallVector<int64_t, 4> keptAt;
  SmallVector<int64_t> flat, grouped;
  bool rowsOfOperand = isSampled(operand);
  bool front = sampled || rowsOfOperand;
  int64_t position = front ? 1 : 0;
  for (const FactorList &group : groups) {
    int64_t size = 1;
    for (const Factor &factor : group) {
      size *= factor.size;
      if (factor.size == 1)
        continue;
      flat.push_back(factor.size);
      if (factor.stride != 0) {
        kept.push_back(factor);
        keptAt.push_back(position);
      }
      ++position;
    }
    grouped.push_back(size);
  }

  // Factors that lie one after the other, with nothing repeated between, need no dimension of their own.
  for (size_t i = 1; i < kept.size();) {
    bool adjacent = keptAt[i] == keptAt[i - 1] + 1 && kept[i - 1].stride == kept[i].size * kept[i].stride;
    size_t flatIndex = keptAt[i] - (front ? 1 : 0);
    bool sameGroup = false;
    if (adjacent) {
      int64_t before = 0;
      for (const FactorList &group : groups) {
        int64_t count = 0;
        for (const Factor &factor : group)
          count += factor.size != 1;
        if (static_cast<int64_t>(flatIndex) < before + count) {
          sameGroup = static_cast<int64_t>(flatIndex) - 1 >= before;
          break;
        }
        before += count;
      }
    }
    if (!sameGroup) {
      ++i;
      continue;
    }
    kept[i - 1] = Factor{kept[i - 1].size * kept[i].size, kept[i].stride, false};
    flat[flatIndex - 1] *= flat[flatIndex];
    flat.erase(flat.begin() + flatIndex);
    kept.erase(kept.begin() + i);
    keptAt.erase(keptAt.begin() + i);
    for (size_t j = i; j < keptAt.size(); ++j)
      --keptAt[j];
  }

  Value value;
  if (operand.isConstant()) {
    value = materialiseConstant(operand, kept, keptAt);
  } else {
    value = cut(operand.value, operand.view.offset, kept);
    value = applyScale(value, operand.scale);
  }
  SmallVector<int64_t> dims;
  if (rowsOfOperand)
    dims.push_back(0);
  dims.append(keptAt.begin(), keptAt.end());
  value = broadcastTo(value, dims, withRows(flat, front));
  return reshapeTo(value, withRows(grouped, front));
}

Groups Importer::groupsOf(const View &view, bool dropOnes) const {
  Groups groups;
  for (const FactorList &list : view.dims) {
    FactorList group;
    bool onlySample = false;
    for (const Factor &factor : list)
      if (factor.sample)
        onlySample = true;
      else
        group.push_back(factor);
    if (group.empty() && (dropOnes || onlySample))
      continue;
    groups.push_back(std::move(group));
  }
  return groups;
}

Value Importer::materialise(const Val &value, bool dropOnes) { return materialise(value, groupsOf(value.view, dropOnes), false); }

// The same elements, one after the other in the order of the axes.
Val Importer::copied(const Val &operand) {
  std::vector<int64_t> shape = operand.shape();
  if (operand.isConstant()) {
    std::vector<int64_t> sizes;
    LazyOperand source{operand.lazy, operand.view.offset, {}};
    for (const FactorList &list : operand.view.dims)
      for (const Factor &factor : list) {
        sizes.push_back(factor.size);
        source.strides.push_back(factor.stride);
      }
    Kernel kernel;
    kernel.copy = true;
    Val out = constantOf(operand.type, makeExpression(operand.type, sizes, {source}, kernel), shape);
    out.hides = operand.hides;
    return out;
  }
  Val out = operand;
  out.value = materialise(operand);
  out.scale = 1;
  out.view.offset = 0;
  int64_t stride = 1;
  for (size_t axis = out.view.dims.size(); axis-- > 0;) {
    FactorList list;
    for (size_t i = out.view.dims[axis].size(); i-- > 0;) {
      Factor factor = out.view.dims[axis][i];
      if (!factor.sample) {
        factor.stride = stride;
        stride *= factor.size;
      }
      list.insert(list.begin(), factor);
    }
    coalesce(list);
    out.view.dims[axis] = list;
  }
  return out;
}

FailureOr<Val> Importer::reshaped(const GraphNode &node, const Val &operand, const std::vector<int64_t> &shape) {
  Val out = operand;
  if (operand.view.elements() == 0) {
    out.view = contiguousView(shape, false);
    return out;
  }
  bool guessed = false;
  ReshapeResult result = reshapeView(operand.view, shape, out.view, guessed);
  if (result == ReshapeResult::Done && (operand.isConstant() || isCuttable(out.view, perRow(operand.value)))) {
    guessedSingleRow |= guessed && isSampled(operand) && rows == 1;
    if (isSampled(operand) && out.view.sampleAxis() < 0)
      return error(node, "drops the sample axis of its operand");
    return out;
  }
  if (result == ReshapeResult::MixesSamples)
    return error(node, "regroups elements across samples: it divides the axis of " + Twine(rows) + " samples; every op must treat samples apart");
  Val whole = copied(operand);
  out = whole;
  result = reshapeView(whole.view, shape, out.view, guessed);
  if (result != ReshapeResult::Done)
    return error(node, result == ReshapeResult::MixesSamples ? "regroups elements across samples" : "the new shape has another number of elements");
  return out;
}

bool zorse::onnx_import::repeats(const Lazy &lazy, int64_t offset, const FactorList &factors, size_t which) {
  const Factor along = factors[which];
  if (along.stride == 0 || along.size == 1 || lazy.isFill())
    return true;
  // Every position of the other axes, streamed in runs of the innermost one.
  std::vector<Factor> others;
  for (size_t i = 0; i < factors.size(); ++i)
    if (i != which && factors[i].stride != 0)
      others.push_back(factors[i]);
  std::sort(others.begin(), others.end(), [](const Factor &a, const Factor &b) { return std::abs(a.stride) > std::abs(b.stride); });
  Factor inner = others.empty() ? Factor{1, 1, false} : others.back();
  if (!others.empty())
    others.pop_back();
  std::vector<int64_t> index(others.size(), 0);
  std::vector<double> first(inner.size), next(inner.size);
  std::vector<int64_t> firstInts(inner.size), nextInts(inner.size);
  for (;;) {
    int64_t at = offset;
    for (size_t i = 0; i < others.size(); ++i)
      at += index[i] * others[i].stride;
    for (int64_t k = 0; k < along.size; ++k) {
      if (lazy.isFloat()) {
        lazy.readFloats(at + k * along.stride, inner.stride, inner.size, k ? next.data() : first.data());
        if (k && std::memcmp(first.data(), next.data(), sizeof(double) * inner.size) != 0)
          return false;
      } else {
        lazy.readInts(at + k * along.stride, inner.stride, inner.size, k ? nextInts.data() : firstInts.data());
        if (k && firstInts != nextInts)
          return false;
      }
    }
    size_t axis = others.size();
    while (axis > 0 && ++index[axis - 1] == others[axis - 1].size)
      index[--axis] = 0;
    if (axis == 0)
      return true;
  }
}

Val Importer::compressed(const Val &operand) const {
  Val out = operand;
  if (!operand.isConstant())
    return out;
  FactorList all;
  for (const FactorList &list : out.view.dims)
    all.insert(all.end(), list.begin(), list.end());
  size_t at = 0;
  for (FactorList &list : out.view.dims) {
    for (Factor &factor : list) {
      if (repeats(*out.lazy, out.view.offset, all, at))
        all[at].stride = factor.stride = 0;
      ++at;
    }
    coalesce(list);
  }
  return out;
}

// An operand without samples that has one slice per sample along an axis: all must be equal, and one is kept.
LogicalResult Importer::dropSampleCopies(const GraphNode &node, const Val &operand, size_t index, const std::vector<Axis> &axes, size_t along) {
  int64_t size = axes[along].size, stride = axes[along].strides[index];
  if (operand.isConstant()) {
    FactorList factors;
    for (const Axis &axis : axes)
      factors.push_back(Factor{axis.size, axis.strides[index], false});
    if (repeats(*operand.lazy, operand.view.offset, factors, along))
      return success();
  }
  if (operand.isGraph()) {
    // A parameter with baked rows (a position table that an exporter folded): compare its initial values.
    if (auto argument = dyn_cast<BlockArgument>(operand.value)) {
      auto found = weightOfArgument.find(argument.getArgNumber());
      if (found != weightOfArgument.end()) {
        const WeightSource &weight = weights[found->second];
        const uint8_t *data = weight.data;
        int64_t count = 1;
        for (int64_t extent : weight.shape)
          count *= extent;
        int64_t width = count ? static_cast<int64_t>(weight.bytes) / count : 0;
        bool equal = data && width > 0;
        int64_t span = stride * width;
        for (int64_t block = 0; equal && block < count / (stride * size); ++block)
          for (int64_t k = 1; equal && k < size; ++k)
            equal = std::memcmp(data + block * span * size, data + (block * size + k) * span, span) == 0;
        if (equal) {
          warn("parameter '" + weight.parameter + "' holds one copy per sample of the exported batch; the first is used. Export with a symbolic batch dimension");
          return success();
        }
      }
    }
  }
  return error(node, "an operand that carries no samples differs between the " + Twine(size) +
                         " samples of the exported batch; export with a symbolic batch dimension, or make it an input");
}

LogicalResult Importer::align(const GraphNode &node, std::vector<Val> &operands, std::vector<Axis> &axes, std::vector<int64_t> &shape) {
  int64_t rank = 0;
  for (const Val &operand : operands)
    rank = std::max(rank, operand.rank());
  for (int attempt = 0; attempt < 2; ++attempt) {
    axes.clear();
    shape.assign(rank, 1);
    bool needsCopy = false;
    for (int64_t dim = 0; dim < rank; ++dim) {
      std::vector<FactorList> heads(operands.size());
      int64_t size = 1;
      for (const Val &operand : operands) {
        int64_t own = dim - (rank - operand.rank());
        if (own < 0)
          continue;
        int64_t extent = operand.view.size(own);
        if (extent != 1 && size != 1 && extent != size)
          return error(node, "expects shapes that broadcast, found sizes " + Twine(size) + " and " + Twine(extent) + " in dimension " + Twine(dim) +
                                 (options.sequence == std::max(size, extent) ? "; if the model has a table or a mask of " + std::to_string(std::min(size, extent)) +
                                                                                   " positions, compile with --seq at most " + std::to_string(std::min(size, extent))
                                                                             : std::string()));
        if (extent != 1)
          size = extent;
      }
      shape[dim] = size;
      if (size == 0)
        return error(node, "computes on an empty tensor");
      for (size_t k = 0; k < operands.size(); ++k) {
        int64_t own = dim - (rank - operands[k].rank());
        if (own >= 0)
          heads[k] = operands[k].view.dims[own];
        int64_t extent = own >= 0 ? operands[k].view.size(own) : 1;
        if (extent != size)
          heads[k].push_back(Factor{size, 0, false}); // repeats; behind a sample factor of one row, if there is one
      }
      std::vector<size_t> next(operands.size(), 0);
      int64_t rest = size;
      for (;;) {
        // Sample factors of one row go alone.
        bool single = false;
        for (size_t k = 0; k < operands.size(); ++k)
          single |= next[k] < heads[k].size() && heads[k][next[k]].sample && heads[k][next[k]].size == 1;
        if (single) {
          Axis axis{1, true, dim, static_cast<int64_t>(axes.size()), std::vector<int64_t>(operands.size(), 0)};
          for (size_t k = 0; k < operands.size(); ++k)
            if (next[k] < heads[k].size() && heads[k][next[k]].sample)
              ++next[k];
          axes.push_back(axis);
          continue;
        }
        if (rest == 1)
          break;
        int64_t step = rest;
        for (size_t k = 0; k < operands.size(); ++k) {
          while (next[k] < heads[k].size() && heads[k][next[k]].size == 1)
            ++next[k];
          if (next[k] >= heads[k].size())
            return error(node, "internal: an operand's axes do not cover its shape");
          step = std::min(step, heads[k][next[k]].size);
        }
        Axis axis{step, false, dim, static_cast<int64_t>(axes.size()), std::vector<int64_t>(operands.size(), 0)};
        for (size_t k = 0; k < operands.size() && !needsCopy; ++k) {
          Factor &head = heads[k][next[k]];
          if (head.size == step) {
            axis.sample |= head.sample;
            axis.strides[k] = head.stride;
            ++next[k];
            continue;
          }
          if (head.size % step != 0 || head.sample) {
            needsCopy = true;
            break;
          }
          int64_t inner = head.size / step;
          axis.strides[k] = head.stride * inner;
          head.size = inner;
        }
        if (needsCopy)
          break;
        axes.push_back(axis);
        rest /= step;
      }
      if (needsCopy)
        break;
    }
    if (!needsCopy)
      break;
    if (attempt == 1)
      return error(node, "its operands group samples with other axes in ways that do not match");
    for (Val &operand : operands)
      operand = copied(operand);
  }

  // Which axis is the sample axis: the one of the operands that carry samples, and it must be one.
  int64_t sampleAxis = -1;
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].sample) {
      if (sampleAxis >= 0)
        return error(node, "combines different samples: its operands carry samples in different dimensions");
      sampleAxis = static_cast<int64_t>(i);
    }
  if (sampleAxis >= 0)
    for (size_t k = 0; k < operands.size(); ++k) {
      Axis &axis = axes[sampleAxis];
      if (axis.strides[k] == 0)
        continue;
      if (failed(dropSampleCopies(node, operands[k], k, axes, sampleAxis)))
        return failure();
      axis.strides[k] = 0;
    }
  return success();
}

// Loops run in the order in which the largest operand that carries samples lies in memory; so no copy is made for it.
void Importer::orderAxes(const std::vector<Val> &operands, std::vector<Axis> &axes) const {
  int primary = -1;
  int64_t best = 0;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!operands[k].isGraph())
      continue;
    int64_t count = isSampled(operands[k]) ? 2 : 1;
    for (const Axis &axis : axes)
      if (axis.strides[k] != 0)
        count *= axis.size;
    if (count > best) {
      best = count;
      primary = static_cast<int>(k);
    }
  }
  if (primary < 0)
    return;
  std::vector<size_t> positions;
  std::vector<Axis> picked;
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].strides[primary] != 0) {
      positions.push_back(i);
      picked.push_back(axes[i]);
    }
  std::stable_sort(picked.begin(), picked.end(), [&](const Axis &a, const Axis &b) { return a.strides[primary] > b.strides[primary]; });
  for (size_t i = 0; i < positions.size(); ++i)
    axes[positions[i]] = picked[i];
}

Importer::Loop Importer::makeLoop(const std::vector<Axis> &axes) const {
  Loop loop;
  for (const Axis &axis : axes) {
    if (axis.sample) {
      loop.sampled = true;
      continue;
    }
    bool moves = std::any_of(axis.strides.begin(), axis.strides.end(), [](int64_t stride) { return stride != 0; });
    if (!moves)
      continue;
    if (!loop.groups.empty() && loop.groups.back().back()->dim == axis.dim)
      loop.groups.back().push_back(&axis);
    else
      loop.groups.push_back({&axis});
  }
  if (loop.sampled)
    loop.shape.push_back(ShapedType::kDynamic);
  for (auto &group : loop.groups) {
    int64_t size = 1;
    for (const Axis *axis : group)
      size *= axis->size;
    loop.shape.push_back(size);
  }
  return loop;
}

Value Importer::operandOf(const Val &operand, size_t index, const Loop &loop) {
  Groups groups;
  for (auto &group : loop.groups) {
    FactorList list;
    for (const Axis *axis : group)
      list.push_back(Factor{axis->size, axis->strides[index], false});
    coalesce(list);
    groups.push_back(std::move(list));
  }
  return materialise(operand, groups, loop.sampled);
}

Val Importer::resultOf(Value value, ElementKind type, const std::vector<Axis> &axes, const Loop &loop, const std::vector<int64_t> &shape) const {
  Val out;
  out.kind = Val::Kind::Graph;
  out.type = type;
  out.value = value;
  out.view.dims.resize(shape.size());
  llvm::DenseMap<const Axis *, int64_t> strides;
  int64_t stride = 1;
  for (size_t g = loop.groups.size(); g-- > 0;)
    for (size_t i = loop.groups[g].size(); i-- > 0;) {
      strides[loop.groups[g][i]] = stride;
      stride *= loop.groups[g][i]->size;
    }
  // Inner dimensions of the value behind the loop's are contiguous elements.
  int64_t inner = perRow(value) / std::max<int64_t>(stride, 1);
  // Axes of one dimension are listed outermost first, as in the file, whatever the order of the loop.
  std::vector<const Axis *> sorted;
  for (const Axis &axis : axes)
    sorted.push_back(&axis);
  std::sort(sorted.begin(), sorted.end(), [](const Axis *a, const Axis *b) { return a->order < b->order; });
  for (const Axis *axis : sorted) {
    auto found = strides.find(axis);
    out.view.dims[axis->dim].push_back(Factor{axis->size, found == strides.end() ? 0 : found->second * inner, axis->sample});
  }
  for (FactorList &list : out.view.dims)
    coalesce(list);
  return out;
}

LogicalResult Importer::emitElementwise(const GraphNode &node, std::vector<Val> operands, ElementKind type,
                                        llvm::function_ref<Value(ValueRange, RankedTensorType)> body) {
  std::vector<Axis> axes;
  std::vector<int64_t> shape;
  if (failed(align(node, operands, axes, shape)))
    return failure();
  orderAxes(operands, axes);
  Loop loop = makeLoop(axes);
  SmallVector<Value> arguments;
  for (size_t k = 0; k < operands.size(); ++k)
    arguments.push_back(operandOf(operands[k], k, loop));
  auto resultType = RankedTensorType::get(loop.shape, elementType(type));
  Value result = body(arguments, resultType);
  if (!result)
    return failure();
  Val value = resultOf(result, type, axes, loop, shape);
  for (const Val &operand : operands)
    value.hides |= operand.hides;
  out(node, 0, value);
  return success();
}

Val Importer::foldElementwise(std::vector<Val> operands, ElementKind type, Kernel kernel) {
  // Only constants: shapes agree or the caller has checked; no samples to mind.
  GraphNode none;
  std::vector<Axis> axes;
  std::vector<int64_t> shape;
  if (failed(align(none, operands, axes, shape)))
    return Val{};
  std::vector<int64_t> sizes;
  std::vector<const Axis *> moving;
  for (const Axis &axis : axes)
    if (std::any_of(axis.strides.begin(), axis.strides.end(), [](int64_t stride) { return stride != 0; })) {
      sizes.push_back(axis.size);
      moving.push_back(&axis);
    }
  std::vector<LazyOperand> sources;
  for (size_t k = 0; k < operands.size(); ++k) {
    LazyOperand source{operands[k].lazy, operands[k].view.offset, {}};
    for (const Axis *axis : moving)
      source.strides.push_back(axis->strides[k]);
    sources.push_back(std::move(source));
  }
  Val result;
  result.kind = Val::Kind::Constant;
  result.type = type;
  result.lazy = makeExpression(type, sizes, std::move(sources), std::move(kernel));
  result.view.dims.resize(shape.size());
  llvm::DenseMap<const Axis *, int64_t> strides;
  int64_t stride = 1;
  for (size_t i = moving.size(); i-- > 0;) {
    strides[moving[i]] = stride;
    stride *= moving[i]->size;
  }
  for (const Axis &axis : axes) {
    auto found = strides.find(&axis);
    result.view.dims[axis.dim].push_back(Factor{axis.size, found == strides.end() ? 0 : found->second, false});
  }
  for (FactorList &list : result.view.dims)
    coalesce(list);
  return result;
}
