#include "AttentionInParts.h"
#include "AttentionMask.h"
#include "Match.h"
#include "Views.h"

#include "zorse/Transforms/Passes.h"

#include "mlir/IR/PatternMatch.h"

#include <cmath>

namespace zorse {
#define GEN_PASS_DEF_RECOGNIZEATTENTION
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

//===----------------------------------------------------------------------===//
// Matching upwards from the probabilities
//===----------------------------------------------------------------------===//

/// Skips reshapes that only add or remove dimensions of size 1.
static Value skipUnitReshapes(Value value) {
  while (auto reshape = value.getDefiningOp<ReshapeOp>()) {
    auto wide = [](Value v) {
      SmallVector<int64_t> shape(rankedType(v).getShape());
      llvm::erase(shape, 1);
      return shape;
    };
    if (wide(reshape.getX()) != wide(reshape.getY()))
      break;
    value = reshape.getX();
  }
  return value;
}

/// Moves scalar factors of `value`, also below views, into `scale`.
static Value peelScalar(OpBuilder &builder, Value value, double &scale) {
  while (true) {
    View view = analyzeView(value);
    Operation *op = view.base.getDefiningOp();
    if (!isa_and_nonnull<arith::MulFOp, arith::DivFOp>(op))
      return value;
    Value inner;
    double factor = 1;
    if (isa<arith::MulFOp>(op)) {
      inner = matchWithSplat<arith::MulFOp>(view.base, factor);
    } else if (std::optional<double> divisor = splatValue(op->getOperand(1));
               divisor && *divisor != 0) {
      inner = op->getOperand(0);
      factor = 1 / *divisor;
    }
    if (!inner)
      return value;
    view.base = inner;
    Value peeled = emitView(builder, op->getLoc(), view);
    if (!peeled)
      return value;
    scale *= factor;
    value = peeled;
  }
}

namespace {
/// The operations between the probabilities and the product of q and k.
struct Scores {
  MatmulOp product;
  AttentionOptions options;
  SmallVector<MaskPart> masks;
};
} // namespace

/// For select(isnan(p), 0, p), returns p and sets `guarded`; otherwise returns `value`. The test
/// may also be an unordered comparison of p with itself.
static Value skipGuard(Value value, bool &guarded) {
  auto select = value.getDefiningOp<arith::SelectOp>();
  if (!select || splatValue(select.getTrueValue()) != 0.0)
    return value;
  Value p = select.getFalseValue();
  if (auto test = select.getCondition().getDefiningOp<math::IsNaNOp>();
      test && skipUnitReshapes(test.getOperand()) == skipUnitReshapes(p)) {
    guarded = true;
    return p;
  }
  if (auto compare = select.getCondition().getDefiningOp<arith::CmpFOp>();
      compare && compare.getPredicate() == arith::CmpFPredicate::UNO && compare.getLhs() == p &&
      compare.getRhs() == p) {
    guarded = true;
    return p;
  }
  return value;
}

/// Matches from the argument of the softmax up to the product. Masks are added or selected after
/// scale and cap.
static bool matchScores(Value value, Scores &scores) {
  bool capped = false;
  for (int depth = 0; depth < 16; ++depth) {
    value = skipUnitReshapes(value);
    if (auto product = value.getDefiningOp<MatmulOp>()) {
      scores.product = product;
      return true;
    }
    if (auto select = value.getDefiningOp<arith::SelectOp>();
        select && !capped && scores.options.scale == 1.0) {
      bool keepWhenTrue = splatValue(select.getFalseValue()).has_value();
      std::optional<double> fill =
          splatValue(keepWhenTrue ? select.getFalseValue() : select.getTrueValue());
      if (!fill || !isMaskFill(*fill))
        return false;
      scores.masks.push_back({select.getCondition(), keepWhenTrue, *fill, /*replaces=*/true});
      value = keepWhenTrue ? select.getTrueValue() : select.getFalseValue();
      continue;
    }
    if (auto add = value.getDefiningOp<arith::AddFOp>();
        add && !capped && scores.options.scale == 1.0) {
      // The mask is the operand without a product above it.
      bool left = leadsToProduct(add.getLhs()), right = leadsToProduct(add.getRhs());
      if (left == right)
        return false;
      scores.masks.push_back({left ? add.getRhs() : add.getLhs(), true, std::nullopt});
      value = left ? add.getLhs() : add.getRhs();
      continue;
    }
    double factor = 1;
    if (Value inner = matchWithSplat<arith::MulFOp>(value, factor)) {
      // cap * tanh(s / cap): the outer factor belongs to the cap. It is matched only once.
      if (auto tanh = skipUnitReshapes(inner).getDefiningOp<math::TanhOp>();
          tanh && !capped && scores.options.scale == 1.0 && factor > 0) {
        scores.options.softcap = factor;
        capped = true;
        value = tanh.getOperand();
        scores.options.scale = factor;
        continue;
      }
      scores.options.scale *= factor;
      value = inner;
      continue;
    }
    if (auto div = value.getDefiningOp<arith::DivFOp>()) {
      std::optional<double> divisor = splatValue(div.getRhs());
      if (!divisor || *divisor == 0)
        return false;
      scores.options.scale /= *divisor;
      value = div.getLhs();
      continue;
    }
    return false;
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

/// Converts [?, H, S, D] or [?, S, D] (one head) to [?, S, H, D].
static Value toAttentionLayout(OpBuilder &builder, Location loc, Value value) {
  ArrayRef<int64_t> shape = rankedType(value).getShape();
  if (shape.size() == 3)
    return ReshapeOp::create(builder, loc, value,
                             ArrayRef<int64_t>{shape[0], shape[1], 1, shape[2]});
  return TransposeOp::create(builder, loc, value, ArrayRef<int64_t>{0, 2, 1, 3});
}

/// Returns k or v [?, S', H, D] without the repeats of its heads, or unchanged if heads do not
/// repeat.
static Value withoutRepeats(OpBuilder &builder, Location loc, Value value) {
  View view = analyzeView(value);
  if (view.dimensions.size() != 3)
    return value;
  ViewDimension &heads = view.dimensions[1];
  if (heads.empty() || heads.back().stride != 0)
    return value;
  heads.pop_back();
  Value small = emitView(builder, loc, view);
  return small ? small : value;
}

/// Removes repeats of heads from both k and v. Both must then have the same number of heads;
/// otherwise neither is changed.
static void shrinkGroups(OpBuilder &builder, Location loc, Value &k, Value &v) {
  Value smallK = withoutRepeats(builder, loc, k), smallV = withoutRepeats(builder, loc, v);
  if (rankedType(smallK).getDimSize(2) == rankedType(smallV).getDimSize(2)) {
    k = smallK;
    v = smallV;
  }
}

namespace {
struct Attention : OpRewritePattern<MatmulOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(MatmulOp op, PatternRewriter &rewriter) const override {
    RankedTensorType type = rankedType(op.getY());
    // Both operands must have the batch dimensions, and the product must carry samples.
    if (op.getTransposeA() || rankedType(op.getB()).getRank() != type.getRank() ||
        (type.getRank() != 3 && type.getRank() != 4) || !carriesSamples(type))
      return failure();

    Scores scores;
    Value value = skipUnitReshapes(op.getA());
    bool guarded = false;
    value = skipUnitReshapes(skipGuard(value, guarded));
    if (auto dropout = value.getDefiningOp<DropoutOp>()) {
      scores.options.dropout = dropout.getProbability().convertToDouble();
      scores.options.rngId = static_cast<int64_t>(dropout.getRngId());
      value = skipUnitReshapes(dropout.getX());
      if (!guarded)
        value = skipUnitReshapes(skipGuard(value, guarded));
    }
    auto softmax = value.getDefiningOp<SoftmaxOp>();
    if (!softmax || !matchScores(softmax.getX(), scores))
      return failure();
    MatmulOp product = scores.product;
    RankedTensorType productType = rankedType(product.getY());
    if (product.getTransposeA() || rankedType(product.getB()).getRank() != productType.getRank() ||
        productType.getRank() != type.getRank() ||
        rankedType(op.getA()).getShape() != productType.getShape())
      return failure();

    if (llvm::any_of(scores.masks,
                     [](const MaskPart &part) { return dependsOnTrained(part.value); })) {
      op->emitRemark("attention is kept in parts: the mask added to its scores depends on a "
                     "trained parameter and needs a gradient");
      return failure();
    }

    rewriter.setInsertionPoint(op);
    Location loc = op.getLoc();
    FailureOr<CombinedMask> mask = combineMasks(rewriter, op, scores.masks, guarded,
                                                rankedType(softmax.getX()).getElementType(),
                                                scores.options);
    if (failed(mask))
      return failure();

    Value q = peelScalar(rewriter, product.getA(), scores.options.scale), k = product.getB(),
          v = op.getB();
    auto swapLast = [&](Value x) {
      int64_t rank = rankedType(x).getRank();
      SmallVector<int64_t> permutation = llvm::to_vector(llvm::seq<int64_t>(0, rank));
      std::swap(permutation[rank - 1], permutation[rank - 2]);
      return TransposeOp::create(rewriter, loc, x, permutation).getResult();
    };
    if (!product.getTransposeB())
      k = swapLast(k);
    if (op.getTransposeB())
      v = swapLast(v);
    k = peelScalar(rewriter, k, scores.options.scale);
    q = toAttentionLayout(rewriter, loc, q);
    k = toAttentionLayout(rewriter, loc, k);
    v = toAttentionLayout(rewriter, loc, v);
    shrinkGroups(rewriter, loc, k, v);
    Value out = AttentionOp::create(rewriter, loc, q, k, v, mask->mask, scores.options).getOut();
    if (mask->meanOfUnseen)
      out = addMeanOfUnseen(rewriter, loc, out, v, mask->mask);
    // Converts back to [?, H, S, D'] or [?, S, D'].
    if (type.getRank() == 3)
      rewriter.replaceOpWithNewOp<ReshapeOp>(op, out, type.getShape());
    else
      rewriter.replaceOpWithNewOp<TransposeOp>(op, out, ArrayRef<int64_t>{0, 2, 1, 3});
    return success();
  }
};

/// Repeats of k and v that reach an attention from elsewhere: an imported `Attention` node, or a
/// model that repeats them first.
struct ShrinkGroups : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    Value k = op.getK(), v = op.getV();
    shrinkGroups(rewriter, op.getLoc(), k, v);
    if (k == op.getK() && v == op.getV())
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      op.getKMutable().assign(k);
      op.getVMutable().assign(v);
    });
    return success();
  }
};

