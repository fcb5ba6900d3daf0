#include "Views.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include <algorithm>
#include <numeric>

using namespace mlir;
using namespace zorse;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

static int64_t product(const ViewDimension &dimension) {
  int64_t size = 1;
  for (const ViewFactor &factor : dimension)
    size *= factor.size;
  return size;
}

SmallVector<int64_t> View::shape() const {
  SmallVector<int64_t> sizes;
  if (sampled)
    sizes.push_back(ShapedType::kDynamic);
  for (const ViewDimension &dimension : dimensions)
    sizes.push_back(product(dimension));
  return sizes;
}

/// Removes factors of size 1 and joins adjacent factors that are one strided range.
static void coalesce(ViewDimension &dimension) {
  ViewDimension joined;
  for (const ViewFactor &factor : dimension) {
    if (factor.size == 1)
      continue;
    if (!joined.empty() && joined.back().stride == factor.size * factor.stride)
      joined.back() = {joined.back().size * factor.size, factor.stride};
    else
      joined.push_back(factor);
  }
  dimension = std::move(joined);
}

View zorse::identityView(Value base) {
  View view;
  view.base = base;
  view.sampled = carriesSamples(base.getType());
  int64_t stride = elementsPerRow(typeOf(base));
  for (int64_t size : typeOf(base).getShape().drop_front(view.firstDimension())) {
    stride /= size ? size : 1;
    view.dimensions.push_back(size == 1 ? ViewDimension{} : ViewDimension{{size, stride}});
  }
  return view;
}

//===----------------------------------------------------------------------===//
// Composition
//===----------------------------------------------------------------------===//

static bool reshapeView(View &view, ArrayRef<int64_t> shape) {
  ViewDimension all;
  for (const ViewDimension &dimension : view.dimensions)
    llvm::append_range(all, dimension);
  coalesce(all);
  SmallVector<ViewDimension, 4> dimensions;
  size_t next = 0;
  for (int64_t size : shape) {
    ViewDimension dimension;
    while (size > 1) {
      if (next == all.size())
        return false;
      ViewFactor &factor = all[next];
      if (size % factor.size == 0) {
        dimension.push_back(factor);
        size /= factor.size;
        ++next;
      } else if (factor.size % size == 0) {
        factor.size /= size;
        dimension.push_back({size, factor.stride * factor.size});
        size = 1;
      } else {
        return false;
      }
    }
    coalesce(dimension);
    dimensions.push_back(std::move(dimension));
  }
  view.dimensions = std::move(dimensions);
  return true;
}

bool zorse::sliceView(View &view, size_t index, int64_t offset, int64_t size, int64_t stride) {
  ViewDimension &dimension = view.dimensions[index];
  int64_t whole = product(dimension);
  if (offset == 0 && size == whole && (stride == 1 || size == 1))
    return true;
  // First resolve outer factors that the slice covers in whole steps, or of which it stays within
  // one step.
  while (dimension.size() > 1 && size > 1) {
    ViewFactor outer = dimension.front();
    int64_t inner = whole / outer.size, last = offset + (size - 1) * stride;
    if (offset / inner == last / inner) {
      view.offset += offset / inner * outer.stride;
      offset %= inner;
      whole = inner;
      dimension.erase(dimension.begin());
    } else if (stride == 1 && offset % inner == 0 && size % inner == 0) {
      view.offset += offset / inner * outer.stride;
      dimension.front().size = size / inner;
      coalesce(dimension);
      return true;
    } else if (stride % inner == 0) {
      // The same position inside every step of the outer factor.
      for (const ViewFactor &factor : llvm::drop_begin(dimension)) {
        inner /= factor.size;
        view.offset += offset / inner % factor.size * factor.stride;
      }
      inner = whole / outer.size;
      dimension.resize(1);
      offset /= inner;
      stride /= inner;
    } else {
      return false;
    }
  }
  if (size == 1) {
    for (const ViewFactor &factor : dimension) {
      whole /= factor.size;
      view.offset += offset / whole * factor.stride;
      offset %= whole;
    }
    dimension.clear();
    return true;
  }
  view.offset += offset * dimension.front().stride;
  dimension.front() = {size, dimension.front().stride * stride};
  return true;
}

