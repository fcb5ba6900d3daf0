// Writes the training graph of a transformer.
#include "OnnxGraph.h"

#include "zorse/ModelShapes/ModelShape.h"

#include <algorithm>
#include <cmath>

using namespace zorse;
using namespace zorse::shapes;

namespace {

using Value = OnnxGraph::Value;
using Shape = ModelShape;

constexpr double kEpsilon = 1e-5, kTheta = 10000;
constexpr int64_t kPixelChannels = 3, kIgnored = -100;

class Transformer {
public:
  explicit Transformer(const Shape &shape) : shape(shape), graph(shape.name) {}

  Status write(const std::string &path) {
    return graph.write(shape.task == Shape::Task::Image         ? imageLoss()
                       : shape.task == Shape::Task::Translation ? translationLoss()
                                                                : tokenLoss(),
                       path);
  }

private:
  /// A stack of blocks: what its attention sees.
  struct Stack {
    std::string name;
    bool causal = false;
    Value other;        ///< states of the encoder, which a second attention reads; empty: none
    Value bias;         ///< biases of scores by distance; empty: none
    Value cosine, sine; ///< of rotary positions; empty: none
  };

  // ---- Models.

  Value tokenLoss() {
    const Value ids = graph.input("input_ids", OnnxGraph::Type::I64, {shape.sequence}),
                labels = graph.input("labels", OnnxGraph::Type::I64, {shape.sequence}),
                table = embedding();
    Value x = graph.add("Gather", {table, ids});
    if (shape.positions == Shape::Positions::Learned)
      x = graph.add("Add",
                    {x, graph.parameter("embed_positions.weight", {shape.sequence, shape.hidden})});
    if (shape.postNorm)
      x = norm(x, "embed_norm", shape.hidden);
    x = blocks(x, stackOf("blocks", shape.causal));
    if (!shape.postNorm)
      x = norm(x, "norm", shape.hidden);
    if (shape.maskedHead)
      x = norm(activate(linear(x, "head.transform", shape.hidden, shape.hidden, true)), "head.norm",
               shape.hidden);
    return lossOf(output(x, table), labels, shape.vocabulary);
  }

