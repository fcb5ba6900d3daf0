// Units, their classes, and what functions of classes do.
#ifndef ZORSE_DIALECT_ZORSE_UNIT_OPS_TD
#define ZORSE_DIALECT_ZORSE_UNIT_OPS_TD

include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "zorse/Dialect/Zorse/Slots.td"

// Numbers of tasks that programs call are those of bundle.UnitFunction.Task.
def Zorse_Task : I32EnumAttr<"Task", "what a function of a class does", [
    I32EnumAttrCase<"Forward", 1, "forward">, I32EnumAttrCase<"Backward", 2, "backward">,
    I32EnumAttrCase<"InputGradients", 3, "backward_inputs">, I32EnumAttrCase<"WeightGradients", 4, "backward_weights">,
    I32EnumAttrCase<"Recompute", 5, "recompute">, I32EnumAttrCase<"Logits", 6, "logits">, I32EnumAttrCase<"Joint", 7, "joint">]> {
  let cppNamespace = "::zorse";
  let genSpecializedAttr = 0;
}

def Zorse_ClassOp : Op<Zorse_Dialect, "class", [Symbol, SymbolTable, IsolatedFromAbove, NoRegionArguments, NoTerminator, SingleBlock]> {
  let summary = "units of equal structure: the functions that they share";
  let description = [{
    Holds one `func.func` per task. The name of a function is the word of its task, and the body of the function is called `<class>.<task>`. Between
    differentiation and the choice of what is saved the forward and its gradients are one `joint` function.

    Constraints:
    - (C1) there are functions of tasks alone, one of each at most; there is a forward or a joint function.
    - (C2) every argument and result has a slot, of a kind that functions of its task have.
    - (C3) slots of one kind are numbered from 0 without gaps where they are defined: parameters, inputs, boundary values and losses in the forward,
      saved values among its results, deferred ones among those of `backward_inputs`.
    - (C4) a slot has one type in all functions of the class, and a gradient the shape of what it is a gradient of.
    - (C5) the two parts of a backward come together, beside the whole.

    ```mlir
    zorse.class @mlp {
      func.func @forward(%w: tensor<64x8xf32> {zorse.slot = #zorse.slot<parameter, 0>, zorse.gradient},
                         %x: tensor<?x8xf32> {zorse.slot = #zorse.slot<boundary_in, 0>, zorse.gradient})
          -> (tensor<?x64xf32> {zorse.slot = #zorse.slot<boundary_out, 0>, zorse.gradient}) {
        %y = zorse.matmul %x, %w {transpose_b} : tensor<?x8xf32>, tensor<64x8xf32> -> tensor<?x64xf32>
        return %y : tensor<?x64xf32>
      }
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// Null: the class has none.
    ::mlir::func::FuncOp function(::zorse::Task task);
    /// The function whose results lie in a packed block, saved or deferred, as the block lays them out; null: nothing writes it.
    ::mlir::func::FuncOp writerOf(::zorse::SlotKind block);
    /// The function that says which slots units of the class have: the forward, or while the class is differentiated the joint function.
    ::mlir::func::FuncOp definer();
  }];
}

def Zorse_UnitOp : Op<Zorse_Dialect, "unit", [AttrSizedOperandSegments, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "a unit of the model: its class applied to its own parameters, to inputs and to values of earlier units";
  let description = [{
    After `zorse-find-units`, `@model` is a chain of units, and the model summary is a function of it and of the classes. Results are the values that later
    units read, then the numerators of the loss. `known` are the numbers that the unit reads (`zorse.known`); `instances` is how many random instances
    earlier units have.

    Constraints:
    - (U1) `callee` is a `zorse.class`.
    - (U2) operands and results are those of the class's forward, in order of their slots: of equal shape, and of equal type unless the class stores what has been
      rounded in two bytes (`zorse-narrow-storage`).
    - (U3) every result has a name, which may be empty.

    ```mlir
    %h1 = zorse.unit @mlp "block 0 mlp" parameters(%w) values(%h0) instances 3 -> ["h.0"] : (tensor<64x8xf32>, tensor<?x8xf32>) -> tensor<?x64xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, StrAttr:$label, Variadic<AnyRankedTensor>:$parameters, Variadic<AnyRankedTensor>:$inputs,
                       Variadic<AnyRankedTensor>:$boundary, Variadic<AnyRankedTensor>:$known, DefaultValuedAttr<I64Attr, "0">:$instance_base,
                       StrArrayAttr:$names);
  let results = (outs Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "$callee $label (`parameters` `(` $parameters^ `)`)? (`inputs` `(` $inputs^ `)`)? (`values` `(` $boundary^ `)`)? "
                       "(`known` `(` $known^ `)`)? (`instances` $instance_base^)? `->` $names attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::zorse::ClassOp unitClass();
  }];
}

def Zorse_TargetOp : Op<Zorse_Dialect, "target", [Symbol, SymbolTable, IsolatedFromAbove, NoRegionArguments, NoTerminator, SingleBlock]> {
  let summary = "what is compiled for one kind of processor: its bodies, and the kernels that they launch";
  let description = [{
    Is called by its architecture. `bodies` is a serialised `BodyLibrary` (runtime/schema/bundle.proto), which owns this data. Holds one `builtin.module`
    for each kernel, whose name is its symbol: a hash of the module's text, so that equal kernels are one. `object` is their machine code, once they are
    compiled.

    ```mlir
    zorse.target @sm_80 attributes {bodies = dense_resource<bodies_sm_80> : tensor<15012xi8>} {
      module @mulf_erf_addf_9c01 { ... }
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, ElementsAttr:$bodies, OptionalAttr<ElementsAttr>:$object);
  let regions = (region SizedRegion<1>:$kernels);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $kernels";
  let hasRegionVerifier = 1;
}

#endif // ZORSE_DIALECT_ZORSE_UNIT_OPS_TD
