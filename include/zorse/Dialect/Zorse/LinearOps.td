// Matmuls, reductions, and indexed access.
#ifndef ZORSE_DIALECT_ZORSE_LINEAR_OPS_TD
#define ZORSE_DIALECT_ZORSE_LINEAR_OPS_TD

include "zorse/Dialect/Zorse/ZorseBase.td"

def Zorse_ReduceOp : Zorse_Op<"reduce", [Pure]> {
  let summary = "Combines the elements along dims and removes these dimensions.";
  let description = [{
    Combines elements in row-major order. A reduction of the sample axis mixes samples. Gradients of values that all
    samples share do this; a forward never does (`zorse-verify-model`). To keep a dimension with size 1, reshape the
    result.

    Constraints:
    - (C1) dims are strictly increasing dimensions of x.
    - (C2) y has the type of x without dims.
    - (C3) the elements are integers or floats, not booleans.

    Example:
    ```mlir
    %s = zorse.reduce sum %x dims [2] : tensor<?x64x768xf32> -> tensor<?x64xf32>
    ```
  }];
  let arguments = (ins Zorse_Tensor:$x, Zorse_ReduceKindAttr:$kind, DenseI64ArrayAttr:$dims);
  let results = (outs Zorse_Tensor:$y);
  let assemblyFormat = "custom<ReduceKind>($kind) $x `dims` $dims attr-dict `:` type($x) `->` type($y)";
  let builders = [OpBuilder<(ins "::mlir::Value":$x, "::zorse::ReduceKind":$kind, "::llvm::ArrayRef<int64_t>":$dims)>];
  let extraClassDeclaration = [{
    static ::mlir::RankedTensorType inferType(::mlir::RankedTensorType x, ::llvm::ArrayRef<int64_t> dims);
  }];
  let hasFolder = 1;
}

