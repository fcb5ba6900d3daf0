// Makes small models as graph IR text.
#pragma once

#include "zorse/runtime/Expression.h"

#include <fstream>
#include <functional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace zorse::testing {

inline std::string readModel(const std::string &name) {
  std::ifstream file(std::string(ZORSE_SOURCE_DIR) + "/test/lit/units/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::string withoutDropout(std::string text) {
  return std::regex_replace(text, std::regex("(dropout|probability) = [0-9.]+"), "$1 = 0.0");
}

/// Writes models with one feature stream, tensor<?x3x4xf64>, layer by layer.
class ModelWriter {
public:
  const std::string T = "tensor<?x3x4xf64>";

  std::string input(const std::string &name, const std::string &type) {
    arguments.push_back("%" + name + ": " + type + " {zorse.input = \"" + name + "\"}");
    return "%" + name;
  }
  std::string parameter(const std::string &name, const std::string &type, bool trainable = true) {
    arguments.push_back("%p" + std::to_string(arguments.size()) + ": " + type +
                        " {zorse.parameter = \"" + name +
                        "\", zorse.trainable = " + (trainable ? "true" : "false") + "}");
    return "%p" + std::to_string(arguments.size() - 1);
  }
  std::string op(const std::string &text) {
    std::string name = "%v" + std::to_string(next++);
    body += "  " + name + " = " + text + "\n";
    return name;
  }
  std::string add(const std::string &a, const std::string &b) {
    return op("arith.addf " + a + ", " + b + " : " + T);
  }
  std::string linear(const std::string &x, const std::string &name, bool trainable = true) {
    std::string w = parameter(name, "tensor<4x4xf64>", trainable);
    return op("zorse.matmul " + x + ", " + w + " {transpose_b} : " + T + ", tensor<4x4xf64> -> " +
              T);
  }
  std::string norm(const std::string &x, const std::string &name) {
    std::string g = parameter(name, "tensor<4xf64>");
    return op("zorse.rms_norm " + x + " weight " + g + " {epsilon = 0.01 : f64} : (" + T +
              ", tensor<4xf64>) -> " + T);
  }
  std::string gelu(const std::string &x) { return op("zorse.gelu " + x + " : " + T); }
  std::string attention(const std::string &x, const std::string &name) {
    const std::string A = "tensor<?x3x2x2xf64>";
    std::string parts[3];
    for (int i = 0; i < 3; ++i)
      parts[i] = op("zorse.reshape " + linear(x, name + ".qkv" + std::to_string(i)) + " : " + T +
                    " -> " + A);
    std::string a = op("zorse.attention " + parts[0] + ", " + parts[1] + ", " + parts[2] +
                       " {causal, scale = 0.5 : f64} : (" + A + ", " + A + ", " + A + ") -> " + A);
    return linear(op("zorse.reshape " + a + " : " + A + " -> " + T), name + ".out");
  }
  std::string mlp(const std::string &x, const std::string &name, bool trainable = true) {
    return linear(gelu(linear(x, name + ".in", trainable)), name + ".out", trainable);
  }
  std::string embedding(bool trainable = true) {
    ids = input("input_ids", "tensor<?x3xi64>");
    std::string table = parameter("table", "tensor<11x4xf64>", trainable);
    return op("zorse.gather " + table + ", " + ids + " : tensor<11x4xf64>, tensor<?x3xi64> -> " +
              T);
  }
  void classifier(const std::string &x) {
    std::string labels = input("labels", "tensor<?x3xi64>"),
                w = parameter("lm_head", "tensor<11x4xf64>");
    std::string logits = op("zorse.matmul " + x + ", " + w + " {transpose_b} : " + T +
                            ", tensor<11x4xf64> -> tensor<?x3x11xf64>");
    std::string loss = op(
        "zorse.cross_entropy " + logits + ", " + labels +
        " {ignore_index = -100 : i64} : (tensor<?x3x11xf64>, tensor<?x3xi64>) -> tensor<?x3xf64>");
    numerator(op("zorse.reduce sum " + loss + " dims [1] : tensor<?x3xf64> -> tensor<?xf64>"), 1.0);
  }
  /// Adds the mean of squares of x as another loss term.
  void squares(const std::string &x, double coefficient) {
    std::string s = op("arith.mulf " + x + ", " + x + " : " + T);
    numerator(op("zorse.reduce sum " + s + " dims [1, 2] : " + T + " -> tensor<?xf64>"),
              coefficient);
  }
  void numerator(const std::string &value, double coefficient) {
    numerator(value, Expression::number(coefficient).print() + "/(3*B)");
  }
  void numerator(const std::string &value, const std::string &factor) {
    results.push_back(value);
    types.push_back("tensor<?xf64> {zorse.role = \"numerator\", zorse.term = " +
                    std::to_string(terms++) + " : i64, zorse.factor = \"" + factor + "\"}");
  }
  void count(const std::string &value, const std::string &reduce) {
    results.push_back(value);
    types.push_back("tensor<?xf64> {zorse.role = \"count\", zorse.count = " +
                    std::to_string(counts++) + " : i64, zorse.reduce = \"" + reduce + "\"}");
  }
  /// Multiplies x by a number that is known before the step.
  std::string timesKnown(const std::string &x, const std::string &expression) {
    std::string k = op("zorse.known \"" + expression + "\" : tensor<f64>");
    return op("arith.mulf " + x + ", " +
              op("zorse.broadcast " + k + " dims [] : tensor<f64> -> " + T) + " : " + T);
  }
  std::string finish() const {
    auto join = [](const std::vector<std::string> &parts) {
      std::string all;
      for (const std::string &part : parts)
        all += (all.empty() ? "" : ", ") + part;
      return all;
    };
    std::vector<std::string> plain(results.size(), "tensor<?xf64>");
    return "func.func @model(" + join(arguments) + ") -> (" + join(types) + ") {\n" + body +
           "  return " + join(results) + " : " + join(plain) + "\n}\n";
  }

  std::string ids;

private:
  std::vector<std::string> arguments, results, types;
  std::string body;
  int next = 0, terms = 0, counts = 0;
};

/// BERT's order: the norm follows the sum, and the first norm belongs to the embedding's output.
inline std::string postNormModel(int layers) {
  ModelWriter m;
  std::string x = m.norm(m.embedding(), "embeddings.norm");
  for (int i = 0; i < layers; ++i) {
    std::string p = "layer." + std::to_string(i);
    x = m.norm(m.add(x, m.attention(x, p + ".attention")), p + ".norm1");
    x = m.norm(m.add(x, m.mlp(x, p + ".mlp")), p + ".norm2");
  }
  m.classifier(x);
  return m.finish();
}

/// A U-shaped transformer: block i's output is added again before block layers - 1 - i.
inline std::string skipModel(int layers) {
  ModelWriter m;
  std::string x = m.embedding();
  std::vector<std::string> outputs;
  for (int i = 0; i < layers; ++i) {
    std::string p = "layer." + std::to_string(i);
    if (i > layers / 2)
      x = m.add(x, outputs[layers - 1 - i]);
    x = m.add(x, m.attention(m.norm(x, p + ".norm1"), p + ".attention"));
    x = m.add(x, m.mlp(m.norm(x, p + ".norm2"), p + ".mlp"));
    outputs.push_back(x);
  }
  m.classifier(m.norm(x, "norm"));
  return m.finish();
}

/// The first loss term uses a value in the middle of the model.
inline std::string auxiliaryLossModel() {
  ModelWriter m;
  std::string x = m.embedding(), middle;
  for (int i = 0; i < 4; ++i) {
    std::string p = "layer." + std::to_string(i);
    x = m.add(x, m.mlp(m.norm(x, p + ".norm"), p + ".mlp"));
    if (i == 1)
      m.squares(x, 0.125);
  }
  m.classifier(m.norm(x, "norm"));
  return m.finish();
}

/// The embedding and the first layers are frozen.
inline std::string frozenModel() {
  ModelWriter m;
  std::string x = m.embedding(false);
  for (int i = 0; i < 4; ++i)
    x = m.add(x, m.mlp(x, "layer." + std::to_string(i), i >= 2));
  m.classifier(m.norm(x, "norm"));
  return m.finish();
}

/// A perceptron on float inputs with a squared error, without embedding and classifier.
inline std::string regressionModel(int layers) {
  ModelWriter m;
  std::string x = m.input("features", m.T), target = m.input("target", m.T);
  for (int i = 0; i < layers; ++i)
    x = m.gelu(m.linear(x, "layer." + std::to_string(i)));
  m.squares(m.op("arith.subf " + x + ", " + target + " : " + m.T), 0.5);
  return m.finish();
}

/// Attention and MLP in parallel after one norm, as in GPT-NeoX.
inline std::string parallelModel(int layers) {
  ModelWriter m;
  std::string x = m.embedding();
  for (int i = 0; i < layers; ++i) {
    std::string p = "layer." + std::to_string(i), n = m.norm(x, p + ".norm");
    x = m.add(m.add(x, m.attention(n, p + ".attention")), m.mlp(n, p + ".mlp"));
  }
  m.classifier(m.norm(x, "norm"));
  return m.finish();
}

/// Layers that read numbers of the step, two of them the same number; terms with expressions of
/// counts as factors.
inline std::string knownModel() {
  ModelWriter m;
  std::string x = m.embedding();
  for (int i = 0; i < 4; ++i) {
    std::string p = "layer." + std::to_string(i);
    x = m.add(x, m.timesKnown(m.mlp(m.norm(x, p + ".norm"), p + ".mlp"),
                              i < 2 ? "1/sqrt(B)" : "0.1*n1/n0"));
  }
  m.classifier(m.norm(x, "norm"));
  const std::string target = m.input("target", m.T);
  auto sum = [&](const std::string &v) {
    return m.op("zorse.reduce sum " + v + " dims [1, 2] : " + m.T + " -> tensor<?xf64>");
  };
  const std::string squares = m.op("arith.mulf " + target + ", " + target + " : " + m.T);
  m.count(sum(squares), "sum");
  m.count(sum(squares), "max");
  m.count(sum(target), "min");
  const std::string difference = m.op("arith.subf " + x + ", " + target + " : " + m.T);
  m.numerator(sum(m.op("arith.mulf " + difference + ", " + difference + " : " + m.T)),
              "0.5/max(n0, 1e-6) + 0.01*abs(n2)/pow(B, 2)");
  return m.finish();
}

/// Layers that read numbers per sample and a count that reads another count; a count of only the
/// first sample.
inline std::string levelsModel() {
  ModelWriter m;
  const std::string target = m.input("target", m.T);
  auto sum = [&](const std::string &v) {
    return m.op("zorse.reduce sum " + v + " dims [1, 2] : " + m.T + " -> tensor<?xf64>");
  };
  auto less = [&](const std::string &v, const std::string &known) {
    const std::string k = m.op("zorse.known \"" + known + "\" : tensor<f64>");
    return m.op("arith.subf " + v + ", " +
                m.op("zorse.broadcast " + k + " dims [] : tensor<f64> -> " + m.T) + " : " + m.T);
  };
  const std::string centred = less(target, "n0/(12*B)");
  const std::string number = m.op("arith.sitofp " + m.op("zorse.sample_number : tensor<?xi64>") +
                                  " : tensor<?xi64> to tensor<?xf64>");
  const std::string weight =
      m.op("zorse.broadcast " + number + " dims [0] : tensor<?xf64> -> " + m.T);
  std::string x = m.embedding();
  for (int i = 0; i < 4; ++i) {
    std::string p = "layer." + std::to_string(i);
    x = m.add(x, m.timesKnown(m.mlp(m.norm(x, p + ".norm"), p + ".mlp"), "1/(1 + n1)"));
  }
  m.classifier(m.norm(x, "norm"));
  m.count(sum(target), "sum");
  m.count(sum(m.op("arith.mulf " + centred + ", " + centred + " : " + m.T)), "sum");
  m.count(sum(m.op("arith.mulf " + less(target, "sqrt(n1)") + ", " + weight + " : " + m.T)), "max");
  const std::string difference = m.op("arith.subf " + x + ", " + centred + " : " + m.T);
  const std::string weighted =
      m.op("arith.mulf " + m.op("arith.mulf " + difference + ", " + difference + " : " + m.T) +
           ", " + weight + " : " + m.T);
  m.numerator(sum(weighted), "0.5/(1 + abs(n2))");
  return m.finish();
}

/// An encoder-decoder model: every decoder layer reads the encoder's output.
inline std::string encoderDecoderModel(int layers) {
  ModelWriter m;
  const std::string A = "tensor<?x3x2x2xf64>";
  std::string x = m.embedding();
  for (int i = 0; i < layers; ++i) {
    std::string p = "encoder." + std::to_string(i);
    x = m.add(x, m.attention(m.norm(x, p + ".norm1"), p + ".attention"));
    x = m.add(x, m.mlp(m.norm(x, p + ".norm2"), p + ".mlp"));
  }
  std::string memory = m.norm(x, "encoder.norm"),
              table = m.parameter("decoder.table", "tensor<11x4xf64>"),
              ids = m.input("decoder_ids", "tensor<?x3xi64>");
  x = m.op("zorse.gather " + table + ", " + ids + " : tensor<11x4xf64>, tensor<?x3xi64> -> " + m.T);
  for (int i = 0; i < layers; ++i) {
    std::string p = "decoder." + std::to_string(i);
    x = m.add(x, m.attention(m.norm(x, p + ".norm1"), p + ".attention"));
    auto heads = [&](const std::string &v) {
      return m.op("zorse.reshape " + v + " : " + m.T + " -> " + A);
    };
    std::string q = heads(m.linear(m.norm(x, p + ".norm2"), p + ".q")),
                k = heads(m.linear(memory, p + ".k")), v = heads(m.linear(memory, p + ".v"));
    std::string a = m.op("zorse.attention " + q + ", " + k + ", " + v + " {scale = 0.5 : f64} : (" +
                         A + ", " + A + ", " + A + ") -> " + A);
    x = m.add(x, m.linear(m.op("zorse.reshape " + a + " : " + A + " -> " + m.T), p + ".out"));
    x = m.add(x, m.mlp(m.norm(x, p + ".norm3"), p + ".mlp"));
  }
  m.classifier(m.norm(x, "norm"));
  return m.finish();
}

} // namespace zorse::testing
