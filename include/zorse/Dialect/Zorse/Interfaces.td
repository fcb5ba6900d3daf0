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
    InterfaceMethod<"Floating-point operations of one row, or of the whole op if it carries no samples. A multiply-add counts as 2.", "double", "getFlops", (ins)>,
    InterfaceMethod<"Values whose bytes the op reads or writes, once for each time.", "::llvm::SmallVector<::mlir::Value>", "getTouchedValues", (ins), "", [{
        ::llvm::SmallVector<::mlir::Value> touched($_op->getOperands());
        touched.append($_op->result_begin(), $_op->result_end());
        return touched;
      }]>,
  ];
  let extraSharedClassDeclaration = [{
    /// Floating-point operations and bytes, fixed and per row.
    ::zorse::OpCost getCost() { return ::zorse::detail::costOf($_op.getFlops(), $_op.getTouchedValues()); }
  }];
}

def Zorse_FactorsOpInterface : OpInterface<"FactorsOpInterface"> {
  let cppNamespace = "::zorse";
  let description = [{
    How the dimensions of operands and results relate, as in Shardy's op rules: `([i, k], [k, j]) -> ([i, j])`. Every dimension of every operand and result
    is a list of segments, and a segment a product of factors. A factor is *parallel* (each of its points is computed alone), *reduced* (the results of its
    parts combine) or *indivisible* (all its points are needed together, as in a softmax). There is no default: an op says its own rule.
  }];
  let methods = [InterfaceMethod<"The factors of this op.", "::zorse::OpFactors", "getFactors", (ins)>];
}

#endif // ZORSE_DIALECT_ZORSE_INTERFACES_TD
