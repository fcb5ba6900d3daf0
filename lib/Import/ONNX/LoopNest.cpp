// Finds common axes of operands: broadcasting, the sample axis, and loops over them. Folds
// elementwise operations on constants.
#include "LoopNest.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinTypes.h"

#include <algorithm>
#include <cstring>
#include <numeric>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// Whether the initial values of a parameter are `size` consecutive copies of blocks of `stride`
/// elements.
static bool holdsCopies(const WeightSource &weight, int64_t size, int64_t stride) {
  int64_t count = 1;
  for (int64_t extent : weight.shape)
    count *= extent;
  const int64_t width = count ? static_cast<int64_t>(weight.bytes) / count : 0,
                span = stride * width;
  bool equal = weight.data && width > 0;
  for (int64_t block = 0; equal && block < count / (stride * size); ++block)
    for (int64_t k = 1; equal && k < size; ++k)
      equal = std::memcmp(weight.data + block * span * size,
                          weight.data + (block * size + k) * span, span) == 0;
  return equal;
}

/// Handles an operand without samples that has one slice per sample along an axis. All slices must
/// be equal; one is kept.
LogicalResult LoopNest::dropSampleCopies(OpContext &op, size_t index, size_t along) const {
  const ImportedValue &operand = aligned[index];
  const int64_t size = axes[along].size;
  if (!op.state.rowsBaked)
    return op.error(
        "broadcasts an axis of a fixed size over the samples, of which there may be any number");
  if (operand.isConstant()) {
    FactorList factors;
    for (const Axis &axis : axes)
      factors.push_back(Factor{axis.size, axis.strides[index], false});
    if (repeats(*operand.lazy(), operand.view.offset, factors, along, op.state.options.maxComputed))
      return success();
  }
  // A parameter with a fixed number of rows (a position table that an exporter folded): compare its
  // initial values.
  if (auto argument = operand.isTensor() ? dyn_cast<BlockArgument>(operand.value())
                                         : BlockArgument())
    if (auto found = op.state.weightOfArgument.find(argument.getArgNumber());
        found != op.state.weightOfArgument.end())
      if (const WeightSource &weight = op.state.weights[found->second];
          holdsCopies(weight, size, axes[along].strides[index])) {
        warn(op.state, "parameter '" + weight.parameter +
                           "' holds one copy per sample of the exported batch; the first is used. "
                           "Export with a symbolic batch dimension");
        return success();
      }
  return op.error("an operand that carries no samples differs between the " + Twine(size) +
                  " samples of the exported batch; export with a symbolic batch dimension, or make "
                  "it an input");
}

namespace {
enum class AxisSplit { Done, NeedsCopy, TooShort };
}

