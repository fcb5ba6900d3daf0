// Exchanges of values among the devices of a group (tensor parallelism). They occur in the functions of one device.
#ifndef ZORSE_DIALECT_ZORSE_EXCHANGE_OPS_TD
#define ZORSE_DIALECT_ZORSE_EXCHANGE_OPS_TD

include "zorse/Dialect/Zorse/ZorseBase.td"

// `number` identifies an exchange: the functions of all devices have it, in the same order. Numbers are unique among the
// functions of a class.

def Zorse_AllReduceOp : Op<Zorse_Dialect, "all_reduce", [Pure, AllTypesMatch<["x", "y"]>]> {
  let summary = "Sum of the values of all devices of the group, in the order of the devices.";
  let description = [{
    Example: a device has the summand of its attention heads.
    ```mlir
    %y = zorse.all_reduce 0, %x : tensor<?x64x768xf32>
    ```
  }];
  let arguments = (ins I64Attr:$number, Zorse_FloatTensor:$x);
  let results = (outs Zorse_FloatTensor:$y);
  let assemblyFormat = "$number `,` $x attr-dict `:` type($x)";
}

def Zorse_AllGatherOp : Op<Zorse_Dialect, "all_gather", [Pure]> {
  let summary = "The values of all devices of the group.";
  let description = [{
    Result d is the value of device d. `device` is the device that calls this function: its value is x.

    Constraints:
    - (C1) the type of result `device` is that of x.
    - (C2) all results have the element type of x.

    Example: the first of two devices has six columns.
    ```mlir
    %parts:2 = zorse.all_gather 1, %x device 0 : tensor<?x6xf32> -> tensor<?x6xf32>, tensor<?x2xf32>
    ```
  }];
  let arguments = (ins I64Attr:$number, Zorse_Tensor:$x, I64Attr:$device);
  let results = (outs Variadic<Zorse_Tensor>:$parts);
  let assemblyFormat = "$number `,` $x `device` $device attr-dict `:` type($x) `->` type($parts)";
  let hasVerifier = 1;
}

#endif // ZORSE_DIALECT_ZORSE_EXCHANGE_OPS_TD