/// Turns `view`, which shows the operand of `op`, into the view of its result.
static bool compose(View &view, Operation *op) {
  if (auto reshape = dyn_cast<ReshapeOp>(op))
    return reshapeView(view, typeOf(reshape.getY()).getShape().drop_front(view.firstDimension()));
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    SmallVector<ViewDimension, 4> dimensions;
    for (int64_t from : transpose.getPermutation().drop_front(view.firstDimension()))
      dimensions.push_back(view.dimensions[from - view.firstDimension()]);
    view.dimensions = std::move(dimensions);
    return true;
  }
  if (auto slice = dyn_cast<SliceOp>(op)) {
    int64_t first = view.firstDimension();
    for (size_t i = 0; i < view.dimensions.size(); ++i)
      if (!sliceView(view, i, slice.getOffsets()[first + i], slice.getSizes()[first + i],
                     slice.getStrides()[first + i]))
        return false;
    return true;
  }
  auto broadcast = cast<BroadcastOp>(op);
  RankedTensorType type = typeOf(broadcast.getY());
  bool sampled = carriesSamples(type);
  SmallVector<ViewDimension, 4> dimensions;
  for (int64_t i = sampled ? 1 : 0; i < type.getRank(); ++i) {
    const auto *from = llvm::find(broadcast.getDims(), i);
    if (from != broadcast.getDims().end())
      dimensions.push_back(
          view.dimensions[from - broadcast.getDims().begin() - view.firstDimension()]);
    else
      dimensions.push_back(type.getDimSize(i) == 1 ? ViewDimension{}
                                                   : ViewDimension{{type.getDimSize(i), 0}});
  }
  view.dimensions = std::move(dimensions);
  view.sampled = sampled;
  return true;
}

View zorse::analyzeView(Value value) {
  SmallVector<Operation *> chain;
  while (isView(value.getDefiningOp())) {
    chain.push_back(value.getDefiningOp());
    value = chain.back()->getOperand(0);
  }
  View view = identityView(value);
  for (Operation *op : llvm::reverse(chain)) {
    View next = view;
    view = compose(next, op) ? next : identityView(op->getResult(0));
  }
  return view;
}

std::optional<View> zorse::analyzeViewFrom(Value value, Value at, const View &start) {
  SmallVector<Operation *> chain;
  while (value != at) {
    if (!isView(value.getDefiningOp()))
      return std::nullopt;
    chain.push_back(value.getDefiningOp());
    value = chain.back()->getOperand(0);
  }
  View view = start;
  for (Operation *op : llvm::reverse(chain))
    if (!compose(view, op))
      return std::nullopt;
  return view;
}

//===----------------------------------------------------------------------===//
// Normal form
//===----------------------------------------------------------------------===//

namespace {
/// A factor of the view within one dimension of the base: `size` steps of `step` elements of that
/// dimension.
struct DimFactor {
  size_t baseDimension;
  int64_t step;
  int64_t size;
  int64_t place; ///< position in the base's order, once known
};

/// A dimension of the base after the slice: atoms that form one strided range, outermost first.
struct Segment {
  int64_t size; ///< size before the slice
  int64_t offset, count, stride;
  SmallVector<DimFactor *> factors;
};

/// A run of repeats, or of atoms, in a dimension of the view.
struct Part {
  int64_t repeat;                 ///< > 0: number of repeats
  SmallVector<DimFactor> factors; ///< if there are no repeats
};

/// The decomposition of a view. Pointers refer to the atoms of `parts`.
struct Pieces {
  SmallVector<SmallVector<Part>> parts; ///< per dimension of the view; the position of repeats
                                        ///< among atoms is needed for the broadcast
  SmallVector<DimFactor *> ordered;     ///< all atoms in view order
  SmallVector<Segment> segments;        ///< slices of the base, in its order
  bool repeats = false;
};
} // namespace

