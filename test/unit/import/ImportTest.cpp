// Tests the results of the importer for graphs that the tests build.
#include "TestGraph.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>

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

/// Imports attention scores of x with itself plus the value that `bias` makes, a softmax, and a
/// loss.
Outcome withBias(const std::function<std::string(Graph &)> &bias,
                 const ImportOptions &options = {}) {
  Graph graph;
  graph.node("Gather", {"w", "ids"}, {"x"});
  Graph::attribute(graph.node("Transpose", {"x"}, {"xt"}), "perm", {0, 2, 1});
  graph.node("MatMul", {"x", "xt"}, {"products"});
  graph.node("Add", {"products", bias(graph)}, {"scores"});
  graph.node("Softmax", {"scores"}, {"p"});
  graph.node("MatMul", {"p", "x"}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  Graph::attribute(*graph.model.mutable_graph()->mutable_node(graph.model.graph().node_size() - 1),
                   "keepdims", 0);
  graph.output("loss");
  return import(graph.write("bias.onnx"), options);
}

TEST(Import, BiasesOfScores) {
  // A table of distances with its own name is trained.
  Outcome table = withBias([](Graph &graph) {
    graph.weight("relative.weight", {3, 6});
    graph.ints("distances", {0, 1, 2, 2, 2, 1});
    graph.node("Gather", {"relative.weight", "distances"}, {"bias"});
    return std::string("bias");
  });
  ASSERT_TRUE(table.ok) << table.text;
  EXPECT_TRUE(contains(table.text, "zorse.parameter = \"relative.weight\", zorse.trainable = true"))
      << table.text;
  // A folded table could be a fixed bias: the user must decide.
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
  EXPECT_TRUE(contains(trained.text, "zorse.parameter = \"val_3\", zorse.trainable = true"))
      << trained.text;
}

// At 0 the gradient is alpha, as in PyTorch. An import with Max would divide the gradient between
// two equal operands.
TEST(Import, LeakyReluChoosesBySign) {
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
    EXPECT_TRUE(contains(outcome.text, "arith.cmpf ogt") && contains(outcome.text, "arith.select"))
        << outcome.text;
  }
}

// Max with a number is PyTorch's clamp, without a gradient at the bound. Max with a tensor of one
// number is PyTorch's maximum, which divides the gradient.
TEST(Import, MaximumOfAConstantTensorSharesItsGradient) {
  for (bool isTensor : {false, true}) {
    Graph graph;
    graph.node("Gather", {"w", "ids"}, {"x"});
    auto *number = graph.node("Constant", {}, {"number"}).add_attribute();
    number->set_name("value_float");
    number->set_type(1);
    number->set_f(0.5f);
    graph.ints("four", {4});
    graph.node("Expand", {"number", "four"}, {"tensor"});
    graph.node("Max", {"x", isTensor ? "tensor" : "number"}, {"y"});
    graph.node("ReduceMean", {"y"}, {"loss"});
    graph.output("loss");
    Outcome outcome = import(graph.write("bound.onnx"));
    ASSERT_TRUE(outcome.ok) << outcome.text;
    EXPECT_TRUE(contains(outcome.text, "arith.maximumf")) << outcome.text;
    EXPECT_EQ(contains(outcome.text, "arith.cmpf oeq"), isTensor) << outcome.text;
  }
}