/// Masks of an imported `Attention` node: causal masks, by value, become attributes; masks without
/// effect are removed.
struct SimplifyMask : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    if (!op.getMask())
      return failure();
    AttentionOptions options = op.getOptions();
    std::optional<MaskPattern> pattern = readMaskPattern(analyzeView(op.getMask()), true);
    if (!pattern || !mergePattern(*pattern, options)) {
      Value compact = compactMask(rewriter, op.getLoc(), op.getMask());
      if (!compact || compact.getType() == op.getMask().getType())
        return failure();
      rewriter.modifyOpInPlace(op, [&] { op.getMaskMutable().assign(compact); });
      return success();
    }
    rewriter.replaceOpWithNewOp<AttentionOp>(op, op.getQ(), op.getK(), op.getV(), Value(), options,
                                             op.getLse() != nullptr);
    return success();
  }
};

/// An imported `Attention` node with a trained mask (a bias by distance) is decomposed, because
/// attention gives its mask no gradient.
struct TrainedMask : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    if (!op.getMask() || op.getLse() || !dependsOnTrained(op.getMask()))
      return failure();
    op->emitRemark("attention is written in parts: its mask depends on a trained parameter and "
                   "needs a gradient");
    rewriter.replaceOp(op, writeAttentionInParts(rewriter, op));
    return success();
  }
};

