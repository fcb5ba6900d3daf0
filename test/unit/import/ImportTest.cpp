// The importer on graphs made here: what it accepts, what it says about what it refuses.
#include "TestGraph.h"

#include "Checkpoint.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>

using namespace zorse;
using namespace zorse::test;

namespace {

TEST(Import, MergedSampleAxisIsFoundAndMadeDynamic) {
  Outcome outcome = import(Graph().languageModel().write("lm.onnx"));
  ASSERT_TRUE(outcome.ok) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "tensor<?x6x11xf32>")) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "zorse.ignore_index = -100")) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "zorse.upper_bound = 11")) << outcome.text;
}

TEST(Import, SymbolicAndFixedBatchesGiveTheSameGraph) {
  std::string fixed = import(Graph(2).languageModel().write("b2.onnx")).text;
  EXPECT_EQ(import(Graph(6).languageModel().write("b6.onnx")).text, fixed); // rows = sequence
  EXPECT_EQ(import(Graph(4).languageModel().write("b4.onnx")).text, fixed); // rows = channels
  EXPECT_EQ(import(Graph(1).languageModel().write("b1.onnx")).text, fixed);
  EXPECT_EQ(import(Graph(0).languageModel().write("b0.onnx")).text, fixed);
}

TEST(Import, WeightsAreFoundInTheFile) {
  Graph graph;
  std::string path = graph.languageModel().write("weights.onnx");
  Outcome outcome = import(path);
  ASSERT_TRUE(outcome.ok);
  ASSERT_EQ(outcome.model.weights.size(), 1u);
  const WeightSource &weight = outcome.model.weights[0];
  EXPECT_EQ(weight.parameter, "w");
  EXPECT_EQ(weight.bytes, 11u * 4 * 4);
  ASSERT_EQ(weight.file, path);
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(weight.offset));
  float value = 0;
  file.read(reinterpret_cast<char *>(&value), 4);
  EXPECT_FLOAT_EQ(value, 0.01f);
}

TEST(Import, LossIsAddedOnRequest) {
  Graph graph;
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.node("Transpose", {"w"}, {"wt"});
  graph.node("MatMul", {"x", "wt"}, {"logits"});
  graph.output("logits");
  std::string path = graph.write("logits.onnx");
  ImportOptions options;
  options.loss = "cross_entropy";
  options.logits = "logits";
  options.labels = "labels";
  Outcome outcome = import(path, options);
  ASSERT_TRUE(outcome.ok) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "zorse.cross_entropy"));
  options.labels = "targets"; // a new input
  options.shiftLabels = true;
  outcome = import(path, options);
  ASSERT_TRUE(outcome.ok) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "zorse.input = \"targets\""));
  EXPECT_TRUE(contains(outcome.text, "zorse.shifted_in_graph = true"));
  EXPECT_ERROR(import(path), "not a loss");
}

TEST(Import, SumsOfTermsWithCoefficients) {
  Graph graph;
  graph.languageModel();
  graph.node("Mul", {"logits", "logits"}, {"squares"});
  graph.node("ReduceMean", {"squares"}, {"mean"});
  Graph::attribute(*graph.model.mutable_graph()->mutable_node(graph.model.graph().node_size() - 1), "keepdims", 0);
  auto *constant = graph.model.mutable_graph()->add_initializer();
  constant->set_name("val_0");
  constant->set_data_type(1);
  constant->add_float_data(0.25f);
  graph.node("Mul", {"mean", "val_0"}, {"scaled"});
  graph.node("Add", {"loss", "scaled"}, {"total"});
  graph.output("total");
  ImportOptions options;
  options.lossOutput = "total";
  Outcome outcome = import(graph.write("terms.onnx"), options);
  ASSERT_TRUE(outcome.ok) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "zorse.coefficient = 2.500000e-01")) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "zorse.denominator_per_row = 6.600000e+01")) << outcome.text;
}

/// A scalar of parameters alone is a term of its own; products of sums over samples are none.
TEST(Import, PenaltiesOfParameters) {
  Graph graph;
  graph.languageModel();
  graph.weight("v", {3, 3});
  for (const char *name : {"w", "v"}) {
    graph.node("Mul", {name, name}, {std::string(name) + "_squares"});
    Graph::attribute(graph.node("ReduceSum", {std::string(name) + "_squares"}, {std::string(name) + "_sum"}), "keepdims", 0);
  }
  graph.node("Add", {"w_sum", "v_sum"}, {"penalty"});
  graph.node("Sub", {"loss", "penalty"}, {"total"});
  graph.node("Mul", {"loss", "w_sum"}, {"product"});
  graph.node("Mul", {"loss", "loss"}, {"square"});
  for (const char *name : {"total", "product", "square"})
    graph.output(name);
  const std::string path = graph.write("penalties.onnx");
  ImportOptions options;
  options.lossOutput = "total";
  options.trainable["v"] = TrainableChoice::Train;
  Outcome outcome = import(path, options);
  ASSERT_TRUE(outcome.ok) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "zorse.term = 1")) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "zorse.coefficient = -1.000000e+00")) << outcome.text;
  std::string warned;
  for (const std::string &warning : outcome.model.warnings)
    warned += warning + "\n";
  EXPECT_TRUE(contains(warned, "the last unit reads all of these")) << warned;
  options.lossOutput = "product";
  outcome = import(path, options);
  EXPECT_FALSE(outcome.ok);
  EXPECT_TRUE(contains(outcome.text, "n_product")) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "with what depends on parameters")) << outcome.text;
  options.lossOutput = "square";
  outcome = import(path, options);
  EXPECT_FALSE(outcome.ok);
  EXPECT_TRUE(contains(outcome.text, "not a sum of terms")) << outcome.text;
}