/// Appends the axes of one dimension of `rest` elements. They are as fine as the finest factors of
/// the operands (`heads`). NeedsCopy: the factors do not divide each other.
static AxisSplit splitAxis(std::vector<FactorList> heads, int64_t dim, int64_t rest,
                           std::vector<LoopNest::Axis> &axes) {
  const size_t count = heads.size();
  std::vector<size_t> next(count, 0);
  for (;;) {
    // A sample factor of one row is a separate axis.
    bool single = false;
    for (size_t k = 0; k < count; ++k)
      single |= next[k] < heads[k].size() && heads[k][next[k]].sample &&
                heads[k][next[k]].size == 1;
    if (single) {
      for (size_t k = 0; k < count; ++k)
        if (next[k] < heads[k].size() && heads[k][next[k]].sample)
          ++next[k];
      axes.push_back({1, true, false, dim, std::vector<int64_t>(count, 0)});
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
    LoopNest::Axis axis{step, false, false, dim, std::vector<int64_t>(count, 0)};
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

/// The size that dimension `dim` of `rank` has for all operands. Fails after an error.
static FailureOr<int64_t> broadcastSize(OpContext &op, ArrayRef<ImportedValue> operands,
                                        int64_t dim, int64_t rank) {
  int64_t size = 1;
  for (const ImportedValue &operand : operands) {
    int64_t own = dim - (rank - operand.rank()), extent = own < 0 ? 1 : operand.view.size(own);
    if (extent != 1 && size != 1 && extent != size)
      return op.error("expects shapes that broadcast, found sizes " + Twine(size) + " and " +
                      Twine(extent) + " in dimension " + Twine(dim) +
                      (op.state.options.sequence == std::max(size, extent)
                           ? "; if the model has a table or a mask of " +
                                 std::to_string(std::min(size, extent)) +
                                 " positions, compile with --seq-length at most " +
                                 std::to_string(std::min(size, extent))
                           : std::string()));
    size = extent == 1 ? size : extent;
  }
  if (size == 0)
    return op.error("computes on an empty tensor");
  return size;
}

/// Finds the axes. Fails after an error.
LogicalResult LoopNest::align(OpContext &op) {
  for (const ImportedValue &operand : aligned)
    rank = std::max(rank, operand.rank());
  for (bool isCopy : {false, true}) {
    axes.clear();
    std::vector<int64_t> shape(rank, 1);
    AxisSplit split = AxisSplit::Done;
    for (int64_t dim = 0; dim < rank && split == AxisSplit::Done; ++dim) {
      auto size = broadcastSize(op, aligned, dim, rank);
      if (failed(size))
        return failure();
      shape[dim] = *size;
      if (!isSensible(shape))
        return op.error("its result is too large");
      std::vector<FactorList> heads;
      for (const ImportedValue &operand : aligned) {
        const int64_t own = dim - (rank - operand.rank());
        FactorList &head = heads.emplace_back(own < 0 ? FactorList() : operand.view.dims[own]);
        if ((own < 0 ? 1 : operand.view.size(own)) != *size)
          head.push_back(Factor{*size, 0, false}); // repeats; after a sample factor of one row, if
                                                   // there is one
      }
      split = splitAxis(std::move(heads), dim, *size, axes);
    }
    if (split == AxisSplit::TooShort)
      return op.error("internal: an operand's axes do not cover its shape");
    if (split == AxisSplit::Done)
      return success();
    if (isCopy)
      break;
    for (ImportedValue &operand : aligned)
      operand = copied(op.state, operand);
  }
  return op.error("its operands group samples with other axes in ways that do not match");
}

/// Finds the sample axis. All operands that carry samples must have it in the same dimension. Fails
/// after an error.
LogicalResult LoopNest::findSamples(OpContext &op) {
  int64_t along = -1;
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].sample) {
      if (along >= 0)
        return op.error(
            "combines different samples: its operands carry samples in different dimensions");
      along = static_cast<int64_t>(i);
    }
  if (along < 0)
    return success();
  Axis &axis = axes[along];
  axis.perSample = true;
  axis.sample =
      llvm::any_of(aligned, [](const ImportedValue &operand) { return isBatched(operand); });
  for (size_t k = 0; k < aligned.size(); ++k)
    if (axis.strides[k] != 0) {
      if (failed(dropSampleCopies(op, k, along)))
        return failure();
      axis.strides[k] = 0;
    }
  return success();
}

std::vector<size_t> LoopNest::sequence(Order order) const {
  std::vector<size_t> all(axes.size()), picked;
  std::iota(all.begin(), all.end(), 0);
  std::optional<size_t> primary;
  int64_t best = 0;
  for (size_t k = 0; k < aligned.size() && order == Order::Memory; ++k) {
    if (!aligned[k].isTensor())
      continue;
    int64_t count = isBatched(aligned[k]) ? 2 : 1;
    for (const Axis &axis : axes)
      if (axis.strides[k] != 0)
        count *= axis.size;
    if (count > best) {
      best = count;
      primary = k;
    }
  }
  if (!primary)
    return all;
  // Axes along which the primary operand repeats keep their position.
  llvm::copy_if(all, std::back_inserter(picked),
                [&](size_t axis) { return axes[axis].strides[*primary] != 0; });
  const std::vector<size_t> places = picked;
  llvm::stable_sort(picked, [&](size_t a, size_t b) {
    return axes[a].strides[*primary] > axes[b].strides[*primary];
  });
  for (size_t i = 0; i < places.size(); ++i)
    all[places[i]] = picked[i];
  return all;
}

FailureOr<LoopNest> LoopNest::of(OpContext &op, std::vector<ImportedValue> operands, Order order) {
  LoopNest nest;
  nest.aligned = operands;
  if (failed(nest.align(op)) || failed(nest.findSamples(op)))
    return failure();
  for (auto [own, before] : llvm::zip(nest.aligned, operands))
    nest.copies.push_back(own.isTensor() ? own.value() != before.value()
                                         : own.isConstant() && own.lazy() != before.lazy() &&
                                               !own.lazy()->isFill());
  for (size_t axis : nest.sequence(order)) {
    const Axis &own = nest.axes[axis];
    nest.sampled |= own.sample;
    if (own.sample || !own.moves())
      continue;
    if (nest.groups.empty() || nest.innermost(nest.size() - 1).dim != own.dim)
      nest.groups.emplace_back();
    nest.groups.back().push_back(axis);
  }
  return nest;
}

std::vector<const LoopNest::Axis *> LoopNest::moving() const {
  std::vector<const Axis *> all;
  for (const auto &group : groups)
    for (size_t axis : group)
      all.push_back(&axes[axis]);
  return all;
}

SmallVector<int64_t> LoopNest::shape() const {
  SmallVector<int64_t> sizes;
  if (sampled)
    sizes.push_back(ShapedType::kDynamic);
  for (const auto &group : groups) {
    sizes.push_back(1);
    for (size_t axis : group)
      sizes.back() *= axes[axis].size;
  }
  return sizes;
}

Value LoopNest::emit(ImportState &state, size_t index, ArrayRef<FactorList> inner,
                     size_t place) const {
  Groups all;
  for (const auto &group : groups) {
    FactorList &list = all.emplace_back();
    for (size_t axis : group)
      list.push_back(Factor{axes[axis].size, axes[axis].strides[index], false});
    coalesce(list);
  }
  all.insert(all.begin() + std::min(place, all.size()), inner.begin(), inner.end());
  return materialise(state, aligned[index], all, sampled);
}

void LoopNest::reduce(const std::vector<bool> &dims) {
  for (auto &group : groups)
    llvm::erase_if(group, [&](size_t axis) { return dims[axes[axis].dim]; });
}

View LoopNest::view(ArrayRef<int64_t> inner, size_t at, size_t place) const {
  std::vector<int64_t> strides(axes.size(), 0);
  std::vector<FactorList> innerDims(inner.size());
  int64_t stride = 1;
  for (size_t g = groups.size() + 1; g-- > 0;) {
    for (size_t i = g == std::min(place, groups.size()) ? inner.size() : 0; i-- > 0;
         stride *= inner[i])
      if (inner[i] != 1)
        innerDims[i] = {Factor{inner[i], stride, false}};
    for (size_t i = g > 0 ? groups[g - 1].size() : 0; i-- > 0;
         stride *= axes[groups[g - 1][i]].size)
      strides[groups[g - 1][i]] = stride;
  }
  View view;
  view.dims.resize(rank);
  for (size_t i = 0; i < axes.size(); ++i)
    view.dims[axes[i].dim].push_back(Factor{axes[i].size, strides[i], axes[i].perSample});
  for (FactorList &list : view.dims)
    coalesce(list);
  view.dims.insert(view.dims.begin() + std::min(at, view.dims.size()), innerDims.begin(),
                   innerDims.end());
  return view;
}

LogicalResult zorse::onnx_import::emitElementwise(
    OpContext &op, std::vector<ImportedValue> operands, ElementKind type,
    llvm::function_ref<Value(ValueRange, RankedTensorType)> body, Number scale) {
  auto nest = LoopNest::of(op, std::move(operands));
  if (failed(nest))
    return failure();
  SmallVector<Value> arguments;
  bool hides = false;
  for (size_t k = 0; k < nest->operands().size(); ++k) {
    arguments.push_back(nest->emit(op.state, k));
    hides |= nest->operands()[k].hides;
  }
  Value made = body(arguments, RankedTensorType::get(nest->shape(), elementType(op.state, type)));
  if (!made)
    return failure();
  return op.result({type, nest->view(), Tensor{made, std::move(scale)}, hides});
}

ImportedValue zorse::onnx_import::foldElementwise(ImportState &state,
                                                  std::vector<ImportedValue> operands,
                                                  ElementKind type, Kernel kernel) {
  // The operands are constants without samples. Their shapes match, or the caller has checked them.
  const GraphNode none;
  OpContext op(state, none);
  auto nest = LoopNest::of(op, std::move(operands));
  if (failed(nest))
    return {};
  std::vector<int64_t> sizes;
  std::vector<LazyOperand> sources;
  for (const ImportedValue &operand : nest->operands())
    sources.push_back({operand.lazy(), operand.view.offset, {}});
  for (const LoopNest::Axis *axis : nest->moving()) {
    sizes.push_back(axis->size);
    for (size_t k = 0; k < sources.size(); ++k)
      sources[k].strides.push_back(axis->strides[k]);
  }
  return {type, nest->view(),
          Constant{makeExpression(type, sizes, std::move(sources), std::move(kernel))}};
}
