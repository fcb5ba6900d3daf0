#include "ConstantTable.h"
#include "Match.h"

#include "zorse/Transforms/Passes.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace zorse {
#define GEN_PASS_DEF_RECOGNIZEROPE
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

//===----------------------------------------------------------------------===//
// Halves and parities of the last dimension
//===----------------------------------------------------------------------===//

/// Returns the first or second (`second`) members of all pairs in the last dimension of `view`: a
/// half, or the even or odd channels.
static std::optional<View> pairMember(View view, bool second, bool interleaved) {
  if (view.dimensions.empty())
    return std::nullopt;
  size_t last = view.dimensions.size() - 1;
  int64_t size = view.shape().back();
  if (size % 2 != 0)
    return std::nullopt;
  bool sliced = interleaved ? sliceView(view, last, second ? 1 : 0, size / 2, 2)
                            : sliceView(view, last, second ? size / 2 : 0, size / 2, 1);
  return sliced ? std::optional(view) : std::nullopt;
}

/// Whether `table` has equal values for both members of every pair, by value or by construction.
static bool pairsRepeat(Value table, bool interleaved, int depth = 0) {
  if (depth > 8)
    return false;
  View view = analyzeView(table);
  if (view.dimensions.empty() || view.shape().back() % 2 != 0)
    return false;
  // A repeat in the view: the outer factor of the last dimension for halves, the inner one for
  // interleaved pairs.
  const ViewDimension &channels = view.dimensions.back();
  if (!channels.empty()) {
    const ViewFactor &factor = interleaved ? channels.back() : channels.front();
    if (factor.stride == 0 && factor.size % 2 == 0)
      return true;
  }
  if (std::optional<ConstantTable> constant = ConstantTable::read(view)) {
    // If every stride of a dimension is 0 (a broadcast to heads), one index represents all.
    SmallVector<int64_t> shape;
    for (const ViewDimension &dimension : view.dimensions) {
      int64_t size = 1;
      bool varies = false;
      for (const ViewFactor &factor : dimension) {
        size *= factor.size;
        varies |= factor.stride != 0;
      }
      shape.push_back(varies || &dimension == &view.dimensions.back() ? size : 1);
    }
    int64_t half = shape.back() / 2, vectors = 1;
    for (int64_t size : ArrayRef(shape).drop_back())
      vectors *= size;
    for (int64_t v = 0; v < vectors; ++v) {
      SmallVector<int64_t> indices(shape.size(), 0);
      for (int64_t rest = v, i = static_cast<int64_t>(shape.size()) - 2; i >= 0; --i) {
        indices[i] = rest % shape[i];
        rest /= shape[i];
      }
      for (int64_t pair = 0; pair < half; ++pair) {
        indices.back() = interleaved ? 2 * pair : pair;
        double first = constant->at(indices);
        indices.back() = interleaved ? 2 * pair + 1 : pair + half;
        if (!(first == constant->at(indices)))
          return false;
      }
    }
    return true;
  }
  // Continue above the base: the view's last dimension must be the complete last dimension of the
  // base.
  Operation *op = view.base.getDefiningOp();
  bool whole = channels.size() == 1 && channels[0].stride == 1 &&
               rankedType(view.base).getRank() > 0 &&
               channels[0].size == rankedType(view.base).getShape().back();
  if (!op || !whole)
    return false;
  if (auto concat = dyn_cast<ConcatOp>(op))
    return !interleaved && concat.getXs().size() == 2 &&
           static_cast<int64_t>(concat.getDim()) == rankedType(concat.getY()).getRank() - 1 &&
           analyzeView(concat.getXs()[0]) == analyzeView(concat.getXs()[1]);
  bool elementwise = op->getDialect() &&
                     (isa<arith::ArithDialect, math::MathDialect>(op->getDialect())) &&
                     op->getNumOperands() > 0;
  return elementwise && llvm::all_of(op->getOperands(), [&](Value operand) {
           return splatValue(operand) || pairsRepeat(operand, interleaved, depth + 1);
         });
}

