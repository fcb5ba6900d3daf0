#include "AttentionMask.h"

#include "ConstantTable.h"
#include "Match.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace zorse;

bool zorse::isMaskFill(double value) { return value <= -1e9; }

/// Whether the fill absorbs any score that it is added to, so that adding it equals replacing the
/// score.
static bool isAbsorbing(double fill) { return fill <= -1e30; }

bool zorse::leadsToProduct(Value value, int depth) {
  if (depth > 12)
    return false;
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<MatmulOp>(op))
    return true;
  if (!isa_and_nonnull<ReshapeOp, arith::AddFOp, arith::MulFOp, arith::DivFOp, arith::SelectOp,
                       math::TanhOp>(op))
    return false;
  return llvm::any_of(op->getOperands(),
                      [&](Value operand) { return leadsToProduct(operand, depth + 1); });
}

//===----------------------------------------------------------------------===//
// Patterns by value
//===----------------------------------------------------------------------===//

static bool repeats(const ViewDimension &dimension) {
  return llvm::all_of(dimension, [](const ViewFactor &factor) { return factor.stride == 0; });
}

/// Returns the last two dimensions of a mask that repeats along all others; nullopt for other
/// masks.
static std::optional<View> queriesByKeys(View view) {
  if (view.dimensions.size() < 2)
    return std::nullopt;
  for (size_t i = 0; i + 2 < view.dimensions.size(); ++i)
    if (!repeats(view.dimensions[i]))
      return std::nullopt;
  if (carriesSamples(view.base.getType()))
    return std::nullopt;
  view.dimensions.erase(view.dimensions.begin(), view.dimensions.end() - 2);
  view.sampled = false;
  return view;
}

std::optional<MaskPattern> zorse::readMaskPattern(const View &wide, bool openWhenTrue) {
  std::optional<View> view = queriesByKeys(wide);
  if (!view)
    return std::nullopt;
  if (auto mask = view->base.getDefiningOp<CausalMaskOp>()) {
    bool inverted = !openWhenTrue && rankedType(mask.getY()).getElementType().isInteger(1);
    if (inverted || !(*view == identityView(view->base)))
      return std::nullopt;
    MaskPattern pattern{true, std::nullopt};
    if (mask.getWindow())
      pattern.window = static_cast<int64_t>(*mask.getWindow());
    return pattern;
  }
  std::optional<ConstantTable> table = ConstantTable::read(*view);
  if (!table)
    return std::nullopt;
  int64_t queries = view->shape()[0], keys = view->shape()[1];
  bool boolean = rankedType(view->base).getElementType().isInteger(1);
  // The first row that hides a key before a visible one determines the window. Every element is
  // then compared with the pattern.
  auto open = [&](int64_t query, int64_t key) -> std::optional<bool> {
    double value = table->at({query, key});
    if (boolean)
      return (value != 0) == openWhenTrue;
    if (value == 0)
      return true;
    return isMaskFill(value) ? std::optional(false) : std::nullopt;
  };
  int64_t shift = keys - queries;
  bool causal = false;
  std::optional<int64_t> window;
  for (int64_t query = 0; query < queries; ++query) {
    int64_t first = keys, last = -1;
    for (int64_t key = 0; key < keys; ++key) {
      std::optional<bool> isOpen = open(query, key);
      if (!isOpen)
        return std::nullopt;
      if (!*isOpen)
        continue;
      if (last >= 0 && key != last + 1)
        return std::nullopt; // a hole
      first = std::min(first, key);
      last = key;
    }
    if (last < 0)
      return std::nullopt; // a row that sees no key
    if (query == 0)
      causal = last != keys - 1;
    if (last != (causal ? std::min(query + shift, keys - 1) : keys - 1))
      return std::nullopt;
    if (first > 0) {
      if (!causal)
        return std::nullopt;
      int64_t width = last - first + 1;
      if (window && *window != width)
        return std::nullopt;
      window = width;
    } else if (window && last + 1 > *window) {
      return std::nullopt;
    }
  }
  // Rows before the first effect of the window see at most `window` keys.
  if (window) {
    for (int64_t query = 0; query < queries; ++query)
      if (query + shift + 1 > *window && *open(query, query + shift - *window))
        return std::nullopt;
  }
  return MaskPattern{causal, window};
}

