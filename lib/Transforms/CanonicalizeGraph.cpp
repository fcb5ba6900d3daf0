#include "GraphOrder.h"
#include "Match.h"
#include "Views.h"

#include "zorse/Transforms/Passes.h"

#include "mlir/IR/Dominance.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <cstring>

namespace zorse {
#define GEN_PASS_DEF_CANONICALIZEGRAPH
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

//===----------------------------------------------------------------------===//
// Exact arithmetic
//===----------------------------------------------------------------------===//

static bool isElementwise(Operation *op) {
  if (!op->getDialect() || !isa<arith::ArithDialect, math::MathDialect>(op->getDialect()) ||
      op->getNumOperands() == 0 || op->getNumResults() != 1)
    return false;
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  return type && llvm::all_of(op->getOperandTypes(), [&](Type operand) {
           auto other = dyn_cast<RankedTensorType>(operand);
           return other && other.getShape() == type.getShape();
         });
}

namespace {
/// x * 1, x * -1, x / 1 and x / -1.
template <typename Op> struct TrivialProduct : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    for (int i = 1; i >= (std::is_same_v<Op, arith::MulFOp> ? 0 : 1); --i) {
      std::optional<double> number = splatValue(op->getOperand(i));
      if (number == 1.0) {
        rewriter.replaceOp(op, op->getOperand(1 - i));
        return success();
      }
      if (number == -1.0) {
        rewriter.replaceOpWithNewOp<arith::NegFOp>(op, op->getOperand(1 - i));
        return success();
      }
    }
    return failure();
  }
};

/// x + 0 and x - 0. They differ from x at most in the sign of a zero.
template <typename Op> struct TrivialSum : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    for (int i = 1; i >= (std::is_same_v<Op, arith::AddFOp> ? 0 : 1); --i) {
      if (splatValue(op->getOperand(i)) != 0.0)
        continue;
      rewriter.replaceOp(op, op->getOperand(1 - i));
      return success();
    }
    return failure();
  }
};

/// x + (-y) and x - (-y).
struct SumOfNegation : OpRewritePattern<arith::AddFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::AddFOp op, PatternRewriter &rewriter) const override {
    for (int i = 0; i < 2; ++i) {
      auto negation = op->getOperand(i).getDefiningOp<arith::NegFOp>();
      if (!negation || splatValue(op->getOperand(1 - i)))
        continue;
      rewriter.replaceOpWithNewOp<arith::SubFOp>(op, op->getOperand(1 - i), negation.getOperand());
      return success();
    }
    return failure();
  }
};

/// x^1, x^2 and x^0.5 as products and roots, which libraries compute for these exponents.
struct SmallPower : OpRewritePattern<math::PowFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::PowFOp op, PatternRewriter &rewriter) const override {
    std::optional<double> exponent = splatValue(op.getRhs());
    Value x = op.getLhs();
    if (exponent == 1.0)
      rewriter.replaceOp(op, x);
    else if (exponent == 2.0)
      rewriter.replaceOpWithNewOp<arith::MulFOp>(op, x, x);
    else if (exponent == 0.5)
      rewriter.replaceOpWithNewOp<math::SqrtOp>(op, x);
    else
      return failure();
    return success();
  }
};

/// A select with a splat condition. Upstream folds the other cases: conditions of equal branches,
/// and casts of integers there and back without loss. Casts from a type to itself exist only before
/// type conversion.
struct SplatSelect : OpRewritePattern<arith::SelectOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::SelectOp op, PatternRewriter &rewriter) const override {
    std::optional<double> condition = splatValue(op.getCondition());
    if (!condition)
      return failure();
    rewriter.replaceOp(op, *condition != 0 ? op.getTrueValue() : op.getFalseValue());
    return success();
  }
};

/// A slice of a concat that lies within one of its operands.
struct SliceOfConcat : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op, PatternRewriter &rewriter) const override {
    auto concat = op.getX().getDefiningOp<ConcatOp>();
    if (!concat)
      return failure();
    auto dim = static_cast<size_t>(concat.getDim());
    int64_t first = op.getOffsets()[dim],
            last = first + (op.getSizes()[dim] - 1) * op.getStrides()[dim], begin = 0;
    for (Value part : concat.getXs()) {
      int64_t size = rankedType(part).getDimSize(dim);
      if (first >= begin && last < begin + size) {
        SmallVector<int64_t> offsets(op.getOffsets());
        offsets[dim] -= begin;
        rewriter.replaceOpWithNewOp<SliceOp>(op, part, offsets, op.getSizes(), op.getStrides());
        return success();
      }
      begin += size;
    }
    return failure();
  }
};

