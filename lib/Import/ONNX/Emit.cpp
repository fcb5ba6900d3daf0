// Converts views to IR: the reshape, slice, transpose and broadcast that map an operand to the axes
// of a loop.
#include "Emit.h"

#include "Initializers.h"
#include "Known.h"
#include "OpContext.h"

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

Type zorse::onnx_import::elementType(const ImportState &state, ElementKind kind) {
  if (isFloat(kind))
    return state.options.compute == ComputeType::F64
               ? static_cast<Type>(Float64Type::get(&state.context))
               : static_cast<Type>(Float32Type::get(&state.context));
  switch (kind) {
  case ElementKind::Bool:
    return IntegerType::get(&state.context, 1);
  case ElementKind::I32:
    return IntegerType::get(&state.context, 32);
  default:
    return IntegerType::get(&state.context, 64);
  }
}

bool zorse::onnx_import::isBatched(Value value) { return carriesSamples(value.getType()); }

bool zorse::onnx_import::isBatched(const ImportedValue &value) {
  return value.isTensor() && isBatched(value.value());
}

int64_t zorse::onnx_import::perRow(Value value) {
  return elementsPerRow(cast<RankedTensorType>(value.getType()));
}

ImportedValue zorse::onnx_import::wrap(Value value, ElementKind type, std::vector<int64_t> shape) {
  return {type, contiguousView(shape, isBatched(value)), Tensor{value}};
}

ImportedValue zorse::onnx_import::constantOf(ElementKind kind, LazyPtr lazy,
                                             std::vector<int64_t> shape) {
  View view = contiguousView(shape, false);
  for (FactorList &list : view.dims) {
    for (Factor &factor : list)
      factor.stride = lazy->isFill() ? 0 : factor.stride;
    coalesce(list);
  }
  return {kind, std::move(view), Constant{std::move(lazy)}};
}

ImportedValue zorse::onnx_import::constantOf(const onnx::Tensor &tensor, TensorBytes bytes) {
  const auto kind = static_cast<ElementKind>(tensor.data_type());
  std::vector<int64_t> shape(tensor.dims().begin(), tensor.dims().end());
  int64_t size = 1;
  for (int64_t dim : shape)
    size *= dim;
  return constantOf(kind, makeBytes(kind, std::move(bytes), size), std::move(shape));
}

ImportedValue zorse::onnx_import::scalar(ElementKind kind, double value) {
  return constantOf(kind, makeFill(kind, 1, value), {});
}

// Merges equal ops with equal operands (common-subexpression elimination).
Value zorse::onnx_import::merge(ImportState &state, Operation *op) {
  size_t hash = OperationEquivalence::computeHash(op, OperationEquivalence::directHashValue,
                                                  OperationEquivalence::ignoreHashValue,
                                                  OperationEquivalence::IgnoreLocations);
  auto &bucket = state.emitted[hash];
  for (Operation *other : bucket)
    if (OperationEquivalence::isEquivalentTo(op, other, OperationEquivalence::exactValueMatch,
                                             nullptr, OperationEquivalence::IgnoreLocations)) {
      op->erase();
      return other->getResult(0);
    }
  bucket.push_back(op);
  if (isa<DropoutOp>(op) || llvm::any_of(op->getOperands(), [&](Value operand) {
        return state.weighted.contains(operand);
      }))
    state.weighted.insert(op->result_begin(), op->result_end());
  for (Value operand : op->getOperands())
    if (state.tainted.contains(operand)) {
      for (Value result : op->getResults())
        state.tainted.insert(result);
      break;
    }
  return op->getResult(0);
}

Value zorse::onnx_import::createNamed(ImportState &state, StringRef name, ValueRange operands,
                                      Type type) {
  OperationState operation(state.location, name);
  operation.addOperands(operands);
  operation.addTypes(type);
  return merge(state, state.builder.create(operation));
}

static SmallVector<int64_t> withRows(ArrayRef<int64_t> shape, bool sampled) {
  SmallVector<int64_t> out;
  if (sampled)
    out.push_back(ShapedType::kDynamic);
  out.append(shape.begin(), shape.end());
  return out;
}

Value zorse::onnx_import::reshapeTo(ImportState &state, Value value, ArrayRef<int64_t> shape) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getShape() == shape)
    return value;
  if (auto previous = value.getDefiningOp<ReshapeOp>())
    return reshapeTo(state, previous.getX(), shape);
  return create<ReshapeOp>(state, value, shape);
}

Value zorse::onnx_import::broadcastTo(ImportState &state, Value value, ArrayRef<int64_t> dims,
                                      ArrayRef<int64_t> shape) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getShape() == shape)
    return value;
  return create<BroadcastOp>(state, RankedTensorType::get(shape, type.getElementType()), value,
                             state.builder.getDenseI64ArrayAttr(dims));
}

