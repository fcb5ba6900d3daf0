// Softmaxes, norms and activations. Each is one operation, because its gradient needs less than the gradients of its
// parts.
#ifndef ZORSE_DIALECT_ZORSE_NORM_OPS_TD
#define ZORSE_DIALECT_ZORSE_NORM_OPS_TD

include "zorse/Dialect/Zorse/ZorseBase.td"
include "mlir/Interfaces/InferTypeOpInterface.td"

// y has the type of x.
class Zorse_UnaryOp<string mnemonic, list<Trait> traits = []> : Zorse_ElementwiseOp<mnemonic, !listconcat([Pure, AllTypesMatch<["x", "y"]>], traits)> {
  let arguments = (ins Zorse_FloatTensor:$x);
  let results = (outs Zorse_FloatTensor:$y);
  let assemblyFormat = "$x attr-dict `:` type($x)";
  let hasVerifier = 0;
}

class Zorse_ActivationOp<string mnemonic> : Zorse_UnaryOp<mnemonic, [Zorse_IsActivation]>;

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

class Zorse_SoftmaxLikeOp<string mnemonic> : Zorse_UnaryOp<mnemonic> {
  let hasVerifier = 1;
  let extraClassDefinition = "";
}

def Zorse_SoftmaxOp : Zorse_SoftmaxLikeOp<"softmax"> {
  let summary = "exp(x) / sum(exp(x)) over the last dimension.";
  let description = [{
    The maximum is subtracted first. A vector that contains only -inf yields NaN, like its parts.

    Constraints:
    - (C1) x has rank >= 1 and its last dimension is not the sample axis.

    Example:
    ```mlir
    %p = zorse.softmax %scores : tensor<?x12x64x64xf32>
    ```
  }];
}

def Zorse_LogSoftmaxOp : Zorse_SoftmaxLikeOp<"log_softmax"> {
  let summary = "x - log(sum(exp(x))) over the last dimension.";
  let description = [{
    Constraints:
    - (C1) x has rank >= 1 and its last dimension is not the sample axis.

    Example:
    ```mlir
    %logp = zorse.log_softmax %logits : tensor<?x64x50257xf32>
    ```
  }];
}

class Zorse_SoftmaxLikeGradOp<string mnemonic> : Zorse_Op<mnemonic, [Pure, AllTypesMatch<["y", "dy", "dx"]>]> {
  let arguments = (ins Zorse_FloatTensor:$y, Zorse_FloatTensor:$dy);
  let results = (outs Zorse_FloatTensor:$dx);
  let assemblyFormat = "$y `,` $dy attr-dict `:` type($y)";
}

def Zorse_SoftmaxGradOp : Zorse_SoftmaxLikeGradOp<"softmax_grad"> {
  let summary = "Gradient of softmax from its result.";
  let description = [{
    dx = y * (dy - sum(y * dy)) over the last dimension.

    Constraints:
    - (C1) y has rank >= 1 and its last dimension is not the sample axis.

    Example:
    ```mlir
    %dx = zorse.softmax_grad %y, %dy : tensor<?x12x64x64xf32>
    ```
  }];
}

def Zorse_LogSoftmaxGradOp : Zorse_SoftmaxLikeGradOp<"log_softmax_grad"> {
  let summary = "Gradient of log_softmax from its result.";
  let description = [{
    dx = dy - exp(y) * sum(dy) over the last dimension.

    Constraints:
    - (C1) y has rank >= 1 and its last dimension is not the sample axis.

    Example:
    ```mlir
    %dx = zorse.log_softmax_grad %y, %dy : tensor<?x64x50257xf32>
    ```
  }];
}

//===----------------------------------------------------------------------===//
// LayerNorm
//===----------------------------------------------------------------------===//

