// Cost and factors of elementwise operations of arith and math, attached as external models.
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace zorse;

namespace {
template <typename Op> struct Cost : CostOpInterface::ExternalModel<Cost<Op>, Op> {
  double getFlops(Operation *op) const {
    if (std::is_same_v<Op, arith::ConstantOp>)
      return 0;
    auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    bool special = isa<math::MathDialect>(op->getDialect());
    return (type ? static_cast<double>(elementsPerRow(type)) : 1.0) *
           (special ? zorse::detail::kSpecialFunction : 1);
  }
  /// Constants are embedded in their readers and touch no memory.
  SmallVector<Value> getTouchedValues(Operation *op) const {
    if constexpr (std::is_same_v<Op, arith::ConstantOp>)
      return {};
    else
      return CostOpInterface::ExternalModel<Cost<Op>, Op>::getTouchedValues(op);
  }
};
template <typename Op> struct Factors : FactorsOpInterface::ExternalModel<Factors<Op>, Op> {
  OpFactors getFactors(Operation *op) const { return elementwiseFactors(op); }
};
} // namespace

template <typename... Ops> static void attach(MLIRContext *context) {
  (Ops::template attachInterface<Cost<Ops>, Factors<Ops>>(*context), ...);
}

void zorse::registerCostAndFactorsModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *) {
    attach<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::NegFOp,
           arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp, arith::MinNumFOp, arith::RemFOp,
           arith::CmpFOp, arith::SelectOp, arith::AddIOp, arith::SubIOp, arith::MulIOp,
           arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::AndIOp, arith::OrIOp,
           arith::XOrIOp, arith::CmpIOp, arith::MaxSIOp, arith::MinSIOp, arith::ExtFOp,
           arith::TruncFOp, arith::SIToFPOp, arith::UIToFPOp, arith::FPToSIOp, arith::FPToUIOp,
           arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp, arith::BitcastOp, arith::ConstantOp>(
        context);
  });
  registry.addExtension(+[](MLIRContext *context, math::MathDialect *) {
    attach<math::AbsFOp, math::AbsIOp, math::AtanOp, math::CeilOp, math::CosOp, math::ErfOp,
           math::ErfcOp, math::Exp2Op, math::ExpOp, math::ExpM1Op, math::FloorOp, math::FmaOp,
           math::LogOp, math::Log1pOp, math::Log2Op, math::PowFOp, math::RsqrtOp, math::SinOp,
           math::SqrtOp, math::TanhOp, math::RoundOp, math::RoundEvenOp, math::TruncOp,
           math::IsNaNOp, math::IsInfOp, math::IsFiniteOp>(context);
  });
}