def Zorse_MatmulOp : Zorse_Op<"matmul", [Pure]> {
  let summary = "Matmul over the last two dimensions.";
  let description = [{
    a is [batch..., M, K], or [batch..., K, M] with `transpose_a`. b is [K, N] for every batch (a weight), or [batch...,
    K, N] with the batch dimensions of a; with `transpose_b`, the last two dimensions are [N, K]. The result is
    [batch..., M, N]. With a 2-D b and no `transpose_a`, all dimensions of a except the last are treated as one long M.

    Constraints:
    - (C1) a has rank >= 2, b has rank 2 or the rank of a, and the element types are equal.
    - (C2) the batch dimensions agree, if b has them.
    - (C3) the inner dimensions agree.
    - (C4) neither K nor N is the sample axis (`zorse.matmul_grad_weight` sums over samples).
    - (C5) y is [batch..., M, N] of the same element type, or of f32 for bf16 or f16 operands, which are accumulated in
      f32.

    Example: a linear layer with PyTorch's [out, in] weight.
    ```mlir
    %y = zorse.matmul %x, %w {transpose_b} : tensor<?x64x768xf32>, tensor<3072x768xf32> -> tensor<?x64x3072xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$a, Zorse_FloatTensor:$b, UnitAttr:$transpose_a, UnitAttr:$transpose_b);
  let results = (outs Zorse_FloatTensor:$y);
  let assemblyFormat = "$a `,` $b attr-dict `:` type($a) `,` type($b) `->` type($y)";
  let builders = [OpBuilder<(ins "::mlir::Value":$a, "::mlir::Value":$b, CArg<"bool", "false">:$transposeA, CArg<"bool", "false">:$transposeB)>];
  let extraClassDeclaration = [{
    static ::mlir::RankedTensorType inferType(::mlir::RankedTensorType a, ::mlir::RankedTensorType b, bool transposeA, bool transposeB);
  }];
}

def Zorse_BiasedMatmulOp : Zorse_Op<"biased_matmul", [Pure]> {
  let summary = "A linear layer: a matmul with a weight, and a bias that is added to every row.";
  let description = [{
    y = a b + bias. The sum is computed in f32 and rounded once. Code generation creates this operation from
    `zorse.matmul`, an addition and a rounding for devices with a library that adds the bias. Models do not contain it.

    Constraints:
    - (C1) a and b are as in `zorse.matmul` without `transpose_a`; b has rank 2.
    - (C2) y is as in `zorse.matmul`.
    - (C3) bias is [N] of the element type of y.

    Example:
    ```mlir
    %y = zorse.biased_matmul %x, %w, %bias {transpose_b} : tensor<?x64x768xbf16>, tensor<3072x768xbf16>, tensor<3072xbf16> -> tensor<?x64x3072xbf16>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$a, Zorse_FloatTensor:$b, Zorse_FloatTensor:$bias, UnitAttr:$transpose_b);
  let results = (outs Zorse_FloatTensor:$y);
  let assemblyFormat = "$a `,` $b `,` $bias attr-dict `:` type($a) `,` type($b) `,` type($bias) `->` type($y)";
}

def Zorse_MatmulGradWeightOp : Zorse_Op<"matmul_grad_weight", [Pure]> {
  let summary = "The transpose of a times b, summed over all leading dimensions: the gradient of a weight.";
  let description = [{
    y[k, n] = sum over lead of a[lead..., k] * b[lead..., n]. With y = x w, the gradient of w is `matmul_grad_weight x,
    dy`. The leading dimensions include the sample axis. The operation therefore mixes samples and occurs only in
    gradients.

    Constraints:
    - (C1) a and b have equal rank >= 2 and equal element types.
    - (C2) all dimensions but the last agree.
    - (C3) y is [K, N] of the same element type, or of f32 for bf16 or f16 operands.

    Example:
    ```mlir
    %dw = zorse.matmul_grad_weight %x, %dy : tensor<?x64x768xf32>, tensor<?x64x3072xf32> -> tensor<768x3072xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$a, Zorse_FloatTensor:$b);
  let results = (outs Zorse_FloatTensor:$y);
  let assemblyFormat = "$a `,` $b attr-dict `:` type($a) `,` type($b) `->` type($y)";
  let builders = [OpBuilder<(ins "::mlir::Value":$a, "::mlir::Value":$b)>];
}

def Zorse_GatherOp : Zorse_Op<"gather", [Pure]> {
  let summary = "Rows of a table by index.";
  let description = [{
    y[lead..., ...] = table[indices[lead...], ...]. An index outside [0, V) is an error in the data and is reported when
    the step runs. The row `padding` is read like any other and has no gradient, like padding_idx of a PyTorch embedding.

    Constraints:
    - (C1) table has rank >= 1 and carries no samples.
    - (C2) y has the shape of indices followed by that of table without dimension 0, and the element type of table.
    - (C3) padding, if given, is a row of table.

    Example: a token embedding.
    ```mlir
    %x = zorse.gather %wte, %ids {padding = 1 : i64} : tensor<50257x768xf32>, tensor<?x64xi64> -> tensor<?x64x768xf32>
    ```
  }];
  let arguments = (ins Zorse_Tensor:$table, Zorse_IntTensor:$indices, OptionalAttr<I64Attr>:$padding);
  let results = (outs Zorse_Tensor:$y);
  let assemblyFormat = "$table `,` $indices attr-dict `:` type($table) `,` type($indices) `->` type($y)";
  let builders = [OpBuilder<(ins "::mlir::Value":$table, "::mlir::Value":$indices, CArg<"std::optional<int64_t>", "std::nullopt">:$padding)>];
  let extraClassDeclaration = [{ ::llvm::SmallVector<::mlir::Value> getTouchedValues(); }];
}

def Zorse_ScatterAddOp : Zorse_Op<"scatter_add", [Pure]> {
  let summary = "Adds rows into a table of zeros by index: the transpose of gather.";
  let description = [{
    y[v, ...] = sum of updates[lead..., ...] over all lead with indices[lead...] = v, in row-major order of lead. The
    bits therefore do not depend on the number of threads. Row `padding` of y remains zero for all updates.

    Constraints:
    - (C1) updates has the shape of indices followed by that of y without dimension 0.
    - (C2) y carries no samples and has the element type of updates.
    - (C3) padding, if given, is a row of y.

    Example:
    ```mlir
    %dwte = zorse.scatter_add %ids, %dx : tensor<?x64xi64>, tensor<?x64x768xf32> -> tensor<50257x768xf32>
    ```
  }];
  let arguments = (ins Zorse_IntTensor:$indices, Zorse_FloatTensor:$updates, OptionalAttr<I64Attr>:$padding);
  let results = (outs Zorse_FloatTensor:$y);
  let assemblyFormat = "$indices `,` $updates attr-dict `:` type($indices) `,` type($updates) `->` type($y)";
  let builders = [OpBuilder<(ins "::mlir::Value":$indices, "::mlir::Value":$updates, "int64_t":$tableRows, CArg<"std::optional<int64_t>", "std::nullopt">:$padding)>];
}

def Zorse_TakeAlongDimOp : Zorse_Op<"take_along_dim", [Pure]> {
  let summary = "One element of every last-dimension vector, by index.";
  let description = [{
    y[lead...] = x[lead..., indices[lead...]], like torch.take_along_dim along the last dimension, which y does not have.

    Constraints:
    - (C1) indices has the shape of x without its last dimension, which is not the sample axis.
    - (C2) y has the shape of indices and the element type of x.

    Example: the log-probability of every label.
    ```mlir
    %p = zorse.take_along_dim %logp, %labels : tensor<?x64x50257xf32>, tensor<?x64xi64> -> tensor<?x64xf32>
    ```
  }];
  let arguments = (ins Zorse_Tensor:$x, Zorse_IntTensor:$indices);
  let results = (outs Zorse_Tensor:$y);
  let assemblyFormat = "$x `,` $indices attr-dict `:` type($x) `,` type($indices) `->` type($y)";
  let builders = [OpBuilder<(ins "::mlir::Value":$x, "::mlir::Value":$indices)>];
}

def Zorse_TakeAlongDimGradOp : Zorse_Op<"take_along_dim_grad", [Pure]> {
  let summary = "Gradient of take_along_dim with respect to x: dy at indices, zero elsewhere.";
  let description = [{
    dx[lead..., v] = dy[lead...] where indices[lead...] = v, and 0 elsewhere.

    Constraints:
    - (C1) indices has the shape of dy.
    - (C2) dx has the shape of dy with one static dimension appended, and its element type.

    Example:
    ```mlir
    %dx = zorse.take_along_dim_grad %dy, %ids : tensor<?x64xf32>, tensor<?x64xi64> -> tensor<?x64x50257xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$dy, Zorse_IntTensor:$indices);
  let results = (outs Zorse_FloatTensor:$dx);
  let assemblyFormat = "$dy `,` $indices attr-dict `:` type($dy) `,` type($indices) `->` type($dx)";
  let builders = [OpBuilder<(ins "::mlir::Value":$dy, "::mlir::Value":$indices, "int64_t":$size)>];
}

#endif // ZORSE_DIALECT_ZORSE_LINEAR_OPS_TD