//===----------------------------------------------------------------------===//
// rotated(x)
//===----------------------------------------------------------------------===//

/// Returns -x as a view: value = view(neg(u)) or neg(view(u)).
static std::optional<View> matchNegated(Value value) {
  View view = analyzeView(value);
  auto negation = view.base.getDefiningOp<arith::NegFOp>();
  if (!negation)
    return std::nullopt;
  return analyzeViewFrom(value, view.base, analyzeView(negation.getOperand()));
}

/// Whether value is (-second, first) of the pairs of x. Both members are compared as intervals of
/// the tensor that x is a view of.
static bool isRotated(Value value, Value x, bool &interleaved) {
  View target = analyzeView(x);
  View view = analyzeView(value);
  auto concat = view.base.getDefiningOp<ConcatOp>();
  if (!concat || concat.getXs().size() != 2)
    return false;
  RankedTensorType joined = rankedType(concat.getY());
  auto dim = static_cast<int64_t>(concat.getDim());
  std::optional<View> negated = matchNegated(concat.getXs()[0]);
  if (!negated)
    return false;
  View plain = analyzeView(concat.getXs()[1]);
  if (view == identityView(view.base)) {
    if (dim != joined.getRank() - 1)
      return false;
    interleaved = false;
  } else {
    // [..., D/2, 2] joined to [..., D]: the members of a pair are adjacent. Each operand has a last
    // dimension of size 1.
    View flat = identityView(view.base);
    if (dim != joined.getRank() - 1 || joined.getShape().back() != 2 ||
        joined.getRank() != rankedType(value).getRank() + 1 || view.offset != flat.offset)
      return false;
    SmallVector<int64_t> shape(joined.getShape().drop_back(2));
    shape.push_back(joined.getShape().take_back(2).front() * 2);
    if (ArrayRef(shape) != rankedType(value).getShape() ||
        !isa_and_nonnull<ReshapeOp>(value.getDefiningOp()) ||
        value.getDefiningOp()->getOperand(0) != view.base)
      return false;
    negated->dimensions.pop_back();
    plain.dimensions.pop_back();
    interleaved = true;
  }
  std::optional<View> first = pairMember(target, false, interleaved),
                      second = pairMember(target, true, interleaved);
  return first && second && *negated == *second && plain == *first;
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

/// Reduces `table` to [S, D/2] or [?, S, D/2]. It is broadcast to the type of x or, with `perPair`,
/// of one member of its pairs. `position` is the tensor dimension of positions; the table repeats
/// along every other dimension.
static Value pairTable(OpBuilder &builder, Location loc, Value table, int64_t position,
                       bool interleaved, bool perPair) {
  View view = analyzeView(table);
  int64_t first = view.firstDimension();
  bool perSample = carriesSamples(view.base.getType());
  View small = view;
  small.sampled = perSample;
  small.dimensions.clear();
  for (int64_t i = 0; i < static_cast<int64_t>(view.dimensions.size()); ++i) {
    const ViewDimension &dimension = view.dimensions[i];
    bool kept = i + first == position || i + 1 == static_cast<int64_t>(view.dimensions.size());
    if (kept)
      small.dimensions.push_back(dimension);
    else if (llvm::any_of(dimension, [](const ViewFactor &factor) { return factor.stride != 0; }))
      return {};
  }
  if (perPair)
    return emitView(builder, loc, small);
  std::optional<View> half = pairMember(small, false, interleaved);
  return half ? emitView(builder, loc, *half) : Value();
}

/// Returns the dimension of the tensor, other than rows and the last one, in which the tables vary;
/// nullopt if they vary in several. Dimensions of size 1 never vary.
static std::optional<int64_t> positionDimension(ArrayRef<Value> tables) {
  std::optional<int64_t> found;
  for (Value table : tables) {
    View view = analyzeView(table);
    for (size_t i = 0; i + 1 < view.dimensions.size(); ++i) {
      if (llvm::all_of(view.dimensions[i],
                       [](const ViewFactor &factor) { return factor.stride == 0; }))
        continue;
      int64_t dimension = i + view.firstDimension();
      if (found && *found != dimension)
        return std::nullopt;
      found = dimension;
    }
  }
  return found;
}

/// Returns rope(x) in the layout of x, which is [?, S, H, D], [?, H, S, D] or, with a single head,
/// [?, S, D]. Returns null if the tables do not determine the position dimension.
static Value emitRope(PatternRewriter &rewriter, Location loc, Value x, Value cos, Value sin,
                      bool interleaved, bool perPair) {
  RankedTensorType type = rankedType(x);
  std::optional<int64_t> position = positionDimension({cos, sin});
  if (!position || (type.getRank() != 3 && type.getRank() != 4) ||
      (type.getRank() == 3 && *position != 1))
    return {};
  Value cosTable = pairTable(rewriter, loc, cos, *position, interleaved, perPair),
        sinTable = pairTable(rewriter, loc, sin, *position, interleaved, perPair);
  if (!cosTable || !sinTable)
    return {};
  // If one table is per sample, both must be.
  for (Value *table : {&cosTable, &sinTable}) {
    Type wanted = carriesSamples(cosTable.getType()) ? cosTable.getType() : sinTable.getType();
    if (table->getType() != wanted)
      *table = BroadcastOp::create(rewriter, loc, wanted, *table, ArrayRef<int64_t>{1, 2});
  }
  ArrayRef<int64_t> shape = type.getShape();
  if (type.getRank() == 3)
    x = ReshapeOp::create(rewriter, loc, x, ArrayRef<int64_t>{shape[0], shape[1], 1, shape[2]});
  else if (*position == 2)
    x = TransposeOp::create(rewriter, loc, x, ArrayRef<int64_t>{0, 2, 1, 3});
  Value y = RopeOp::create(rewriter, loc, x, cosTable, sinTable, interleaved);
  if (type.getRank() == 3)
    y = ReshapeOp::create(rewriter, loc, y, shape);
  else if (*position == 2)
    y = TransposeOp::create(rewriter, loc, y, ArrayRef<int64_t>{0, 2, 1, 3});
  return y;
}

namespace {
/// x * cos + rotated(x) * sin.
struct Rotation : OpRewritePattern<arith::AddFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::AddFOp op, PatternRewriter &rewriter) const override {
    RankedTensorType type = rankedType(op.getResult());
    if ((type.getRank() != 4 && type.getRank() != 3) || !carriesSamples(type))
      return failure();
    for (int order = 0; order < 2; ++order) {
      auto plain = op->getOperand(order).getDefiningOp<arith::MulFOp>(),
           turned = op->getOperand(1 - order).getDefiningOp<arith::MulFOp>();
      if (!plain || !turned)
        return failure();
      for (int a = 0; a < 2; ++a) {
        for (int b = 0; b < 2; ++b) {
          Value x = plain->getOperand(a), cos = plain->getOperand(1 - a),
                sin = turned->getOperand(1 - b);
          bool interleaved = false;
          if (isRotated(turned->getOperand(b), x, interleaved) &&
              succeeded(rewrite(op, x, cos, sin, interleaved, rewriter)))
            return success();
        }
      }
    }
    return failure();
  }

  static LogicalResult rewrite(arith::AddFOp op, Value x, Value cos, Value sin, bool interleaved,
                               PatternRewriter &rewriter) {
    if (!pairsRepeat(cos, interleaved) || !pairsRepeat(sin, interleaved))
      return failure();
    Value y = emitRope(rewriter, op.getLoc(), x, cos, sin, interleaved, /*perPair=*/false);
    if (!y)
      return failure();
    rewriter.replaceOp(op, y);
    return success();
  }
};

