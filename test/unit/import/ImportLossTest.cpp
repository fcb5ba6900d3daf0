// Tests how the importer finds losses and labels, for graphs that the tests build.
#include "TestGraph.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::test;

namespace {

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
  EXPECT_EQ(notesOf(outcome, "the loss is added"),
            "the loss is added: the mean cross-entropy of 'logits' at position i with 'targets' at "
            "position i + 1; "
            "labels of -100 count for nothing (--ignore-index)");
  options.logits = options.labels = ""; // inferred roles are reported
  outcome = import(path, options);
  ASSERT_TRUE(outcome.ok) << outcome.text;
  EXPECT_TRUE(contains(notesOf(outcome, "the loss is added"),
                       "'logits' (the first output; --logits=NAME says another)"));
  EXPECT_TRUE(
      contains(notesOf(outcome, "the loss is added"), "'labels' (--labels=NAME says another)"));
  EXPECT_ERROR(import(path), "not a loss");
}

TEST(ImportErrors, LossesThatAreNumbers) {
  for (const char *factor : {"zero", "alone"}) {
    Graph graph;
    graph.ints("none", {0});
    graph.node("Gather", {"w", "ids"}, {"x"});
    graph.node("ReduceSum", {"x"}, {"sum"});
    Graph::attribute(graph.node("Cast", {"none"}, {"zero"}), "to", 1);
    graph.node("Squeeze", {"zero"}, {"nothing"});
    if (std::string(factor) == "zero")
      graph.node("Mul", {"sum", "nothing"}, {"loss"});
    else
      graph.node("Identity", {"nothing"}, {"loss"});
    graph.output("loss");
    EXPECT_ERROR(import(graph.write("number.onnx")),
                 "the loss 'loss' is the number 0, whatever samples and parameters are: there is "
                 "nothing to train");
  }
  Graph graph;
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.node("ReduceSumSquare", {"w"}, {"loss"});
  graph.output("loss");
  EXPECT_ERROR(import(graph.write("penalty.onnx")),
               "is a function of parameters alone: expects a scalar that sums over samples");
}

// A decoder that gets its labels as an input: next to another input of ids, the input that is
// compared with the logits has the role labels, also if it is used in a gather.
TEST(Import, LabelsThatAreLookedUpAreLabels) {
  for (bool beside : {true, false}) {
    Graph graph;
    graph.node("Gather", {"w", beside ? "ids" : "labels"}, {"p"});
    graph.node("Gather", {"w", "labels"}, {"q"});
    graph.node("Add", {"p", "q"}, {"x"});
    graph.ints("flat", {-1, 4});
    graph.node("Reshape", {"x", "flat"}, {"rows"});
    graph.node("Transpose", {"w"}, {"wt"});
    graph.node("MatMul", {"rows", "wt"}, {"logits"});
    graph.ints("one", {-1});
    graph.node("Reshape", {"labels", "one"}, {"flatLabels"});
    graph.node("SoftmaxCrossEntropyLoss", {"logits", "flatLabels"}, {"loss"});
    graph.output("loss");
    Outcome outcome = import(graph.write("decoder.onnx"));
    ASSERT_TRUE(outcome.ok) << outcome.text;
    EXPECT_EQ(contains(outcome.text, "zorse.role = \"labels\""), beside) << outcome.text;
  }
}

TEST(Import, SumsOfTermsWithCoefficients) {
  Graph graph;
  graph.languageModel();
  graph.node("Mul", {"logits", "logits"}, {"squares"});
  graph.node("ReduceMean", {"squares"}, {"mean"});
  Graph::attribute(*graph.model.mutable_graph()->mutable_node(graph.model.graph().node_size() - 1),
                   "keepdims", 0);
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
  EXPECT_TRUE(contains(outcome.text, "zorse.factor = \"1/(264*B)\"")) << outcome.text;
}

/// A scalar that depends only on parameters is a separate term, and becomes a factor inside the
/// sum. Products of sums over samples are not terms.
TEST(Import, PenaltiesOfParameters) {
  Graph graph;
  graph.languageModel();
  graph.weight("v", {3, 3});
  for (const char *name : {"w", "v"}) {
    graph.node("Mul", {name, name}, {std::string(name) + "_squares"});
    Graph::attribute(
        graph.node("ReduceSum", {std::string(name) + "_squares"}, {std::string(name) + "_sum"}),
        "keepdims", 0);
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
  EXPECT_TRUE(contains(outcome.text, "zorse.factor = \"-1/B\"")) << outcome.text;
  std::string warned;
  for (const std::string &warning : outcome.model.warnings)
    warned += warning + "\n";
  EXPECT_TRUE(contains(warned, "the last unit reads all of these")) << warned;
  options.lossOutput = "product";
  outcome = import(path, options);
  ASSERT_TRUE(outcome.ok) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "%6 = arith.mulf %2, %5 : tensor<?xf32>")) << outcome.text;
  options.lossOutput = "square";
  outcome = import(path, options);
  EXPECT_FALSE(outcome.ok);
  EXPECT_TRUE(
      contains(outcome.text,
               "n_square' (Mul): multiplies a sum over samples that is not known before the step"))
      << outcome.text;
}

// Logits and labels with two axes of positions each, in different orders.
TEST(Import, LabelsWhoseAxesAreOthers) {
  Graph graph;
  graph.input("x", 1, {2, 4, 3, 2});
  graph.input("classes", 7, {2, 2, 3});
  graph.weight("scale", {2});
  graph.ints("flat", {2, 4, 6});
  graph.ints("flatClasses", {2, 6});
  graph.node("Mul", {"x", "scale"}, {"y"});
  Graph::attribute(graph.node("Transpose", {"y"}, {"turned"}), "perm", {0, 1, 3, 2});
  graph.node("Reshape", {"turned", "flat"}, {"logits"});
  Graph::attribute(graph.node("Transpose", {"classes"}, {"turnedClasses"}), "perm", {0, 2, 1});
  graph.node("Reshape", {"turnedClasses", "flatClasses"}, {"targets"});
  graph.node("SoftmaxCrossEntropyLoss", {"logits", "targets"}, {"loss"});
  graph.output("loss");
  ImportOptions options;
  options.trustGuess = true;
  Outcome outcome = import(graph.write("axes.onnx"), options);
  EXPECT_TRUE(outcome.ok) << outcome.text;
  EXPECT_NE(notesOf(outcome, "the loss is the file's"), "");
}

} // namespace