// The root is taken only of nonzero values, and neither branch passes a gradient if all values are
// 0.
TEST(Import, ANormOfZerosHasNoGradient) {
  Graph graph;
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.ints("last", {-1});
  graph.node("ReduceL2", {"x", "last"}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  graph.output("loss");
  Outcome outcome = import(graph.write("norm.onnx"));
  ASSERT_TRUE(outcome.ok) << outcome.text;
  const size_t first = outcome.text.find("arith.select"), root = outcome.text.find("math.sqrt");
  ASSERT_NE(root, std::string::npos) << outcome.text;
  EXPECT_LT(first, root) << outcome.text;
  EXPECT_NE(outcome.text.find("arith.select", root), std::string::npos) << outcome.text;
}

// 16-bit values inside an f32 model: the cast to 16 bits rounds, and so does the cast back if an
// operator has computed on them.
TEST(Import, CastsToSixteenBitsRound) {
  for (int64_t type : {10, 16}) {
    Graph graph;
    graph.node("Gather", {"w", "ids"}, {"x"});
    Graph::attribute(graph.node("Cast", {"x"}, {"narrow"}), "to", type);
    graph.node("Tanh", {"narrow"}, {"y"});
    Graph::attribute(graph.node("Cast", {"y"}, {"wide"}), "to", 1);
    graph.node("ReduceMean", {"wide"}, {"loss"});
    graph.output("loss");
    Outcome outcome = import(graph.write("rounded.onnx"));
    ASSERT_TRUE(outcome.ok) << outcome.text;
    std::string round = type == 10 ? "to f16 {per_operator} : tensor<?x6x4xf32>"
                                   : "to bf16 {per_operator} : tensor<?x6x4xf32>";
    size_t first = outcome.text.find(round), tanh = outcome.text.find("math.tanh");
    EXPECT_LT(first, tanh) << outcome.text;
    EXPECT_NE(outcome.text.find(round, tanh), std::string::npos) << outcome.text;
  }
}

// As in PyTorch, results of 16-bit operators that compute are rounded; results of views are not.
TEST(Import, ChainsOfSixteenBitOperatorsRound) {
  Graph graph;
  graph.ints("shape", {-1, 24});
  graph.node("Gather", {"w", "ids"}, {"x"});
  Graph::attribute(graph.node("Cast", {"x"}, {"narrow"}), "to", 16);
  graph.node("Tanh", {"narrow"}, {"t"});
  graph.node("Mul", {"t", "narrow"}, {"m"});
  graph.node("Neg", {"m"}, {"n"});
  graph.node("Reshape", {"n", "shape"}, {"r"});
  Graph::attribute(graph.node("Cast", {"r"}, {"wide"}), "to", 1);
  graph.node("ReduceMean", {"wide"}, {"loss"});
  graph.output("loss");
  Outcome outcome = import(graph.write("chain.onnx"));
  ASSERT_TRUE(outcome.ok) << outcome.text;
  std::string wanted = "to bf16 {per_operator}";
  size_t at = 0;
  for (const char *op : {"zorse.gather", "math.tanh", "arith.mulf", "arith.negf"}) {
    at = outcome.text.find(op, at);
    ASSERT_NE(at, std::string::npos) << op << " " << outcome.text;
    at = outcome.text.find(wanted, at);
    ASSERT_NE(at, std::string::npos) << "a rounding behind " << op << " " << outcome.text;
  }
}

// A mask is drawn as for any other value. (Regression: the result was the constant.)
TEST(Import, DropoutOfConstantsDropsElements) {
  for (auto [perSample, isSecond] : {std::pair(false, false), {true, false}, {true, true}}) {
    Graph graph(0);
    Graph::attribute(graph.node("Constant", {}, {"mode"}), "value_int", 1);
    graph.node("Gather", {"w", "ids"}, {"x"});
    graph.node("Shape", {"x"}, {"shape"});
    graph.node("ConstantOfShape", {"shape"}, {"each"});
    graph.node("Cos", {"each"}, {"ones"});
    auto &constant = *graph.node("Constant", {}, {"c"}).add_attribute();
    constant.set_name("value_floats");
    constant.set_type(6);
    for (float value : {1.0f, 2.0f, 3.0f, 4.0f})
      constant.add_floats(value);
    if (isSecond) { // positions first, samples second
      Graph::attribute(graph.node("Transpose", {"ones"}, {"turned"}), "perm", {1, 0, 2});
      graph.node("Dropout", {"turned", "", "mode"}, {"dropped"});
      Graph::attribute(graph.node("Transpose", {"dropped"}, {"kept"}), "perm", {1, 0, 2});
    } else {
      graph.node("Dropout", {perSample ? "ones" : "c", "", "mode"}, {"kept"});
    }
    graph.node("Mul", {"x", "kept"}, {"y"});
    graph.node("ReduceMean", {"y"}, {"loss"});
    graph.output("loss");
    Outcome outcome = import(graph.write("dropped.onnx"));
    ASSERT_TRUE(outcome.ok) << outcome.text;
    std::string wanted = "probability = 5.000000e-01 : f64, rng_id = 0 : i64} : ";
    EXPECT_TRUE(
        contains(outcome.text, wanted + (perSample ? "tensor<?x6x4xf32>" : "tensor<4xf32>")))
        << outcome.text;
  }
}

// PyTorch's exporter writes Squeeze also for dimensions that PyTorch's squeeze does not remove.
TEST(Import, SqueezeOfPyTorchLeavesOtherSizes) {
  for (bool torch : {false, true}) {
    Graph graph;
    graph.ints("axis", {2});
    graph.node("Gather", {"w", "ids"}, {"x"});
    onnx::Node &squeeze = graph.node("Squeeze", {"x", "axis"}, {"y"});
    if (torch) {
      auto *entry = squeeze.add_metadata_props();
      entry->set_key("pkg.torch.onnx.fx_node");
      entry->set_value("%y : [num_users=1] = call_function[target=torch.ops.aten.squeeze.dim](args "
                       "= (%x, 2), kwargs = {})");
    }
    graph.node("ReduceMean", {"y"}, {"loss"});
    graph.output("loss");
    Outcome outcome = import(graph.write("squeeze.onnx"));
    EXPECT_EQ(outcome.ok, torch) << outcome.text;
    if (!torch)
      EXPECT_ERROR(outcome, "removes dimension 2 of size 4");
  }
}

TEST(ImportErrors, ReductionsThatAreNotFolded) {
  Graph graph;
  graph.ints("c", {3, 4});
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.node("ReduceL2", {"c"}, {"length"}); // a length of integers (regression: was 7)
  graph.node("Expand", {"x", "length"}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  graph.output("loss");
  EXPECT_ERROR(import(graph.write("folded.onnx")),
               "node 'n_length' (ReduceL2): is defined on floats only here, found int64");
}

// Copies of a value for every sample are one operand of a matmul: positions that a model expands to
// its batch (XLNet).
TEST(Import, EinsumWithCopiesForEverySample) {
  for (const char *equation : {"bid,jbd->bij", "bid,jbd->bjid"}) {
    Graph graph;
    graph.ints("zero", {0});
    graph.ints("three", {3});
    graph.ints("four", {4});
    graph.weight("places", {3, 1, 4});
    graph.node("Gather", {"w", "ids"}, {"x"}); // [B, 6, 4]
    graph.node("Shape", {"ids"}, {"shape"});
    graph.node("Gather", {"shape", "zero"}, {"samples"});
    Graph::attribute(graph.node("Concat", {"three", "samples", "four"}, {"sizes"}), "axis", 0);
    graph.node("Expand", {"places", "sizes"}, {"copies"});
    auto *attribute = graph.node("Einsum", {"x", "copies"}, {"y"}).add_attribute();
    attribute->set_name("equation");
    attribute->set_type(3);
    attribute->set_s(equation);
    graph.node("ReduceMean", {"y"}, {"loss"});
    graph.output("loss");
    Outcome outcome = import(graph.write("copies.onnx"));
    EXPECT_TRUE(outcome.ok) << equation << ": " << outcome.text;
  }
}

// A batch of groups with the samples in a later dimension and one matrix per group (DeepSeek's
// output projections).
TEST(Import, MatricesForEveryGroupOfSamples) {
  Graph graph;
  graph.ints("split", {-1, 2, 2});
  graph.weight("groups", {2, 2, 3});
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.node("Reshape", {"x", "split"}, {"rows"});
  Graph::attribute(graph.node("Transpose", {"rows"}, {"front"}), "perm", {1, 0, 2});
  graph.node("MatMul", {"front", "groups"}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  graph.output("loss");
  Outcome outcome = import(graph.write("groups.onnx"));
  EXPECT_TRUE(outcome.ok) << outcome.text;
}

// A scatter sets flags at selected positions of a mask.
TEST(Import, ScatteredFlags) {
  Graph graph;
  graph.ints("two", {2});
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.node("TopK", {"x", "two"}, {"largest", "places"});
  graph.node("Equal", {"x", "x"}, {"same"});
  graph.node("Not", {"same"}, {"none"});
  graph.node("Equal", {"largest", "largest"}, {"chosen"});
  Graph::attribute(graph.node("ScatterElements", {"none", "places", "chosen"}, {"mask"}), "axis",
                   2);
  Graph::attribute(graph.node("Cast", {"mask"}, {"factors"}), "to", 1);
  graph.node("Mul", {"x", "factors"}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  graph.output("loss");
  Outcome outcome = import(graph.write("flags.onnx"));
  EXPECT_TRUE(outcome.ok) << outcome.text;
}

// Ids that are a slice of a value, a slice of a constant, or copies have another memory layout than
// contiguous ones. The loss is compared numerically with the file's nodes.
TEST(Import, PicksByIdsThatAreViews) {
  for (const std::string how : {"part", "constant", "copies"}) {
    Graph graph;
    graph.input("x", 1, {2, 3, 8});
    graph.input("places", 7, {2, 3, 5});
    graph.weight("scale", {8});
    graph.weight("weights", {3});
    graph.ints("one", {1});
    graph.ints("four", {4});
    graph.ints("axis", {2});
    graph.ints("numbers", how == "copies"
                              ? std::vector<int64_t>{3, 1, 7}
                              : std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6});
    graph.ints("shape", {1, 3, -1});
    graph.ints("sizes", {2, 3, 3});
    graph.node("Reshape", {"numbers", "shape"}, {"table"});
    if (how == "copies")
      graph.node("Identity", {"table"}, {"cut"});
    else
      graph.node("Slice", {how == "part" ? "places" : "table", "one", "four", "axis"}, {"cut"});
    graph.node("Expand", {"cut", "sizes"}, {"picks"});
    graph.node("Mul", {"x", "scale"}, {"y"});
    Graph::attribute(graph.node("GatherElements", {"y", "picks"}, {"picked"}), "axis", 2);
    graph.node("Mul", {"picked", "weights"}, {"weighted"});
    graph.node("ReduceMean", {"weighted"}, {"loss"});
    graph.output("loss");
    ImportOptions options;
    options.trustGuess = true;
    Outcome outcome = import(graph.write("picks.onnx"), options);
    EXPECT_TRUE(outcome.ok) << how << ": " << outcome.text;
    EXPECT_NE(notesOf(outcome, "the loss is the file's"), "") << how;
  }
}

// The shape of a scalar has no elements and cannot be combined with a number of samples.
TEST(ImportErrors, ShapeOfAScalarWithNumbersOfTheBatch) {
  Graph graph(0);
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.node("Shape", {"ids"}, {"sizes"});
  graph.ints("first", {0});
  graph.node("Gather", {"sizes", "first"}, {"samples"});
  Graph::attribute(graph.node("ReduceMean", {"x"}, {"mean"}), "keepdims", 0);
  graph.node("Shape", {"mean"}, {"none"});
  graph.node("Mul", {"none", "samples"}, {"product"});
  Graph::attribute(graph.node("Cast", {"product"}, {"real"}), "to", 1);
  graph.node("Mul", {"mean", "real"}, {"loss"});
  graph.output("loss");
  EXPECT_ERROR(import(graph.write("none.onnx")), "(Mul): combines numbers that are known only with "
                                                 "the batch with a tensor that is none of at most");
}

// The use of initializers is determined before operands are checked.
TEST(Import, OperandsAnOperatorDoesNotHave) {
  for (std::vector<std::string> operands :
       {std::vector<std::string>{"x", "x", "bias"}, std::vector<std::string>{"bias"}}) {
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

// A kilobyte that expands to 2^28 nodes.
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
