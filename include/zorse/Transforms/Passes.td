// Passes over graph IR: one canonical form, then single ops for what exporters take apart.
#ifndef ZORSE_TRANSFORMS_PASSES_TD
#define ZORSE_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

class Zorse_GraphPass<string name> : Pass<name, "::mlir::func::FuncOp"> {
  let dependentDialects = ["::zorse::ZorseDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def CanonicalizeGraph : Zorse_GraphPass<"zorse-canonicalize-graph"> {
  let summary = "Brings a graph into one form, so that equal models print equally whichever exporter wrote them";
  let description = [{
    Folds; merges equal values and drops unused ones; writes every chain of views in one way (slice, reshape, transpose, reshape, broadcast); moves broadcasts and dimensions of
    size 1 behind elementwise ops; orders the operands of commutative ops by what they compute, ops by depth-first order from the results, and parameter arguments by first use.
    Nothing here changes a bit of any result, but for the sign of a zero never observed by a model.
  }];
}

def RecognizeSoftmax : Zorse_GraphPass<"zorse-recognize-softmax"> {
  let summary = "exp(x - max(x)) / sum(exp(x - max(x))) becomes zorse.softmax, its logarithm zorse.log_softmax";
}

def RecognizeLayerNorm : Zorse_GraphPass<"zorse-recognize-layer-norm"> {
  let summary = "Mean, variance, reciprocal root, gain and bias become zorse.layer_norm";
  let description = [{
    Matches (x - mean) / sqrt(mean((x - mean)^2) + epsilon) over the last dimension, with the division written as a product with rsqrt, 1/sqrt or a power; then a product with
    a channel vector and a sum with one, where nothing else uses the values between.
  }];
}

def RecognizeRmsNorm : Zorse_GraphPass<"zorse-recognize-rms-norm"> {
  let summary = "Mean of squares, reciprocal root and gain become zorse.rms_norm";
  let description = [{
    Matches x / sqrt(mean(x^2) + epsilon) over the last dimension and a product with a channel vector, whatever computes it: a gain of 1 + w stays an addition on w.
  }];
}

def RecognizeGelu : Zorse_GraphPass<"zorse-recognize-gelu"> {
  let summary = "The erf and the tanh form of GELU become zorse.gelu";
}

def RecognizeSilu : Zorse_GraphPass<"zorse-recognize-silu"> {
  let summary = "x * sigmoid(x) becomes zorse.silu";
}

def RecognizeCrossEntropy : Zorse_GraphPass<"zorse-recognize-cross-entropy"> {
  let summary = "take(log_softmax(logits), labels) becomes zorse.cross_entropy";
  let description = [{
    The log-probability of a label is the negative of its cross-entropy. Where the result is masked by `labels != c` and the labels were made safe by `labels == c ? 0 : labels`, the
    mask becomes `ignore_index`.
  }];
}

def RecognizeRope : Zorse_GraphPass<"zorse-recognize-rope"> {
  let summary = "Rotary embeddings in their half, interleaved and partial forms become zorse.rope";
  let description = [{
    Matches x * cos + rotated(x) * sin with rotated(x) = concat(-x2, x1) of halves, or the same of even and odd channels, and the parts written out. Parts of x are compared as intervals
    of the tensor they come from, so a partial rotation is a rope of a slice. The tables must repeat for both members of a pair; that is proved by value or by structure.
  }];
}

def RecognizeAttention : Zorse_GraphPass<"zorse-recognize-attention"> {
  let summary = "Products around a masked softmax become zorse.attention";
  let description = [{
    Matches matmul(dropout(guard(softmax(mask(cap(scale * matmul(q, k)))))), v) with every part but the products and the softmax optional: scalars on q, k or the scores; tanh
    soft-capping; masks added or selected; the IsNaN guard for rows that see no key; heads of k and v repeated for grouped queries. q, k and v become views [?, S, H, D].

    A row that sees no key must keep its meaning: zeros where a guard made them, a uniform average where the fill is finite. Where the original would yield NaN for such a
    row and it cannot be ruled out, the parts stay as they are and a remark says why.
  }];
}

def LiftConstants : Pass<"zorse-lift-constants", "::mlir::ModuleOp"> {
  let summary = "Constants that are neither scalars nor splats become non-trainable parameters of @model";
  let description = [{
    Each distinct value becomes one argument with `zorse.parameter = "const.<hash>"` and `zorse.trainable = false` and `zorse.constant`; its value moves to the module attribute `zorse.constant_value`, a
    dictionary by that name. So units that differ only in a constant are still of one class, and large constants travel like weights.
  }];
  let dependentDialects = ["::zorse::ZorseDialect"];
}

def InsertRounds : Pass<"zorse-insert-rounds", "::mlir::ModuleOp"> {
  let summary = "Makes low precision a part of the model: zorse.round where values become bf16 or f16";
  let description = [{
    A value is *narrow* if it is the result of a rounding, a view of one, or looked up in one. Operands and results of matrix products and attention are rounded (a bias is added before the
    result is), so are results of norms, and results of other elementwise operations whose operands are all narrow. Statistics, softmaxes, exponentials, logarithms, powers, reductions
    and losses are not. docs/precision.md has the table and its reasons.

    Constraints: a recognised `@model` of f32, or of f64 for tests, without roundings.
  }];
  let options = [Option<"to", "to", "std::string", "\"bf16\"", "What values are rounded to: bf16 or f16">,
                 Option<"wideResidual", "wide-residual", "bool", "false",
                        "Rows of tables and what is added to them stay f32, as torch.autocast has it; otherwise they are rounded, as in a module of bf16">];
  let dependentDialects = ["::zorse::ZorseDialect"];
}

def VerifyModel : Pass<"zorse-verify-model", "::mlir::ModuleOp"> {
  let summary = "Checks that a module is a model: one @model, named arguments, loss terms, and no op that mixes samples";
  let description = [{
    Constraints:
    - (M1) the module has one function `@model`, with one block.
    - (M2) every argument is `zorse.input` (a non-empty name; carries samples) or `zorse.parameter` with `zorse.trainable` (does not), not both; names are unique.
    - (M3) every result is `tensor<?xf32>` or `tensor<?xf64>` with `zorse.role`: "numerator" with `zorse.term` and `zorse.factor`, an expression; or
      "count" with `zorse.count` and `zorse.reduce`: "sum", "max" or "min".
    - (M4) terms are 0 to K - 1, counts 0 to N - 1, each there once and in this order; factors and `zorse.known` read only counts that are there.
    - (M5) a count depends on inputs and constants alone: on no trainable parameter. A `zorse.known` that it reads reads counts of lower numbers alone.
    - (M6) no op mixes samples: none reduces or contracts the sample axis, gathers along it, or yields an unsampled value from a sampled one.
    - (M7) values are graph tensors and ops come from zorse, arith and math.
  }];
}

def ReportOps : Zorse_GraphPass<"zorse-report-ops"> {
  let summary = "Emits a remark with the factors and the cost of every op that tells them";
}

#endif // ZORSE_TRANSFORMS_PASSES_TD