/// If `a` and `b` are the first and second members of the pairs of one tensor, returns the view of
/// that tensor and sets `interleaved`.
std::optional<View> joinPairs(const View &a, const View &b, bool &interleaved) {
  if (a.base != b.base || a.sampled != b.sampled || a.dimensions != b.dimensions ||
      a.dimensions.empty() || a.dimensions.back().size() != 1)
    return std::nullopt;
  View whole = a;
  ViewFactor &channels = whole.dimensions.back()[0];
  int64_t apart = b.offset - a.offset;
  interleaved = apart != channels.size * channels.stride;
  if (apart <= 0 || (interleaved && channels.stride != 2 * apart))
    return std::nullopt;
  channels = {2 * channels.size, interleaved ? apart : channels.stride};
  return whole;
}

/// A rotation without rotated(x): concat(a * cos - b * sin, b * cos + a * sin) of the members a, b
/// of the pairs of x.
struct RotationInParts : OpRewritePattern<ConcatOp> {
  using OpRewritePattern::OpRewritePattern;

  /// Removes the last dimension of size 1 from a member [..., D/2, 1].
  static Value member(Value value, bool interleaved) {
    auto reshape = value.getDefiningOp<ReshapeOp>();
    return interleaved && reshape &&
                   rankedType(reshape.getX()).getShape() == rankedType(value).getShape().drop_back()
               ? reshape.getX()
               : value;
  }

