// Exchanges of values among the devices of a group (tensor parallelism). They occur in the functions of one device, after differentiation.
#ifndef ZORSE_DIALECT_ZORSE_EXCHANGE_OPS_TD
#define ZORSE_DIALECT_ZORSE_EXCHANGE_OPS_TD

include "zorse/Dialect/Zorse/ZorseBase.td"

def Zorse_AllReduceOp : Op<Zorse_Dialect, "all_reduce", [Pure, AllTypesMatch<["x", "y"]>]> {
  let summary = "Sum of the values of all devices of the group, in the order of the devices.";
  let description = [{
    Example: a device has the summand of its attention heads.
    ```mlir
    %y = zorse.all_reduce %x : tensor<?x64x768xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$x);
  let results = (outs Zorse_FloatTensor:$y);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}

def Zorse_AllGatherOp : Op<Zorse_Dialect, "all_gather", [Pure]> {
  let summary = "The whole of a value of which each device of the group has the granules of its share.";
  let description = [{
    Granule g consists of the points [begins + g * widths, begins + (g + 1) * widths) of dimension `dim` of y, for every
    entry of `begins` and `widths`. `ends` are the last granules + 1 of the devices, in their order. x contains the
    device's points in ascending order.

    Constraints:
    - (C1) `begins` and `widths` have one entry per segment, `dim` is a dimension of y.
    - (C2) x and y have the same element type and equal shapes except for dimension `dim`.
    - (C3) the segments contain every point of dimension `dim` of y.

    Example: 4 granules of 2 columns on two devices; this device has the last one.
    ```mlir
    %y = zorse.all_gather %x dim 1 segments [0] widths [2] ends [3, 4] : tensor<?x2xf32> -> tensor<?x8xf32>
    ```
  }];
  let arguments = (ins Zorse_Tensor:$x, I64Attr:$dim, DenseI64ArrayAttr:$begins, DenseI64ArrayAttr:$widths, DenseI64ArrayAttr:$ends);
  let results = (outs Zorse_Tensor:$y);
  let assemblyFormat = "$x `dim` $dim `segments` $begins `widths` $widths `ends` $ends attr-dict `:` type($x) `->` type($y)";
  let hasVerifier = 1;
}

#endif // ZORSE_DIALECT_ZORSE_EXCHANGE_OPS_TD
