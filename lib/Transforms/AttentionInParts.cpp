#include "AttentionInParts.h"

#include "Match.h"

#include <limits>

using namespace mlir;
using namespace zorse;

/// Returns k or v [?, S', H', D] as [?, H, S', D], with each head repeated for the query heads that
/// share it.
static Value headsFirst(OpBuilder &builder, Location loc, Value value, int64_t heads) {
  SmallVector<int64_t> shape(rankedType(value).getShape());
  if (shape[2] != heads) {
    SmallVector<int64_t> grouped{shape[0], shape[1], shape[2], heads / shape[2], shape[3]};
    auto type = RankedTensorType::get(grouped, rankedType(value).getElementType());
    value = BroadcastOp::create(builder, loc, type, value, ArrayRef<int64_t>{0, 1, 2, 4});
    value = ReshapeOp::create(builder, loc, value,
                              ArrayRef<int64_t>{shape[0], shape[1], heads, shape[3]});
  }
  return TransposeOp::create(builder, loc, value, ArrayRef<int64_t>{0, 2, 1, 3});
}

/// Broadcasts a mask [?|1, H|1, S, S'] to the shape of the scores. Keeps its element type.
static Value overScores(OpBuilder &builder, Location loc, Value mask, RankedTensorType scores) {
  SmallVector<int64_t> kept, dims;
  for (auto [i, size] : llvm::enumerate(rankedType(mask).getShape())) {
    if (i < 2 && size == 1)
      continue;
    kept.push_back(size);
    dims.push_back(static_cast<int64_t>(i));
  }
  if (kept.size() < 4)
    mask = ReshapeOp::create(builder, loc, mask, kept);
  auto type = RankedTensorType::get(scores.getShape(), rankedType(mask).getElementType());
  return mask.getType() == type ? mask
                                : BroadcastOp::create(builder, loc, type, mask, dims).getResult();
}

Value zorse::writeAttentionInParts(OpBuilder &builder, AttentionOp op) {
  Location loc = op.getLoc();
  AttentionOptions options = op.getOptions();
  RankedTensorType q = rankedType(op.getQ()), k = rankedType(op.getK());
  int64_t heads = q.getDimSize(2);
  auto type = RankedTensorType::get({q.getDimSize(0), heads, q.getDimSize(1), k.getDimSize(1)},
                                    q.getElementType());
  Value scores = MatmulOp::create(builder, loc, headsFirst(builder, loc, op.getQ(), heads),
                                  headsFirst(builder, loc, op.getK(), heads), /*transposeA=*/false,
                                  /*transposeB=*/true);
  auto times = [&](Value x, double factor) {
    return arith::MulFOp::create(builder, loc, x, createSplat(builder, loc, type, factor))
        .getResult();
  };
  scores = times(scores, options.scale);
  if (options.softcap)
    scores = times(math::TanhOp::create(builder, loc, times(scores, 1 / *options.softcap)),
                   *options.softcap);
  Value min = createSplat(builder, loc, type, -std::numeric_limits<double>::infinity());
  if (options.causal) {
    auto pattern =
        RankedTensorType::get({type.getDimSize(2), type.getDimSize(3)}, builder.getI1Type());
    Value visible = CausalMaskOp::create(
        builder, loc, pattern,
        options.window ? builder.getI64IntegerAttr(*options.window) : IntegerAttr(), FloatAttr());
    visible = BroadcastOp::create(builder, loc,
                                  RankedTensorType::get(type.getShape(), builder.getI1Type()),
                                  visible, ArrayRef<int64_t>{2, 3});
    scores = arith::SelectOp::create(builder, loc, visible, scores, min);
  }
  if (Value mask = op.getMask()) {
    Value wide = overScores(builder, loc, mask, type);
    if (rankedType(mask).getElementType().isInteger(1))
      scores = arith::SelectOp::create(builder, loc, wide, scores, min);
    else
      scores = arith::AddFOp::create(builder, loc, scores, wide);
  }
  Value weights = SoftmaxOp::create(builder, loc, scores);
  if (options.dropout > 0)
    weights = DropoutOp::create(builder, loc, weights, options.dropout, options.rngId);
  Value out = MatmulOp::create(builder, loc, weights, headsFirst(builder, loc, op.getV(), heads),
                               false, false);
  return TransposeOp::create(builder, loc, out, ArrayRef<int64_t>{0, 2, 1, 3});
}
