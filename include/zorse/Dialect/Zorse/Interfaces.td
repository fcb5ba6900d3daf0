// What other parts of the compiler ask an op: its gradient, its cost, how its dimensions relate.
#ifndef ZORSE_DIALECT_ZORSE_INTERFACES_TD
#define ZORSE_DIALECT_ZORSE_INTERFACES_TD

include "mlir/IR/OpBase.td"

def Zorse_DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::zorse";
  let description = [{
    Reverse-mode differentiation of one op: the vector-Jacobian product. Bodies live in lib/Autodiff and are attached as external models, to ops of this
    dialect and to upstream ops alike; what has no model is not differentiable and an error where a gradient would have to pass through it.
  }];
  let methods = [
    InterfaceMethod<[{
        Builds the gradients of the operands from those of the results.

        `resultGradients` holds one value per result, null meaning zero (a statistic never has one). `needsGradient(i)` says whether the gradient of operand i
        is wanted. Returns one value per operand, of the operand's type: null for zero and for what is not wanted. Fails after emitting a diagnostic.
      }],
      "::mlir::FailureOr<::llvm::SmallVector<::mlir::Value>>", "buildVjp",
      (ins "::mlir::OpBuilder &":$builder, "::llvm::ArrayRef<::mlir::Value>":$resultGradients,
           "::llvm::function_ref<bool(unsigned)>":$needsGradient)>,
    InterfaceMethod<[{
        True if operand `index` can have a gradient at all. By default: floats do, integers, booleans and what only shapes the result do not.
      }],
      "bool", "isOperandDifferentiable", (ins "unsigned":$index), "",
      [{ return ::llvm::isa<::mlir::FloatType>(::mlir::getElementTypeOrSelf($_op->getOperand(index).getType())); }]>,
  ];
}

def Zorse_CostOpInterface : OpInterface<"CostOpInterface"> {
  let cppNamespace = "::zorse";
  let description = [{
    How much arithmetic an op does and how many bytes it touches if nothing is fused, as an affine function of the number of rows.
  }];
  let methods = [
    InterfaceMethod<"Floating-point operations and bytes, fixed and per row.", "::zorse::OpCost", "getCost", (ins), "", [{ return ::zorse::detail::computeCost($_op); }]>,
  ];
}

def Zorse_FactorsOpInterface : OpInterface<"FactorsOpInterface"> {
  let cppNamespace = "::zorse";
  let description = [{
    How the dimensions of operands and results relate, as in Shardy's op rules: `([i, k], [k, j]) -> ([i, j])`. Every dimension of every operand and result is a
    list of factors, outermost first; an empty list stands for size 1 or for a dimension that relates to no other. A factor is *parallel* (each of its points is
    computed alone), *reduced* (results sum, or otherwise combine, over it) or *indivisible* (all its points are needed together, as in a softmax).
  }];
  let methods = [
    InterfaceMethod<"The factors of this op.", "::zorse::OpFactors", "getFactors", (ins), "", [{ return ::zorse::detail::computeFactors($_op); }]>,
  ];
}

#endif // ZORSE_DIALECT_ZORSE_INTERFACES_TD
