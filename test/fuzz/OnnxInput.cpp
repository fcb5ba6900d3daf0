// Mutates ONNX models as messages, with names of operators and attributes as words.
#include "Fuzz.h"

#include "onnx_wire.pb.h"

using namespace zorse;

namespace {

/// Changes the operator of a node, one of its attributes or operands, or inserts a node.
void changeWords(onnx::Model &model, fuzz::Random &random) {
  static const char *const ops[] = {"Add",
                                    "Attention",
                                    "Cast",
                                    "CastLike",
                                    "Clip",
                                    "Concat",
                                    "ConcatFromSequence",
                                    "Constant",
                                    "ConstantOfShape",
                                    "Conv",
                                    "CumSum",
                                    "Div",
                                    "Dropout",
                                    "Equal",
                                    "Erf",
                                    "Exp",
                                    "Expand",
                                    "Flatten",
                                    "Gather",
                                    "GatherElements",
                                    "GatherND",
                                    "Gelu",
                                    "Gemm",
                                    "Greater",
                                    "Identity",
                                    "If",
                                    "IsNaN",
                                    "LayerNormalization",
                                    "LogSoftmax",
                                    "MatMul",
                                    "Max",
                                    "Mod",
                                    "Mul",
                                    "NegativeLogLikelihoodLoss",
                                    "Not",
                                    "Pad",
                                    "Pow",
                                    "RMSNormalization",
                                    "Range",
                                    "ReduceMean",
                                    "ReduceSum",
                                    "Relu",
                                    "Reshape",
                                    "RotaryEmbedding",
                                    "ScatterND",
                                    "SequenceAt",
                                    "SequenceConstruct",
                                    "Shape",
                                    "Sigmoid",
                                    "Size",
                                    "Slice",
                                    "Softmax",
                                    "SoftmaxCrossEntropyLoss",
                                    "Split",
                                    "SplitToSequence",
                                    "Sqrt",
                                    "Squeeze",
                                    "Sub",
                                    "Sum",
                                    "Tile",
                                    "Transpose",
                                    "Trilu",
                                    "Unsqueeze",
                                    "Where"};
  static const char *const names[] = {"axis",
                                      "axes",
                                      "keepdims",
                                      "perm",
                                      "to",
                                      "value",
                                      "alpha",
                                      "beta",
                                      "transA",
                                      "transB",
                                      "epsilon",
                                      "reduction",
                                      "ignore_index",
                                      "allowzero",
                                      "start",
                                      "end",
                                      "k",
                                      "upper",
                                      "mode",
                                      "batch_dims",
                                      "num_outputs",
                                      "split_size",
                                      "exclusive",
                                      "reverse",
                                      "kernel_shape",
                                      "strides",
                                      "pads",
                                      "group",
                                      "dilations",
                                      "auto_pad",
                                      "approximate",
                                      "is_causal",
                                      "scale",
                                      "q_num_heads",
                                      "kv_num_heads",
                                      "noop_with_empty_axes",
                                      "then_branch",
                                      "else_branch",
                                      "interleaved",
                                      "rotary_embedding_dim",
                                      "stash_type",
                                      "value_int",
                                      "value_ints",
                                      "value_float",
                                      "saturate",
                                      "fmod",
                                      "ratio"};
  onnx::Graph *graph = model.mutable_graph();
  if (graph->node_size() == 0)
    return;
  onnx::Node *node = graph->mutable_node(int(random() % graph->node_size()));
  switch (random() % 4) {
  case 0:
    node->set_op_type(ops[random() % std::size(ops)]);
    break;
  case 1: {
    onnx::Attribute *attribute =
        node->attribute_size() && random() % 2
            ? node->mutable_attribute(int(random() % node->attribute_size()))
            : node->add_attribute();
    attribute->set_name(names[random() % std::size(names)]);
    attribute->set_i(fuzz::oddNumber(random));
    break;
  }
  case 2: { // any value of the graph as an operand
    std::vector<std::string> values;
    for (const onnx::Node &other : graph->node())
      values.insert(values.end(), other.output().begin(), other.output().end());
    for (const onnx::Tensor &tensor : graph->initializer())
      values.push_back(tensor.name());
    for (const onnx::ValueInfo &input : graph->input())
      values.push_back(input.name());
    if (values.empty())
      return;
    const std::string &value = values[random() % values.size()];
    if (node->input_size() && random() % 4)
      node->set_input(int(random() % node->input_size()), value);
    else
      node->add_input(value);
    break;
  }
  default: { // a new node that takes the result of another one and replaces it for its users
    onnx::Node added;
    added.set_op_type(ops[random() % std::size(ops)]);
    std::string middle = "v" + std::to_string(random() % 100000);
    if (node->output_size() == 0)
      return;
    added.add_input(middle);
    if (graph->initializer_size() && random() % 2)
      added.add_input(graph->initializer(int(random() % graph->initializer_size())).name());
    added.add_output(node->output(0));
    node->set_output(0, middle);
    *graph->add_node() = added;
  }
  }
}

} // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  fuzz::Random random(seed);
  onnx::Model model;
  if (random() % 3 || !model.ParsePartialFromArray(data, int(size)))
    return fuzz::mutateMessage(onnx::Model(), data, size, maxSize, seed);
  for (unsigned times = 1 + random() % 2; times > 0; --times)
    changeWords(model, random);
  std::string bytes = model.SerializePartialAsString();
  return bytes.size() <= maxSize ? fuzz::put(bytes, data, maxSize) : size;
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t oneSize,
                                            const uint8_t *other, size_t otherSize, uint8_t *out,
                                            size_t outMaxSize, unsigned seed) {
  return fuzz::crossMessages(onnx::Model(), one, oneSize, other, otherSize, out, outMaxSize, seed);
}