  Value imageLoss() {
    const Value pixels = graph.input("pixel_values", OnnxGraph::Type::F32,
                                     {kPixelChannels, shape.image, shape.image}),
                labels = graph.input("labels", OnnxGraph::Type::I64, {});
    const int64_t h = shape.hidden, p = shape.patch, patches = shape.sequence - 1;
    Value x = graph.add("Conv",
                        {pixels, graph.parameter("patches.weight", {h, kPixelChannels, p, p}),
                         graph.parameter("patches.bias", {h})},
                        {{"strides", std::vector<int64_t>{p, p}}});
    x = graph.add("Reshape", {x, graph.integers({0, h, patches})});
    x = graph.add("Transpose", {x}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
    const Value samples =
                    graph.add("Shape", {pixels}, {{"start", int64_t(0)}, {"end", int64_t(1)}}),
                sizes =
                    graph.add("Concat", {samples, graph.integers({1, h})}, {{"axis", int64_t(0)}}),
                first =
                    graph.add("Expand", {graph.parameter("class_token.weight", {1, 1, h}), sizes});
    x = graph.add("Concat", {first, x}, {{"axis", int64_t(1)}});
    x = graph.add("Add", {x, graph.parameter("embed_positions.weight", {shape.sequence, h})});
    x = norm(blocks(x, stackOf("blocks", false)), "norm", h);
    x = graph.add("Gather", {x, graph.integers({0}, {})}, {{"axis", int64_t(1)}});
    return graph.add("SoftmaxCrossEntropyLoss",
                     {linear(x, "head", h, shape.classes, true), labels});
  }

  Value translationLoss() {
    const Value ids = graph.input("input_ids", OnnxGraph::Type::I64, {shape.sequence}),
                decoded = graph.input("decoder_input_ids", OnnxGraph::Type::I64, {shape.sequence}),
                labels = graph.input("labels", OnnxGraph::Type::I64, {shape.sequence}),
                table = embedding();
    Value x = blocks(graph.add("Gather", {table, ids}), stackOf("encoder", false));
    Stack decoder = stackOf("decoder", true);
    decoder.other = norm(x, "encoder.norm", shape.hidden);
    x = blocks(graph.add("Gather", {table, decoded}), decoder);
    return lossOf(output(norm(x, "decoder.norm", shape.hidden), table), labels, shape.vocabulary);
  }

  Stack stackOf(const std::string &name, bool causal) {
    Stack stack{name, causal, {}, {}, {}, {}};
    if (shape.positions == Shape::Positions::Rotary)
      std::tie(stack.cosine, stack.sine) = rotations();
    if (shape.positions == Shape::Positions::Relative)
      stack.bias = distances(name, causal);
    return stack;
  }

  // ---- Ends of the model.

  Value embedding() {
    return graph.parameter("embed_tokens.weight", {shape.vocabulary, shape.hidden});
  }

  Value output(const Value &x, const Value &table) {
    if (!shape.tied)
      return linear(x, "head", shape.hidden, shape.vocabulary, false);
    const Value logits = graph.add(
        "MatMul", {x, graph.add("Transpose", {table}, {{"perm", std::vector<int64_t>{1, 0}}})});
    return shape.maskedHead
               ? graph.add("Add", {logits, graph.parameter("head.bias", {shape.vocabulary})})
               : logits;
  }

  Value lossOf(const Value &logits, const Value &labels, int64_t classes) {
    return graph.add("SoftmaxCrossEntropyLoss",
                     {graph.add("Reshape", {logits, graph.integers({-1, classes})}),
                      graph.add("Reshape", {labels, graph.integers({-1})})},
                     {{"ignore_index", kIgnored}});
  }

  // ---- Blocks.

  Value blocks(Value x, const Stack &stack) {
    for (int64_t i = 0; i < shape.layers; ++i) {
      const std::string block = stack.name + "." + std::to_string(i);
      if (shape.parallel) {
        const Value a = attention(norm(x, block + ".attention.norm", shape.hidden), {}, stack,
                                  block + ".attention"),
                    m = mlp(norm(x, block + ".mlp.norm", shape.hidden), block + ".mlp");
        x = graph.add("Add", {graph.add("Add", {a, m}), x});
        continue;
      }
      x = branch(x, block, ".attention", [&](const Value &in, const std::string &name) {
        return attention(in, {}, stack, name);
      });
      if (!stack.other.empty())
        x = branch(x, block, ".cross_attention", [&](const Value &in, const std::string &name) {
          return attention(in, stack.other, stack, name);
        });
      x = branch(x, block, ".mlp", [&](const Value &in, const std::string &name) {
        return shape.experts > 0 ? mixture(in, name) : mlp(in, name);
      });
    }
    return x;
  }

  /// A branch of a block with its norm, before it or after the sum.
  template <typename Make>
  Value branch(const Value &x, const std::string &block, const char *which, Make make) {
    const std::string name = block + which, normName = name + ".norm";
    if (shape.postNorm)
      return norm(graph.add("Add", {make(x, name), x}), normName, shape.hidden);
    return graph.add("Add", {make(norm(x, normName, shape.hidden), name), x});
  }

  Value linear(const Value &x, const std::string &name, int64_t in, int64_t out, bool bias) {
    Value y = graph.add("MatMul", {x, graph.parameter(name + ".weight", {in, out})});
    return bias ? graph.add("Add", {y, graph.parameter(name + ".bias", {out})}) : y;
  }

  Value norm(const Value &x, const std::string &name, int64_t width) {
    const Value scale = graph.parameter(name + ".weight", {width});
    if (shape.norm == Shape::Norm::Rms)
      return graph.add("RMSNormalization", {x, scale},
                       {{"axis", int64_t(-1)}, {"epsilon", kEpsilon}});
    std::vector<Value> operands{x, scale};
    if (shape.biases)
      operands.push_back(graph.parameter(name + ".bias", {width}));
    return graph.add("LayerNormalization", operands,
                     {{"axis", int64_t(-1)}, {"epsilon", kEpsilon}});
  }

  Value activate(const Value &x) {
    switch (shape.activation) {
    case Shape::Activation::Gelu:
      return graph.add("Gelu", {x}, {{"approximate", std::string("tanh")}});
    case Shape::Activation::Silu:
      return graph.add("Mul", {x, graph.add("Sigmoid", {x})});
    case Shape::Activation::Relu:
      break;
    }
    return graph.add("Relu", {x});
  }

  Value mlp(const Value &x, const std::string &name) {
    const int64_t h = shape.hidden, f = shape.ffn;
    Value y = activate(linear(x, name + (shape.gated ? ".gate" : ".up"), h, f, shape.biases));
    if (shape.gated)
      y = graph.add("Mul", {y, linear(x, name + ".up", h, f, shape.biases)});
    return linear(y, name + ".down", f, h, shape.biases);
  }

  /// Experts weighted by the router's probabilities, which are zero for all but the best. As in
  /// exports of transformers, parameters of all experts are stacked, and every expert computes
  /// every token.
  Value mixture(const Value &in, const std::string &name) {
    const int64_t h = shape.hidden, f = shape.ffn, count = shape.experts;
    const Value x = graph.add("Reshape", {in, graph.integers({-1, h})}),
                scores = graph.add("Softmax", {linear(x, name + ".router", h, count, false)},
                                   {{"axis", int64_t(-1)}});
    const auto [best, which] = graph.addPair(
        "TopK", {scores, graph.integers({shape.activeExperts})}, {{"axis", int64_t(-1)}});
    const Value sum = graph.add("ReduceSum", {best, graph.integers({-1})}),
                zeros = graph.add("ConstantOfShape", {graph.add("Shape", {scores})}),
                gates = graph.add("ScatterElements", {zeros, which, graph.add("Div", {best, sum})},
                                  {{"axis", int64_t(-1)}});
    const Value up = graph.add(
        "Einsum",
        {x, graph.parameter(name + ".experts.up.weight", {count, shape.gated ? 2 * f : f, h})},
        {{"equation", std::string("td,eod->teo")}});
    Value inner;
    if (shape.gated) {
      const auto [gate, other] =
          graph.addPair("Split", {up}, {{"axis", int64_t(-1)}, {"num_outputs", int64_t(2)}});
      inner = graph.add("Mul", {activate(gate), other});
    } else {
      inner = activate(up);
    }
    const Value down = graph.add(
                    "Einsum",
                    {inner, graph.parameter(name + ".experts.down.weight", {count, h, f})},
                    {{"equation", std::string("ted,eod->teo")}}),
                weighted =
                    graph.add("Mul", {down, graph.add("Unsqueeze", {gates, graph.integers({2})})}),
                y = graph.add("ReduceSum", {weighted, graph.integers({1})},
                              {{"keepdims", int64_t(0)}});
    return graph.add("Reshape", {y, graph.integers({-1, shape.sequence, h})});
  }

  // ---- Attention.

  /// \param other  values that keys and values are made of; empty: x
  Value attention(const Value &x, const Value &other, const Stack &stack, const std::string &name) {
    const int64_t h = shape.hidden, wide = shape.heads * shape.headSize,
                  narrow = shape.kvHeads * shape.headSize;
    const bool biases = shape.biases || shape.qkvBiases;
    const Value &from = other.empty() ? x : other;
    Value q, k, v, y;
    if (shape.fusedQkv) {
      const Value all = linear(x, name + ".qkv", h, wide + 2 * narrow, biases);
      q = slice(all, 0, wide);
      k = slice(all, wide, narrow);
      v = slice(all, wide + narrow, narrow);
    } else {
      q = linear(x, name + ".q", h, wide, biases);
      k = linear(from, name + ".k", h, narrow, biases);
      v = linear(from, name + ".v", h, narrow, biases);
    }
    if (shape.headNorms) {
      q = headNorm(q, name + ".q_norm", shape.heads);
      k = headNorm(k, name + ".k_norm", shape.kvHeads);
    }
    if (!stack.cosine.empty()) {
      q = rotate(q, stack, shape.heads);
      k = rotate(k, stack, shape.kvHeads);
    }
    if (!stack.bias.empty())
      y = biasedAttention(q, k, v, other.empty() ? stack : Stack());
    else
      y = graph.add("Attention", {q, k, v},
                    {{"q_num_heads", shape.heads},
                     {"kv_num_heads", shape.kvHeads},
                     {"is_causal", int64_t(stack.causal)}});
    return linear(y, name + ".o", wide, h, shape.biases);
  }

  /// Attention with learned biases of scores, and without scaling, as in T5.
  Value biasedAttention(const Value &q, const Value &k, const Value &v, const Stack &stack) {
    Value scores = graph.add("MatMul", {heads(q, {0, 2, 1, 3}), heads(k, {0, 2, 3, 1})});
    if (!stack.bias.empty())
      scores = graph.add("Add", {scores, stack.bias});
    if (stack.causal)
      scores = graph.add("Add", {scores, causalMask()});
    const Value weights = graph.add("Softmax", {scores}, {{"axis", int64_t(-1)}}),
                y = graph.add("Transpose", {graph.add("MatMul", {weights, heads(v, {0, 2, 1, 3})})},
                              {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    return flat(y, shape.heads);
  }

  /// Channels [first, first + count).
  Value slice(const Value &x, int64_t first, int64_t count) {
    return graph.add("Slice", {x, graph.integers({first}), graph.integers({first + count}),
                               graph.integers({2})});
  }
  Value heads(const Value &x, const std::vector<int64_t> &order) {
    return graph.add("Transpose", {split(x, shape.heads)}, {{"perm", order}});
  }
  Value split(const Value &x, int64_t count) {
    return graph.add("Reshape", {x, graph.integers({-1, shape.sequence, count, shape.headSize})});
  }
  Value flat(const Value &x, int64_t count) {
    return graph.add("Reshape", {x, graph.integers({-1, shape.sequence, count * shape.headSize})});
  }
  Value headNorm(const Value &x, const std::string &name, int64_t count) {
    return flat(norm(split(x, count), name, shape.headSize), count);
  }

  Value rotate(const Value &x, const Stack &stack, int64_t count) {
    return graph.add("RotaryEmbedding", {x, stack.cosine, stack.sine}, {{"num_heads", count}});
  }

  /// Cosines and sines [1, positions, channels / 2], computed by the importer.
  std::pair<Value, Value> rotations() {
    std::vector<float> frequencies;
    frequencies.reserve(static_cast<size_t>(shape.headSize / 2));
    for (int64_t i = 0; i < shape.headSize / 2; ++i)
      frequencies.push_back(
          static_cast<float>(std::pow(kTheta, -2.0 * double(i) / double(shape.headSize))));
    const Value positions = graph.add("Cast",
                                      {graph.add("Range", {graph.integers({0}, {}),
                                                           graph.integers({shape.sequence}, {}),
                                                           graph.integers({1}, {})})},
                                      {{"to", int64_t(OnnxGraph::Type::F32)}}),
                angles =
                    graph.add("Mul", {graph.add("Unsqueeze", {positions, graph.integers({0, 2})}),
                                      graph.reals(frequencies)});
    return {graph.add("Cos", {angles}), graph.add("Sin", {angles})};
  }

  /// Biases [heads, positions, positions] of T5: one number per head and bucket of distances.
  Value distances(const std::string &name, bool causal) {
    constexpr int64_t kBuckets = 32, kFarthest = 128;
    const int64_t n = shape.sequence;
    std::vector<int64_t> buckets;
    buckets.reserve(static_cast<size_t>(n * n));
    for (int64_t query = 0; query < n; ++query)
      for (int64_t key = 0; key < n; ++key) {
        const int64_t behind = query - key, each = causal ? kBuckets : kBuckets / 2,
                      distance = causal ? std::max<int64_t>(behind, 0) : std::abs(behind),
                      exact = each / 2;
        int64_t bucket = distance;
        if (distance >= exact)
          bucket = std::min(
              each - 1, exact + static_cast<int64_t>(std::log(double(distance) / double(exact)) /
                                                     std::log(double(kFarthest) / double(exact)) *
                                                     double(each - exact)));
        buckets.push_back(bucket + (!causal && behind < 0 ? each : 0));
      }
    const Value table = graph.parameter(name + ".distances.weight", {kBuckets, shape.heads});
    return graph.add("Transpose", {graph.add("Gather", {table, graph.integers(buckets, {n, n})})},
                     {{"perm", std::vector<int64_t>{2, 0, 1}}});
  }

  /// -10000 above the diagonal.
  Value causalMask() {
    if (mask.empty()) {
      const Value sizes = graph.integers({shape.sequence, shape.sequence}),
                  ones = graph.add("Expand", {graph.real(-1e4), sizes});
      mask = graph.add("Trilu", {ones, graph.integers({1}, {})}, {{"upper", int64_t(1)}});
    }
    return mask;
  }

  const Shape &shape;
  OnnxGraph graph;
  Value mask; ///< of causal biased attention, once made
};

} // namespace

Status shapes::writeOnnx(const ModelShape &shape, const std::string &path) {
  return Transformer(shape).write(path);
}