TEST(Import, TransposeWrittenTwiceIsOneParameter) {
  auto model = [](bool equal, const std::string &table = "wte.weight") {
    Graph graph;
    graph.model.mutable_graph()->mutable_initializer(0)->set_name(table);
    graph.weight("val_7", {4, 11});
    float element = 0;
    std::string &raw = *graph.model.mutable_graph()->mutable_initializer(1)->mutable_raw_data();
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 11; ++j) {
        element = 0.01f * static_cast<float>(j * 4 + i + (equal ? 1 : 2));
        std::memcpy(&raw[4 * (i * 11 + j)], &element, 4);
      }
    graph.node("Gather", {table, "ids"}, {"x"});
    graph.node("MatMul", {"x", "val_7"}, {"logits"});
    graph.output("logits");
    return graph.write("tied.onnx");
  };
  ImportOptions options;
  options.loss = "cross_entropy";
  options.logits = "logits";
  options.labels = "labels";
  Outcome tied = import(model(true), options);
  ASSERT_TRUE(tied.ok) << tied.text;
  ASSERT_EQ(tied.model.weights.size(), 1u) << tied.text;
  EXPECT_EQ(tied.model.weights[0].parameter, "wte.weight");
  tied = import(model(true, "table"), options); // a parameter of the outermost module
  ASSERT_EQ(tied.model.weights.size(), 1u) << tied.text;
  EXPECT_EQ(tied.model.weights[0].parameter, "table");
  EXPECT_EQ(import(model(false), options).model.weights.size(), 2u);
}

