// Common axes of operands: broadcasting, the sample axis, loops over them, and what folds on constants.
#include "Axes.h"

#include "OpContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinTypes.h"

#include <algorithm>
#include <cstring>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// An operand without samples that has one slice per sample along an axis: all must be equal, and one is kept.
static LogicalResult dropSampleCopies(OpContext &op, const ImportedValue &operand, size_t index, const std::vector<Axis> &axes, size_t along) {
  int64_t size = axes[along].size, stride = axes[along].strides[index];
  if (!op.state.rowsBaked)
    return op.error("broadcasts an axis of a fixed size over the samples, of which there may be any number");
  if (operand.isConstant()) {
    FactorList factors;
    for (const Axis &axis : axes)
      factors.push_back(Factor{axis.size, axis.strides[index], false});
    if (repeats(*operand.lazy(), operand.view.offset, factors, along, op.state.options.mostComputed))
      return success();
  }
  if (operand.isTensor()) {
    // A parameter with baked rows (a position table that an exporter folded): compare its initial values.
    if (auto argument = dyn_cast<BlockArgument>(operand.value())) {
      auto found = op.state.weightOfArgument.find(argument.getArgNumber());
      if (found != op.state.weightOfArgument.end()) {
        const WeightSource &weight = op.state.weights[found->second];
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
          warn(op.state, "parameter '" + weight.parameter +
                             "' holds one copy per sample of the exported batch; the first is used. Export with a symbolic batch dimension");
          return success();
        }
      }
    }
  }
  return op.error("an operand that carries no samples differs between the " + Twine(size) +
                  " samples of the exported batch; export with a symbolic batch dimension, or make it an input");
}

namespace {
enum class AxisSplit { Done, NeedsCopy, TooShort };
}

/// Appends the axes of one dimension of `rest` elements, as fine as the finest operand's factors (`heads`) there. NeedsCopy: they do not divide each
/// other.
static AxisSplit splitAxis(std::vector<FactorList> heads, int64_t dim, int64_t rest, std::vector<Axis> &axes) {
  const size_t count = heads.size();
  std::vector<size_t> next(count, 0);
  for (;;) {
    // Sample factors of one row go alone.
    bool single = false;
    for (size_t k = 0; k < count; ++k)
      single |= next[k] < heads[k].size() && heads[k][next[k]].sample && heads[k][next[k]].size == 1;
    if (single) {
      Axis axis{1, true, false, dim, static_cast<int64_t>(axes.size()), std::vector<int64_t>(count, 0)};
      for (size_t k = 0; k < count; ++k)
        if (next[k] < heads[k].size() && heads[k][next[k]].sample)
          ++next[k];
      axes.push_back(axis);
      continue;
    }
    if (rest == 1)
      return AxisSplit::Done;
    int64_t step = rest;
    for (size_t k = 0; k < count; ++k) {
      while (next[k] < heads[k].size() && heads[k][next[k]].size == 1)
        ++next[k];
      if (next[k] >= heads[k].size())
        return AxisSplit::TooShort;
      step = std::min(step, heads[k][next[k]].size);
    }
    Axis axis{step, false, false, dim, static_cast<int64_t>(axes.size()), std::vector<int64_t>(count, 0)};
    for (size_t k = 0; k < count; ++k) {
      Factor &head = heads[k][next[k]];
      if (head.size == step) {
        axis.sample |= head.sample;
        axis.strides[k] = head.stride;
        ++next[k];
        continue;
      }
      if (head.size % step != 0 || head.sample)
        return AxisSplit::NeedsCopy;
      int64_t inner = head.size / step;
      axis.strides[k] = head.stride * inner;
      head.size = inner;
    }
    axes.push_back(axis);
    rest /= step;
  }
}

LogicalResult zorse::onnx_import::align(OpContext &op, std::vector<ImportedValue> &operands, std::vector<Axis> &axes, std::vector<int64_t> &shape) {
  int64_t rank = 0;
  for (const ImportedValue &operand : operands)
    rank = std::max(rank, operand.rank());
  for (int attempt = 0; attempt < 2; ++attempt) {
    axes.clear();
    shape.assign(rank, 1);
    bool needsCopy = false;
    for (int64_t dim = 0; dim < rank && !needsCopy; ++dim) {
      std::vector<FactorList> heads(operands.size());
      int64_t size = 1;
      for (const ImportedValue &operand : operands) {
        int64_t own = dim - (rank - operand.rank());
        if (own < 0)
          continue;
        int64_t extent = operand.view.size(own);
        if (extent != 1 && size != 1 && extent != size)
          return op.error("expects shapes that broadcast, found sizes " + Twine(size) + " and " + Twine(extent) + " in dimension " + Twine(dim) +
                          (op.state.options.sequence == std::max(size, extent)
                               ? "; if the model has a table or a mask of " + std::to_string(std::min(size, extent)) +
                                     " positions, compile with --seq at most " + std::to_string(std::min(size, extent))
                               : std::string()));
        if (extent != 1)
          size = extent;
      }
      shape[dim] = size;
      if (size == 0)
        return op.error("computes on an empty tensor");
      if (!isSensible(shape))
        return op.error("its result is too large");
      for (size_t k = 0; k < operands.size(); ++k) {
        int64_t own = dim - (rank - operands[k].rank());
        if (own >= 0)
          heads[k] = operands[k].view.dims[own];
        int64_t extent = own >= 0 ? operands[k].view.size(own) : 1;
        if (extent != size)
          heads[k].push_back(Factor{size, 0, false}); // repeats; behind a sample factor of one row, if there is one
      }
      AxisSplit split = splitAxis(std::move(heads), dim, size, axes);
      if (split == AxisSplit::TooShort)
        return op.error("internal: an operand's axes do not cover its shape");
      needsCopy = split == AxisSplit::NeedsCopy;
    }
    if (!needsCopy)
      break;
    if (attempt == 1)
      return op.error("its operands group samples with other axes in ways that do not match");
    for (ImportedValue &operand : operands)
      operand = copied(op.state, operand);
  }

  // Which axis is the sample axis: the one of the operands that carry samples, and it must be one.
  int64_t sampleAxis = -1;
  const bool sampled = std::any_of(operands.begin(), operands.end(), [&](const ImportedValue &operand) { return isSampled(operand); });
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].sample) {
      if (sampleAxis >= 0)
        return op.error("combines different samples: its operands carry samples in different dimensions");
      sampleAxis = static_cast<int64_t>(i);
      axes[i].perSample = true;
      axes[i].sample = sampled;
    }
  if (sampleAxis >= 0)
    for (size_t k = 0; k < operands.size(); ++k) {
      Axis &axis = axes[sampleAxis];
      if (axis.strides[k] == 0)
        continue;
      if (failed(dropSampleCopies(op, operands[k], k, axes, sampleAxis)))
        return failure();
      axis.strides[k] = 0;
    }
  return success();
}