/// A scalar factor of q or k becomes part of the scale.
struct PeelScale : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    AttentionOptions options = op.getOptions();
    Value q = peelScalar(rewriter, op.getQ(), options.scale),
          k = peelScalar(rewriter, op.getK(), options.scale);
    if (q == op.getQ() && k == op.getK())
      return failure();
    rewriter.replaceOpWithNewOp<AttentionOp>(op, q, k, op.getV(), op.getMask(), options,
                                             op.getLse() != nullptr);
    return success();
  }
};

struct RecognizeAttention : zorse::impl::RecognizeAttentionBase<RecognizeAttention> {
  void runOnOperation() override {
    // Visits each operation once, in order: patterns build views above the match, which a greedy
    // driver would visit again and again.
    PatternRewriter rewriter(&getContext());
    Attention attention(&getContext());
    ShrinkGroups shrink(&getContext());
    TrainedMask trained(&getContext());
    SimplifyMask simplify(&getContext());
    PeelScale peel(&getContext());
    SmallVector<MatmulOp> products;
    getOperation().walk([&](MatmulOp op) { products.push_back(op); });
    for (MatmulOp op : products) {
      rewriter.setInsertionPoint(op);
      (void)attention.matchAndRewrite(op, rewriter);
    }
    auto each = [&](const OpRewritePattern<AttentionOp> &pattern) {
      SmallVector<AttentionOp> ops;
      getOperation().walk([&](AttentionOp op) { ops.push_back(op); });
      for (AttentionOp op : ops) {
        rewriter.setInsertionPoint(op);
        (void)pattern.matchAndRewrite(op, rewriter);
      }
    };
    each(trained);
    each(simplify);
    each(shrink);
    each(peel);
  }
};
} // namespace
