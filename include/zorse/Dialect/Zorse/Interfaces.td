// Interfaces of operations: gradient, cost, and the relation of dimensions.
#ifndef ZORSE_DIALECT_ZORSE_INTERFACES_TD
#define ZORSE_DIALECT_ZORSE_INTERFACES_TD

include "mlir/IR/OpBase.td"

def Zorse_DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::zorse";
  let description = [{
    Reverse-mode differentiation of one operation: the vector-Jacobian product. The implementations are in lib/Autodiff
    and are attached as external models, to this dialect and to upstream operations. An operation without a model is not
    differentiable; it is an error if a gradient must pass through it.
  }];
  let methods = [
    InterfaceMethod<[{
        Builds the gradients of the operands from those of the results.

        `resultGradients` has one value per result; null is zero (statistics never have a gradient). `needsGradient(i)`
        returns whether the gradient of operand i is needed. Returns one value per operand, of the operand's type; null
        is zero or not needed. Fails after emitting a diagnostic.
      }],
      "::mlir::FailureOr<::llvm::SmallVector<::mlir::Value>>", "buildVjp",
      (ins "::mlir::OpBuilder &":$builder, "::llvm::ArrayRef<::mlir::Value>":$resultGradients,
           "::llvm::function_ref<bool(unsigned)>":$needsGradient)>,
    InterfaceMethod<[{
        Whether operand `index` can have a gradient. By default, floats can. Integers, booleans and operands that only
        determine shapes cannot.
      }],
      "bool", "isOperandDifferentiable", (ins "unsigned":$index), "",
      [{ return ::llvm::isa<::mlir::FloatType>(::mlir::getElementTypeOrSelf($_op->getOperand(index).getType())); }]>,
  ];
}

def Zorse_CostOpInterface : OpInterface<"CostOpInterface"> {
  let cppNamespace = "::zorse";
  let description = [{
    FLOPs and bytes of an operation without fusion, as an affine function of the number of rows.
  }];
  let methods = [
    InterfaceMethod<"FLOPs of one row, or of the whole operation if it carries no samples. A multiply-add counts as 2.", "double", "getFlops", (ins)>,
    InterfaceMethod<"Values that the operation reads or writes, listed once per access.", "::llvm::SmallVector<::mlir::Value>", "getTouchedValues", (ins), "", [{
        ::llvm::SmallVector<::mlir::Value> touched($_op->getOperands());
        touched.append($_op->result_begin(), $_op->result_end());
        return touched;
      }]>,
  ];
  let extraSharedClassDeclaration = [{
    /// FLOPs and bytes, fixed and per row.
    ::zorse::OpCost getCost() { return ::zorse::detail::costOf($_op.getFlops(), $_op.getTouchedValues()); }
  }];
}

def Zorse_FactorsOpInterface : OpInterface<"FactorsOpInterface"> {
  let cppNamespace = "::zorse";
  let description = [{
    Relates the dimensions of operands and results, as in Shardy's op rules: `([i, k], [k, j]) -> ([i, j])`. Every
    dimension of every operand and result is a list of segments, and a segment is a product of factors. A factor is
    - *parallel*: each of its points is computed independently;
    - *reduced*: the results of its parts combine;
    - *indivisible*: all its points are needed together, as in a softmax.

    There is no default: every operation defines its own rule.
  }];
  let methods = [InterfaceMethod<"The factors of this operation.", "::zorse::OpFactors", "getFactors", (ins)>];
}

#endif // ZORSE_DIALECT_ZORSE_INTERFACES_TD