// Loops run in the order in which the largest operand that carries samples lies in memory; so no copy is made for it.
void zorse::onnx_import::orderAxes(const std::vector<ImportedValue> &operands, std::vector<Axis> &axes) {
  int primary = -1;
  int64_t best = 0;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!operands[k].isTensor())
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

Loop zorse::onnx_import::makeLoop(const std::vector<Axis> &axes) {
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

Value zorse::onnx_import::operandOf(ImportState &state, const ImportedValue &operand, size_t index, const Loop &loop) {
  Groups groups;
  for (auto &group : loop.groups) {
    FactorList list;
    for (const Axis *axis : group)
      list.push_back(Factor{axis->size, axis->strides[index], false});
    coalesce(list);
    groups.push_back(std::move(list));
  }
  return materialise(state, operand, groups, loop.sampled);
}

ImportedValue zorse::onnx_import::resultOf(Value value, ElementKind type, const std::vector<Axis> &axes, const Loop &loop,
                                           const std::vector<int64_t> &shape) {
  ImportedValue out{type, {}, Tensor{value}};
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
    out.view.dims[axis->dim].push_back(Factor{axis->size, found == strides.end() ? 0 : found->second * inner, axis->perSample});
  }
  for (FactorList &list : out.view.dims)
    coalesce(list);
  return out;
}

LogicalResult zorse::onnx_import::emitElementwise(OpContext &op, std::vector<ImportedValue> operands, ElementKind type,
                                                  llvm::function_ref<Value(ValueRange, RankedTensorType)> body, Number scale) {
  std::vector<Axis> axes;
  std::vector<int64_t> shape;
  if (failed(align(op, operands, axes, shape)))
    return failure();
  orderAxes(operands, axes);
  Loop loop = makeLoop(axes);
  SmallVector<Value> arguments;
  for (size_t k = 0; k < operands.size(); ++k)
    arguments.push_back(operandOf(op.state, operands[k], k, loop));
  auto resultType = RankedTensorType::get(loop.shape, elementType(op.state, type));
  Value result = body(arguments, resultType);
  if (!result)
    return failure();
  ImportedValue value = resultOf(result, type, axes, loop, shape);
  for (const ImportedValue &operand : operands)
    value.hides |= operand.hides;
  value.tensor().scale = std::move(scale);
  return op.result(std::move(value));
}

ImportedValue zorse::onnx_import::foldElementwise(ImportState &state, std::vector<ImportedValue> operands, ElementKind type, Kernel kernel) {
  // Only constants: shapes agree or the caller has checked; no samples to mind.
  const GraphNode none;
  OpContext op(state, none);
  std::vector<Axis> axes;
  std::vector<int64_t> shape;
  if (failed(align(op, operands, axes, shape)))
    return ImportedValue{};
  std::vector<int64_t> sizes;
  std::vector<const Axis *> moving;
  for (const Axis &axis : axes)
    if (std::any_of(axis.strides.begin(), axis.strides.end(), [](int64_t stride) { return stride != 0; })) {
      sizes.push_back(axis.size);
      moving.push_back(&axis);
    }
  std::vector<LazyOperand> sources;
  for (size_t k = 0; k < operands.size(); ++k) {
    LazyOperand source{operands[k].lazy(), operands[k].view.offset, {}};
    for (const Axis *axis : moving)
      source.strides.push_back(axis->strides[k]);
    sources.push_back(std::move(source));
  }
  ImportedValue result{type, {}, Constant{makeExpression(type, sizes, std::move(sources), std::move(kernel))}};
  result.view.dims.resize(shape.size());
  llvm::DenseMap<const Axis *, int64_t> strides;
  int64_t stride = 1;
  for (size_t i = moving.size(); i-- > 0;) {
    strides[moving[i]] = stride;
    stride *= moving[i]->size;
  }
  for (const Axis &axis : axes) {
    auto found = strides.find(&axis);
    result.view.dims[axis.dim].push_back(Factor{axis.size, found == strides.end() ? 0 : found->second, axis.perSample});
  }
  for (FactorList &list : result.view.dims)
    coalesce(list);
  return result;
}