/// A slice of an elementwise result that has no other uses or carries no samples (a table) becomes
/// slices of the operands.
struct SliceOfElementwise : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op, PatternRewriter &rewriter) const override {
    Operation *producer = op.getX().getDefiningOp();
    if (!producer || !isElementwise(producer) ||
        (carriesSamples(op.getType()) && !op.getX().hasOneUse()))
      return failure();
    Operation *small = producer->clone();
    for (OpOperand &operand : small->getOpOperands())
      operand.set(SliceOp::create(rewriter, op.getLoc(), operand.get(), op.getOffsets(),
                                  op.getSizes(), op.getStrides()));
    small->getResult(0).setType(
        RankedTensorType::get(op.getSizes(), rankedType(producer->getResult(0)).getElementType()));
    rewriter.insert(small);
    rewriter.replaceOp(op, small->getResults());
    return success();
  }
};

/// A splat constant of several elements becomes a broadcast of a scalar, so that splats have one
/// form.
struct ScalarSplat : OpRewritePattern<arith::ConstantOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::ConstantOp op, PatternRewriter &rewriter) const override {
    auto dense = dyn_cast<DenseElementsAttr>(op.getValue());
    if (!dense || !dense.isSplat() || dense.getType().getRank() == 0)
      return failure();
    auto scalar = RankedTensorType::get({}, dense.getElementType());
    Value constant = arith::ConstantOp::create(rewriter, op.getLoc(), dense.resizeSplat(scalar));
    rewriter.replaceOpWithNewOp<BroadcastOp>(op, op.getType(), constant, ArrayRef<int64_t>{});
    return success();
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Sinking broadcasts and dimensions of size 1 below elementwise operations
//===----------------------------------------------------------------------===//

/// Computes `op` only on the dimensions that vary, and repeats the result. Returns true if this
/// reduces the work.
static bool sinkRepeats(OpBuilder &builder, Operation *op) {
  if (!isElementwise(op))
    return false;
  SmallVector<View> views;
  for (Value operand : op->getOperands())
    views.push_back(analyzeView(operand));
  RankedTensorType type = rankedType(op->getResult(0));
  bool sampled = carriesSamples(type);
  bool keepRows = sampled && llvm::any_of(views, [](const View &view) {
                    return carriesSamples(view.base.getType());
                  });
  SmallVector<int64_t> kept;
  size_t count = type.getRank() - (sampled ? 1 : 0);
  for (size_t i = 0; i < count; ++i)
    if (llvm::any_of(views, [&](const View &view) {
          return llvm::any_of(view.dimensions[i],
                              [](const ViewFactor &factor) { return factor.stride != 0; });
        }))
      kept.push_back(i);
  if (kept.size() == count && keepRows == sampled)
    return false;
  builder.setInsertionPoint(op);
  SmallVector<Value> operands;
  for (View &view : views) {
    SmallVector<ViewDimension, 4> dimensions;
    for (int64_t i : kept)
      dimensions.push_back(view.dimensions[i]);
    view.dimensions = std::move(dimensions);
    view.sampled = keepRows;
    operands.push_back(emitView(builder, op->getLoc(), view));
    if (!operands.back())
      return false;
  }
  SmallVector<int64_t> shape, dims;
  if (keepRows) {
    shape.push_back(ShapedType::kDynamic);
    dims.push_back(0);
  }
  for (int64_t i : kept) {
    shape.push_back(type.getShape()[i + (sampled ? 1 : 0)]);
    dims.push_back(i + (sampled ? 1 : 0));
  }
  Operation *small = op->clone();
  small->setOperands(operands);
  small->getResult(0).setType(RankedTensorType::get(shape, type.getElementType()));
  builder.insert(small);
  Value wide = BroadcastOp::create(builder, op->getLoc(), type, small->getResult(0), dims);
  op->getResult(0).replaceAllUsesWith(wide);
  op->erase();
  return true;
}

//===----------------------------------------------------------------------===//
// Views in normal form
//===----------------------------------------------------------------------===//

/// Whether the chain above `value` is the one that emitView writes. The normal form of a view is
/// unique, so the chains are compared op by op.
static bool isNormal(Value value, Value normal) {
  while (true) {
    if (value == normal)
      return true;
    Operation *a = value.getDefiningOp(), *b = normal.getDefiningOp();
    if (!isView(a) || !isView(b) || a->getName() != b->getName() ||
        value.getType() != normal.getType() ||
        a->getPropertiesAsAttribute() != b->getPropertiesAsAttribute())
      return false;
    value = a->getOperand(0);
    normal = b->getOperand(0);
  }
}

/// Applies the view of a constant of moderate size to its elements. Repeats remain views. Leaves
/// `view` unchanged if there is nothing to do.
static void foldConstantView(View &view, OpBuilder &builder) {
  constexpr int64_t kLimit = int64_t(1) << 20;
  auto constant = view.base.getDefiningOp<arith::ConstantOp>();
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!dense || dense.isSplat() || dense.getNumElements() > kLimit)
    return;
  // The dimensions that vary, and their layout in the new constant.
  SmallVector<int64_t> shape;
  ViewDimension walk;
  for (const ViewDimension &dimension : view.dimensions) {
    int64_t size = 1;
    for (const ViewFactor &factor : dimension) {
      if (factor.stride == 0)
        continue;
      size *= factor.size;
      walk.push_back(factor);
    }
    if (size > 1)
      shape.push_back(size);
  }
  int64_t count = 1;
  bool inOrder = view.offset == 0;
  for (const ViewFactor &factor : llvm::reverse(walk)) {
    inOrder = inOrder && factor.stride == count;
    count *= factor.size;
  }
  if ((inOrder && count == dense.getNumElements()) || count > kLimit)
    return;
  auto indexOf = [&](int64_t n) {
    int64_t index = view.offset;
    for (const ViewFactor &factor : llvm::reverse(walk)) {
      index += n % factor.size * factor.stride;
      n /= factor.size;
    }
    return index;
  };
  auto type = RankedTensorType::get(shape, dense.getElementType());
  DenseElementsAttr folded;
  // Copies whole bytes: position tables are large.
  if (unsigned width = dense.getElementType().getIntOrFloatBitWidth(); width % 8 == 0) {
    const size_t size = width / 8;
    SmallVector<char> bytes(static_cast<size_t>(count) * size);
    for (int64_t n = 0; n < count; ++n)
      std::memcpy(&bytes[static_cast<size_t>(n) * size],
                  dense.getRawData().data() + static_cast<size_t>(indexOf(n)) * size, size);
    folded = DenseElementsAttr::getFromRawBuffer(type, bytes);
  } else {
    SmallVector<Attribute> elements;
    elements.reserve(count);
    auto values = dense.getValues<Attribute>();
    for (int64_t n = 0; n < count; ++n)
      elements.push_back(values[indexOf(n)]);
    folded = DenseElementsAttr::get(type, elements);
  }
  view.base = arith::ConstantOp::create(builder, constant.getLoc(), folded);
  view.offset = 0;
  int64_t stride = count;
  for (ViewDimension &dimension : view.dimensions) {
    for (ViewFactor &factor : dimension) {
      if (factor.stride == 0)
        continue;
      stride /= factor.size;
      factor.stride = stride;
    }
  }
}

