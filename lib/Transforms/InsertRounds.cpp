// Inserts the roundings of low precision into a model. Later passes compute exactly what the graph
// specifies; nothing else rounds to bf16 or f16.
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace zorse {
#define GEN_PASS_DEF_INSERTROUNDS
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

namespace {

bool isFloat(Value value) { return isa<FloatType>(getElementTypeOrSelf(value.getType())); }

/// Whether torch.autocast and modules of bf16 compute the operation in the type of its operands.
/// Functions with results that would lose range, or the difference of close numbers, are computed
/// in f32 there, and here.
bool isElementwise(Operation *op) {
  if (op->hasTrait<IsActivation>() || isa<DropoutOp, RopeOp>(op))
    return true;
  if (isa<math::ExpOp, math::Exp2Op, math::ExpM1Op, math::LogOp, math::Log2Op, math::Log10Op,
          math::Log1pOp, math::PowFOp, math::FPowIOp, math::RsqrtOp, math::TanOp, math::SinhOp,
          math::CoshOp>(op))
    return false;
  return isa<arith::ArithDialect, math::MathDialect>(op->getDialect()) &&
         !isa<arith::ConstantOp>(op) && llvm::all_of(op->getResults(), isFloat);
}

class RoundInserter {
public:
  RoundInserter(func::FuncOp model, Type to, bool fp32Residual)
      : model(model), to(to), fp32Residual(fp32Residual), builder(model.getContext()) {}

  void run() {
    SmallVector<Operation *> ops;
    for (Operation &op : model.getBody().front().without_terminator())
      ops.push_back(&op);
    for (Operation *op : ops)
      visit(op);
  }

private:
  void visit(Operation *op) {
    if (auto gather = dyn_cast<GatherOp>(op)) {
      // Tables of rank 1 contain scalars such as biases and stay f32. Rounding the selected rows
      // equals rounding the table, at lower cost.
      if (!fp32Residual && isFloat(gather.getTable()) &&
          cast<RankedTensorType>(gather.getTable().getType()).getRank() >= 2)
        roundResult(op);
      return;
    }
    if (movesElements(op))
      return markIf(
          op, llvm::all_of(op->getOperands(), [&](Value v) { return lowPrecision.contains(v); }));
    if (isa<MatmulOp>(op)) {
      roundOperand(op, 0);
      roundOperand(op, 1);
      // The sum of product and bias is rounded once.
      if (OpOperand *bias = biasOf(op->getResult(0))) {
        roundBias(*bias);
        biased.insert(bias->getOwner());
      } else {
        roundResult(op);
      }
    } else if (isa<AttentionOp>(op)) {
      for (unsigned operand : {0, 1, 2})
        roundOperand(op, operand);
      roundResult(op);
    } else if (isa<LayerNormOp, RmsNormOp>(op) || biased.contains(op)) {
      roundResult(op);
    } else if (isElementwise(op) && staysLowPrecision(op)) {
      roundResult(op);
    }
  }

  /// Returns the operand of the addition of a bias, a vector over channels, to a product that has
  /// no other reader, also through views; null if there is none. Added tables, such as positions,
  /// are not biases: under autocast their sum is f32.
  OpOperand *biasOf(Value product) const {
    while (product.hasOneUse()) {
      Operation *user = *product.user_begin();
      if (auto sum = dyn_cast<arith::AddFOp>(user)) {
        OpOperand &other = user->getOpOperand(sum.getLhs() == product ? 1 : 0);
        auto bias = other.get().getDefiningOp<BroadcastOp>();
        bool vector = bias && cast<RankedTensorType>(bias.getX().getType()).getRank() <= 1 &&
                      isRepeated(other.get());
        return vector ? &other : nullptr;
      }
      if (!isa<ReshapeOp, TransposeOp>(user))
        return nullptr;
      product = user->getResult(0);
    }
    return nullptr;
  }

  /// Rounds the bias of a linear layer. torch.autocast and modules of bf16 both use the type of its
  /// weight. A scalar is not rounded.
  void roundBias(OpOperand &bias) {
    auto repeated = cast<BroadcastOp>(bias.get().getDefiningOp());
    if (cast<RankedTensorType>(repeated.getX().getType()).getRank() == 0)
      return;
    Value vector = rounded(repeated.getX());
    if (!repeated->hasOneUse()) {
      builder.setInsertionPointAfter(repeated);
      repeated = cast<BroadcastOp>(builder.clone(*repeated));
      bias.set(repeated.getY());
    }
    repeated.getXMutable().assign(vector);
  }

  /// Whether the value is the same for all samples: it carries none, or broadcasts a value that
  /// carries none.
  static bool isRepeated(Value value) {
    if (auto broadcast = value.getDefiningOp<BroadcastOp>())
      return !carriesSamples(broadcast.getX().getType());
    return !carriesSamples(value.getType());
  }

  /// Whether the value is a dropout mask, a dropout of a constant, possibly scaled. In PyTorch a
  /// mask has the type of the value that it multiplies.
  static bool isMask(Value value) {
    while (Operation *op = value.getDefiningOp()) {
      if (auto dropout = dyn_cast<DropoutOp>(op))
        return isConstant(dropout.getX());
      const bool product = isa<arith::MulFOp>(op) && isConstant(op->getOperand(0));
      const bool scales = product ||
                          (isa<arith::MulFOp, arith::DivFOp>(op) && isConstant(op->getOperand(1)));
      if (!scales && !isa<BroadcastOp, ReshapeOp, TransposeOp>(op))
        return false;
      value = op->getOperand(product ? 1 : 0);
    }
    return false;
  }

  static bool isConstant(Value value) {
    if (auto broadcast = value.getDefiningOp<BroadcastOp>())
      value = broadcast.getX();
    return isa_and_nonnull<arith::ConstantOp>(value.getDefiningOp());
  }

  /// Whether all values that `op` reads have low precision. Parameters that are repeated for every
  /// sample are ignored: in a module of bf16 they widen nothing. Under autocast they count, except
  /// scalars.
  bool staysLowPrecision(Operation *op) const {
    if (!carriesSamples(op->getResult(0).getType()))
      return false;
    bool any = false;
    for (Value operand : op->getOperands()) {
      if (!isFloat(operand) || lowPrecision.contains(operand)) {
        any |= isFloat(operand);
        continue;
      }
      auto broadcast = operand.getDefiningOp<BroadcastOp>();
      if (isa<RopeOp>(op) && operand != op->getOperand(0))
        continue; // angles
      if (isMask(operand))
        continue;
      if (!isRepeated(operand))
        return false;
      bool number =
          cast<RankedTensorType>((broadcast ? broadcast.getX() : operand).getType()).getRank() == 0;
      if (fp32Residual && !number)
        return false;
    }
    return any;
  }

  void markIf(Operation *op, bool isLowPrecision) {
    if (isLowPrecision && op->getNumOperands() > 0)
      lowPrecision.insert(op->getResult(0));
  }

  /// Returns the rounded value. There is one rounding per value, directly after it, for all
  /// readers.
  Value rounded(Value value) {
    if (lowPrecision.contains(value))
      return value;
    Value round = roundOf.lookup(value);
    if (!round) {
      // Parameters are rounded before views of them, so that there is one copy for all readers of
      // its parts.
      if (Operation *view = value.getDefiningOp();
          view && !carriesSamples(value.getType()) && isa<ReshapeOp, TransposeOp, SliceOp>(view)) {
        Value source = rounded(view->getOperand(0));
        builder.setInsertionPointAfter(view);
        Operation *copy = builder.clone(*view);
        copy->setOperand(0, source);
        round = copy->getResult(0);
      } else {
        builder.setInsertionPointAfterValue(value);
        round = RoundOp::create(builder, value.getLoc(), value, to,
                                /*straightThrough=*/!carriesSamples(value.getType()));
      }
      lowPrecision.insert(round);
      roundOf[value] = round;
    }
    return round;
  }

  void roundOperand(Operation *op, unsigned operand) {
    op->setOperand(operand, rounded(op->getOperand(operand)));
  }

  void roundResult(Operation *op) {
    Value value = op->getResult(0), round = rounded(value);
    value.replaceAllUsesExcept(round, round.getDefiningOp());
  }

  func::FuncOp model;
  Type to;
  bool fp32Residual;
  OpBuilder builder;
  DenseSet<Value> lowPrecision;
  DenseSet<Operation *> biased;
  DenseMap<Value, Value> roundOf;
};

struct InsertRounds : zorse::impl::InsertRoundsBase<InsertRounds> {
  using InsertRoundsBase::InsertRoundsBase;

  void runOnOperation() override {
    auto fail = [&](Operation *at, const Twine &what) {
      at->emitError("zorse-insert-rounds: ") << what;
      signalPassFailure();
    };
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!model || !model.getBody().hasOneBlock())
      return fail(getOperation(), "expected a function @model: roundings are inserted before units "
                                  "are found (zorse-find-units)");
    if (to != "bf16" && to != "f16")
      return fail(model, "to: expected bf16 or f16, got '" + to + "'");
    RoundOp present;
    model.walk([&](RoundOp op) { present = op; });
    if (present)
      return fail(present, "expected a model without roundings, found one: this pass has run "
                           "already, or the file contains casts to 16 bits; such a file "
                           "is compiled with --precision=f32");
    Type type = to == "bf16" ? Type(BFloat16Type::get(&getContext()))
                             : Type(Float16Type::get(&getContext()));
    RoundInserter(model, type, fp32Residual).run();
  }
};

} // namespace