Value zorse::onnx_import::splat(ImportState &state, double value, RankedTensorType type) {
  Type element = type.getElementType();
  auto scalarType = RankedTensorType::get({}, element);
  TypedAttr attribute;
  if (isa<FloatType>(element))
    attribute =
        DenseElementsAttr::get(scalarType, static_cast<Attribute>(FloatAttr::get(element, value)));
  else
    attribute = DenseElementsAttr::get(
        scalarType, static_cast<Attribute>(IntegerAttr::get(element, truncateToInt(value))));
  Value constant = create<arith::ConstantOp>(state, attribute);
  return broadcastTo(state, constant, {}, type.getShape());
}

static Value applyScale(ImportState &state, Value value, const Number &scale) {
  if (scale.is(1))
    return value;
  if (scale.is(-1))
    return create<arith::NegFOp>(state, value);
  auto type = cast<RankedTensorType>(value.getType());
  if (auto constant = scale.constant())
    return create<arith::MulFOp>(state, value, splat(state, *constant, type));
  return create<arith::MulFOp>(state, value,
                               broadcastTo(state, knownValue(state, scale), {}, type.getShape()));
}

/// Emits the elements base[offset + sum i_k * stride_k] as a tensor with the factors' sizes, in the
/// given order. The strides are nonzero and nest (isCuttable).
static Value cut(ImportState &state, Value base, int64_t offset, const FactorList &factors) {
  bool sampled = isBatched(base);
  int64_t total = perRow(base);
  std::vector<size_t> order(factors.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return factors[a].stride > factors[b].stride; });

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
  // A leading axis of size 1 is merged into the next one if it is not sliced.
  Value value = reshapeTo(state, base, withRows(extents, sampled));
  bool whole = extents == sizes;
  if (!whole) {
    SmallVector<int64_t> begin, extent = withRows(sizes, sampled), step(extent.size(), 1);
    if (sampled)
      begin.push_back(0);
    begin.append(offsets.begin(), offsets.end());
    value = create<SliceOp>(state, value, begin, extent, step);
  }
  value = reshapeTo(state, value, withRows(result, sampled));
  SmallVector<int64_t> permutation(factors.size() + (sampled ? 1 : 0), 0);
  bool identity = true;
  for (size_t position = 0; position < order.size(); ++position) {
    permutation[order[position] + (sampled ? 1 : 0)] = static_cast<int64_t>(position) +
                                                       (sampled ? 1 : 0);
    identity &= order[position] == position;
  }
  if (!identity)
    value = create<TransposeOp>(state, value, permutation);
  return value;
}

