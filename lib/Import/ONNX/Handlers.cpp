// Every operator that the importer knows: operands, attributes, handler. An attribute that does not stand here is an error wherever it occurs (Limits.cpp).
#include "Importer.h"

using namespace zorse;
using namespace zorse::onnx_import;

const llvm::StringMap<Importer::Operator> &Importer::operators() {
  static const llvm::StringMap<Operator> table = [] {
    constexpr size_t kAny = OperatorRule::kAny;
    llvm::StringMap<Operator> map;
    auto add = [&](std::initializer_list<const char *> names, size_t least, size_t most, const char *attributes, Handler handler) {
      for (const char *name : names)
        map.try_emplace(name, Operator{OperatorRule(least, most, attributes), handler});
    };
    add({"Constant"}, 0, 0, "value:t value_int:i value_float:f value_ints:is value_floats:fs", &Importer::onConstant);
    add({"ConstantOfShape"}, 1, 1, "value:t", &Importer::onConstantOfShape);
    add({"Identity"}, 1, 1, "", &Importer::onIdentity);
    add({"Shape"}, 1, 1, "start:i end:i", &Importer::onShape);
    add({"Size"}, 1, 1, "", &Importer::onSize);
    add({"Range"}, 3, 3, "", &Importer::onRange);
    add({"Reshape"}, 2, 2, "allowzero:i", &Importer::onReshape);
    add({"Flatten"}, 1, 1, "axis:i", &Importer::onFlatten);
    add({"Transpose"}, 1, 1, "perm:is", &Importer::onTranspose);
    add({"Squeeze"}, 1, 2, "axes:is", &Importer::onSqueeze);
    add({"Unsqueeze"}, 1, 2, "axes:is", &Importer::onUnsqueeze);
    add({"Expand"}, 2, 2, "", &Importer::onExpand);
    add({"Tile"}, 2, 2, "", &Importer::onTile);
    add({"Slice"}, 3, 5, "", &Importer::onSlice);
    add({"Split"}, 1, 2, "axis:i num_outputs:i", &Importer::onSplit);
    add({"SplitToSequence"}, 1, 2, "axis:i keepdims:i", &Importer::onSplitToSequence);
    add({"SequenceAt"}, 2, 2, "", &Importer::onSequenceAt);
    add({"SequenceConstruct"}, 0, kAny, "", &Importer::onSequenceConstruct);
    add({"ConcatFromSequence"}, 1, 1, "axis:i! new_axis:i", &Importer::onConcatFromSequence);
    add({"Concat"}, 1, kAny, "axis:i!", &Importer::onConcat);
    add({"Pad"}, 2, 4, "mode:s=constant", &Importer::onPad);
    add({"Trilu"}, 1, 2, "upper:i", &Importer::onTrilu);
    add({"Gather"}, 2, 2, "axis:i", &Importer::onGather);
    add({"GatherElements"}, 2, 2, "axis:i", &Importer::onGatherElements);
    add({"GatherND"}, 2, 2, "batch_dims:i=0", &Importer::onGatherND);
    add({"ScatterND"}, 3, 3, "reduction:s=none", &Importer::onScatterND);
    add({"CumSum"}, 2, 2, "exclusive:i=0 reverse:i=0", &Importer::onCumSum);
    add({"If"}, 1, 1, "then_branch:g! else_branch:g!", &Importer::onIf);
    // How values are rounded to 8-bit floats, which are no type here.
    add({"Cast"}, 1, 1, "to:i! saturate:i~ round_mode:s~", &Importer::onCast);
    add({"CastLike"}, 2, 2, "saturate:i~ round_mode:s~", &Importer::onCastLike);
    add({"Neg", "Abs", "Sqrt", "Exp", "Log", "Sin", "Cos", "Tanh", "Erf", "Reciprocal", "Floor", "Ceil", "Round", "Sign", "Sigmoid", "Relu", "Softplus", "Not"}, 1, 1, "",
        &Importer::onUnary);
    add({"Gelu"}, 1, 1, "approximate:s=none|tanh", &Importer::onActivation);
    add({"Swish", "LeakyRelu"}, 1, 1, "alpha:f", &Importer::onActivation);
    add({"Add", "Sub", "Mul", "Div"}, 2, 2, "", &Importer::onBinary);
    add({"Mod"}, 2, 2, "fmod:i", &Importer::onBinary);
    add({"Sum", "Max", "Min"}, 1, kAny, "", &Importer::onVariadic);
    add({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}, 2, 2, "", &Importer::onCompare);
    add({"And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}, 2, 2, "", &Importer::onLogic);
    add({"Where"}, 3, 3, "", &Importer::onWhere);
    add({"Clip"}, 1, 3, "", &Importer::onClip);
    add({"IsNaN"}, 1, 1, "", &Importer::onIsNaN);
    add({"Pow"}, 2, 2, "", &Importer::onPow);
    // Random numbers here are a function of --seed, step and element, whatever an exporter's generator would have drawn.
    add({"Dropout"}, 1, 3, "seed:i~", &Importer::onDropout);
    add({"MatMul"}, 2, 2, "", &Importer::onMatMul);
    add({"Gemm"}, 2, 3, "alpha:f beta:f transA:i transB:i", &Importer::onGemm);
    add({"Conv"}, 2, 3, "auto_pad:s dilations:is group:i kernel_shape:is pads:is strides:is", &Importer::onConv);
    add({"Softmax", "LogSoftmax"}, 1, 1, "axis:i", &Importer::onSoftmax);
    add({"LayerNormalization"}, 2, 3, "axis:i epsilon:f stash_type:i=1", &Importer::onNorm);
    add({"RMSNormalization", "SimplifiedLayerNormalization"}, 2, 2, "axis:i epsilon:f stash_type:i=1", &Importer::onNorm);
    // The precision of the softmax is that of everything; the mode decides what the fourth output is, which nothing may use.
    add({"Attention"}, 3, 7,
        "is_causal:i kv_num_heads:i q_num_heads:i scale:f softcap:f softmax_precision:i~ qk_matmul_output_mode:i~ left_window_size:i=-1 right_window_size:i=-1",
        &Importer::onAttention);
    add({"RotaryEmbedding"}, 3, 4, "interleaved:i num_heads:i rotary_embedding_dim:i", &Importer::onRotary);
    add({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"}, 1, 2, "axes:is keepdims:i noop_with_empty_axes:i",
        &Importer::onReduce);
    add({"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}, 2, 3, "ignore_index:i reduction:s=mean|sum|none", &Importer::onCrossEntropy);
    return map;
  }();
  return table;
}

const Importer::Operator *Importer::operatorOf(const GraphNode &node) {
  auto found = operators().find(node.domain.empty() ? node.op : node.domain + "." + node.op);
  return found == operators().end() ? nullptr : &found->second;
}