  LogicalResult matchAndRewrite(ConcatOp op, PatternRewriter &rewriter) const override {
    RankedTensorType type = rankedType(op.getY());
    if (op.getXs().size() != 2 || static_cast<int64_t>(op.getDim()) != type.getRank() - 1 ||
        !carriesSamples(type))
      return failure();
    for (bool interleaved : {false, true}) {
      if (interleaved && type.getShape().back() != 2)
        continue;
      auto difference = member(op.getXs()[0], interleaved).getDefiningOp<arith::SubFOp>();
      auto sum = member(op.getXs()[1], interleaved).getDefiningOp<arith::AddFOp>();
      if (!difference || !sum || difference.getType() != sum.getType())
        continue;
      auto ac = difference.getLhs().getDefiningOp<arith::MulFOp>(),
           bs = difference.getRhs().getDefiningOp<arith::MulFOp>();
      if (!ac || !bs)
        continue;
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) {
          Value a = ac->getOperand(i), cos = ac->getOperand(1 - i), b = bs->getOperand(j),
                sin = bs->getOperand(1 - j);
          bool found = false;
          std::optional<View> x = joinPairs(analyzeView(a), analyzeView(b), found);
          if (!x || found != interleaved)
            continue;
          bool crossed = (isProduct(sum.getLhs(), b, cos) && isProduct(sum.getRhs(), a, sin)) ||
                         (isProduct(sum.getRhs(), b, cos) && isProduct(sum.getLhs(), a, sin));
          if (!crossed)
            continue;
          Value whole = emitView(rewriter, op.getLoc(), *x);
          Value y = whole ? emitRope(rewriter, op.getLoc(), whole, cos, sin, interleaved,
                                     /*perPair=*/true)
                          : Value();
          if (!y)
            continue;
          if (interleaved)
            y = ReshapeOp::create(rewriter, op.getLoc(), y, type.getShape());
          rewriter.replaceOp(op, y);
          return success();
        }
    }
    return failure();
  }

  static bool isProduct(Value value, Value a, Value b) {
    auto product = value.getDefiningOp<arith::MulFOp>();
    auto same = [](Value u, Value v) { return u == v || analyzeView(u) == analyzeView(v); };
    return product && ((same(product.getLhs(), a) && same(product.getRhs(), b)) ||
                       (same(product.getLhs(), b) && same(product.getRhs(), a)));
  }
};

struct RecognizeRope : zorse::impl::RecognizeRopeBase<RecognizeRope> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<Rotation, RotationInParts>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