/// Whether `visible` is exactly a causal mask, with or without a window, for all pairs (query i,
/// key j). All hidden floats must equal one number, `fill`. Streams the values.
static bool isCausal(const Lazy &lazy, int64_t offset, const Factor &queries, const Factor &keys,
                     std::optional<int64_t> &window, double &fill) {
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
      // The last query sees every key of its window, so it determines the window size.
      int64_t first = 0;
      while (first < keys.size && (lazy.isFloat() ? floats[first] != 0.0 : ints[first] == 0))
        ++first;
      width = keys.size - first;
      if (width < 1)
        return false;
    }
    for (int64_t j = 0; j < keys.size; ++j) {
      bool visible = j <= last && j > last - width;
      bool agrees = lazy.isFloat()
                        ? (visible ? floats[j] == 0.0
                                   : floats[j] <= -1e9 && floats[j] == hidden.value_or(floats[j]))
                        : (ints[j] != 0) == visible;
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

/// Row-major elements of `width` bytes each. Width 1: bools.
static std::shared_ptr<std::vector<uint8_t>> bytesOf(const Lazy &lazy, int64_t offset,
                                                     const FactorList &factors, unsigned width) {
  const bool asFloat = lazy.isFloat();
  int64_t count = 1;
  for (const Factor &factor : factors)
    count *= factor.size;
  auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(count) * width);
  std::vector<double> floats;
  std::vector<int64_t> ints;
  visitRuns(offset, factors, [&](int64_t from, int64_t stride, int64_t n, int64_t before) {
    uint8_t *to = bytes->data() + static_cast<size_t>(before) * width;
    if (asFloat) {
      floats.resize(n);
      lazy.readFloats(from, stride, n, floats.data());
    } else {
      ints.resize(n);
      lazy.readInts(from, stride, n, ints.data());
    }
    for (int64_t i = 0; i < n; ++i, to += width) {
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
    return true;
  });
  return bytes;
}

/// Emits a constant without repeating axes: as a scalar, a mask recognized by value, an attribute,
/// or, above 1 MiB, a parameter that is not trained.
static Value materialiseConstant(ImportState &state, const ImportedValue &operand,
                                 FactorList &factors, SmallVectorImpl<int64_t> &at) {
  int64_t computed = 1; // cannot overflow: products of sizes are at most 2^44
  for (const Factor &factor : factors)
    computed *= factor.stride == 0 ? 1 : factor.size;
  // The node is rejected after it has been interpreted.
  if (computed > state.options.maxComputed && !operand.lazy()->isFill()) {
    state.tooLarge = std::max(state.tooLarge, computed);
    SmallVector<int64_t> sizes;
    for (const Factor &factor : factors)
      sizes.push_back(factor.size);
    return splat(state, 0, RankedTensorType::get(sizes, elementType(state, operand.type)));
  }
  for (size_t i = factors.size(); i-- > 0;)
    if (repeats(*operand.lazy(), operand.view.offset, factors, i, state.options.maxComputed)) {
      factors.erase(factors.begin() + i);
      at.erase(at.begin() + i);
    }
  Type element = elementType(state, operand.type);
  SmallVector<int64_t> shape;
  for (const Factor &factor : factors)
    shape.push_back(factor.size);
  auto type = RankedTensorType::get(shape, element);
  bool isBool = operand.type == ElementKind::Bool;
  if (factors.size() == 2 && (isBool || operand.lazy()->isFloat())) {
    std::optional<int64_t> window;
    auto key = std::make_tuple(operand.lazy().get(), operand.view.offset, factors[0].stride,
                               factors[1].stride, factors[0].size, factors[1].size);
    auto cached = state.maskCache.find(key);
    if (cached == state.maskCache.end()) {
      CausalPattern pattern;
      pattern.causal = isCausal(*operand.lazy(), operand.view.offset, factors[0], factors[1],
                                window, pattern.fill);
      pattern.window = window.value_or(0);
      cached = state.maskCache.emplace(key, pattern).first;
      state.keepAlive.push_back(operand.lazy());
    }
    if (const CausalPattern &pattern = cached->second; pattern.causal)
      return create<CausalMaskOp>(
          state, type,
          pattern.window ? state.builder.getI64IntegerAttr(pattern.window) : IntegerAttr(),
          isBool || std::isinf(pattern.fill) ? FloatAttr()
                                             : state.builder.getF64FloatAttr(pattern.fill));
  }

  auto bytes = bytesOf(*operand.lazy(), operand.view.offset, factors,
                       isBool ? 1 : element.getIntOrFloatBitWidth() / 8);
  if (bytes->size() > (size_t(1) << 20))
    return liftedBytes(state, type, bytes);
  if (isBool) {
    SmallVector<bool> bits(bytes->begin(), bytes->end());
    return create<arith::ConstantOp>(state,
                                     static_cast<TypedAttr>(DenseElementsAttr::get(type, bits)));
  }
  return create<arith::ConstantOp>(
      state,
      static_cast<TypedAttr>(DenseElementsAttr::getFromRawBuffer(
          type, ArrayRef<char>(reinterpret_cast<const char *>(bytes->data()), bytes->size()))));
}

Value zorse::onnx_import::materialise(ImportState &state, const ImportedValue &operand,
                                      const Groups &groups, bool sampled) {
  FactorList kept;
  SmallVector<int64_t, 4> keptAt;
  SmallVector<int64_t> flat, grouped;
  bool rowsOfOperand = isBatched(operand);
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

  // Contiguous factors with no repeats in between share one dimension.
  for (size_t i = 1; i < kept.size();) {
    bool adjacent = keptAt[i] == keptAt[i - 1] + 1 &&
                    kept[i - 1].stride == kept[i].size * kept[i].stride;
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
    value = materialiseConstant(state, operand, kept, keptAt);
  } else {
    value =
        applyScale(state, cut(state, operand.value(), operand.view.offset, kept), operand.scale());
  }
  SmallVector<int64_t> dims;
  if (rowsOfOperand)
    dims.push_back(0);
  dims.append(keptAt.begin(), keptAt.end());
  value = broadcastTo(state, value, dims, withRows(flat, front));
  return reshapeTo(state, value, withRows(grouped, front));
}

Groups zorse::onnx_import::groupsOf(const View &view, bool dropOnes) {
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

Value zorse::onnx_import::materialise(ImportState &state, const ImportedValue &value,
                                      bool dropOnes) {
  return materialise(state, value, groupsOf(value.view, dropOnes), false);
}

// The same elements, contiguous in the order of the axes.
ImportedValue zorse::onnx_import::copied(ImportState &state, const ImportedValue &operand) {
  if (operand.isKnown())
    return knownOver(operand.type, numbersOf(operand), operand.view);
  ImportedValue out = operand;
  if (operand.isConstant()) {
    std::vector<int64_t> sizes;
    LazyOperand source{operand.lazy(), operand.view.offset, {}};
    for (const FactorList &list : operand.view.dims)
      for (const Factor &factor : list) {
        if (factor.sample)
          continue; // repeats
        sizes.push_back(factor.size);
        source.strides.push_back(factor.stride);
      }
    Kernel kernel;
    kernel.copy = true;
    out.constant().lazy = makeExpression(operand.type, sizes, {source}, kernel);
  } else {
    out.content = Tensor{materialise(state, operand)};
  }
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
  if (out.isConstant() && out.lazy()->isFill())
    for (FactorList &list : out.view.dims)
      for (Factor &factor : list)
        factor.stride = 0;
  return out;
}

FailureOr<ImportedValue> zorse::onnx_import::reshaped(OpContext &op, const ImportedValue &operand,
                                                      const std::vector<int64_t> &shape) {
  ImportedValue out = operand;
  if (operand.view.elements() == 0) {
    out.view = contiguousView(shape, false);
    return out;
  }
  bool guessed = false;
  ReshapeResult result = reshapeView(operand.view, shape, out.view, guessed);
  if (result == ReshapeResult::Done && (operand.isConstant() || operand.isKnown() ||
                                        isCuttable(out.view, perRow(operand.value())))) {
    op.state.guessedSingleRow |= guessed && isBatched(operand) && op.state.rows == 1;
    if (isBatched(operand) && out.view.sampleAxis() < 0)
      return op.error("drops the sample axis of its operand");
    return out;
  }
  if (result == ReshapeResult::MixesSamples)
    return op.error("regroups elements across samples: it divides the axis that holds them; every "
                    "op must treat samples apart");
  ImportedValue whole = copied(op.state, operand);
  out = whole;
  View flat = whole.view; // contiguous elements can be split in any way
  flat.dims.assign(1, FactorList());
  for (const FactorList &list : whole.view.dims)
    flat.dims[0].insert(flat.dims[0].end(), list.begin(), list.end());
  result = reshapeView(whole.view, shape, out.view, guessed);
  if (coalesce(flat.dims[0]); result == ReshapeResult::NeedsCopy)
    result = reshapeView(flat, shape, out.view, guessed);
  if (result != ReshapeResult::Done)
    return op.error(result == ReshapeResult::MixesSamples
                        ? "regroups elements across samples"
                        : "the new shape has another number of elements");
  return out;
}

bool zorse::onnx_import::repeats(const Lazy &lazy, int64_t offset, const FactorList &factors,
                                 size_t which, int64_t max) {
  const Factor along = factors[which];
  if (along.stride == 0 || along.size == 1 || lazy.isFill())
    return true;
  int64_t elements = 1; // cannot overflow: products of sizes are at most 2^44
  for (const Factor &factor : factors)
    elements *= factor.stride == 0 ? 1 : std::max<int64_t>(factor.size, 1);
  if (elements > max)
    return false;
  // Every position of the other axes, streamed in runs along the innermost one.
  FactorList others;
  for (size_t i = 0; i < factors.size(); ++i)
    if (i != which && factors[i].stride != 0)
      others.push_back(factors[i]);
  std::sort(others.begin(), others.end(), [](const Factor &a, const Factor &b) {
    return std::abs(a.stride) > std::abs(b.stride);
  });
  const size_t longest = others.empty() ? 1 : others.back().size;
  std::vector<double> first(longest), next(longest);
  std::vector<int64_t> firstInts(longest), nextInts(longest);
  return visitRuns(offset, others, [&](int64_t from, int64_t stride, int64_t n, int64_t) {
    for (int64_t k = 0; k < along.size; ++k)
      if (lazy.isFloat()) {
        lazy.readFloats(from + k * along.stride, stride, n, k ? next.data() : first.data());
        if (k && std::memcmp(first.data(), next.data(), sizeof(double) * n) != 0)
          return false;
      } else {
        lazy.readInts(from + k * along.stride, stride, n, k ? nextInts.data() : firstInts.data());
        if (k && firstInts != nextInts)
          return false;
      }
    return true;
  });
}

ImportedValue zorse::onnx_import::compressed(const ImportState &state,
                                             const ImportedValue &operand) {
  ImportedValue out = operand;
  if (!operand.isConstant())
    return out;
  FactorList all;
  for (const FactorList &list : out.view.dims)
    all.insert(all.end(), list.begin(), list.end());
  size_t at = 0;
  for (FactorList &list : out.view.dims) {
    for (Factor &factor : list) {
      if (repeats(*out.lazy(), out.view.offset, all, at, state.options.maxComputed))
        all[at].stride = factor.stride = 0;
      ++at;
    }
    coalesce(list);
  }
  return out;
}
