// Tests that masks drawn in a graph become dropout of a constant and that other random numbers are
// refused.
#include "TestGraph.h"

using namespace zorse;
using namespace zorse::test;

namespace {

/// mean(x * mask / p). `x` is Gather(w, ids) with shape [samples, 6, 4]; `each` has the shape
/// [samples, 6, 1].
struct MaskGraph : Graph {
  MaskGraph() : Graph(0) {
    node("Gather", {"w", "ids"}, {"x"});
    ints("last", {-1});
    node("Unsqueeze", {"ids", "last"}, {"wide"});
    node("Shape", {"wide"}, {"shape"});
    node("ConstantOfShape", {"shape"}, {"each"});
    number("p", 0.75f);
  }
  static void real(onnx::Node &node, const std::string &name, float value) {
    auto *attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(1);
    attribute->set_f(value);
  }
  void number(const std::string &name, float value) {
    real(node("Constant", {}, {name}), "value_float", value);
  }
  void draw(const std::string &name) { node("RandomUniformLike", {"each"}, {name}); }
  void toFloat(const std::string &from, const std::string &to) {
    attribute(node("Cast", {from}, {to}), "to", 1);
  }
  Outcome imported(const std::string &mask) {
    node("Mul", {"x", mask}, {"y"});
    node("Div", {"y", "p"}, {"z"});
    node("ReduceMean", {"z"}, {"loss"});
    output("loss");
    return import(write("mask.onnx"));
  }
};

const char *kQuarter = "probability = 2.500000e-01 : f64, rng_id = 0 : i64} : tensor<?x6x1xf32>",
           *kThreeQuarters =
               "probability = 7.500000e-01 : f64, rng_id = 0 : i64} : tensor<?x6x1xf32>";

TEST(DrawnMasks, Comparisons) {
  struct {
    const char *op;
    bool drawnFirst;
    const char *wanted;
  } const cases[] = {{"Less", true, kQuarter},
                     {"LessOrEqual", true, kQuarter},
                     {"Greater", true, kThreeQuarters},
                     {"Less", false, kThreeQuarters},
                     {"GreaterOrEqual", false, kQuarter}};
  for (const auto &c : cases) {
    MaskGraph graph;
    graph.draw("r");
    c.drawnFirst ? graph.node(c.op, {"r", "p"}, {"b"}) : graph.node(c.op, {"p", "r"}, {"b"});
    graph.toFloat("b", "m");
    Outcome outcome = graph.imported("m");
    ASSERT_TRUE(outcome.ok) << outcome.text;
    EXPECT_TRUE(contains(outcome.text, c.wanted)) << c.op << outcome.text;
  }
}

TEST(DrawnMasks, FloorOfASum) {
  MaskGraph graph;
  graph.draw("r");
  graph.node("Add", {"p", "r"}, {"s"});
  graph.node("Floor", {"s"}, {"m"});
  Outcome outcome = graph.imported("m");
  ASSERT_TRUE(outcome.ok) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, kQuarter)) << outcome.text;
}

TEST(DrawnMasks, BoundsOfTheNumbers) { // uniform in [-1, 3): a quarter of the numbers is above 2,
                                       // and these elements are kept
  MaskGraph graph;
  onnx::Node &drawn = graph.node("RandomUniformLike", {"each"}, {"r"});
  MaskGraph::real(drawn, "low", -1);
  MaskGraph::real(drawn, "high", 3);
  graph.number("two", 2);
  graph.node("Greater", {"r", "two"}, {"b"});
  graph.toFloat("b", "m");
  Outcome outcome = graph.imported("m");
  ASSERT_TRUE(outcome.ok) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, kThreeQuarters)) << outcome.text;
}

TEST(DrawnMasks, Bernoulli) {
  MaskGraph graph;
  graph.node("Add", {"each", "p"}, {"ps"});
  graph.node("Bernoulli", {"ps"}, {"m"});
  Outcome outcome = graph.imported("m");
  ASSERT_TRUE(outcome.ok) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, kQuarter)) << outcome.text;
}

TEST(DrawnMasks, EveryDrawIsItsOwn) {
  MaskGraph graph;
  for (std::string i : {"1", "2"}) {
    graph.draw("r" + i);
    graph.node("Less", {"r" + i, "p"}, {"b" + i});
    graph.toFloat("b" + i, "m" + i);
  }
  graph.toFloat("b1", "again");
  graph.node("Mul", {"m1", "m2"}, {"m12"});
  graph.node("Mul", {"m12", "again"}, {"m"});
  Outcome outcome = graph.imported("m");
  ASSERT_TRUE(outcome.ok) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "rng_id = 0 : i64")) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "rng_id = 1 : i64")) << outcome.text;
  EXPECT_FALSE(contains(outcome.text, "rng_id = 2 : i64")) << outcome.text;
}

TEST(DrawnMasks, CertaintiesAreConstants) {
  MaskGraph graph;
  graph.draw("r");
  graph.number("one", 1);
  graph.node("Less", {"r", "one"}, {"b"});
  graph.toFloat("b", "m");
  Outcome outcome = graph.imported("m");
  ASSERT_TRUE(outcome.ok) << outcome.text;
  EXPECT_FALSE(contains(outcome.text, "zorse.dropout")) << outcome.text;
}

TEST(DrawnMaskErrors, NumbersThatAreNoMask) {
  MaskGraph graph;
  graph.draw("r");
  Outcome outcome = graph.imported("r");
  EXPECT_ERROR(outcome, "node 'n_y' (Mul): random numbers are supported as masks");
}

TEST(DrawnMaskErrors, AMaskThatChooses) {
  MaskGraph graph;
  graph.draw("r");
  graph.node("Less", {"r", "p"}, {"b"});
  graph.node("Where", {"b", "x", "p"}, {"m"});
  Outcome outcome = graph.imported("m");
  EXPECT_ERROR(outcome, "(Where): random numbers are supported as masks");
}

TEST(DrawnMaskErrors, BothWaysRound) {
  MaskGraph graph;
  graph.draw("r");
  graph.node("Less", {"r", "p"}, {"b1"});
  graph.node("Greater", {"r", "p"}, {"b2"});
  graph.toFloat("b1", "m1");
  graph.toFloat("b2", "m2");
  graph.node("Add", {"m1", "m2"}, {"m"});
  Outcome outcome = graph.imported("m");
  EXPECT_ERROR(outcome,
               "compares random numbers that another node has compared the other way round");
}

TEST(DrawnMaskErrors, ProbabilitiesOfData) {
  MaskGraph graph;
  graph.node("Sigmoid", {"x"}, {"ps"});
  graph.node("Bernoulli", {"ps"}, {"m"});
  Outcome outcome = graph.imported("m");
  EXPECT_ERROR(outcome, "(Bernoulli): expects a constant probability");
}

TEST(DrawnMaskErrors, TheLossIsDrawn) {
  Graph graph(0);
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.node("ReduceMean", {"x"}, {"mean"});
  graph.node("RandomUniformLike", {"mean"}, {"loss"});
  graph.output("loss");
  EXPECT_FALSE(import(graph.write("drawn.onnx")).ok);
}

} // namespace
