// Tests which initializers are trained: by the file's metadata, by options, and the refused cases.
#include "TestGraph.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::test;

namespace {

/// Imports a loss of x * p, with the file's metadata about p.
Outcome withFactor(const std::string &name, std::vector<int64_t> shape,
                   const std::string &facts = "", const ImportOptions &options = {},
                   const std::string &torchCall = "", const std::string &signature = "") {
  Graph graph;
  graph.weight(name, std::move(shape));
  graph.node("Gather", {"w", "ids"}, {"x"});
  onnx::Node &identity = graph.node("Identity", {"x"}, {"stopped"});
  if (!torchCall.empty()) {
    auto *entry = identity.add_metadata_props();
    entry->set_key("pkg.torch.onnx.fx_node");
    entry->set_value(torchCall);
  }
  graph.node("Mul", {"stopped", name}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  Graph::attribute(*graph.model.mutable_graph()->mutable_node(graph.model.graph().node_size() - 1),
                   "keepdims", 0);
  graph.output("loss");
  if (!facts.empty()) {
    auto *entry = graph.model.add_metadata_props();
    entry->set_key("zorse.metadata");
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

const char *kBothTrained =
    R"({"version":1,"parameters":{"w":{"shape":[11,4],"trained":true},"p":{"shape":[4],"trained":true}}})";

TEST(TrainedParameters, AmbiguousFormsAreAsked) {
  for (const std::vector<int64_t> &shape : {std::vector<int64_t>{}, {1}, {1, 1, 4}, {6, 4}, {4}}) {
    EXPECT_ERROR(withFactor("p", shape), "their uses are ambiguous: 'p' [");
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
    EXPECT_TRUE(contains(trusted.model.warnings[0], "guessed (--infer-trainable): 'p'"));
  }
  EXPECT_TRUE(isTrained(withFactor("norm.weight", {4}), "norm.weight")); // an unambiguous use
  EXPECT_TRUE(withFactor("val_3", {}).ok); // 0.01: a typical handwritten constant
}

TEST(TrainedParameters, ABiasIsAnUnambiguousUse) {
  for (const char *op : {"BiasGelu", "FastGelu"}) {
    Graph graph;
    graph.weight("b", {4});
    graph.node("Gather", {"w", "ids"}, {"x"});
    graph.node(op, {"x", "b"}, {"y"}).set_domain("com.microsoft");
    graph.node("ReduceMean", {"y"}, {"loss"});
    Graph::attribute(
        *graph.model.mutable_graph()->mutable_node(graph.model.graph().node_size() - 1), "keepdims",
        0);
    graph.output("loss");
    Outcome outcome = import(graph.write("bias.onnx"));
    EXPECT_TRUE(isTrained(outcome, "b")) << op << ": " << outcome.text;
  }
}

TEST(TrainedParameters, PatternsMatchSomething) {
  ImportOptions options;
  options.trainable["q.*"] = TrainableChoice::Freeze;
  EXPECT_ERROR(withFactor("norm.weight", {4}, "", options),
               "no initializer is called 'q.*', which is to be frozen");
}

TEST(TrainedParameters, FactsOfTheModuleAreBelieved) {
  EXPECT_TRUE(isTrained(withFactor("p", {4}, kBothTrained), "p"));
  Outcome frozen = withFactor(
      "p", {4},
      R"({"version":1,"parameters":{"w":{"shape":[11,4],"trained":true},"p":{"shape":[4],"trained":false}}})");
  EXPECT_TRUE(frozen.ok && !isTrained(frozen, "p") && isTrained(frozen, "w")) << frozen.text;
  Outcome buffer = withFactor(
      "norm.weight", {4},
      R"({"version":1,"parameters":{"w":{"shape":[11,4],"trained":true}},"buffers":{"norm.weight":{"shape":[4]}}})");
  EXPECT_TRUE(buffer.ok && !isTrained(buffer, "norm.weight")) << buffer.text;
}

TEST(TrainedParameters, WhatTheFileDoesNotHoldIsAnError) {
  // exp(g) under another name: detected by the module's facts and by the exporter's list of
  // parameters.
  EXPECT_ERROR(withFactor("exp", {4}, kBothTrained),
               "the model trains 'p', and the file does not hold it");
  EXPECT_ERROR(withFactor("exp", {4}, kBothTrained), "what may hold it: 'exp' [4]");
  const char *signature =
      "\n# inputs\np_w: PARAMETER target='w'\np_p: PARAMETER target='p'\nids: USER_INPUT\n";
  EXPECT_ERROR(withFactor("exp", {4}, "", {}, "", signature),
               "the model trains 'p', and the file does not hold it");
  ImportOptions options;
  options.trainable["p"] = TrainableChoice::Freeze;
  EXPECT_TRUE(withFactor("exp", {4}, kBothTrained, options).ok); // keeps the folded value
  // The shape differs from the parameter's: something was folded into it.
  EXPECT_ERROR(withFactor("p", {1, 4}, kBothTrained), "does not hold it");
  // Not used by the outputs: nothing is missing.
  EXPECT_TRUE(
      withFactor(
          "val_3", {4},
          R"({"version":1,"parameters":{"w":{"trained":true},"p":{"trained":true}},"reached":["w"]})")
          .ok);
}

TEST(TrainedParameters, MergedWithOneThatIsNotTrained) {
  EXPECT_ERROR(
      withFactor(
          "p", {4},
          R"({"version":1,"parameters":{"w":{"trained":true},"p":{"trained":true},"q":{"trained":false}},"equal":[["p","q"]]})"),
      "of the values of a trained parameter, and not in the file: 'q' (into 'p'?)");
}

TEST(TrainedParameters, GradientsStopAtDetach) {
  const char *call =
      "%detach : [num_users=1] = call_function[target=torch.ops.aten.detach.default](args = (%x,), "
      "kwargs = {})";
  Outcome outcome = withFactor("p", {4}, kBothTrained, {}, call);
  EXPECT_TRUE(contains(outcome.text, "zorse.detach")) << outcome.text;
  EXPECT_FALSE(contains(withFactor("p", {4}, kBothTrained).text, "zorse.detach"));
  EXPECT_FALSE(isTrained(withFactor("norm.weight", {4}, "", {}, call), "w")); // no gradient reaches
                                                                              // it
  // The module detaches a value, but the file does not contain the detach.
  std::string detached =
      R"({"version":1,"parameters":{"w":{"trained":true},"p":{"trained":true}},"detached":1})";
  EXPECT_ERROR(withFactor("p", {4}, detached),
               "the module detaches 1 value that has a gradient, the file says so of 0");
  EXPECT_TRUE(withFactor("p", {4}, detached, {}, call).ok);
  EXPECT_ERROR(
      withFactor(
          "p", {4},
          R"({"version":1,"parameters":{"w":{},"p":{}},"unsaid":["Scale has a custom backward"]})"),
      "Scale has a custom backward");
  // The exporter's node refers to a detach that was removed.
  EXPECT_ERROR(
      withFactor("norm.weight", {4}, "", {},
                 "%mul : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = "
                 "(%detach, %p_p), kwargs = {})",
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
    return std::string("%embedding : [num_users=1] = "
                       "call_function[target=torch.ops.aten.embedding.default](args = (") +
           arguments + "), kwargs = {})";
  };
  EXPECT_TRUE(contains(padded("", facts), "padding = 3"));
  EXPECT_TRUE(contains(padded(call("%p_w, %ids, 2"), ""), "padding = 2"));
  EXPECT_FALSE(contains(padded(call("%p_w, %ids"), facts), "padding")); // this use has none
  EXPECT_FALSE(contains(padded("", ""), "padding"));
}

// Files exported by PyTorch (make_exports.py): a frozen bias, a buffer, a scalar, exp(g), a tied
// table with a padding row, with and without a detach.
Outcome exported(const std::string &name, const ImportOptions &options = {}) {
  return import(std::string(ZORSE_EXPORTS) + "/" + name + ".onnx", options);
}

TEST(TrainedParameters, OfExportsWithFacts) {
  for (const char *form : {"unoptimized", "opset23", "torchscript", "torchscript-eval"}) {
    SCOPED_TRACE(form);
    Outcome outcome = exported(std::string(form) + "-facts");
    ASSERT_TRUE(outcome.ok) << outcome.text;
    EXPECT_TRUE(isTrained(outcome, "scale"));
    EXPECT_TRUE(isTrained(outcome, "g"));
    EXPECT_TRUE(isTrained(outcome, "head.weight") || isTrained(outcome, "embedding.weight"));
    EXPECT_FALSE(isTrained(outcome, "linear.bias"));
    EXPECT_FALSE(isTrained(outcome, "shift"));
    EXPECT_TRUE(contains(outcome.text, "padding = 0"));
    EXPECT_EQ(outcome.model.weights.size(), 5u); // one tied table; the frozen bias has its own name
  }
  EXPECT_ERROR(exported("default-facts"), "the model trains 'g', and the file does not hold it");
  for (const char *form : {"unoptimized", "opset23"}) {
    Outcome outcome = exported("detach-" + std::string(form) + "-facts");
    EXPECT_TRUE(contains(outcome.text, "zorse.detach")) << outcome.text;
  }
  for (const char *form : {"default", "torchscript", "torchscript-eval"})
    EXPECT_ERROR(exported("detach-" + std::string(form) + "-facts"), "the module detaches 1 value");
}

TEST(TrainedParameters, OfExportsWithoutFacts) {
  for (const char *form : {"unoptimized", "opset23"}) {
    Outcome outcome = exported(form);
    ASSERT_TRUE(outcome.ok) << outcome.text;
    EXPECT_TRUE(isTrained(outcome, "scale") && isTrained(outcome, "linear.bias") &&
                !isTrained(outcome, "shift"))
        << outcome.text;
    EXPECT_TRUE(contains(outcome.text, "padding = 0"));
    std::string notes;
    for (const std::string &note : outcome.model.notes)
      notes += note + "\n";
    EXPECT_TRUE(contains(notes, "not which are frozen") && contains(notes, "'linear.bias'"))
        << notes;
    EXPECT_TRUE(contains(exported("detach-" + std::string(form)).text, "zorse.detach"));
  }
  EXPECT_ERROR(exported("default"), "and the file does not hold them");
  EXPECT_ERROR(exported("detach-default"), "the exporter has dropped it");
  for (const char *form : {"torchscript", "torchscript-eval"}) {
    EXPECT_ERROR(exported(form), "their uses are ambiguous: 'scale' [], 'g' [4], 'shift' [4]");
    ImportOptions options;
    options.trainable = {{"scale", TrainableChoice::Train},
                         {"g", TrainableChoice::Train},
                         {"shift", TrainableChoice::Freeze}};
    Outcome told = exported(form, options);
    EXPECT_TRUE(told.ok && isTrained(told, "scale") && isTrained(told, "g") &&
                !isTrained(told, "shift"))
        << told.text;
  }
}

TEST(TrainedParameters, NamesOfTheHub) {
  // Tied names are merged. A frozen parameter is an argument with its own name, independent of its
  // size and of the contents of hub checkpoints.
  const char *facts = R"({"version":1,"ties":[["w","head"]],
    "parameters":{"w":{"shape":[11,4],"trained":true},"head":{"shape":[11,4],"trained":true},"p":{"shape":[4],"trained":false}},
    "hub":{"parameters":{"w":{"names":["t.w"]},"head":{"names":["head"]},"p":{"names":["t.p"],"transposed":true,"adapter":true}},
           "buffers":["t.freq"],"lora":{"r":4,"alpha":8.5,"targets":["q","v"],"fan_in_fan_out":true}}})";
  Outcome outcome = withFactor("p", {4}, facts);
  ASSERT_TRUE(outcome.ok) << outcome.text;
  ASSERT_EQ(outcome.model.weights.size(), 2u);
  for (const WeightSource &weight : outcome.model.weights)
    if (weight.parameter == "w")
      EXPECT_TRUE(weight.hub.names == (std::vector<std::string>{"t.w", "head"}) &&
                  !weight.hub.transposed && !weight.hub.adapter);
    else
      EXPECT_TRUE(weight.hub.names == std::vector<std::string>{"t.p"} && weight.hub.transposed &&
                  weight.hub.adapter);
  EXPECT_EQ(outcome.model.hub.buffers, std::vector<std::string>{"t.freq"});
  ASSERT_TRUE(outcome.model.hub.lora);
  EXPECT_TRUE(outcome.model.hub.lora->rank == 4 && outcome.model.hub.lora->alpha == 8.5 &&
              outcome.model.hub.lora->fanInFanOut);
  EXPECT_EQ(outcome.model.hub.lora->targets, (std::vector<std::string>{"q", "v"}));
  Outcome without = withFactor(
      "p", {4},
      R"({"version":1,"parameters":{"w":{"shape":[11,4],"trained":true},"p":{"shape":[4],"trained":false}}})");
  ASSERT_TRUE(without.ok) << without.text;
  ASSERT_EQ(without.model.weights.size(), 2u);
  for (const WeightSource &weight : without.model.weights)
    EXPECT_TRUE((weight.parameter == "w" || weight.parameter == "p") && weight.hub.names.empty() &&
                weight.hub.ties.empty())
        << weight.parameter;
  Outcome tied = withFactor(
      "p", {4},
      R"({"version":1,"ties":[["w","head"]],"parameters":{"w":{"trained":true},"head":{"trained":true},"p":{"trained":true}}})");
  ASSERT_TRUE(tied.ok) << tied.text;
  for (const WeightSource &weight : tied.model.weights)
    EXPECT_EQ(weight.hub.ties, weight.parameter == "w" ? std::vector<std::string>{"head"}
                                                       : std::vector<std::string>{});
}

TEST(TrainedParameters, DamagedFactsAreErrors) {
  EXPECT_ERROR(withFactor("p", {4}, "{"), "are not a JSON object");
  EXPECT_ERROR(withFactor("p", {4}, std::string(100000, '[')), "are not a JSON object");
  EXPECT_ERROR(withFactor("p", {4}, R"({"version":2,"parameters":{}})"),
               "are of version 2, expects 1");
  EXPECT_ERROR(withFactor("p", {4}, R"({"version":1})"), "name no parameters");
}

} // namespace