def Zorse_LayerNormOp : Zorse_Op<"layer_norm", [Pure, AttrSizedOperandSegments]> {
  let summary = "Normalization over the last dimension to mean 0 and variance 1, then weight and bias.";
  let description = [{
    y[..., i] = (x[..., i] - mean) * rstd * weight[i] + bias[i], with mean and variance over the last dimension and rstd = 1/sqrt(variance + epsilon).

    It is one operation, because its gradient needs only x, weight and two numbers per vector (Ba, Kiros and Hinton,
    2016). These statistics, mean and rstd, are results only if a backward saves them: there are none or both.

    Constraints:
    - (C1) x has rank >= 1 and its last dimension is not the sample axis.
    - (C2) weight and bias, if present, have shape [d] where d is the last dimension of x, and the element type of x.
    - (C3) epsilon is positive and finite.
    - (C4) y has the type of x.
    - (C5) statistics are none, or mean and rstd: the shape of x without its last dimension, in f32 (f64 for f64 inputs).

    Example:
    ```mlir
    %y, %mean, %rstd = zorse.layer_norm %x weight %g bias %b {epsilon = 1.0e-5 : f64}
        : (tensor<?x64x768xf32>, tensor<768xf32>, tensor<768xf32>) -> (tensor<?x64x768xf32>, tensor<?x64xf32>, tensor<?x64xf32>)
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$x, Optional<Zorse_FloatTensor>:$weight, Optional<Zorse_FloatTensor>:$bias, F64Attr:$epsilon);
  let results = (outs Zorse_FloatTensor:$y, Variadic<Zorse_FloatTensor>:$statistics);
  let assemblyFormat = "$x (`weight` $weight^)? (`bias` $bias^)? attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$x, "::mlir::Value":$weight, "::mlir::Value":$bias, "double":$epsilon, CArg<"bool", "false">:$withStatistics)>];
  let extraClassDeclaration = [{
    /// Returns null if the operation has no statistics.
    ::mlir::Value getMean() { return getStatistics().empty() ? ::mlir::Value() : getStatistics()[0]; }
    ::mlir::Value getRstd() { return getStatistics().empty() ? ::mlir::Value() : getStatistics()[1]; }
  }];
}

def Zorse_LayerNormGradInputOp : Zorse_Op<"layer_norm_grad_input", [Pure]> {
  let summary = "Gradient of layer_norm with respect to x.";
  let description = [{
    With h = (x - mean) * rstd and g = dy * weight: dx = rstd * (g - mean(g) - h * mean(g * h)), means over the last dimension.

    Constraints:
    - (C1) x, dy and dx have one type, of rank >= 1; its last dimension is not the sample axis.
    - (C2) weight, if present, has shape [d] where d is the last dimension of x, and the element type of x.
    - (C3) mean and rstd have the shape of x without its last dimension, in f32 (f64 for f64 inputs).

    Example:
    ```mlir
    %dx = zorse.layer_norm_grad_input %dy, %x, %mean, %rstd weight %g
        : (tensor<?x64x768xf32>, tensor<?x64x768xf32>, tensor<?x64xf32>, tensor<?x64xf32>, tensor<768xf32>) -> tensor<?x64x768xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$dy, Zorse_FloatTensor:$x, Zorse_FloatTensor:$mean, Zorse_FloatTensor:$rstd, Optional<Zorse_FloatTensor>:$weight);
  let results = (outs Zorse_FloatTensor:$dx);
  let assemblyFormat = "$dy `,` $x `,` $mean `,` $rstd (`weight` $weight^)? attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$dy, "::mlir::Value":$x, "::mlir::Value":$mean, "::mlir::Value":$rstd, "::mlir::Value":$weight)>];
}

def Zorse_LayerNormGradParamsOp : Zorse_Op<"layer_norm_grad_params", [Pure]> {
  let summary = "Gradients of layer_norm with respect to weight and bias.";
  let description = [{
    dweight = sum of dy * (x - mean) * rstd and dbias = sum of dy, over all dimensions except the last. It is separate
    from `layer_norm_grad_input`, so that a schedule can compute gradients of weights later.

    Constraints:
    - (C1) x and dy have one type, of rank >= 1; its last dimension is not the sample axis.
    - (C2) mean and rstd have the shape of x without its last dimension, in f32 (f64 for f64 inputs).
    - (C3) dweight and dbias have shape [d] where d is the last dimension of x, and the element type of x.

    Example:
    ```mlir
    %dweight, %dbias = zorse.layer_norm_grad_params %dy, %x, %mean, %rstd
        : (tensor<?x64x768xf32>, tensor<?x64x768xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> (tensor<768xf32>, tensor<768xf32>)
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$dy, Zorse_FloatTensor:$x, Zorse_FloatTensor:$mean, Zorse_FloatTensor:$rstd);
  let results = (outs Zorse_FloatTensor:$dweight, Zorse_FloatTensor:$dbias);
  let assemblyFormat = "$dy `,` $x `,` $mean `,` $rstd attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$dy, "::mlir::Value":$x, "::mlir::Value":$mean, "::mlir::Value":$rstd)>];
}

//===----------------------------------------------------------------------===//
// RMSNorm
//===----------------------------------------------------------------------===//

def Zorse_RmsNormOp : Zorse_Op<"rms_norm", [Pure]> {
  let summary = "Root-mean-square normalization over the last dimension, then a weight.";
  let description = [{
    y[..., i] = weight[i] * x[..., i] / sqrt(mean_i(x[..., i]^2) + epsilon)

    It is one operation, because its gradient needs only x, weight and one statistic per vector. The backward of its
    parts would save or recompute four temporaries of the size of x (Zhang and Sennrich, 2019, eq. 4). `rrms` is the
    statistic, 1/sqrt(mean + epsilon). It is a result only if a backward saves it.

    Constraints:
    - (C1) x has rank >= 1 and its last dimension is not the sample axis.
    - (C2) weight, if present, has shape [d] where d is the last dimension of x, and the element type of x.
    - (C3) epsilon is positive and finite.
    - (C4) y has the type of x.
    - (C5) rrms, if present, has the shape of x without its last dimension, in f32 (f64 for f64 inputs).

    Example:
    ```mlir
    %y, %rrms = zorse.rms_norm %x weight %g {epsilon = 1.0e-5 : f64} : (tensor<?x64x768xf32>, tensor<768xf32>) -> (tensor<?x64x768xf32>, tensor<?x64xf32>)
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$x, Optional<Zorse_FloatTensor>:$weight, F64Attr:$epsilon);
  let results = (outs Zorse_FloatTensor:$y, Optional<Zorse_FloatTensor>:$rrms);
  let assemblyFormat = "$x (`weight` $weight^)? attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$x, "::mlir::Value":$weight, "double":$epsilon, CArg<"bool", "false">:$withStatistics)>];
}

def Zorse_RmsNormGradInputOp : Zorse_Op<"rms_norm_grad_input", [Pure]> {
  let summary = "Gradient of rms_norm with respect to x.";
  let description = [{
    With h = x * rrms and g = dy * weight: dx = rrms * (g - h * mean(g * h)), mean over the last dimension.

    Constraints:
    - (C1) x, dy and dx have one type, of rank >= 1; its last dimension is not the sample axis.
    - (C2) weight, if present, has shape [d] where d is the last dimension of x, and the element type of x.
    - (C3) rrms has the shape of x without its last dimension, in f32 (f64 for f64 inputs).

    Example:
    ```mlir
    %dx = zorse.rms_norm_grad_input %dy, %x, %rrms weight %g : (tensor<?x64x768xf32>, tensor<?x64x768xf32>, tensor<?x64xf32>, tensor<768xf32>) -> tensor<?x64x768xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$dy, Zorse_FloatTensor:$x, Zorse_FloatTensor:$rrms, Optional<Zorse_FloatTensor>:$weight);
  let results = (outs Zorse_FloatTensor:$dx);
  let assemblyFormat = "$dy `,` $x `,` $rrms (`weight` $weight^)? attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$dy, "::mlir::Value":$x, "::mlir::Value":$rrms, "::mlir::Value":$weight)>];
}

def Zorse_RmsNormGradParamsOp : Zorse_Op<"rms_norm_grad_params", [Pure]> {
  let summary = "Gradient of rms_norm with respect to weight.";
  let description = [{
    dweight = sum of dy * x * rrms over all dimensions except the last.

    Constraints:
    - (C1) x and dy have one type, of rank >= 1; its last dimension is not the sample axis.
    - (C2) rrms has the shape of x without its last dimension, in f32 (f64 for f64 inputs).
    - (C3) dweight has shape [d] where d is the last dimension of x, and the element type of x.

    Example:
    ```mlir
    %dweight = zorse.rms_norm_grad_params %dy, %x, %rrms : (tensor<?x64x768xf32>, tensor<?x64x768xf32>, tensor<?x64xf32>) -> tensor<768xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$dy, Zorse_FloatTensor:$x, Zorse_FloatTensor:$rrms);
  let results = (outs Zorse_FloatTensor:$dweight);
  let assemblyFormat = "$dy `,` $x `,` $rrms attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$dy, "::mlir::Value":$x, "::mlir::Value":$rrms)>];
}

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

def Zorse_GeluOp : Zorse_ActivationOp<"gelu"> {
  let summary = "x * Phi(x), exact or by the tanh approximation.";
  let description = [{
    Exact: x/2 * (1 + erf(x / sqrt(2))). With `approximate`: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016).

    Example:
    ```mlir
    %y = zorse.gelu %x {approximate} : tensor<?x64x3072xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$x, UnitAttr:$approximate);
}

def Zorse_SiluOp : Zorse_ActivationOp<"silu"> {
  let summary = "x / (1 + exp(-x)).";
  let description = [{
    Example:
    ```mlir
    %y = zorse.silu %x : tensor<?x64x3072xf32>
    ```
  }];
}

class Zorse_ActivationGradOp<string mnemonic> : Zorse_ElementwiseOp<mnemonic, [Pure, AllTypesMatch<["x", "dy", "dx"]>]> {
  let arguments = (ins Zorse_FloatTensor:$x, Zorse_FloatTensor:$dy);
  let results = (outs Zorse_FloatTensor:$dx);
  let assemblyFormat = "$x `,` $dy attr-dict `:` type($x)";
  let hasVerifier = 0;
}

def Zorse_GeluGradOp : Zorse_ActivationGradOp<"gelu_grad"> {
  let summary = "dy times the derivative of gelu at x.";
  let description = [{
    Example:
    ```mlir
    %dx = zorse.gelu_grad %x, %dy {approximate} : tensor<?x64x3072xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$x, Zorse_FloatTensor:$dy, UnitAttr:$approximate);
}

def Zorse_SiluGradOp : Zorse_ActivationGradOp<"silu_grad"> {
  let summary = "dy times the derivative of silu at x.";
  let description = [{
    Example:
    ```mlir
    %dx = zorse.silu_grad %x, %dy : tensor<?x64x3072xf32>
    ```
  }];
}

#endif // ZORSE_DIALECT_ZORSE_NORM_OPS_TD
