// Attention, positions, the loss, dropout and the optimizers.
#ifndef ZORSE_DIALECT_ZORSE_MODEL_OPS_TD
#define ZORSE_DIALECT_ZORSE_MODEL_OPS_TD

include "zorse/Dialect/Zorse/ZorseBase.td"

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

def Zorse_AttentionOp : Zorse_Op<"attention", [Pure]> {
  let summary = "Scaled dot-product attention of every head.";
  let description = [{
    For sample r, head h and query i, over keys j, with h' = h / (H / H'):

        s_j = cap(scale * <q[r, i, h], k[r, j, h']>) + mask        cap(s) = softcap * tanh(s / softcap) if softcap is given, s otherwise
        out[r, i, h] = sum_j dropout(softmax_j(s)) * v[r, j, h']   lse[r, h, i] = log sum_j exp(s_j)

    `causal`: key j is visible to query i iff j <= i + S' - S. `window = w`: only the last w of these keys are visible,
    j > i + S' - S - w. A boolean mask hides keys where it is false. A float mask is added. A query that sees no key
    yields zeros, lse = -inf and zero gradients. The mask has no gradient: attention with a trained mask is not fused.

    With a float mask, lse contains two numbers per query: m = max_j s_j and sum_j exp(s_j - m) (0 if no key is
    visible). If every key is masked by -3.4e38, adding the logarithm of the sum to m would lose it, and every
    probability would become 1 instead of 1/n.

    It is one operation, because neither forward nor backward then needs a tensor of S x S' elements (Dao et al., 2022).
    `lse` is a result only if a backward saves it.

    Constraints:
    - (C1) q, k and v have rank 4, one element type, and carry samples (all or none).
    - (C2) k is [?, S', H', D] and v is [?, S', H', D'], with D of q, and H' divides H.
    - (C3) mask, if present, is [?|1, H|1, S, S'] of i1 or the element type of q, and carries samples only if q does.
    - (C4) scale is finite; softcap, if given, is positive and finite; 0 <= dropout < 1.
    - (C5) window, if given, is >= 1 and requires `causal`.
    - (C6) out is [?, S, H, D'] of the element type of q.
    - (C7) lse, if present, is [?, H, S] in f32 (f64 for f64 inputs), or [?, H, S, 2] with a float mask.
    - (C8) first_head >= 0: the number of the first query head in the undivided operation, for dropout (default 0).

    Example:
    ```mlir
    %out = zorse.attention %q, %k, %v {causal, scale = 1.250000e-01 : f64}
        : (tensor<?x64x12x64xf32>, tensor<?x64x4x64xf32>, tensor<?x64x4x64xf32>) -> tensor<?x64x12x64xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$q, Zorse_FloatTensor:$k, Zorse_FloatTensor:$v, Optional<Zorse_MaskTensor>:$mask,
                       F64Attr:$scale, UnitAttr:$causal, OptionalAttr<I64Attr>:$window, OptionalAttr<F64Attr>:$softcap,
                       DefaultValuedAttr<F64Attr, "0.0">:$dropout, DefaultValuedAttr<I64Attr, "0">:$rng_id,
                       OptionalAttr<I64Attr>:$first_head);
  let results = (outs Zorse_FloatTensor:$out, Optional<Zorse_FloatTensor>:$lse);
  let assemblyFormat = "$q `,` $k `,` $v (`mask` $mask^)? attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$q, "::mlir::Value":$k, "::mlir::Value":$v, "::mlir::Value":$mask, "const ::zorse::AttentionOptions &":$options,
                                 CArg<"bool", "false">:$withStatistics)>];
  let extraClassDeclaration = [{
    ::zorse::AttentionOptions getOptions();
  }];
}

def Zorse_AttentionGradOp : Zorse_Op<"attention_grad", [Pure]> {
  let summary = "Gradients of attention with respect to q, k and v.";
  let description = [{
    Recomputes the probabilities in blocks from q, k and lse. Attributes have the same meaning as in `zorse.attention`.

    Constraints:
    - (C1) q, k, v, mask, the attributes and the types of out and lse are as in `zorse.attention`.
    - (C2) dout has the type of out.
    - (C3) dq, dk and dv have the types of q, k and v, or all of them have f32 elements for bf16 or f16 inputs.

    Example:
    ```mlir
    %dq, %dk, %dv = zorse.attention_grad %dout, %q, %k, %v, %out, %lse {causal, scale = 1.250000e-01 : f64} : (...) -> (...)
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$dout, Zorse_FloatTensor:$q, Zorse_FloatTensor:$k, Zorse_FloatTensor:$v, Zorse_FloatTensor:$out, Zorse_FloatTensor:$lse,
                       Optional<Zorse_MaskTensor>:$mask, F64Attr:$scale, UnitAttr:$causal, OptionalAttr<I64Attr>:$window, OptionalAttr<F64Attr>:$softcap,
                       DefaultValuedAttr<F64Attr, "0.0">:$dropout, DefaultValuedAttr<I64Attr, "0">:$rng_id,
                       OptionalAttr<I64Attr>:$first_head);
  let results = (outs Zorse_FloatTensor:$dq, Zorse_FloatTensor:$dk, Zorse_FloatTensor:$dv);
  let assemblyFormat = "$dout `,` $q `,` $k `,` $v `,` $out `,` $lse (`mask` $mask^)? attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$dout, "::mlir::Value":$q, "::mlir::Value":$k, "::mlir::Value":$v, "::mlir::Value":$out, "::mlir::Value":$lse,
                                 "::mlir::Value":$mask, "const ::zorse::AttentionOptions &":$options)>];
  let extraClassDeclaration = [{
    ::zorse::AttentionOptions getOptions();
  }];
}

def Zorse_CausalMaskOp : Zorse_Op<"causal_mask", [Pure]> {
  let summary = "The causal mask of S queries over S' keys, as a constant without stored elements.";
  let description = [{
    Key j is visible to query i iff j <= i + S' - S and, with `window = w`, j > i + S' - S - w, like `causal` and
    `window` of `zorse.attention`. Boolean elements are true for visible keys. Float elements are 0 for visible keys and
    `fill`, by default -inf, for hidden ones.

    The importer recognizes masks by value, for every way to compute them, and replaces them by this operation.
    Recognition of attention removes it. A mask of 2,048 x 2,048 is therefore four words in the IR, and all layers share
    one.

    Constraints:
    - (C1) y has rank 2 and elements of i1 or a float type.
    - (C2) window, if given, is >= 1.
    - (C3) S <= S'.
    - (C4) fill, if given, is below 0, and y has elements of a float type.

    Example:
    ```mlir
    %m = zorse.causal_mask : tensor<64x64xi1>
    %w = zorse.causal_mask {window = 8 : i64, fill = -1.0e9 : f64} : tensor<64x64xf32>
    ```
  }];
  let arguments = (ins OptionalAttr<I64Attr>:$window, OptionalAttr<F64Attr>:$fill);
  let results = (outs Zorse_MaskTensor:$y);
  let assemblyFormat = "attr-dict `:` type($y)";
  let extraClassDeclaration = [{
    /// Returns the value of hidden elements of a float mask.
    double getHidden() { return getFill() ? getFill()->convertToDouble() : -std::numeric_limits<double>::infinity(); }
  }];
}

def Zorse_RopeOp : Zorse_Op<"rope", [Pure]> {
  let summary = "Rotary position embedding: rotates pairs of channels by angles that depend on the position.";
  let description = [{
    Pair p of D/2 consists of channels (p, p + D/2), or (2p, 2p + 1) with `interleaved` (Su et al., 2021). Let c =
    cos[s, p] and d = sin[s, p]. (a, b) becomes (a c - b d, a d + b c). With `inverse`, the reverse rotation, it becomes
    (a c + b d, b c - a d), which is also the gradient.

    Constraints:
    - (C1) x is [?, S, H, D] with D even.
    - (C2) cos and sin have one type: [S, D/2], or [?, S, D/2] if x carries samples, of the element type of x.
    - (C3) y has the type of x.

    Example:
    ```mlir
    %y = zorse.rope %q, %cos, %sin : tensor<?x64x12x64xf32>, tensor<64x32xf32> -> tensor<?x64x12x64xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$x, Zorse_FloatTensor:$cos, Zorse_FloatTensor:$sin, UnitAttr:$interleaved, UnitAttr:$inverse);
  let results = (outs Zorse_FloatTensor:$y);
  let assemblyFormat = "$x `,` $cos `,` $sin attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$x, "::mlir::Value":$cos, "::mlir::Value":$sin, CArg<"bool", "false">:$interleaved, CArg<"bool", "false">:$inverse)>];
}

//===----------------------------------------------------------------------===//
// Loss
//===----------------------------------------------------------------------===//

def Zorse_CrossEntropyOp : Zorse_Op<"cross_entropy", [Pure]> {
  let summary = "Negative log-likelihood of labels under the softmax of logits, one number per label.";
  let description = [{
    loss[lead...] = weights[label] * (log sum_v exp(logits[lead..., v]) - logits[lead..., label]), and 0 if the label
    equals ignore_index. It computes no mean: the sum over labels and its denominator are loss terms of the model. A
    label that is neither ignored nor in [0, V) is an error in the data and is reported when the step runs.

    Its gradient needs the logits and `statistics`, two numbers per label: m, the maximum logit, and s = sum_v
    exp(logits[lead..., v] - m). log_softmax would save a second tensor of the size of the logits, and m + log s loses
    the logarithm if m is large. `statistics` is a result only if a backward saves it.

    Constraints:
    - (C1) labels has the shape of logits without its last dimension V, which is not the sample axis.
    - (C2) weights, if present, is [V] of the element type of logits.
    - (C3) loss has the shape of labels. statistics, if present, has that shape followed by 2. Both are f32 (f64 for f64
      logits).

    Example:
    ```mlir
    %loss, %statistics = zorse.cross_entropy %logits, %labels {ignore_index = -100 : i64}
        : (tensor<?x64x50257xf32>, tensor<?x64xi64>) -> (tensor<?x64xf32>, tensor<?x64x2xf32>)
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$logits, Zorse_IntTensor:$labels, Optional<Zorse_FloatTensor>:$weights, OptionalAttr<I64Attr>:$ignore_index);
  let results = (outs Zorse_FloatTensor:$loss, Optional<Zorse_FloatTensor>:$statistics);
  let assemblyFormat = "$logits `,` $labels (`weights` $weights^)? attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$logits, "::mlir::Value":$labels, "::mlir::Value":$weights, "std::optional<int64_t>":$ignoreIndex,
                                 CArg<"bool", "false">:$withStatistics)>];
}

def Zorse_CrossEntropyGradOp : Zorse_Op<"cross_entropy_grad", [Pure]> {
  let summary = "Gradient of cross_entropy with respect to the logits.";
  let description = [{
    dlogits[lead..., v] = dloss[lead...] * weights[label] * (exp(logits[lead..., v] - m) / s - (v = label)), and 0 where the label is ignored, with m and s of statistics[lead...].

    Constraints:
    - (C1) logits, labels, weights and statistics are as in `zorse.cross_entropy`.
    - (C2) dloss has the type of the loss.
    - (C3) dlogits has the type of logits.

    Example:
    ```mlir
    %dlogits = zorse.cross_entropy_grad %dloss, %logits, %labels, %statistics {ignore_index = -100 : i64}
        : (tensor<?x64xf32>, tensor<?x64x50257xf32>, tensor<?x64xi64>, tensor<?x64x2xf32>) -> tensor<?x64x50257xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$dloss, Zorse_FloatTensor:$logits, Zorse_IntTensor:$labels, Zorse_FloatTensor:$statistics, Optional<Zorse_FloatTensor>:$weights,
                       OptionalAttr<I64Attr>:$ignore_index);
  let results = (outs Zorse_FloatTensor:$dlogits);
  let assemblyFormat = "$dloss `,` $logits `,` $labels `,` $statistics (`weights` $weights^)? attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$dloss, "::mlir::Value":$logits, "::mlir::Value":$labels, "::mlir::Value":$statistics, "::mlir::Value":$weights,
                                 "std::optional<int64_t>":$ignoreIndex)>];
}

//===----------------------------------------------------------------------===//
// Numbers that are known before a step begins
//===----------------------------------------------------------------------===//

def Zorse_KnownOp : Zorse_ElementwiseOp<"known", [Pure]> {
  let summary = "A number of the step: an expression of the batch size and of counts.";
  let description = [{
    `B` is the number of samples of the whole batch, and `n0`, `n1`, ... are the counts that the model returns
    (`zorse.count`). The host evaluates the expression in f64 before the step begins, so every device and micro-batch
    reads the same number. It has no gradient. In unit functions it is an argument with the attribute
    `#zorse.argument<scalars, i, known>`.

    Constraints:
    - (C1) `zorse::Expression` can parse the expression.

    Example:
    ```mlir
    %root = zorse.known "sqrt(B)" : tensor<f64>
    ```
  }];
  let arguments = (ins StrAttr:$expression);
  let results = (outs Zorse_F64Scalar:$y);
  let assemblyFormat = "$expression attr-dict `:` type($y)";
}

//===----------------------------------------------------------------------===//
// Dropout
//===----------------------------------------------------------------------===//

def Zorse_DropoutOp : Zorse_Op<"dropout", [Pure, AllTypesMatch<["x", "y"]>]> {
  let summary = "Sets each element to zero with a probability and scales the others to keep the expectation.";
  let description = [{
    y = x * keep / (1 - probability). `rng_id` numbers the operations of a function that draw random numbers; a call of
    a unit adds its `rng_id_base`. `keep` is a function of (seed, step, this number, global sample, element within the
    sample), not a stored mask. It does not depend on the device, and the gradient is the same operation on dy. The
    operation is pure, because it has no state. In evaluation it is the identity.

    Constraints:
    - (C1) 0 <= probability < 1.
    - (C2) rng_id >= 0.
    - (C3) element, if given, is the element of the undivided sample at which x begins, and the stride of each dimension
      in that sample. Otherwise x has whole samples in row-major order.

    Example:
    ```mlir
    %y = zorse.dropout %x {probability = 1.000000e-01 : f64, rng_id = 3 : i64} : tensor<?x64x768xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$x, F64Attr:$probability, I64Attr:$rng_id, OptionalAttr<DenseI64ArrayAttr>:$element);
  let results = (outs Zorse_FloatTensor:$y);
  let assemblyFormat = "$x attr-dict `:` type($x)";
  let builders = [OpBuilder<(ins "::mlir::Value":$x, "double":$probability, "int64_t":$rngId,
                             CArg<"::llvm::ArrayRef<int64_t>", "{}">:$element)>];
  let hasFolder = 1;
}

//===----------------------------------------------------------------------===//
// Statistics that are state
//===----------------------------------------------------------------------===//

def Zorse_RunningStatOp : Zorse_Op<"running_stat", [Pure, AllTypesMatch<["observed", "y"]>]> {
  let summary = "A statistic of each row in training, and its running value in evaluation.";
  let description = [{
    In training y = observed; in evaluation y = running, repeated for every row. `running` is a parameter with the
    argument attribute `zorse.running_stat`. Instead of a gradient it has the sum over rows of momentum * (running -
    correction * observed). Once per step, the mean of this sum over all rows is subtracted from it
    (`@update.statistics`): it moves towards the mean of the step by the fraction `momentum`, as in PyTorch. The
    gradient of observed is that of y.

    Constraints:
    - (C1) observed carries samples, and running has its shape without them.
    - (C2) 0 < momentum <= 1 and correction > 0.

    Example:
    ```mlir
    %used = zorse.running_stat %variance, %running_var {correction = 1.010000e+00 : f64, momentum = 1.000000e-01 : f64} : tensor<?x64xf32>, tensor<64xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$observed, Zorse_FloatTensor:$running, F64Attr:$momentum, F64Attr:$correction);
  let results = (outs Zorse_FloatTensor:$y);
  let assemblyFormat = "$observed `,` $running attr-dict `:` type($observed) `,` type($running)";
}

//===----------------------------------------------------------------------===//
// Low precision
//===----------------------------------------------------------------------===//

def Zorse_RoundOp : Zorse_ElementwiseOp<"round", [Pure, AllTypesMatch<["x", "y"]>]> {
  let summary = "A simulated cast: x rounded to the numbers of bf16 or f16, in its own type.";
  let description = [{
    y is the number of type `to` nearest to x, ties to even. Numbers that are too large become infinite, and NaN remains
    NaN. Every y can be stored as `to` without loss. Roundings are operations of the model, so that no plan, fusion or
    recomputation can add or remove one (docs/concepts/precision.md).

    The gradient of x is the gradient of y, rounded in the same way: gradients of low-precision values have low
    precision. With `straight_through` it is not rounded. This is used for the reading of parameters, which have
    gradients that are never rounded.

    With `per_operator`, y is the result of a 16-bit operator of the model's file, and gradients are rounded as in
    PyTorch: every contribution to the gradient of y, and every sum of two contributions. The derivative of the operator
    that computes x reads y instead of its result.

    Constraints:
    - (C1) to is bf16 or f16.
    - (C2) x has elements of f32 or f64.
    - (C3) without `straight_through`, x carries samples. The gradient of other values is a sum over samples, and its
      parts are computed in different cells.
    - (C4) `per_operator` and `straight_through` exclude each other.

    Example:
    ```mlir
    %y = zorse.round %x to bf16 : tensor<?x64x768xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$x, TypeAttr:$to, UnitAttr:$straight_through, UnitAttr:$per_operator);
  let results = (outs Zorse_FloatTensor:$y);
  let builders = [OpBuilder<(ins "::mlir::Value":$x, "::mlir::Type":$to, CArg<"bool", "false">:$straightThrough, CArg<"bool", "false">:$perOperator)>];
  let assemblyFormat = "$x `to` $to attr-dict `:` type($x)";
  let hasFolder = 1;
}

//===----------------------------------------------------------------------===//
// Gradients that stop
//===----------------------------------------------------------------------===//

def Zorse_DetachOp : Zorse_ElementwiseOp<"detach", [Pure, AllTypesMatch<["x", "y"]>]> {
  let summary = "The same value without a gradient: PyTorch's detach.";
  let description = [{
    y = x, and users of y add nothing to the gradient of x. Differentiation removes the operation after it has used it:
    unit functions have none.

    Example:
    ```mlir
    %target = zorse.detach %x : tensor<?x64x768xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$x);
  let results = (outs Zorse_FloatTensor:$y);
  let assemblyFormat = "$x attr-dict `:` type($x)";
  let hasFolder = 1;
  let extraClassDeclaration = [{ ::llvm::SmallVector<::mlir::Value> getTouchedValues(); }];
}

def Zorse_GradientOfOp : Zorse_ElementwiseOp<"gradient_of", [Pure, AllTypesMatch<["value", "gradient", "result"]>]> {
  let summary = "The complete gradient of a value, paired with the value.";
  let description = [{
    result = gradient. Differentiation creates one for every value with a known gradient, and all readers of the
    gradient read its result. A pass over a joint function (`@<class>.joint`) can therefore find the pairs and change
    the representation of a value's gradient before others read it. Slicing the joint function removes them: unit
    functions have none.

    Example:
    ```mlir
    %dh = zorse.gradient_of %h, %sum : tensor<?x64x768xf32>
    ```
  }];
  let arguments = (ins Zorse_FloatTensor:$value, Zorse_FloatTensor:$gradient);
  let results = (outs Zorse_FloatTensor:$result);
  let assemblyFormat = "$value `,` $gradient attr-dict `:` type($value)";
  let extraClassDeclaration = [{ ::llvm::SmallVector<::mlir::Value> getTouchedValues(); }];
}

#endif // ZORSE_DIALECT_ZORSE_MODEL_OPS_TD