bool zorse::mergePattern(const MaskPattern &pattern, AttentionOptions &options) {
  if (!pattern.causal)
    return true;
  options.causal = true;
  if (pattern.window)
    options.window = options.window ? std::min(*options.window, *pattern.window) : *pattern.window;
  return true;
}

//===----------------------------------------------------------------------===//
// Rows that see no key
//===----------------------------------------------------------------------===//

/// Whether every row of a constant mask leaves a key visible.
static bool everyRowIsOpen(Value value, bool openWhenTrue) {
  View view = analyzeView(value);
  std::optional<ConstantTable> table = ConstantTable::read(view);
  if (!table) {
    // A causal mask always leaves the query's own position visible.
    return view.base.getDefiningOp<CausalMaskOp>() && openWhenTrue && readMaskPattern(view, true);
  }
  SmallVector<int64_t> shape = view.shape();
  if (view.sampled)
    shape.erase(shape.begin());
  bool boolean = rankedType(view.base).getElementType().isInteger(1);
  SmallVector<int64_t> indices(shape.size(), 0);
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i)
    rows *= repeats(view.dimensions[i]) ? 1 : shape[i];
  for (int64_t row = 0; row < rows; ++row) {
    int64_t rest = row;
    for (int64_t i = static_cast<int64_t>(shape.size()) - 2; i >= 0; --i) {
      int64_t size = repeats(view.dimensions[i]) ? 1 : shape[i];
      indices[i] = rest % size;
      rest /= size;
    }
    bool open = false;
    for (int64_t key = 0; key < shape.back() && !open; ++key) {
      indices.back() = key;
      double element = table->at(indices);
      open = boolean ? (element != 0) == openWhenTrue
                     : std::isfinite(element) && !isMaskFill(element);
    }
    if (!open)
      return false;
  }
  return true;
}

