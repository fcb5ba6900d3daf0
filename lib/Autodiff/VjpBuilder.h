// Helpers for differentiation rules: arithmetic on tensors of one type, and the table of rules.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace zorse::autodiff {

using mlir::ArrayRef;
using mlir::FailureOr;
using mlir::Location;
using mlir::OpBuilder;
using mlir::Operation;
using mlir::SmallVector;
using mlir::Value;

/// Builds the gradients of one operation.
class VjpBuilder {
public:
  VjpBuilder(OpBuilder &builder, Operation *op, ArrayRef<Value> resultGradients,
             llvm::function_ref<bool(unsigned)> needs)
      : builder(builder), loc(op->getLoc()), resultGradients(resultGradients), needed(needs),
        operandGradients(op->getNumOperands()) {}

  OpBuilder &builder;
  Location loc;

  /// Gradient of result `index`; null: zero.
  Value gradient(unsigned index = 0) const { return resultGradients[index]; }
  /// Returns a result of an operation as its readers see it: rounded, if it is the result of a
  /// 16-bit operator of the file.
  static Value asRead(Value result) {
    for (Operation *user : result.getUsers())
      if (auto round = llvm::dyn_cast<RoundOp>(user); round && round.getPerOperator())
        return round;
    return result;
  }
  bool needs(unsigned operand) const { return needed(operand); }
  void set(unsigned operand, Value gradient) { operandGradients[operand] = gradient; }
  SmallVector<Value> take() { return std::move(operandGradients); }

  template <typename OpT, typename... Args> OpT create(Args &&...args) {
    return OpT::create(builder, loc, std::forward<Args>(args)...);
  }

  Value splat(Value like, double value) {
    return createSplat(builder, loc, llvm::cast<mlir::RankedTensorType>(like.getType()), value);
  }
  Value add(Value a, Value b) { return create<mlir::arith::AddFOp>(a, b); }
  Value sub(Value a, Value b) { return create<mlir::arith::SubFOp>(a, b); }
  Value mul(Value a, Value b) { return create<mlir::arith::MulFOp>(a, b); }
  Value mul(Value a, double factor) { return mul(a, splat(a, factor)); }
  Value add(Value a, double term) { return add(a, splat(a, term)); }
  Value div(Value a, Value b) { return create<mlir::arith::DivFOp>(a, b); }
  Value neg(Value a) { return create<mlir::arith::NegFOp>(a); }
  Value select(Value condition, Value a, Value b) {
    return create<mlir::arith::SelectOp>(condition, a, b);
  }
  Value compare(mlir::arith::CmpFPredicate predicate, Value a, Value b) {
    return create<mlir::arith::CmpFOp>(predicate, a, b);
  }

private:
  ArrayRef<Value> resultGradients;
  llvm::function_ref<bool(unsigned)> needed;
  SmallVector<Value> operandGradients;
};

/// A rule reads the operation and sets operand gradients. It is called only if a result has a
/// gradient.
template <typename OpT> using Rule = mlir::LogicalResult (*)(OpT op, VjpBuilder &b);

/// External interface model of one rule.
template <typename OpT, Rule<OpT> rule>
struct RuleModel : DifferentiableOpInterface::ExternalModel<RuleModel<OpT, rule>, OpT> {
  FailureOr<SmallVector<Value>> buildVjp(Operation *op, OpBuilder &builder,
                                         ArrayRef<Value> resultGradients,
                                         llvm::function_ref<bool(unsigned)> needsGradient) const {
    VjpBuilder b(builder, op, resultGradients, needsGradient);
    if (llvm::any_of(resultGradients, [](Value v) { return bool(v); }) &&
        mlir::failed(rule(llvm::cast<OpT>(op), b)))
      return mlir::failure();
    return b.take();
  }
};

/// Model for operations with a derivative that is zero wherever it exists (floor, round).
template <typename OpT>
struct ZeroModel : DifferentiableOpInterface::ExternalModel<ZeroModel<OpT>, OpT> {
  FailureOr<SmallVector<Value>> buildVjp(Operation *op, OpBuilder &, ArrayRef<Value>,
                                         llvm::function_ref<bool(unsigned)>) const {
    return SmallVector<Value>(op->getNumOperands());
  }
  bool isOperandDifferentiable(Operation *, unsigned) const { return false; }
};

void registerArithModels(mlir::DialectRegistry &registry);
void registerMathModels(mlir::DialectRegistry &registry);
void registerViewModels(mlir::MLIRContext *context);
void registerLinearModels(mlir::MLIRContext *context);
void registerModelModels(mlir::MLIRContext *context);

/// Gradient of a slice's operand: `dy` padded with zeros.
Value padSlice(OpBuilder &builder, SliceOp slice, Value dy);

/// Pads `value` with `before` and `after` zeros along `dim`.
Value padWithZeros(OpBuilder &builder, Location loc, Value value, int64_t dim, int64_t before,
                   int64_t after);

} // namespace zorse::autodiff
