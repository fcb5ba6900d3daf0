// Passes over graph IR: canonicalization, then recognition of single operations that exporters decompose.
#ifndef ZORSE_TRANSFORMS_PASSES_TD
#define ZORSE_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

class Zorse_GraphPass<string name> : Pass<name, "::mlir::func::FuncOp"> {
  let dependentDialects = ["::zorse::ZorseDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def CanonicalizeGraph : Zorse_GraphPass<"zorse-canonicalize-graph"> {
  let summary = "Brings a graph into canonical form, so that equal models have equal IR for every exporter";
  let description = [{
    Folds constants. Merges equal values and removes unused ones. Writes every chain of views in one form (slice,
    reshape, transpose, reshape, broadcast). Moves broadcasts and dimensions of size 1 below elementwise operations.
    Orders the operands of commutative operations by their computation, operations depth-first from the results, and
    parameter arguments by first use.
    No bit of any result changes, except the sign of a zero, which no model observes.
  }];
}

def RecognizeSoftmax : Zorse_GraphPass<"zorse-recognize-softmax"> {
  let summary = "exp(x - max(x)) / sum(exp(x - max(x))) becomes zorse.softmax, and its logarithm zorse.log_softmax";
}

def RecognizeLayerNorm : Zorse_GraphPass<"zorse-recognize-layer-norm"> {
  let summary = "Mean, variance, reciprocal root, weight and bias become zorse.layer_norm";
  let description = [{
    Matches (x - mean) / sqrt(mean((x - mean)^2) + epsilon) over the last dimension. The division may be a product with
    rsqrt, 1/sqrt or a power. A following product with a channel vector becomes the weight, and a following sum with one
    becomes the bias, if the values between have no other uses.
  }];
}

def RecognizeRmsNorm : Zorse_GraphPass<"zorse-recognize-rms-norm"> {
  let summary = "Mean of squares, reciprocal root and weight become zorse.rms_norm";
  let description = [{
    Matches x / sqrt(mean(x^2) + epsilon) over the last dimension, and a product with a channel vector. The vector may
    be computed: a weight of 1 + w remains an addition to w.
  }];
}

def RecognizeGelu : Zorse_GraphPass<"zorse-recognize-gelu"> {
  let summary = "The erf and the tanh form of GELU become zorse.gelu";
}

def RecognizeSilu : Zorse_GraphPass<"zorse-recognize-silu"> {
  let summary = "x * sigmoid(x) becomes zorse.silu";
}

def RecognizeCrossEntropy : Zorse_GraphPass<"zorse-recognize-cross-entropy"> {
  let summary = "take_along_dim(log_softmax(logits), labels) becomes zorse.cross_entropy";
  let description = [{
    The log-probability of a label is its negative cross-entropy. If the result is masked by `labels != c`, and the
    labels were made safe by `labels == c ? 0 : labels`, the mask becomes `ignore_index`.
  }];
}

def RecognizeRope : Zorse_GraphPass<"zorse-recognize-rope"> {
  let summary = "Rotary embeddings in their half, interleaved and partial forms become zorse.rope";
  let description = [{
    Matches x * cos + rotated(x) * sin with rotated(x) = concat(-x2, x1) of the halves, or the same with even and odd
    channels. Also matches the two members computed separately. Parts of x are compared as intervals of the tensor that
    they are views of, so a partial rotation is a rope of a slice. The tables must repeat for both members of a pair,
    which is proved by value or by structure.
  }];
}

def RecognizeAttention : Zorse_GraphPass<"zorse-recognize-attention"> {
  let summary = "Products around a masked softmax become zorse.attention";
  let description = [{
    Matches matmul(dropout(guard(softmax(mask(cap(scale * matmul(q, k)))))), v). Only the products and the softmax are
    required. Optional are scalars on q, k or the scores, tanh soft-capping, masks that are added or selected, the IsNaN
    guard for rows that see no key, and repeated heads of k and v for grouped queries. q, k and v become views
    [?, S, H, D].

    A row that sees no key keeps its meaning: zeros if a guard sets them, a uniform average if the fill is finite. If
    the original may yield NaN for such a row, the parts remain unchanged and a remark gives the reason.
  }];
}

def LiftConstants : Pass<"zorse-lift-constants", "::mlir::ModuleOp"> {
  let summary = "Constants that are neither scalars nor splats become non-trainable parameters of @model";
  let description = [{
    Each distinct value becomes one argument with `zorse.parameter = "const.<hash>"`, `zorse.trainable = false` and
    `zorse.constant`. Its value moves to the module attribute `zorse.constant_value`, a dictionary by that name. Units
    that differ only in a constant therefore belong to one class, and large constants are stored and sent like weights.
  }];
  let dependentDialects = ["::zorse::ZorseDialect"];
}

def InsertRounds : Pass<"zorse-insert-rounds", "::mlir::ModuleOp"> {
  let summary = "Makes low precision explicit: inserts zorse.round at values that become bf16 or f16";
  let description = [{
    A value has *low precision* if it is the result of a rounding, a view of one, or looked up in one. The pass rounds
    operands and results of matmuls and attention (after the addition of a bias), results of norms, and results of other
    elementwise operations with only low-precision operands. It does not round statistics, softmaxes, exponentials,
    logarithms, powers, reductions and losses. docs/concepts/precision.md has the table and its reasons.

    Constraints: a recognized `@model` of f32, or of f64 for tests, without roundings.
  }];
  let options = [Option<"to", "to", "std::string", "\"bf16\"", "Type to which values are rounded: bf16 or f16">,
                 Option<"fp32Residual", "fp32-residual", "bool", "false",
                        "Rows of tables and sums with them stay f32, as under torch.autocast; otherwise they are rounded, as in a module of bf16">];
  let dependentDialects = ["::zorse::ZorseDialect"];
}

def VerifyModel : Pass<"zorse-verify-model", "::mlir::ModuleOp"> {
  let summary = "Checks that a module is a model: one @model, named arguments, loss terms, and no operation that mixes samples";
  let description = [{
    Constraints:
    - (M1) the module has one function `@model`, with one block.
    - (M2) every argument is either a `zorse.input` (a non-empty name; carries samples) or a `zorse.parameter` with
      `zorse.trainable` (does not carry samples); names are unique.
    - (M3) every result is `tensor<?xf32>` or `tensor<?xf64>` with `zorse.role`: "numerator" with `zorse.term` and `zorse.factor`, an expression; or
      "count" with `zorse.count` and `zorse.reduce`: "sum", "max" or "min".
    - (M4) terms are 0 to K - 1 and counts 0 to N - 1, each exactly once and in this order; factors and `zorse.known`
      read only existing counts.
    - (M5) a count depends only on inputs and constants, not on trainable parameters. A `zorse.known` that it reads
      reads only counts of lower numbers.
    - (M6) no operation mixes samples: none reduces or contracts the sample axis, gathers along it, or yields an
      unsampled value from a sampled one.
    - (M7) values are graph tensors, and operations come from zorse, arith and math.
  }];
}

def ReportOps : Zorse_GraphPass<"zorse-report-ops"> {
  let summary = "Emits a remark with the factors and the cost of every operation that implements these interfaces";
}

#endif // ZORSE_TRANSFORMS_PASSES_TD