/// Whether no element of `value` is infinite or NaN, provided that inputs are small (masks of 0 and
/// 1). Recognizes finite constants, and sums, products and selections of such values.
static bool isSurelyFinite(Value value, int depth = 0) {
  if (depth > 16)
    return false;
  View view = analyzeView(value);
  if (std::optional<double> splat = splatValue(view.base))
    return std::isfinite(*splat);
  if (std::optional<ConstantTable> table = ConstantTable::read(identityView(view.base))) {
    SmallVector<int64_t> shape = identityView(view.base).shape(), indices(shape.size(), 0);
    int64_t count = 1;
    for (int64_t size : shape)
      count *= size;
    for (int64_t n = 0; n < count; ++n) {
      int64_t rest = n;
      for (size_t i = shape.size(); i-- > 0;) {
        indices[i] = rest % shape[i];
        rest /= shape[i];
      }
      if (!std::isfinite(table->at(indices)))
        return false;
    }
    return true;
  }
  Operation *op = view.base.getDefiningOp();
  if (!op)
    return false;
  if (auto mask = dyn_cast<CausalMaskOp>(op))
    return std::isfinite(mask.getHidden());
  if (isa<arith::SIToFPOp, arith::UIToFPOp>(op))
    return true;
  if (auto select = dyn_cast<arith::SelectOp>(op))
    return isSurelyFinite(select.getTrueValue(), depth + 1) &&
           isSurelyFinite(select.getFalseValue(), depth + 1);
  if (isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::MaximumFOp, arith::MinimumFOp,
          arith::NegFOp, ConcatOp>(op)) {
    // Two large masks may sum to -inf: at most one term may be large.
    int large = 0;
    for (Value operand : op->getOperands()) {
      if (!isSurelyFinite(operand, depth + 1))
        return false;
      std::optional<double> splat = splatValue(operand);
      large += !(splat && std::fabs(*splat) <= 1) &&
               !isa_and_nonnull<arith::SIToFPOp, arith::UIToFPOp>(operand.getDefiningOp());
    }
    return !isa<arith::AddFOp, arith::SubFOp>(op) || large <= 1;
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Combination
//===----------------------------------------------------------------------===//

/// Splits conjunctions and removes negations.
static void flattenPart(MaskPart part, SmallVectorImpl<MaskPart> &parts) {
  if (part.fill) {
    View view = analyzeView(part.value);
    bool plain = view == identityView(view.base);
    if (auto negation = part.value.getDefiningOp<arith::XOrIOp>()) {
      for (int i = 0; i < 2; ++i) {
        if (splatValue(negation->getOperand(i)) == 1.0)
          return flattenPart(
              {negation->getOperand(1 - i), !part.openWhenTrue, part.fill, part.replaces}, parts);
      }
    }
    Operation *op = plain ? view.base.getDefiningOp() : nullptr;
    if ((part.openWhenTrue && isa_and_nonnull<arith::AndIOp>(op)) ||
        (!part.openWhenTrue && isa_and_nonnull<arith::OrIOp>(op))) {
      flattenPart({op->getOperand(0), part.openWhenTrue, part.fill, part.replaces}, parts);
      flattenPart({op->getOperand(1), part.openWhenTrue, part.fill, part.replaces}, parts);
      return;
    }
  } else if (auto select = part.value.getDefiningOp<arith::SelectOp>()) {
    // An added select(condition, 0, fill) equals a selection between score and fill if the fill
    // absorbs scores.
    std::optional<double> whenTrue = splatValue(select.getTrueValue()),
                          whenFalse = splatValue(select.getFalseValue());
    if (whenTrue == 0.0 && whenFalse && isAbsorbing(*whenFalse))
      return flattenPart({select.getCondition(), true, whenFalse}, parts);
    if (whenFalse == 0.0 && whenTrue && isAbsorbing(*whenTrue))
      return flattenPart({select.getCondition(), false, whenTrue}, parts);
  }
  parts.push_back(part);
}

/// Returns the view of `value`, which has the shape of the scores, as [?|1, H|1, S, S'] without
/// repeats along rows and heads; nullopt if it has another rank.
static std::optional<View> maskView(Value value) {
  View view = analyzeView(value);
  if (view.sampled && view.dimensions.size() == 2)
    view.dimensions.insert(view.dimensions.begin(), ViewDimension{});
  if (view.dimensions.size() != (view.sampled ? 3u : 4u))
    return std::nullopt;
  for (ViewDimension &dimension : MutableArrayRef(view.dimensions).drop_back(2))
    if (repeats(dimension))
      dimension.clear();
  if (view.sampled && !carriesSamples(view.base.getType())) {
    view.sampled = false;
    view.dimensions.insert(view.dimensions.begin(), ViewDimension{});
  }
  return view;
}

Value zorse::compactMask(OpBuilder &builder, Location loc, Value value) {
  std::optional<View> view = maskView(value);
  return view ? emitView(builder, loc, *view) : Value();
}

/// Converts masks to [?|1, H|1, S, S'], all of one shape. Returns false if a mask has no such
/// layout.
static bool layOut(OpBuilder &builder, Location loc, MutableArrayRef<MaskPart> parts) {
  SmallVector<View> views;
  bool sampled = false;
  ViewDimension heads;
  for (MaskPart &part : parts) {
    std::optional<View> view = maskView(part.value);
    if (!view)
      return false;
    sampled |= view->sampled;
    const ViewDimension &own = view->dimensions[view->sampled ? 0 : 1];
    int64_t size = 1;
    for (const ViewFactor &factor : own)
      size *= factor.size;
    if (size > 1)
      heads = {{size, 0}};
    views.push_back(std::move(*view));
  }
  for (auto [part, view] : llvm::zip(parts, views)) {
    if (sampled && !view.sampled) {
      view.dimensions.erase(view.dimensions.begin());
      view.sampled = true;
    }
    ViewDimension &own = view.dimensions[view.sampled ? 0 : 1];
    if (own.empty())
      own = heads;
    part.value = emitView(builder, loc, view);
    if (!part.value)
      return false;
  }
  return true;
}

static Value boolean(OpBuilder &builder, Location loc, const MaskPart &part) {
  if (part.openWhenTrue)
    return part.value;
  Value yes = createSplat(builder, loc, rankedType(part.value), 1);
  return arith::XOrIOp::create(builder, loc, part.value, yes);
}

/// Returns the conjunction of all parts, which are conditions.
static Value conjunction(OpBuilder &builder, Location loc, ArrayRef<MaskPart> parts) {
  Value all;
  for (const MaskPart &part : parts) {
    Value own = boolean(builder, loc, part);
    all = all ? arith::AndIOp::create(builder, loc, all, own).getResult() : own;
  }
  return all;
}

/// Converts a condition to a float mask: 0 where it is open.
static Value filled(OpBuilder &builder, Location loc, Value open, Type elementType, double fill) {
  RankedTensorType type = RankedTensorType::get(rankedType(open).getShape(), elementType);
  return arith::SelectOp::create(builder, loc, open, createSplat(builder, loc, type, 0),
                                 createSplat(builder, loc, type, fill));
}

namespace {
/// Combines the parts that no attribute represents, all of one layout, into one mask.
struct RestOfMasks {
  OpBuilder &builder;
  Location loc;
  SmallVector<MaskPart> parts;
  bool guarded, open; ///< `open`: every row sees a key
  Type elementType;
  const AttentionOptions &options;
  std::string refusal = {};

  FailureOr<CombinedMask> refuse(const char *why) {
    refusal = why;
    return failure();
  }
  template <typename F> bool all(F holds) const { return llvm::all_of(parts, holds); }
  template <typename F> bool any(F holds) const { return llvm::any_of(parts, holds); }

  FailureOr<CombinedMask> ofConditions() {
    const bool infinite = any([](const MaskPart &part) { return std::isinf(*part.fill); });
    if (open || (infinite && guarded))
      return CombinedMask{conjunction(builder, loc, parts)};
    if (infinite)
      return refuse("a row that sees no key would be NaN and can not be ruled out");
    if (!all([&](const MaskPart &part) {
          return isAbsorbing(*part.fill) && *part.fill == *parts[0].fill;
        }))
      return refuse("a row that sees no key would keep parts of its scores");
    // All scores of such a row are equal. Replaced scores have no gradient; scores with an added
    // fill have one.
    if (!any([](const MaskPart &part) { return part.replaces; }))
      return CombinedMask{
          filled(builder, loc, conjunction(builder, loc, parts), elementType, *parts[0].fill)};
    if (!all([](const MaskPart &part) { return part.replaces; }))
      return refuse("a row that sees no key has gradients of some scores and none of others");
    if (options.causal || options.dropout > 0)
      return refuse("a row that sees no key has no gradient of its scores");
    return CombinedMask{conjunction(builder, loc, parts), /*meanOfUnseen=*/true};
  }

  FailureOr<CombinedMask> ofFloats() {
    Value mask;
    for (const MaskPart &part : parts) {
      Value own = part.value;
      if (part.fill) {
        if (!isAbsorbing(*part.fill) || (std::isinf(*part.fill) && !guarded))
          return refuse("a row that sees no key could change its meaning");
        if (part.replaces && !std::isinf(*part.fill))
          return refuse("a row that sees no key has gradients of some scores and none of others");
        own = filled(builder, loc, boolean(builder, loc, part), elementType, *part.fill);
      } else if (!guarded && !isSurelyFinite(own) && !open) {
        return refuse("its mask may hide every key of a row, which would be NaN");
      }
      mask = mask ? arith::AddFOp::create(builder, loc, mask, own).getResult() : own;
    }
    return CombinedMask{mask};
  }
};
} // namespace

FailureOr<CombinedMask> zorse::combineMasks(PatternRewriter &rewriter, Operation *op,
                                            ArrayRef<MaskPart> given, bool guarded,
                                            Type elementType, AttentionOptions &options) {
  SmallVector<MaskPart> parts;
  for (const MaskPart &part : given)
    flattenPart(part, parts);

  SmallVector<std::optional<MaskPattern>> patterns;
  size_t known = 0;
  for (const MaskPart &part : parts) {
    patterns.push_back(readMaskPattern(analyzeView(part.value), part.openWhenTrue));
    known += patterns.back().has_value();
  }
  // A pattern becomes an attribute if nothing else is masked, or if its hidden keys have no weight
  // even in a row where everything else is hidden.
  SmallVector<MaskPart> rest;
  for (auto [part, pattern] : llvm::zip(parts, patterns)) {
    auto op = analyzeView(part.value).base.getDefiningOp<CausalMaskOp>();
    bool excludes = part.fill ? std::isinf(*part.fill)
                              : pattern && op && std::isinf(op.getHidden());
    bool merges = pattern && (known == parts.size() || !pattern->causal || excludes);
    if (!merges || !mergePattern(*pattern, options))
      rest.push_back(part);
  }
  if (rest.empty())
    return CombinedMask{};

  const bool open = rest.size() == 1 && !options.causal &&
                    everyRowIsOpen(rest[0].value, rest[0].openWhenTrue);
  const bool laidOut = layOut(rewriter, op->getLoc(), rest);
  RestOfMasks masks{rewriter, op->getLoc(), rest, guarded, open, elementType, options};
  FailureOr<CombinedMask> combined = failure();
  if (!laidOut)
    masks.refusal = "its mask has no layout of rows, heads, queries and keys";
  else if (llvm::all_of(rest, [](const MaskPart &part) { return part.fill.has_value(); }))
    combined = masks.ofConditions();
  else
    combined = masks.ofFloats();
  if (failed(combined))
    op->emitRemark("attention is kept in parts: ") << masks.refusal;
  return combined;
}

Value zorse::addMeanOfUnseen(OpBuilder &builder, Location loc, Value attention, Value v,
                             Value mask) {
  RankedTensorType type = rankedType(attention), vType = rankedType(v), maskType = rankedType(mask);
  Type element = type.getElementType();
  ArrayRef<int64_t> shape = type.getShape();
  const int64_t rows = shape[0], queries = shape[1], heads = shape[2], keys = vType.getDimSize(1),
                keyHeads = vType.getDimSize(2);
  auto typed = [&](ArrayRef<int64_t> of) { return RankedTensorType::get(of, element); };
  // 1 for queries that see no key.
  Value open = filled(builder, loc, mask, element, -1);
  // [?|1, H|1, S], 0 or -1.
  Value min = ReduceOp::create(builder, loc, open, ReduceKind::Max, ArrayRef<int64_t>{3});
  Value unseen = arith::NegFOp::create(builder, loc, min);
  SmallVector<int64_t> kept, dims;
  for (auto [from, to] : {std::pair<int64_t, int64_t>(0, 0), {1, 2}, {2, 1}}) // [?, S, H, D']
    if (from == 2 || maskType.getDimSize(from) != 1) {
      kept.push_back(maskType.getDimSize(from));
      dims.push_back(to);
    }
  unseen = ReshapeOp::create(builder, loc, unseen, kept);
  if (!llvm::is_sorted(dims)) { // heads before queries
    SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, int64_t(dims.size())));
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    unseen = TransposeOp::create(builder, loc, unseen, order);
    llvm::sort(dims);
  }
  unseen = BroadcastOp::create(builder, loc, type, unseen, dims);
  Value mean = ReduceOp::create(builder, loc, v, ReduceKind::Sum, ArrayRef<int64_t>{1}); // [?, H',
                                                                                         // D']
  mean = arith::DivFOp::create(builder, loc, mean,
                               createSplat(builder, loc, rankedType(mean), double(keys)));
  mean = BroadcastOp::create(builder, loc,
                             typed({rows, queries, keyHeads, heads / keyHeads, shape[3]}), mean,
                             ArrayRef<int64_t>{0, 2, 4});
  mean = ReshapeOp::create(builder, loc, mean, shape);
  return arith::AddFOp::create(builder, loc, attention,
                               arith::MulFOp::create(builder, loc, unseen, mean));
}
