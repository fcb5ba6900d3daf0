// Operations that identify samples within a step.
#ifndef ZORSE_DIALECT_ZORSE_SAMPLE_OPS_TD
#define ZORSE_DIALECT_ZORSE_SAMPLE_OPS_TD

include "zorse/Dialect/Zorse/ZorseBase.td"

def Zorse_SampleNumberOp : Zorse_ElementwiseOp<"sample_number", [Pure]> {
  let summary = "The number of every sample within its step, starting at 0.";
  let description = [{
    Row i of a cell with first sample s has the number s + i. The number therefore depends neither on the plan nor on
    the device. It has no gradient.

    Constraints:
    - (C1) the result is tensor<?xi64>.

    Example:
    ```mlir
    %numbers = zorse.sample_number : tensor<?xi64>
    ```
  }];
  let arguments = (ins);
  let results = (outs Zorse_IntTensor:$y);
  let assemblyFormat = "attr-dict `:` type($y)";
  let hasVerifier = 1;
}

#endif // ZORSE_DIALECT_ZORSE_SAMPLE_OPS_TD
