// Operations that move elements and compute nothing.
#ifndef ZORSE_DIALECT_ZORSE_VIEW_OPS_TD
#define ZORSE_DIALECT_ZORSE_VIEW_OPS_TD

include "zorse/Dialect/Zorse/ZorseBase.td"

def Zorse_ReshapeOp : Zorse_Op<"reshape", [Pure]> {
  let summary = "Regroups dimensions in row-major order.";
  let description = [{
    The elements keep their row-major order. The sample axis is not regrouped: it remains dimension 0, so a range of
    samples remains one range of bytes.

    Constraints:
    - (C1) x and y have the same element type.
    - (C2) both carry samples or neither does.
    - (C3) the numbers of elements agree (per row, if they carry samples).

    Example: split 768 channels into 12 heads.
    ```mlir
    %heads = zorse.reshape %x : tensor<?x64x768xf32> -> tensor<?x64x12x64xf32>
    ```
  }];
  let arguments = (ins Zorse_Tensor:$x);
  let results = (outs Zorse_Tensor:$y);
  let assemblyFormat = "$x attr-dict `:` type($x) `->` type($y)";
  let builders = [OpBuilder<(ins "::mlir::Value":$x, "::llvm::ArrayRef<int64_t>":$shape)>];
  let hasFolder = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{ ::llvm::SmallVector<::mlir::Value> getTouchedValues(); }];
}

def Zorse_TransposeOp : Zorse_Op<"transpose", [Pure]> {
  let summary = "Permutes dimensions: dimension i of the result is dimension permutation[i] of x.";
  let description = [{
    Constraints:
    - (C1) permutation is a permutation of the dimensions of x.
    - (C2) a sample axis stays dimension 0.
    - (C3) y has the type of x with its dimensions permuted.

    Example: from positions × heads to heads × positions.
    ```mlir
    %y = zorse.transpose %x [0, 2, 1, 3] : tensor<?x64x12x64xf32> -> tensor<?x12x64x64xf32>
    ```
  }];
  let arguments = (ins Zorse_Tensor:$x, DenseI64ArrayAttr:$permutation);
  let results = (outs Zorse_Tensor:$y);
  let assemblyFormat = "$x $permutation attr-dict `:` type($x) `->` type($y)";
  let builders = [OpBuilder<(ins "::mlir::Value":$x, "::llvm::ArrayRef<int64_t>":$permutation)>];
  let extraClassDeclaration = [{
    static ::mlir::RankedTensorType inferType(::mlir::RankedTensorType x, ::llvm::ArrayRef<int64_t> permutation);
  }];
  let hasFolder = 1;
  let hasCanonicalizer = 1;
}

def Zorse_SliceOp : Zorse_Op<"slice", [Pure]> {
  let summary = "A static, strided slice.";
  let description = [{
    y[i, ...] = x[offsets + i * strides, ...]. The slice contains the whole sample axis: its entry is offset 0, size `?`
    (`ShapedType::kDynamic`), stride 1.

    Constraints:
    - (C1) offsets, sizes and strides have one entry per dimension of x.
    - (C2) a sample axis is taken whole.
    - (C3) every other entry has offset >= 0, size >= 1, stride >= 1 and stays inside x.
    - (C4) y has the shape `sizes` and the element type of x.

    Example: the second of three equal parts of the last dimension.
    ```mlir
    %k = zorse.slice %qkv [0, 0, 768] [?, 64, 768] [1, 1, 1] : tensor<?x64x2304xf32> -> tensor<?x64x768xf32>
    ```
  }];
  let arguments = (ins Zorse_Tensor:$x, DenseI64ArrayAttr:$offsets, DenseI64ArrayAttr:$sizes, DenseI64ArrayAttr:$strides);
  let results = (outs Zorse_Tensor:$y);
  let assemblyFormat = "$x $offsets custom<Extents>($sizes) $strides attr-dict `:` type($x) `->` type($y)";
  let builders = [OpBuilder<(ins "::mlir::Value":$x, "::llvm::ArrayRef<int64_t>":$offsets, "::llvm::ArrayRef<int64_t>":$sizes, "::llvm::ArrayRef<int64_t>":$strides)>,
                  /// The range [offset, offset + size) of dimension `dim`, and all of the other dimensions.
                  OpBuilder<(ins "::mlir::Value":$x, "int64_t":$dim, "int64_t":$offset, "int64_t":$size)>];
  let hasFolder = 1;
  let hasCanonicalizer = 1;
}

def Zorse_ConcatOp : Zorse_Op<"concat", [Pure]> {
  let summary = "Joins tensors along a static dimension.";
  let description = [{
    Constraints:
    - (C1) there is at least one operand, and all have the same element type and rank.
    - (C2) dim is a dimension of the operands and not a sample axis.
    - (C3) the operands agree in every dimension but dim.
    - (C4) y has that shape, with the sum of the operands' sizes in dim.

    Example:
    ```mlir
    %y = zorse.concat %a, %b {dim = 2 : i64} : (tensor<?x64x32xf32>, tensor<?x64x96xf32>) -> tensor<?x64x128xf32>
    ```
  }];
  let arguments = (ins Variadic<Zorse_Tensor>:$xs, I64Attr:$dim);
  let results = (outs Zorse_Tensor:$y);
  let assemblyFormat = "$xs attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::ValueRange":$xs, "int64_t":$dim)>];
  let hasFolder = 1;
}

def Zorse_BroadcastOp : Zorse_Op<"broadcast", [Pure]> {
  let summary = "Repeats a tensor along new dimensions: dimension i of x becomes dimension dims[i] of the result.";
  let description = [{
    All other dimensions of the result are new, and x repeats along them. A dimension of x with size 1 is not extended;
    a reshape must remove it first. The gradient is therefore a sum over exactly the new dimensions. A sampled result of
    an unsampled x repeats x for every row.

    Constraints:
    - (C1) x and y have the same element type.
    - (C2) dims has one entry per dimension of x, strictly increasing and within the rank of y.
    - (C3) dimension i of x has the size of dimension dims[i] of y; a sample axis stays dimension 0.

    Example: a bias over rows and positions.
    ```mlir
    %b = zorse.broadcast %bias dims [2] : tensor<768xf32> -> tensor<?x64x768xf32>
    ```
  }];
  let arguments = (ins Zorse_Tensor:$x, DenseI64ArrayAttr:$dims);
  let results = (outs Zorse_Tensor:$y);
  let assemblyFormat = "$x `dims` $dims attr-dict `:` type($x) `->` type($y)";
  let hasFolder = 1;
  let hasCanonicalizer = 1;
}

#endif // ZORSE_DIALECT_ZORSE_VIEW_OPS_TD