static Value reshapeTo(OpBuilder &builder, Location loc, Value value, ArrayRef<int64_t> shape) {
  return typeOf(value).getShape() == shape
             ? value
             : ReshapeOp::create(builder, loc, value, shape).getResult();
}

/// Splits one factor at the boundaries of the base's dimensions. Appends to `pieces`, innermost
/// first.
static bool cutFactor(ViewFactor factor, ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides,
                      ArrayRef<int64_t> offsets, SmallVectorImpl<DimFactor> &pieces) {
  while (factor.size > 1) {
    size_t d = 0;
    while (d < sizes.size() &&
           !(sizes[d] > 1 && strides[d] <= factor.stride && factor.stride < strides[d] * sizes[d]))
      ++d;
    if (d == sizes.size() || factor.stride % strides[d] != 0)
      return false;
    int64_t step = factor.stride / strides[d];
    if (offsets[d] % step + (factor.size - 1) * step < sizes[d]) {
      pieces.push_back({d, step, factor.size, 0});
      return true;
    }
    if (sizes[d] % step != 0 || factor.size % (sizes[d] / step) != 0 || offsets[d] >= step)
      return false;
    pieces.push_back({d, step, sizes[d] / step, 0});
    factor = {factor.size / (sizes[d] / step), strides[d] * sizes[d]};
  }
  return true;
}

/// Computes the segments of one base dimension of size `size` at `offset`. Its atoms are sorted by
/// step, largest first.
static bool segmentsOf(int64_t size, int64_t offset, ArrayRef<DimFactor *> factors,
                       SmallVectorImpl<Segment> &segments) {
  if (factors.empty()) {
    segments.push_back({size, offset, 1, 1, {}});
    return true;
  }
  int64_t remaining = size;
  for (size_t i = 0; i < factors.size();) {
    Segment segment{remaining, offset, factors[i]->size, 1, {factors[i]}};
    int64_t step = factors[i]->step;
    for (++i; i < factors.size() && step == factors[i]->size * factors[i]->step; ++i) {
      segment.factors.push_back(factors[i]);
      segment.count *= factors[i]->size;
      step = factors[i]->step;
    }
    if (i < factors.size()) {
      // Another run lies inside one step of this one: a reshape separates them.
      if (remaining % step != 0)
        return false;
      segment.size = remaining / step;
      segment.offset = offset / step;
      offset %= step;
      remaining = step;
    } else {
      segment.stride = step;
    }
    if (segment.offset + (segment.count - 1) * segment.stride >= segment.size)
      return false;
    segments.push_back(std::move(segment));
  }
  return true;
}

/// Computes the parts of every dimension of the view, for a base of these sizes.
static bool cutView(const View &view, ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides,
                    ArrayRef<int64_t> offsets, Pieces &pieces) {
  for (const ViewDimension &dimension : view.dimensions) {
    auto &list = pieces.parts.emplace_back();
    for (const ViewFactor &factor : dimension) {
      if (factor.stride == 0) {
        list.push_back({factor.size, {}});
        pieces.repeats = true;
        continue;
      }
      SmallVector<DimFactor> factors;
      if (!cutFactor(factor, sizes, strides, offsets, factors))
        return false;
      std::reverse(factors.begin(), factors.end());
      if (!list.empty() && list.back().repeat == 0)
        list.back().factors.append(factors);
      else
        list.push_back({0, factors});
    }
  }
  return true;
}

/// Returns false if transpositions, slices and broadcasts cannot represent the view.
static bool cutIntoPieces(const View &view, ArrayRef<int64_t> sizes, Pieces &pieces) {
  SmallVector<int64_t> strides(sizes.size()), offsets(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 0)
      return false;
    strides[d] = stride;
    offsets[d] = view.offset / stride % sizes[d];
    stride *= sizes[d];
  }

  if (!cutView(view, sizes, strides, offsets, pieces))
    return false;
  for (auto &list : pieces.parts)
    for (Part &part : list)
      for (DimFactor &factor : part.factors)
        pieces.ordered.push_back(&factor);
  for (size_t d = 0; d < sizes.size(); ++d) {
    SmallVector<DimFactor *> own;
    for (DimFactor *factor : pieces.ordered)
      if (factor->baseDimension == d)
        own.push_back(factor);
    llvm::stable_sort(own, [](DimFactor *a, DimFactor *b) { return a->step > b->step; });
    if (!segmentsOf(sizes[d], offsets[d], own, pieces.segments))
      return false;
  }
  int64_t place = 0;
  for (Segment &segment : pieces.segments)
    for (DimFactor *factor : segment.factors)
      factor->place = place++;
  return true;
}

