// Units, their classes, and the tasks of functions of classes.
#ifndef ZORSE_DIALECT_ZORSE_UNIT_OPS_TD
#define ZORSE_DIALECT_ZORSE_UNIT_OPS_TD

include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "zorse/Dialect/Zorse/Arguments.td"

// Numbers of tasks that programs call are those of bundle.UnitFunction.Task.
def Zorse_Task : I32EnumAttr<"Task", "task of a function of a class", [
    I32EnumAttrCase<"Forward", 1, "forward">, I32EnumAttrCase<"Backward", 2, "backward">,
    I32EnumAttrCase<"InputGradients", 3, "backward_inputs">, I32EnumAttrCase<"WeightGradients", 4, "backward_weights">,
    I32EnumAttrCase<"Recompute", 5, "recompute">, I32EnumAttrCase<"Logits", 6, "logits">, I32EnumAttrCase<"Joint", 7, "joint">]> {
  let cppNamespace = "::zorse";
  let genSpecializedAttr = 0;
}

def Zorse_ClassOp : Op<Zorse_Dialect, "class", [Symbol, SymbolTable, IsolatedFromAbove, NoRegionArguments, NoTerminator, SingleBlock]> {
  let summary = "functions shared by units of equal structure";
  let description = [{
    Contains one `func.func` per task. The name of a function is the name of its task, and its body is called
    `<class>.<task>`. Between differentiation and the choice of saved values, the forward and its gradients are one
    `joint` function.

    Constraints:
    - (C1) all functions are functions of tasks, at most one per task; there is a forward or a joint function.
    - (C2) every argument and result has an argument attribute of a kind that its task allows.
    - (C3) the argument attributes of a kind are numbered from 0 without gaps in the function that defines them: parameters, inputs,
      boundary values, losses and saved values in the forward, values saved for the weight gradients in `backward_inputs`.
    - (C4) an argument has one type in all functions of the class, and a gradient has the shape of its value.
    - (C5) the two parts of a backward exist only together, and in addition to the complete backward.

    ```mlir
    zorse.class @mlp {
      func.func @forward(%w: tensor<64x8xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                         %x: tensor<?x8xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
          -> (tensor<?x64xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
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
    /// Returns the function of a task; null if the class has none.
    ::mlir::func::FuncOp function(::zorse::Task task);
    /// Returns the function that writes a packed block, saved or deferred, with results in the layout of the block;
    /// null if none does.
    ::mlir::func::FuncOp writerOf(::zorse::ArgumentKind block);
    /// Returns the function that defines the arguments of units: the forward or, during differentiation, the joint
    /// function.
    ::mlir::func::FuncOp definer();
  }];
}

def Zorse_UnitOp : Op<Zorse_Dialect, "unit", [AttrSizedOperandSegments, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "a unit of the model: its class applied to its parameters, inputs and values of earlier units";
  let description = [{
    After `zorse-find-units`, `@model` is a chain of units, and the model summary is a function of `@model` and the
    classes. The results are the values that later units read, followed by the numerators of the loss. `known` are the
    numbers that the unit reads (`zorse.known`). `rng_id_base` is the number of random operations of earlier units. It
    is added to `rng_id` of the operations of this unit.

    Constraints:
    - (U1) `callee` is a `zorse.class`.
    - (U2) operands and results are those of the class's forward, in the order of their arguments. Shapes are equal. Types
      are equal, unless the class stores rounded values in two bytes (`zorse-low-precision-storage`).
    - (U3) every result has a name, which may be empty.

    ```mlir
    %h1 = zorse.unit @mlp "block 0 mlp" parameters(%w) values(%h0) rng_id_base 3 -> ["h.0"] : (tensor<64x8xf32>, tensor<?x8xf32>) -> tensor<?x64xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, StrAttr:$label, Variadic<AnyRankedTensor>:$parameters, Variadic<AnyRankedTensor>:$inputs,
                       Variadic<AnyRankedTensor>:$boundary, Variadic<AnyRankedTensor>:$known, DefaultValuedAttr<I64Attr, "0">:$rng_id_base,
                       StrArrayAttr:$names);
  let results = (outs Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "$callee $label (`parameters` `(` $parameters^ `)`)? (`inputs` `(` $inputs^ `)`)? (`values` `(` $boundary^ `)`)? "
                       "(`known` `(` $known^ `)`)? (`rng_id_base` $rng_id_base^)? `->` $names attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::zorse::ClassOp unitClass();
  }];
}

def Zorse_TargetOp : Op<Zorse_Dialect, "target", [Symbol, SymbolTable, IsolatedFromAbove, NoRegionArguments, NoTerminator, SingleBlock]> {
  let summary = "compilation result for one processor architecture: compiled functions and the kernels that they launch";
  let description = [{
    Its name is the architecture. `functions` is a serialized `FunctionLibrary` (runtime/schema/bundle.proto), which defines
    this data. The region contains one `builtin.module` per kernel. The kernel's symbol is a hash of the module's text,
    so equal kernels are shared. `object` is the machine code of the kernels after their compilation.

    ```mlir
    zorse.target @sm_80 attributes {functions = dense_resource<functions_sm_80> : tensor<15012xi8>} {
      module @mulf_erf_addf_9c01 { ... }
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, ElementsAttr:$functions, OptionalAttr<ElementsAttr>:$object);
  let regions = (region SizedRegion<1>:$kernels);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $kernels";
  let hasRegionVerifier = 1;
}

#endif // ZORSE_DIALECT_ZORSE_UNIT_OPS_TD