static bool normaliseViews(func::FuncOp function, OpBuilder &builder) {
  bool changed = false;
  SmallVector<Operation *> roots;
  for (Operation &op : function.front())
    if (isView(&op) && llvm::any_of(op.getUsers(), [](Operation *user) { return !isView(user); }))
      roots.push_back(&op);
  for (Operation *root : roots) {
    View view = analyzeView(root->getResult(0));
    if (view.base == root->getResult(0))
      continue;
    builder.setInsertionPoint(root);
    foldConstantView(view, builder);
    Value normal = emitView(builder, root->getLoc(), view);
    if (!normal || isNormal(root->getResult(0), normal))
      continue;
    root->getResult(0).replaceUsesWithIf(normal,
                                         [](OpOperand &use) { return !isView(use.getOwner()); });
    changed = true;
  }
  // Erase chains without uses and unused results of emitView.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.front())))
    if (isView(&op) && op.use_empty())
      op.erase();
  return changed;
}

namespace {
struct CanonicalizeGraph : zorse::impl::CanonicalizeGraphBase<CanonicalizeGraph> {
  LogicalResult initialize(MLIRContext *context) override {
    RewritePatternSet owned(context);
    for (Dialect *dialect : context->getLoadedDialects())
      dialect->getCanonicalizationPatterns(owned);
    for (StringRef dialect : {"arith", "zorse"})
      for (RegisteredOperationName name : context->getRegisteredOperationsByDialect(dialect))
        name.getCanonicalizationPatterns(owned, context);
    owned.add<TrivialProduct<arith::MulFOp>, TrivialProduct<arith::DivFOp>,
              TrivialSum<arith::AddFOp>, TrivialSum<arith::SubFOp>, SumOfNegation, SmallPower,
              SplatSelect, SliceOfConcat, SliceOfElementwise, ScalarSplat>(context);
    patterns = FrozenRewritePatternSet(std::move(owned));
    return success();
  }

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function.isExternal() || !llvm::hasSingleElement(function.getBody()))
      return;
    IRRewriter rewriter(&getContext());
    // Each step enables the others. Graphs converge in two or three rounds.
    for (int round = 0; round < 8; ++round) {
      bool changed = false;
      if (failed(applyPatternsGreedily(function, patterns, GreedyRewriteConfig(), &changed)))
        return signalPassFailure();
      SmallVector<Operation *> ops;
      for (Operation &op : function.front())
        ops.push_back(&op);
      for (Operation *op : ops)
        changed |= sinkRepeats(rewriter, op);
      changed |= normaliseViews(function, rewriter);
      bool merged = false;
      DominanceInfo dominance;
      eliminateCommonSubExpressions(rewriter, dominance, function, &merged);
      if (!changed && !merged)
        break;
    }
    orderCommutativeOperands(function);
    DominanceInfo dominance;
    eliminateCommonSubExpressions(rewriter, dominance, function);
    orderOps(function);
    orderParameters(function);
  }

  FrozenRewritePatternSet patterns;
};
} // namespace