/// Prepends the sample axis to `shape` if `sampled`.
static SmallVector<int64_t> withRows(bool sampled, SmallVector<int64_t> shape) {
  if (sampled)
    shape.insert(shape.begin(), ShapedType::kDynamic);
  return shape;
}

static Value takeSegments(OpBuilder &builder, Location loc, Value value,
                          ArrayRef<Segment> segments) {
  const bool sampled = carriesSamples(value.getType());
  SmallVector<int64_t> whole, taken, starts, steps;
  for (const Segment &segment : segments) {
    whole.push_back(segment.size);
    taken.push_back(segment.count);
    starts.push_back(segment.offset);
    steps.push_back(segment.count == 1 ? 1 : segment.stride);
  }
  if (whole == taken)
    return value;
  value = reshapeTo(builder, loc, value, withRows(sampled, whole));
  if (sampled) {
    starts.insert(starts.begin(), 0);
    steps.insert(steps.begin(), 1);
  }
  return SliceOp::create(builder, loc, value, starts, withRows(sampled, taken), steps);
}

/// Transposes from the order of the base to that of the view.
static Value orderDimFactors(OpBuilder &builder, Location loc, Value value, const Pieces &pieces) {
  const bool sampled = carriesSamples(value.getType());
  SmallVector<int64_t> permutation, sizes;
  if (sampled)
    permutation.push_back(0);
  for (DimFactor *factor : pieces.ordered)
    permutation.push_back(factor->place + (sampled ? 1 : 0));
  if (llvm::is_sorted(permutation))
    return value;
  for (const Segment &segment : pieces.segments)
    for (DimFactor *factor : segment.factors)
      sizes.push_back(factor->size);
  value = reshapeTo(builder, loc, value, withRows(sampled, sizes));
  return TransposeOp::create(builder, loc, value, permutation);
}

/// Reshapes to the dimensions without repeats, then broadcasts to repeats as separate dimensions.
static Value addRepeats(OpBuilder &builder, Location loc, Value value, const View &view,
                        const Pieces &pieces) {
  const bool sampled = carriesSamples(value.getType());
  SmallVector<int64_t> core, spread, places;
  if (view.sampled)
    spread.push_back(ShapedType::kDynamic);
  if (sampled)
    places.push_back(0);
  for (const auto &list : pieces.parts) {
    if (list.empty())
      spread.push_back(1);
    for (const Part &part : list) {
      int64_t size = part.repeat;
      if (!size) {
        size = 1;
        for (const DimFactor &factor : part.factors)
          size *= factor.size;
        core.push_back(size);
        places.push_back(spread.size());
      }
      spread.push_back(size);
    }
  }
  value = reshapeTo(builder, loc, value, withRows(sampled, core));
  return BroadcastOp::create(
      builder, loc, RankedTensorType::get(spread, typeOf(value).getElementType()), value, places);
}

Value zorse::emitView(OpBuilder &builder, Location loc, const View &view) {
  RankedTensorType baseType = typeOf(view.base);
  const bool baseSampled = carriesSamples(baseType);
  Pieces pieces;
  pieces.repeats = view.sampled && !baseSampled;
  if (!cutIntoPieces(view, baseType.getShape().drop_front(baseSampled ? 1 : 0), pieces))
    return {};
  Value value = takeSegments(builder, loc, view.base, pieces.segments);
  value = orderDimFactors(builder, loc, value, pieces);
  if (pieces.repeats)
    value = addRepeats(builder, loc, value, view, pieces);
  return reshapeTo(builder, loc, value, view.shape());
}
