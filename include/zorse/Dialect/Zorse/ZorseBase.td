// The dialect and the common parts of its operations: type constraints, the base class, enums.
#ifndef ZORSE_DIALECT_ZORSE_BASE_TD
#define ZORSE_DIALECT_ZORSE_BASE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "zorse/Dialect/Zorse/Interfaces.td"

def Zorse_Dialect : Dialect {
  let name = "zorse";
  let cppNamespace = "::zorse";
  let summary = "Graph IR: a training model in value semantics, before it is divided among devices.";
  let description = [{
    Values are ranked tensors. **The sample axis (batch dimension) is the dynamic dimension**: a value carries samples
    iff dimension 0 of its type is `?`, and no other dimension is ever dynamic. A function therefore works for every
    number of rows, and a range of samples is one contiguous range of bytes.

    Elementwise arithmetic uses `arith` and `math` on tensors of equal types, with explicit `zorse.broadcast`. This
    dialect has an operation only if training needs it as one: because its gradient needs less than the gradients of its
    parts, or because a device has one routine for it.

    A broadcast of an unsampled value to a sampled type needs no operand for the number of rows, because all sampled
    values of a function have the same number of rows.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect"];
  let hasConstantMaterializer = 1;
  let useDefaultAttributePrinterParser = 1;
  // Check `zorse.argument` of every function.
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

def Zorse_IsGraphTensor : CPred<"::zorse::isGraphTensor($_self)">;

class Zorse_TensorOf<Pred elementPred, string elementSummary> :
    Type<And<[Zorse_IsGraphTensor, elementPred]>,
         "ranked tensor of " # elementSummary # " with no dynamic dimension but dimension 0", "::mlir::RankedTensorType">;

def Zorse_Tensor : Type<Zorse_IsGraphTensor, "ranked tensor with no dynamic dimension but dimension 0", "::mlir::RankedTensorType">;
def Zorse_FloatTensor : Zorse_TensorOf<CPred<"::llvm::isa<::mlir::FloatType>(::mlir::getElementTypeOrSelf($_self))">, "floats">;
def Zorse_IntTensor : Zorse_TensorOf<CPred<"::mlir::getElementTypeOrSelf($_self).isInteger(32) || ::mlir::getElementTypeOrSelf($_self).isInteger(64)">, "i32 or i64">;
def Zorse_MaskTensor : Zorse_TensorOf<CPred<"::llvm::isa<::mlir::FloatType>(::mlir::getElementTypeOrSelf($_self)) || ::mlir::getElementTypeOrSelf($_self).isInteger(1)">, "floats or i1">;
def Zorse_F64Scalar : Type<CPred<"$_self == ::mlir::RankedTensorType::get({}, ::mlir::Float64Type::get($_self.getContext()))">, "tensor<f64>", "::mlir::RankedTensorType">;

//===----------------------------------------------------------------------===//
// Enums
//===----------------------------------------------------------------------===//

def Zorse_ReduceKind : I32EnumAttr<"ReduceKind", "what a reduction computes", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Max", 1, "max">, I32EnumAttrCase<"Min", 2, "min">, I32EnumAttrCase<"Prod", 3, "prod">]> {
  let cppNamespace = "::zorse";
  let genSpecializedAttr = 0;
}
def Zorse_ReduceKindAttr : EnumAttr<Zorse_Dialect, Zorse_ReduceKind, "reduce_kind">;

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

class Zorse_Op<string mnemonic, list<Trait> traits = []> : 
    Op<Zorse_Dialect, mnemonic, !listconcat(traits, [DeclareOpInterfaceMethods<Zorse_CostOpInterface>, DeclareOpInterfaceMethods<Zorse_FactorsOpInterface>])> {
  let hasVerifier = 1;
}

// Operands and results have one shape, except scalars, and each element is computed independently.
class Zorse_ElementwiseOp<string mnemonic, list<Trait> traits = []> : Zorse_Op<mnemonic, traits> {
  let extraClassDefinition = [{
    ::zorse::OpFactors $cppClass::getFactors() { return ::zorse::elementwiseFactors(*this); }
  }];
}

// An activation function: elementwise, and computed in the type of its operand.
def Zorse_IsActivation : NativeOpTrait<"IsActivation"> {
  let cppNamespace = "::zorse";
}

#endif // ZORSE_DIALECT_ZORSE_BASE_TD
