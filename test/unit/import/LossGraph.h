// Graphs for losses with numbers of the batch: a few values and numbers, to which tests add nodes.
#pragma once

#include "TestGraph.h"

namespace zorse::test {

/// A graph with the inputs ids, labels [B, 6] and weights [B], the parameter w [11, 4], values x
/// [B, 6, 4], the mean m
/// [] and sum s [] of their squares, a number l [B] per sample, and the numbers B [] (samples) and
/// numel [] of x, as integers (i) and floats (f).
struct LossGraph : Graph {
  explicit LossGraph(int64_t batch = 0, bool gradients = true) : Graph(batch) {
    input("weights", 1, {batch});
    input("features", 1, {batch, 3});
    for (auto [name, value] : std::vector<std::pair<std::string, int64_t>>{
             {"i0", 0}, {"i1", 1}, {"i2", 2}, {"i3", 3}, {"iIgnore", -100}})
      scalar(name, value);
    ints("v0", {0});
    ints("v3", {3});
    ints("vAll", {-1});
    ints("inner", {1, 2});
    for (auto [name, value] : std::vector<std::pair<std::string, float>>{
             {"f1", 1}, {"f2", 2}, {"fHalf", 0.5F}, {"fSmall", 1e-6F}})
      real(name, value);
    node("Gather", {"w", "ids"}, {"x"});
    node("Mul", {"x", "x"}, {"squares"});
    whole("ReduceMean", "squares", "m");
    whole("ReduceSum", "squares", "s");
    attribute(node("ReduceMean", {"squares", "inner"}, {"l"}), "keepdims", 0);
    node("Shape", {"x"}, {"shape"});
    node("Gather", {"shape", "i0"}, {"iB"});
    node("Size", {"x"}, {"iN"});
    cast("iB", "fB", 1);
    cast("iN", "fN", 1);
    node("Equal", {"labels", "iIgnore"}, {"ignored"});
    node("Not", {"ignored"}, {"kept"});
    cast("kept", "iKept", 7);
    whole("ReduceSum", "iKept", "iCount");
    cast("iCount", "fCount", 1);
    cast("kept", "fKept", 1);
  }
  void scalar(const std::string &name, int64_t value) {
    auto *tensor = model.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(7);
    tensor->add_int64_data(value);
  }
  void real(const std::string &name, float value) {
    auto *tensor = model.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(1);
    tensor->add_float_data(value);
  }
  void whole(const std::string &op, const std::string &of, const std::string &name) {
    attribute(node(op, {of}, {name}), "keepdims", 0);
  }
  void cast(const std::string &of, const std::string &name, int64_t type) {
    attribute(node("Cast", {of}, {name}), "to", type);
  }

  /// Adds nodes "name = Op a b; ..." and imports `loss`.
  Outcome importWith(const std::string &nodes, const std::string &loss = "loss",
                     ImportOptions options = {}) {
    llvm::SmallVector<llvm::StringRef> lines;
    llvm::StringRef(nodes).split(lines, ';', -1, false);
    for (llvm::StringRef line : lines) {
      auto [name, call] = line.split('=');
      llvm::SmallVector<llvm::StringRef> words;
      call.split(words, ' ', -1, false);
      const std::string op = words[0].str();
      std::vector<std::string> inputs;
      for (llvm::StringRef word : llvm::ArrayRef(words).drop_front())
        inputs.push_back(word.str());
      onnx::Node &made = node(op, inputs, {name.trim().str()});
      if (llvm::StringRef(op).starts_with("Reduce"))
        attribute(made, "keepdims", 0);
      if (op == "Concat")
        attribute(made, "axis", 0);
      if (op == "Cast")
        attribute(made, "to", 1);
    }
    output(loss);
    options.lossOutput = loss;
    options.trainable["w"] = TrainableChoice::Train;
    options.trustGuess = true; // for constants of one element
    return import(write("numbers.onnx"), options);
  }
};

/// The factors of the terms, or the message.
inline std::string factors(const Outcome &outcome) {
  std::string text;
  if (outcome.ok)
    for (llvm::StringRef rest = llvm::StringRef(outcome.text).split("zorse.factor = \"").second;
         !rest.empty(); rest = rest.split("zorse.factor = \"").second)
      text += (text.empty() ? "" : "; ") + rest.split('"').first.str();
  return text.empty() ? outcome.text : text;
}

} // namespace zorse::test