/// Scores of x with itself plus what `bias` adds, a softmax, and a loss.
Outcome withBias(const std::function<std::string(Graph &)> &bias, const ImportOptions &options = {}) {
  Graph graph;
  graph.node("Gather", {"w", "ids"}, {"x"});
  auto *permutation = graph.node("Transpose", {"x"}, {"xt"}).add_attribute();
  permutation->set_name("perm");
  permutation->set_type(7);
  for (int64_t dim : {0, 2, 1})
    permutation->add_ints(dim);
  graph.node("MatMul", {"x", "xt"}, {"products"});
  graph.node("Add", {"products", bias(graph)}, {"scores"});
  graph.node("Softmax", {"scores"}, {"p"});
  graph.node("MatMul", {"p", "x"}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  Graph::attribute(*graph.model.mutable_graph()->mutable_node(graph.model.graph().node_size() - 1), "keepdims", 0);
  graph.output("loss");
  return import(graph.write("bias.onnx"), options);
}

TEST(Import, BiasesOfScores) {
  // A table of distances under its own name is trained wherever its rows end.
  Outcome table = withBias([](Graph &graph) {
    graph.weight("relative.weight", {3, 6});
    graph.ints("distances", {0, 1, 2, 2, 2, 1});
    graph.node("Gather", {"relative.weight", "distances"}, {"bias"});
    return std::string("bias");
  });
  ASSERT_TRUE(table.ok) << table.text;
  EXPECT_TRUE(contains(table.text, "zorse.parameter = \"relative.weight\", zorse.trainable = true")) << table.text;
  // A folded one could be a fixed bias: the user is asked.
  Outcome folded = withBias([](Graph &graph) {
    graph.weight("val_3", {6, 6});
    return std::string("val_3");
  });
  EXPECT_ERROR(folded, "'val_3' [6, 6]. Say it with --train=PATTERN and --freeze=PATTERN");
  ImportOptions options;
  options.trainable["val_3"] = TrainableChoice::Train;
  Outcome trained = withBias(
      [](Graph &graph) {
        graph.weight("val_3", {6, 6});
        return std::string("val_3");
      },
      options);
  EXPECT_TRUE(contains(trained.text, "zorse.parameter = \"val_3\", zorse.trainable = true")) << trained.text;
}

TEST(Import, LeakyReluSteeperOnTheNegativeSide) {
  for (float alpha : {0.1f, 3.0f}) {
    Graph graph;
    graph.node("Gather", {"w", "ids"}, {"x"});
    auto *attribute = graph.node("LeakyRelu", {"x"}, {"y"}).add_attribute();
    attribute->set_name("alpha");
    attribute->set_type(1);
    attribute->set_f(alpha);
    graph.node("ReduceMean", {"y"}, {"loss"});
    graph.output("loss");
    Outcome outcome = import(graph.write("leaky.onnx"));
    ASSERT_TRUE(outcome.ok) << outcome.text;
    EXPECT_TRUE(contains(outcome.text, alpha > 1 ? "arith.minimumf" : "arith.maximumf")) << outcome.text;
  }
}

TEST(ImportErrors, ReductionsThatAreNotFolded) {
  Graph graph;
  graph.ints("c", {3, 4});
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.node("ReduceL2", {"c"}, {"length"}); // a length of integers: was 7
  graph.node("Expand", {"x", "length"}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  graph.output("loss");
  EXPECT_ERROR(import(graph.write("folded.onnx")), "node 'n_length' (ReduceL2): is defined on floats only here, found int64");
}

/// x * p, with what the file says about p; then the loss.
Outcome withFactor(const std::string &name, std::vector<int64_t> shape, const std::string &facts = "", const ImportOptions &options = {},
                   const std::string &torchCall = "", const std::string &signature = "") {
  Graph graph;
  graph.weight(name, shape);
  graph.node("Gather", {"w", "ids"}, {"x"});
  onnx::Node &identity = graph.node("Identity", {"x"}, {"stopped"});
  if (!torchCall.empty()) {
    auto *entry = identity.add_metadata_props();
    entry->set_key("pkg.torch.onnx.fx_node");
    entry->set_value(torchCall);
  }
  graph.node("Mul", {"stopped", name}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  Graph::attribute(*graph.model.mutable_graph()->mutable_node(graph.model.graph().node_size() - 1), "keepdims", 0);
  graph.output("loss");
  if (!facts.empty()) {
    auto *entry = graph.model.add_metadata_props();
    entry->set_key("zorse.facts");
    entry->set_value(facts);
  }
  if (!signature.empty()) {
    auto *entry = graph.model.mutable_graph()->add_metadata_props();
    entry->set_key("pkg.torch.export.ExportedProgram.graph_signature");
    entry->set_value(signature);
  }
  return import(graph.write("factor.onnx"), options);
}

bool isTrained(const Outcome &outcome, const std::string &name) {
  return contains(outcome.text, "zorse.parameter = \"" + name + "\", zorse.trainable = true");
}

const char *kBothTrained = R"({"version":1,"parameters":{"w":{"shape":[11,4],"trained":true},"p":{"shape":[4],"trained":true}}})";

TEST(TrainedParameters, AmbiguousFormsAreAsked) {
  for (std::vector<int64_t> shape : {std::vector<int64_t>{}, {1}, {1, 1, 4}, {6, 4}, {4}}) {
    EXPECT_ERROR(withFactor("p", shape), "their uses do not tell: 'p' [");
    ImportOptions options;
    options.trainable["p*"] = TrainableChoice::Train;
    EXPECT_TRUE(isTrained(withFactor("p", shape, "", options), "p"));
    options.trainable["p"] = TrainableChoice::Freeze; // a name wins over a pattern
    Outcome frozen = withFactor("p", shape, "", options);
    EXPECT_TRUE(frozen.ok && !isTrained(frozen, "p")) << frozen.text;
    ImportOptions trust;
    trust.trustGuess = true;
    Outcome trusted = withFactor("p", shape, "", trust);
    ASSERT_TRUE(trusted.ok) << trusted.text;
    ASSERT_FALSE(trusted.model.warnings.empty());
    EXPECT_TRUE(contains(trusted.model.warnings[0], "guessed as told (--trust-guess): 'p'"));
  }
  EXPECT_TRUE(isTrained(withFactor("norm.weight", {4}), "norm.weight")); // a plain form
  EXPECT_TRUE(withFactor("val_3", {}).ok);                               // 0.01: a number that people write
}

TEST(TrainedParameters, PatternsMatchSomething) {
  ImportOptions options;
  options.trainable["q.*"] = TrainableChoice::Freeze;
  EXPECT_ERROR(withFactor("norm.weight", {4}, "", options), "no initializer is called 'q.*', which is to be frozen");
}

TEST(TrainedParameters, FactsOfTheModuleAreBelieved) {
  EXPECT_TRUE(isTrained(withFactor("p", {4}, kBothTrained), "p"));
  Outcome frozen = withFactor("p", {4}, R"({"version":1,"parameters":{"w":{"shape":[11,4],"trained":true},"p":{"shape":[4],"trained":false}}})");
  EXPECT_TRUE(frozen.ok && !isTrained(frozen, "p") && isTrained(frozen, "w")) << frozen.text;
  Outcome buffer =
      withFactor("norm.weight", {4}, R"({"version":1,"parameters":{"w":{"shape":[11,4],"trained":true}},"buffers":{"norm.weight":{"shape":[4]}}})");
  EXPECT_TRUE(buffer.ok && !isTrained(buffer, "norm.weight")) << buffer.text;
}

TEST(TrainedParameters, WhatTheFileDoesNotHoldIsAnError) {
  // exp(g), under another name: by the module's facts and by the exporter's list of parameters.
  EXPECT_ERROR(withFactor("exp", {4}, kBothTrained), "the model trains 'p', and the file does not hold it");
  EXPECT_ERROR(withFactor("exp", {4}, kBothTrained), "what may hold it: 'exp' [4]");
  const char *signature = "\n# inputs\np_w: PARAMETER target='w'\np_p: PARAMETER target='p'\nids: USER_INPUT\n";
  EXPECT_ERROR(withFactor("exp", {4}, "", {}, "", signature), "the model trains 'p', and the file does not hold it");
  ImportOptions options;
  options.trainable["p"] = TrainableChoice::Freeze;
  EXPECT_TRUE(withFactor("exp", {4}, kBothTrained, options).ok); // stays as it was folded
  // Of another shape than the parameter's: something was folded into it.
  EXPECT_ERROR(withFactor("p", {1, 4}, kBothTrained), "does not hold it");
  // Not used by the outputs: nothing is missing.
  EXPECT_TRUE(withFactor("val_3", {4}, R"({"version":1,"parameters":{"w":{"trained":true},"p":{"trained":true}},"reached":["w"]})").ok);
}

TEST(TrainedParameters, MergedWithOneThatIsNotTrained) {
  EXPECT_ERROR(
      withFactor("p", {4}, R"({"version":1,"parameters":{"w":{"trained":true},"p":{"trained":true},"q":{"trained":false}},"equal":[["p","q"]]})"),
      "of the values of a trained parameter, and not in the file: 'q' (into 'p'?)");
}

TEST(TrainedParameters, GradientsStopAtDetach) {
  const char *call = "%detach : [num_users=1] = call_function[target=torch.ops.aten.detach.default](args = (%x,), kwargs = {})";
  Outcome outcome = withFactor("p", {4}, kBothTrained, {}, call);
  EXPECT_TRUE(contains(outcome.text, "zorse.detach")) << outcome.text;
  EXPECT_FALSE(contains(withFactor("p", {4}, kBothTrained).text, "zorse.detach"));
  EXPECT_FALSE(isTrained(withFactor("norm.weight", {4}, "", {}, call), "w")); // no gradient reaches it
  // The module detaches, and the file does not say where.
  std::string detached = R"({"version":1,"parameters":{"w":{"trained":true},"p":{"trained":true}},"detached":1})";
  EXPECT_ERROR(withFactor("p", {4}, detached), "the module detaches 1 value that has a gradient, the file says so of 0");
  EXPECT_TRUE(withFactor("p", {4}, detached, {}, call).ok);
  EXPECT_ERROR(withFactor("p", {4}, R"({"version":1,"parameters":{"w":{},"p":{}},"unsaid":["Scale has a backward of its own"]})"),
               "Scale has a backward of its own");
  // The exporter's node mentions a detach that is gone.
  EXPECT_ERROR(withFactor("norm.weight", {4}, "", {},
                          "%mul : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%detach, %p_p), kwargs = {})",
                          "\np_w: PARAMETER target='w'\np_p: PARAMETER target='norm.weight'\n"),
               "the exporter has dropped it (1 times)");
}

TEST(TrainedParameters, PaddingRows) {
  auto padded = [](const std::string &call, const std::string &facts) {
    Graph graph;
    graph.languageModel();
    if (!call.empty()) {
      auto *entry = graph.model.mutable_graph()->mutable_node(0)->add_metadata_props();
      entry->set_key("pkg.torch.onnx.fx_node");
      entry->set_value(call);
    }
    if (!facts.empty()) {
      auto *entry = graph.model.add_metadata_props();
      entry->set_key("zorse.facts");
      entry->set_value(facts);
    }
    return import(graph.write("padded.onnx")).text;
  };
  const char *facts = R"({"version":1,"parameters":{"w":{"trained":true}},"padding":{"w":3}})";
  auto call = [](const char *arguments) {
    return std::string("%embedding : [num_users=1] = call_function[target=torch.ops.aten.embedding.default](args = (") + arguments +
           "), kwargs = {})";
  };
  EXPECT_TRUE(contains(padded("", facts), "padding = 3"));
  EXPECT_TRUE(contains(padded(call("%p_w, %ids, 2"), ""), "padding = 2"));
  EXPECT_FALSE(contains(padded(call("%p_w, %ids"), facts), "padding")); // this use has none
  EXPECT_FALSE(contains(padded("", ""), "padding"));
}

// Files as PyTorch wrote them (make_exports.py): a frozen bias, a buffer, a scalar, exp(g), a tied table with a padding row, with and without a
// detach.
Outcome exported(const std::string &name, const ImportOptions &options = {}) {
  return import(std::string(ZORSE_EXPORTS) + "/" + name + ".onnx", options);
}

TEST(TrainedParameters, OfExportsWithFacts) {
  for (const char *form : {"unoptimised", "opset23", "torchscript", "torchscript-eval"}) {
    SCOPED_TRACE(form);
    Outcome outcome = exported(std::string(form) + "-facts");
    ASSERT_TRUE(outcome.ok) << outcome.text;
    EXPECT_TRUE(isTrained(outcome, "scale"));
    EXPECT_TRUE(isTrained(outcome, "g"));
    EXPECT_TRUE(isTrained(outcome, "head.weight") || isTrained(outcome, "embedding.weight"));
    EXPECT_FALSE(isTrained(outcome, "linear.bias"));
    EXPECT_FALSE(isTrained(outcome, "shift"));
    EXPECT_TRUE(contains(outcome.text, "padding = 0"));
    EXPECT_EQ(outcome.model.weights.size(), 4u); // tied: one table
  }
  EXPECT_ERROR(exported("default-facts"), "the model trains 'g', and the file does not hold it");
  for (const char *form : {"unoptimised", "opset23"}) {
    Outcome outcome = exported("detach-" + std::string(form) + "-facts");
    EXPECT_TRUE(contains(outcome.text, "zorse.detach")) << outcome.text;
  }
  for (const char *form : {"default", "torchscript", "torchscript-eval"})
    EXPECT_ERROR(exported("detach-" + std::string(form) + "-facts"), "the module detaches 1 value");
}

TEST(TrainedParameters, OfExportsWithoutFacts) {
  for (const char *form : {"unoptimised", "opset23"}) {
    Outcome outcome = exported(form);
    ASSERT_TRUE(outcome.ok) << outcome.text;
    EXPECT_TRUE(isTrained(outcome, "scale") && isTrained(outcome, "linear.bias") && !isTrained(outcome, "shift")) << outcome.text;
    EXPECT_TRUE(contains(outcome.text, "padding = 0"));
    std::string notes;
    for (const std::string &note : outcome.model.notes)
      notes += note + "\n";
    EXPECT_TRUE(contains(notes, "not which are frozen") && contains(notes, "'linear.bias'")) << notes;
    EXPECT_TRUE(contains(exported("detach-" + std::string(form)).text, "zorse.detach"));
  }
  EXPECT_ERROR(exported("default"), "and the file does not hold them");
  EXPECT_ERROR(exported("detach-default"), "the exporter has dropped it");
  for (const char *form : {"torchscript", "torchscript-eval"}) {
    EXPECT_ERROR(exported(form), "their uses do not tell: 'scale' [], 'g' [4], 'shift' [4]");
    ImportOptions options;
    options.trainable = {{"scale", TrainableChoice::Train}, {"g", TrainableChoice::Train}, {"shift", TrainableChoice::Freeze}};
    Outcome told = exported(form, options);
    EXPECT_TRUE(told.ok && isTrained(told, "scale") && isTrained(told, "g") && !isTrained(told, "shift")) << told.text;
  }
}

TEST(TrainedParameters, NamesOfTheHub) {
  // Tied names are united; a frozen parameter that checkpoints hold is an argument, whatever its size, and one that they do not hold a constant.
  const char *facts = R"({"version":1,"ties":[["w","head"]],
    "parameters":{"w":{"shape":[11,4],"trained":true},"head":{"shape":[11,4],"trained":true},"p":{"shape":[4],"trained":false}},
    "hub":{"parameters":{"w":{"names":["t.w"]},"head":{"names":["head"]},"p":{"names":["t.p"],"transposed":true,"adapter":true}},
           "buffers":["t.freq"],"lora":{"r":4,"alpha":8.5,"targets":["q","v"],"fan_in_fan_out":true}}})";
  Outcome outcome = withFactor("p", {4}, facts);
  ASSERT_TRUE(outcome.ok) << outcome.text;
  ASSERT_EQ(outcome.model.weights.size(), 2u);
  for (const WeightSource &weight : outcome.model.weights)
    if (weight.parameter == "w")
      EXPECT_TRUE(weight.hub.names == (std::vector<std::string>{"t.w", "head"}) && !weight.hub.transposed && !weight.hub.adapter);
    else
      EXPECT_TRUE(weight.hub.names == std::vector<std::string>{"t.p"} && weight.hub.transposed && weight.hub.adapter);
  EXPECT_EQ(outcome.model.hub.buffers, std::vector<std::string>{"t.freq"});
  ASSERT_TRUE(outcome.model.hub.lora);
  EXPECT_TRUE(outcome.model.hub.lora->rank == 4 && outcome.model.hub.lora->alpha == 8.5 && outcome.model.hub.lora->fanInFanOut);
  EXPECT_EQ(outcome.model.hub.lora->targets, (std::vector<std::string>{"q", "v"}));
  Outcome without = withFactor("p", {4}, R"({"version":1,"parameters":{"w":{"shape":[11,4],"trained":true},"p":{"shape":[4],"trained":false}}})");
  ASSERT_TRUE(without.ok) << without.text;
  ASSERT_EQ(without.model.weights.size(), 1u);
  EXPECT_TRUE(without.model.weights[0].hub.names.empty() && without.model.weights[0].hub.ties.empty());
  Outcome tied =
      withFactor("p", {4}, R"({"version":1,"ties":[["w","head"]],"parameters":{"w":{"trained":true},"head":{"trained":true},"p":{"trained":true}}})");
  ASSERT_TRUE(tied.ok) << tied.text;
  for (const WeightSource &weight : tied.model.weights)
    EXPECT_EQ(weight.hub.ties, weight.parameter == "w" ? std::vector<std::string>{"head"} : std::vector<std::string>{});
}

TEST(TrainedParameters, DamagedFactsAreErrors) {
  EXPECT_ERROR(withFactor("p", {4}, "{"), "are not a JSON object");
  EXPECT_ERROR(withFactor("p", {4}, std::string(100000, '[')), "are not a JSON object");
  EXPECT_ERROR(withFactor("p", {4}, R"({"version":2,"parameters":{}})"), "are of version 2, expects 1");
  EXPECT_ERROR(withFactor("p", {4}, R"({"version":1})"), "name no parameters");
}

TEST(ImportErrors, SequenceBeyondThePositionTable) {
  Graph graph(0);
  graph.model.mutable_graph()->clear_input();
  graph.input("ids", 7, {0, -1});
  graph.weight("wpe.weight", {5, 4});
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.node("Shape", {"ids"}, {"shape"});
  for (auto [name, value] : {std::pair<const char *, int64_t>{"zero", 0}, {"one", 1}}) {
    auto *tensor = graph.model.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(7);
    tensor->add_int64_data(value);
  }
  graph.node("Gather", {"shape", "one"}, {"length"});
  graph.node("Range", {"zero", "length", "one"}, {"positions"});
  graph.node("Gather", {"wpe.weight", "positions"}, {"places"});
  graph.node("Add", {"x", "places"}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  graph.output("loss");
  ImportOptions options;
  options.sequence = 8;
  Outcome outcome = import(graph.write("positions.onnx"), options);
  EXPECT_ERROR(outcome, "node 'n_places' (Gather): id 7 is outside 'wpe.weight', which has 5 entries along axis 0; positions up to 4 exist: compile "
                        "with --seq at most 5");
  EXPECT_ERROR(outcome, "its operands: 'wpe.weight' float32 [5, 4], 'positions' constant int64 [8]");
}

TEST(ImportErrors, MixingSamplesNamesTheNode) {
  Graph graph;
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.ints("axis", {0});
  graph.node("ReduceMean", {"x", "axis"}, {"centre"}); // over samples
  graph.node("Sub", {"x", "centre"}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  graph.output("loss");
  EXPECT_ERROR(import(graph.write("mix.onnx")), "node 'n_centre' (ReduceMean): combines samples");
}

TEST(ImportErrors, UnknownOperatorsAreReportedTogether) {
  Graph graph;
  graph.node("ImageDecoder", {"ids"}, {"a"});
  graph.node("NonMaxSuppression", {"a"}, {"b"});
  graph.node("ImageDecoder", {"b"}, {"loss"});
  graph.output("loss");
  Outcome outcome = import(graph.write("unknown.onnx"));
  EXPECT_ERROR(outcome, "2 operators are not supported: ImageDecoder (2 nodes: 'n_a', 'n_loss'), NonMaxSuppression (1 node: 'n_b')");
}

// What to do about an operator is said where something can be done; attributes are reported with the others.
TEST(ImportErrors, AllLimitsAtOnceWithRemedies) {
  Graph graph;
  graph.input("image", 1, {2, 3, 8, 8});
  graph.node("NonZero", {"image"}, {"large"});
  graph.node("AdaptiveMaxPool", {"large"}, {"pooled"});
  Graph::attribute(graph.node("Pad", {"pooled", "k"}, {"loss"}), "edge", 1);
  graph.weight("k", {4, 3, 3, 3});
  graph.output("loss");
  Outcome outcome = import(graph.write("limits.onnx"));
  EXPECT_ERROR(outcome, "2 operators are not supported: AdaptiveMaxPool (1 node: 'n_pooled'), NonZero (1 node: 'n_large')");
  EXPECT_ERROR(outcome, "\n  AdaptiveMaxPool: give the pooling a kernel and strides");
  EXPECT_ERROR(outcome, "\n  NonZero: how many elements it takes depends on data");
  EXPECT_ERROR(outcome, "\n  Pad: attribute 'edge' is not known (1 node: 'n_loss')");
}

// What the importer does not read is never skipped: an attention window would be left out, and all keys seen.
TEST(ImportErrors, AttributesThatAreNotRead) {
  auto with = [](const std::function<void(onnx::Node &)> &change) {
    Graph graph(2, 25);
    graph.node("Gather", {"w", "ids"}, {"x"});
    onnx::Node &attention = graph.node("Attention", {"x", "x", "x"}, {"y"});
    Graph::attribute(attention, "q_num_heads", 2);
    Graph::attribute(attention, "kv_num_heads", 2);
    change(attention);
    graph.node("ReduceMean", {"y"}, {"loss"});
    graph.output("loss");
    return import(graph.write("attributes.onnx"));
  };
  auto integer = [&](const char *name, int64_t value) { return with([=](onnx::Node &node) { Graph::attribute(node, name, value); }); };
  Outcome plain = with([](onnx::Node &) {}), causal = integer("is_causal", 1);
  EXPECT_TRUE(plain.ok) << plain.text;
  EXPECT_TRUE(causal.ok && contains(causal.text, "causal")) << causal.text;
  EXPECT_TRUE(integer("left_window_size", -1).ok); // the default of the specification
  EXPECT_TRUE(integer("softmax_precision", 1).ok);
  EXPECT_ERROR(integer("left_window_size", 2), "Attention: attribute 'left_window_size' is 2; only -1 is supported (1 node: 'n_y')");
  EXPECT_ERROR(integer("sliding_window", 2), "Attention: attribute 'sliding_window' is not known (1 node: 'n_y')");
  EXPECT_ERROR(integer("scale", 2), "attribute 'scale': expects a float, found an integer");
  // A writer that leaves out zeros says the type alone: the value is zero, and not the default.
  auto typed = [&](int32_t type) {
    return with([=](onnx::Node &node) {
      auto *attribute = node.add_attribute();
      attribute->set_name("is_causal");
      if (type)
        attribute->set_type(type);
    });
  };
  EXPECT_EQ(typed(2).text, plain.text);
  EXPECT_ERROR(typed(0), "attribute 'is_causal': expects an integer, found nothing");
  Graph operands;
  operands.node("Gather", {"w", "ids", "labels"}, {"x"});
  operands.node("ReduceMean", {"x"}, {"loss"});
  operands.output("loss");
  EXPECT_ERROR(import(operands.write("operands.onnx")), "Gather: has 3 operands; at most 2 are known");
  Graph missing;
  missing.node("Gather", {"w", "ids"}, {"x"});
  missing.node("Concat", {"x", "x"}, {"y"});
  missing.node("ReduceMean", {"y"}, {"loss"});
  missing.output("loss");
  EXPECT_ERROR(import(missing.write("missing.onnx")), "Concat: attribute 'axis' is missing");
}

TEST(ImportErrors, AttributesOfFunctions) {
  auto with = [](const std::function<void(onnx::Function &, onnx::Node & body, onnx::Node & call)> &change) {
    Graph graph;
    graph.node("Gather", {"w", "ids"}, {"x"});
    onnx::Function *function = graph.model.add_functions();
    function->set_domain("own");
    function->set_name("mean");
    function->add_input("a");
    function->add_output("b");
    function->add_attribute("keep");
    onnx::Node *body = function->add_node();
    body->set_op_type("ReduceMean");
    body->add_input("a");
    body->add_output("b");
    onnx::Node &call = graph.node("mean", {"x"}, {"loss"});
    call.set_domain("own");
    change(*function, *body, call);
    graph.output("loss");
    return import(graph.write("function.onnx"));
  };
  auto refer = [](onnx::Node &body, const char *name) {
    auto *attribute = body.add_attribute();
    attribute->set_name("keepdims");
    attribute->set_type(2);
    attribute->set_ref_attr_name(name);
  };
  EXPECT_TRUE(with([&](auto &, auto &body, auto &call) { refer(body, "keep"), Graph::attribute(call, "keep", 1); }).ok);
  EXPECT_ERROR(with([&](auto &, auto &body, auto &call) { refer(body, "keep"), Graph::attribute(call, "keeep", 1); }),
               "attribute 'keeep', which the function does not have");
  EXPECT_ERROR(with([&](auto &, auto &body, auto &) { refer(body, "kept"); }), "'kept', and the function around it has none of this name");
  Outcome newer = with([&](auto &function, auto &, auto &) { function.add_opset_import()->set_version(27); });
  EXPECT_ERROR(newer, "operator set version 13 to 26, found 27");
}

// An algorithm for training that is not understood names what it is about; test/e2e/own_training.py trains those that are.
TEST(ImportErrors, TrainingInfo) {
  auto with = [](auto change) {
    Graph graph;
    auto *info = graph.languageModel().model.add_training_info();
    onnx::Node *gradient = info->mutable_algorithm()->add_node();
    gradient->set_op_type("Gradient");
    gradient->set_domain("ai.onnx.preview.training");
    gradient->add_input("w");
    gradient->add_output("dw");
    auto *xs = gradient->add_attribute();
    xs->set_name("xs");
    xs->add_strings("w");
    auto *y = gradient->add_attribute();
    y->set_name("y");
    y->set_s("loss");
    change(*info, *gradient);
    return import(graph.write("training.onnx"));
  };
  auto bind = [](onnx::TrainingInfo &info, const char *key, const char *value) {
    auto *binding = info.add_update_binding();
    binding->set_key(key);
    binding->set_value(value);
  };
  EXPECT_ERROR(with([](auto &info, auto &) { info.mutable_algorithm()->clear_node(); }), "training_info: has no Gradient");
  EXPECT_ERROR(with([](auto &, auto &) {}), "training_info: updates no parameter by a gradient");
  EXPECT_ERROR(with([](auto &info, auto &) { info.add_initialization_binding()->set_key("w"); }), "training_info: initializes 'w'");
  EXPECT_ERROR(with([&](auto &info, auto &) { bind(info, "v", "next"); }), "training_info: updates 'v', which is no initializer");
  EXPECT_ERROR(with([&](auto &info, auto &) { bind(info, "w", "next"), bind(info, "w", "other"); }), "training_info: updates 'w' twice");
  EXPECT_ERROR(with([&](auto &info, auto &) { bind(info, "w", "next"); }), "training_info: 'w' is updated by the value 'next'");
  EXPECT_ERROR(with([&](auto &, auto &gradient) { gradient.set_input(0, "ids"); }), "is taken at another value than 'w'");
  EXPECT_ERROR(with([&](auto &info, auto &) {
                 *info.mutable_algorithm()->add_node() = [] {
                   onnx::Node node;
                   node.set_op_type("Adagrad");
                   node.set_domain("ai.onnx.preview.training");
                   node.set_name("update");
                   return node;
                 }();
               }),
               "training_info: Adagrad 'update': the optimizer is not supported");
  Graph twice;
  twice.languageModel().model.add_training_info();
  twice.model.add_training_info();
  EXPECT_ERROR(import(twice.write("twice.onnx")), "has 2 algorithms; expects one");
}

// Flat buffers are believed nothing: cut anywhere, or with references that lead anywhere, they are an error and no crash.
TEST(ImportErrors, CheckpointsOfTrainingArtifacts) {
  std::ifstream file(ZORSE_SOURCE_DIR "/models/small/training/artifact/checkpoint", std::ios::binary);
  std::string good{std::istreambuf_iterator<char>(file), {}}, error;
  auto read = [&](const std::string &bytes) {
    error.clear();
    return onnx_import::readCheckpoint(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "checkpoint", error);
  };
  auto whole = read(good);
  ASSERT_TRUE(whole) << error;
  ASSERT_EQ(whole->parameters.size(), 7u);
  EXPECT_EQ(whole->parameters[0].name, "emb");
  EXPECT_EQ(whole->parameters[0].dims, (std::vector<int64_t>{16, 8}));
  for (size_t size = 0; size < good.size(); size += 7)
    if (auto cut = read(good.substr(0, size)); !cut)
      EXPECT_FALSE(error.empty());
  for (size_t at = 8; at + 4 <= std::min<size_t>(good.size(), 2000); at += 4) {
    std::string bytes = good;
    bytes.replace(at, 4, "\xf0\xff\xff\x7f");
    (void)read(bytes); // good or an error
  }
}

// A part of the file that nothing reads is an error: any field of a later version of the format.
TEST(ImportErrors, PartsThatAreNotRead) {
  Graph sparse;
  sparse.languageModel().model.mutable_graph()->add_sparse_initializer("");
  EXPECT_ERROR(import(sparse.write("sparse.onnx")), "sparse initializers");
  Graph later;
  onnx::Node *node = later.languageModel().model.mutable_graph()->mutable_node(0);
  node->GetReflection()->MutableUnknownFields(node)->AddVarint(77, 1);
  EXPECT_ERROR(import(later.write("later.onnx")), "holds field 77 of a Node");
  Graph documented; // documentation and hints are known, and mean nothing here
  documented.languageModel().model.set_doc_string("text");
  documented.model.mutable_graph()->mutable_node(0)->set_doc_string("text");
  EXPECT_TRUE(import(documented.write("documented.onnx")).ok);
  Graph twice;
  twice.languageModel();
  auto *set = twice.model.add_opset_import();
  set->set_domain("ai.onnx");
  set->set_version(19);
  EXPECT_ERROR(import(twice.write("twice-opset.onnx")), "both version 18 and 19 of the default operator set");
}

TEST(ImportErrors, Cycles) {
  Graph graph;
  graph.node("Neg", {"b"}, {"a"});
  graph.node("Neg", {"a"}, {"b"});
  graph.output("b");
  EXPECT_ERROR(import(graph.write("cycle.onnx")), "cycle");
}

TEST(ImportErrors, UndefinedAndDoubleValues) {
  Graph graph;
  graph.node("Neg", {"nowhere"}, {"a"});
  graph.output("a");
  EXPECT_ERROR(import(graph.write("undefined.onnx")), "'nowhere' is not defined");
  Graph twice;
  twice.node("Neg", {"ids"}, {"a"});
  twice.node("Neg", {"ids"}, {"a"});
  twice.output("a");
  EXPECT_ERROR(import(twice.write("twice.onnx")), "defined twice");
}

TEST(ImportErrors, Versions) {
  EXPECT_ERROR(import(Graph(2, 12).languageModel().write("old.onnx")), "operator set version 13 to 26, found 12");
  EXPECT_ERROR(import(Graph(2, 27).languageModel().write("new.onnx")), "operator set version 13 to 26, found 27");
  Graph graph;
  graph.languageModel().model.set_ir_version(99);
  EXPECT_ERROR(import(graph.write("ir.onnx")), "IR version 7 to 13, found 99");
}

TEST(ImportErrors, ExternalData) {
  auto withLocation = [](const std::string &location, const std::string &offset = "0") {
    Graph graph;
    graph.languageModel();
    onnx::Tensor *tensor = graph.model.mutable_graph()->mutable_initializer(0);
    tensor->clear_raw_data();
    tensor->set_data_location(1);
    for (auto [key, value] : {std::pair<std::string, std::string>{"location", location}, {"offset", offset}}) {
      auto *entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    return graph.write("external.onnx");
  };
  EXPECT_ERROR(import(withLocation("/etc/passwd")), "relative path");
  EXPECT_ERROR(import(withLocation("a/../../b")), "without '..'");
  EXPECT_ERROR(import(withLocation("missing.data")), "cannot open");
  std::ofstream(::testing::TempDir() + "/short.data") << "too short";
  EXPECT_ERROR(import(withLocation("short.data")), "holds 9 bytes, expects 176");
  EXPECT_ERROR(import(withLocation("short.data", "18446744073709551615")), "external data");
  EXPECT_ERROR(import(withLocation("short.data", "-5")), "not a number");
}

TEST(ImportErrors, ShapesThatDoNotAgree) {
  Graph graph;
  graph.weight("v", {5, 7});
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.node("MatMul", {"x", "v"}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  graph.output("loss");
  EXPECT_ERROR(import(graph.write("shapes.onnx")), "node 'n_y' (MatMul): expects inner dimensions to agree, got 4 and 5");
}

TEST(ImportErrors, TruncatedAndCorruptedFilesNeverCrash) {
  Graph graph;
  std::string bytes = graph.languageModel().model.SerializeAsString();
  std::string path = ::testing::TempDir() + "/damaged.onnx";
  std::mt19937 random(1);
  for (int trial = 0; trial < 400; ++trial) {
    std::string damaged = bytes;
    if (trial % 2)
      damaged.resize(random() % damaged.size());
    else
      for (int i = 0; i < 1 + trial % 7; ++i)
        damaged[random() % damaged.size()] = static_cast<char>(random());
    std::ofstream(path, std::ios::binary) << damaged;
    Outcome outcome = import(path);
    if (!outcome.ok)
      EXPECT_FALSE(outcome.text.empty());
  }
}

// What an initializer is used as is found out before operands are checked.
TEST(Import, OperandsAnOperatorDoesNotHave) {
  for (std::vector<std::string> operands : {std::vector<std::string>{"x", "x", "bias"}, std::vector<std::string>{"bias"}}) {
    Graph graph;
    graph.weight("bias", {6, 6});
    graph.node("Gather", {"w", "ids"}, {"x"});
    graph.node("Add", operands, {"scores"});
    graph.node("Softmax", {"scores"}, {"probabilities"});
    graph.node("ReduceMean", {"probabilities"}, {"loss"});
    graph.output("loss");
    import(graph.write("operands.onnx")); // a loss or an error, and no crash
  }
}

// A kilobyte that asks for 2^28 nodes.
TEST(Import, FunctionsThatMultiplyAreRefused) {
  Graph graph;
  for (int i = 0; i < 28; ++i) {
    onnx::Function *function = graph.model.add_functions();
    function->set_domain("own");
    function->set_name("f" + std::to_string(i));
    function->add_input("a");
    function->add_output("c");
    for (int half = 0; half < 2; ++half) {
      onnx::Node *node = function->add_node();
      node->set_op_type(i == 27 ? "Neg" : "f" + std::to_string(i + 1));
      node->set_domain(i == 27 ? "" : "own");
      node->add_input(half ? "b" : "a");
      node->add_output(half ? "c" : "b");
    }
  }
  graph.node("f0", {"w"}, {"loss"}).set_domain("own");
  graph.output("loss");
  Outcome outcome = import(graph.write("multiply.onnx"));
  EXPECT_FALSE(outcome.ok);
  EXPECT_NE(outcome.text.find("once functions are inlined"), std::string::npos) << outcome.text;
}

} // namespace
