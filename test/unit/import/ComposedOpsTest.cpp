// Tests the refused uses of operators that the importer decomposes, and the error messages. Results
// are compared with PyTorch by test/e2e/breadth.py and with ONNX by node_cases.py.
#include "TestGraph.h"

#include <variant>

using namespace zorse;
using namespace zorse::test;

namespace {

using Value = std::variant<int, float, std::vector<int64_t>, std::string>;
using Attributes = std::vector<std::pair<std::string, Value>>;

void set(onnx::Node &node, const Attributes &attributes) {
  for (auto &[name, value] : attributes) {
    auto *attribute = node.add_attribute();
    attribute->set_name(name);
    if (auto *number = std::get_if<int>(&value)) {
      attribute->set_type(2);
      attribute->set_i(*number);
    } else if (auto *real = std::get_if<float>(&value)) {
      attribute->set_type(1);
      attribute->set_f(*real);
    } else if (auto *text = std::get_if<std::string>(&value)) {
      attribute->set_type(3);
      attribute->set_s(*text);
    } else {
      attribute->set_type(7);
      for (int64_t element : std::get<std::vector<int64_t>>(value))
        attribute->add_ints(element);
    }
  }
}

/// Imports a graph with one node; the loss is the mean of the node's first result. Operands: ids,
/// labels [2, 6], w [11, 4], image [2, 4, 8, 8], row [2, 5], other [2, 5], places and three [2, 3],
/// the weights k [4, 4, 3, 3], c [4], d [5], m [5, 7], n [3, 5], the integers i0 to i7 as vectors
/// of one element, and the empty none [0, 1] and nothing [0, 5].
/// \param op  "Name", or "domain.Name" outside of the default domain
Outcome one(const std::string &op, const std::vector<std::string> &inputs,
            const Attributes &attributes = {}, int64_t opset = 20,
            const std::vector<std::string> &outputs = {"y"}) {
  Graph graph(2, opset);
  graph.input("image", 1, {2, 4, 8, 8});
  graph.input("row", 1, {2, 5});
  graph.input("other", 1, {2, 5});
  graph.input("places", 7, {2, 3});
  graph.input("three", 1, {2, 3});
  for (auto &[name, shape] :
       std::vector<std::pair<std::string, std::vector<int64_t>>>{{"k", {4, 4, 3, 3}},
                                                                 {"c", {4}},
                                                                 {"d", {5}},
                                                                 {"m", {5, 7}},
                                                                 {"n", {3, 5}},
                                                                 {"long", {1, 4, 300, 1}},
                                                                 {"two", {2}}})
    graph.weight(name, shape);
  for (int64_t i = 0; i < 8; ++i)
    graph.ints("i" + std::to_string(i), {i});
  graph.ints("pair", {0, 1});
  graph.ints("none", {});
  graph.model.mutable_graph()->mutable_initializer()->rbegin()->add_dims(1); // [0, 1]
  graph.weight("nothing", {0, 5});
  graph.input("word", 1, {2, 3, 5});
  graph.weight("wi", {1, 16, 5});
  graph.weight("wh", {1, 16, 4});
  onnx::Node &node = graph.node(op.substr(op.rfind('.') + 1), inputs, outputs);
  if (op.find('.') != std::string::npos)
    node.set_domain(op.substr(0, op.rfind('.')));
  set(node, attributes);
  graph.node("Cast", {outputs[0]}, {"floats"});
  Graph::attribute(*graph.model.mutable_graph()->mutable_node(graph.model.graph().node_size() - 1),
                   "to", 1);
  std::string last = "floats";
  if (outputs.size() > 1) {
    graph.node("Cast", {outputs[1]}, {"second"});
    Graph::attribute(
        *graph.model.mutable_graph()->mutable_node(graph.model.graph().node_size() - 1), "to", 1);
    graph.node("Mul", {"floats", "second"}, {"both"});
    last = "both";
  }
  graph.node("Mul", {last, "scale"}, {"scaled"});
  graph.weight("scale", {1});
  graph.node("ReduceMean", {"scaled"}, {"loss"});
  Graph::attribute(*graph.model.mutable_graph()->mutable_node(graph.model.graph().node_size() - 1),
                   "keepdims", 0);
  graph.output("loss");
  ImportOptions options;
  options.trustGuess = true;
  options.trainable["scale"] = TrainableChoice::Train;
  return import(graph.write("one.onnx"), options);
}

} // namespace

#define EXPECT_OK(outcome)                                                                         \
  do {                                                                                             \
    Outcome imported = outcome;                                                                    \
    EXPECT_TRUE(imported.ok) << imported.text;                                                     \
  } while (0)

TEST(ComposedOps, ActivationsNameWhatTheyCannotDo) {
  EXPECT_OK(one("PRelu", {"image", "scale"}));
  EXPECT_ERROR(one("PRelu", {"row", "c"}),
               "(PRelu): expects a slope that broadcasts to the first operand");
  EXPECT_ERROR(one("Celu", {"row"}, {{"alpha", 0.0F}}), "(Celu): divides by its alpha, which is 0");
  EXPECT_ERROR(one("Mish", {"ids"}), "(Mish): expects floats, found int64");
}

TEST(ComposedOps, ActivationsOfOnnxruntime) {
  for (const char *op : {"com.microsoft.Gelu", "com.microsoft.FastGelu", "com.microsoft.QuickGelu"})
    EXPECT_OK(one(op, {"row"}));
  EXPECT_OK(one("com.microsoft.FastGelu", {"row", "d"}));
  EXPECT_OK(one("com.microsoft.BiasGelu", {"row", "d"}));
  EXPECT_OK(one("com.microsoft.QuickGelu", {"row"}, {{"alpha", 1.0F}}));
  EXPECT_ERROR(one("com.microsoft.BiasGelu", {"row"}),
               "(com.microsoft.BiasGelu): expects at least 2 inputs; input 1 is missing");
  EXPECT_ERROR(one("com.microsoft.QuickGelu", {"ids"}),
               "(com.microsoft.QuickGelu): expects floats, found int64");
  EXPECT_ERROR(one("QuickGelu", {"row"}), "1 operator is not supported: QuickGelu");
}

TEST(ComposedOps, SamplesAreNotCompared) {
  EXPECT_OK(one("ArgMax", {"row"}, {{"axis", 1}}));
  EXPECT_ERROR(one("ArgMax", {"row"}),
               "(ArgMax): compares samples with each other; every op must treat samples apart");
  EXPECT_ERROR(one("Hardmax", {"row"}, {{"axis", 0}}),
               "(Hardmax): compares samples with each other");
  EXPECT_ERROR(one("TopK", {"row", "i1"}, {{"axis", 0}}),
               "(TopK): compares samples with each other");
  EXPECT_ERROR(one("CumSum", {"row", "i0"}),
               "(CumSum): runs over the samples; every op must treat samples apart");
  EXPECT_OK(one("MeanVarianceNormalization", {"image"})); // for inputs, it is known before the step
  EXPECT_ERROR(one("BatchNormalization", {"image", "c", "c", "c", "c"}, {{"training_mode", 1}}),
               "normalizes by statistics of the batch (training_mode = 1), which mix samples; "
               "plans keep samples apart. Give --group-rows=G");
  EXPECT_OK(one("LpNormalization", {"row"}, {{"axis", 0}}));
}

TEST(ComposedOps, TopK) {
  EXPECT_OK(one("TopK", {"row", "i3"}, {}, 20, {"y", "index"}));
  EXPECT_ERROR(one("TopK", {"row", "i7"}),
               "(TopK): expects a k from 1 to 5, the size of axis 1, found 7");
  EXPECT_ERROR(one("TopK", {"row", "ids"}), "(TopK): expects a constant k; it depends on data");
  EXPECT_ERROR(one("TopK", {"row", "i1"}, {{"axis", 2}}),
               "(TopK): expects a tensor and a valid axis");
}

TEST(ComposedOps, PicksAndScatters) {
  EXPECT_OK(one("GatherElements", {"row", "places"}, {{"axis", 1}}));
  EXPECT_ERROR(one("GatherElements", {"row", "places"}, {{"axis", 0}}),
               "(GatherElements): picks samples by data");
  EXPECT_ERROR(one("GatherElements", {"places", "row"}, {{"axis", 1}}),
               "(GatherElements): expects a tensor and integer ids");
  EXPECT_ERROR(one("Gather", {"row", "places"}, {{"axis", 1}}),
               "(Gather): picks by ids of one sample from all samples");
  EXPECT_ERROR(one("GatherND", {"row", "places"}),
               "(GatherND): expects ids of 1 to 2 components, found 3");
  EXPECT_OK(one("ScatterElements", {"row", "places", "three"}, {{"axis", 1}}));
  EXPECT_ERROR(one("ScatterElements", {"row", "places", "row"}, {{"axis", 1}}),
               "(ScatterElements): expects updates of the same shape as its ids");
  EXPECT_ERROR(
      one("ScatterElements", {"row", "i0", "row"}),
      "(ScatterElements): expects a valid axis and integer ids of the first operand's rank");
  EXPECT_ERROR(one("ScatterND", {"row", "places", "row"}),
               "(ScatterND): expects ids of 1 to 2 components, found 3");
  EXPECT_ERROR(one("ScatterND", {"row", "none", "nothing"}),
               "(ScatterND): scatters over the samples");
  EXPECT_ERROR(one("OneHot", {"ids", "i0", "two"}),
               "(OneHot): expects ids and a constant, positive number of classes");
  EXPECT_ERROR(one("OneHot", {"ids", "i4", "c"}), "(OneHot): expects two values, those off and on");
  EXPECT_OK(one("OneHot", {"ids", "i4", "two"}));
}

TEST(ComposedOps, IntegersAreDividedByConstants) {
  EXPECT_OK(one("Mod", {"ids", "i3"}));
  EXPECT_ERROR(
      one("Mod", {"ids", "labels"}),
      "(Mod): divides integers by what is no positive constant; a program must not stop at data");
  EXPECT_ERROR(one("Div", {"ids", "i0"}),
               "(Div): divides integers by what is no positive constant");
}

TEST(ComposedOps, Resize) {
  using Ints = std::vector<int64_t>;
  EXPECT_OK(one("Resize", {"image", "", "", "pair"},
                {{"axes", Ints{2, 3}}, {"keep_aspect_ratio_policy", std::string("not_smaller")}}));
  EXPECT_OK(
      one("Resize", {"image", "", "", "i3"}, {{"axes", Ints{-1}}, {"mode", std::string("cubic")}}));
  EXPECT_ERROR(one("Resize", {"image", "", "", "i3"}),
               "(Resize): expects scales or sizes for 4 axes, found 1");
  EXPECT_ERROR(one("Resize", {"image", "", "", "i3"}, {{"axes", Ints{0}}}),
               "(Resize): changes the number of samples; every op must treat samples apart");
  EXPECT_ERROR(one("Resize", {"image", "", "", "i3"}, {{"axes", Ints{4}}}),
               "(Resize): names an axis outside the rank");
  EXPECT_ERROR(one("Resize", {"image", "", "", "i0"}, {{"axes", Ints{2}}}),
               "(Resize): makes 0 of 8 positions, which is not supported");
  EXPECT_ERROR(one("Resize", {"image", "", "", "places"}, {{"axes", Ints{2, 3}}}),
               "(Resize): expects a constant shape; it depends on data");
  EXPECT_ERROR(one("Resize", {"ids", "", "", "i3"}, {{"axes", Ints{1}}}),
               "(Resize): expects a tensor of floats");
}

TEST(ComposedOps, GridsAndTransforms) {
  for (const char *op : {"Tan", "Asin", "Acos", "Atan"})
    EXPECT_OK(one(op, {"row"}));
  EXPECT_ERROR(one("GridSample", {"image", "row"}),
               "(GridSample): expects floats of samples x channels x positions, and a grid of the "
               "same rank");
  EXPECT_ERROR(
      one("GridSample", {"image", "image"}),
      "(GridSample): expects a grid of 2 samples with 2 numbers for every place, found 2 and 8");
  EXPECT_ERROR(
      one("DFT", {"image"}),
      "(DFT): expects floats whose last dimension holds real numbers (1) or complex ones (2)");
  EXPECT_ERROR(one("DFT", {"long", "", "i3"}),
               "(DFT): expects an axis before the last, found 3 of 4");
  EXPECT_ERROR(one("DFT", {"long", "i0"}), "(DFT): expects a constant length of at least 1");
  EXPECT_ERROR(one("DFT", {"long"}, {{"inverse", 1}, {"onesided", 1}}),
               "(DFT): asks for one side of a transform that is not of real numbers");
}

TEST(ComposedOps, Recurrences) {
  EXPECT_OK(one("LSTM", {"word", "wi", "wh"}, {{"layout", 1}}));
  EXPECT_ERROR(one("LSTM", {"word", "wi", "wh"}),
               "(LSTM): runs over the samples; every op must treat samples apart");
  EXPECT_ERROR(one("LSTM", {"row", "wi", "wh"}),
               "(LSTM): expects inputs and two weights of rank 3");
  EXPECT_ERROR(one("GRU", {"word", "wi", "wh"}),
               "(GRU): expects weights for 1 direction, 3 gates of hidden_size and inputs of 5");
  EXPECT_ERROR(one("LSTM", {"word", "wi", "wh"}, {{"direction", std::string("bidirectional")}}),
               "(LSTM): expects weights for 2 directions");
  EXPECT_ERROR(one("LSTM", {"word", "wi", "wh", "", "pair"}, {{"layout", 1}}),
               "has lengths of sequences that are not all 3, the number of positions");
}

TEST(ComposedOps, Einsum) {
  auto of = [](const char *equation, const std::vector<std::string> &inputs) {
    return one("Einsum", inputs, {{"equation", std::string(equation)}});
  };
  EXPECT_OK(of("nd,de->ne", {"row", "m"}));
  EXPECT_OK(of("nd,nd->n", {"row", "other"}));
  EXPECT_OK(of("...d , hd -> ...h", {"row", "n"}));
  EXPECT_ERROR(of("nd->nd", {"row", "m"}), "its equation 'nd->nd' has 1 terms for 2 operands");
  EXPECT_ERROR(of("n,de->ne", {"row", "m"}),
               "its equation 'n,de->ne' has the term 'n' for an operand of rank 2");
  EXPECT_ERROR(of("nd,ed->ne", {"row", "m"}),
               "label 'd' of its equation 'nd,ed->ne' is 5 in one operand and 7 in another");
  EXPECT_ERROR(of("nn->n", {"row"}),
               "takes a diagonal ('n' twice in one term), which is not supported");
  EXPECT_ERROR(of("nd->nx", {"row"}), "has the label 'x' in its result twice, or in no operand");
  EXPECT_ERROR(of("n1->n", {"row"}), "has a label that is no letter: '1'");
  EXPECT_ERROR(of("nd,md->nm", {"row", "other"}), "(Einsum, in its MatMul):");
  EXPECT_ERROR(of("nd,nd->d", {"row", "other"}),
               "sums over the samples; every op must treat samples apart");
}

TEST(ComposedOps, Norms) {
  EXPECT_OK(one("GroupNormalization", {"image", "two", "two"}, {{"num_groups", 2}}, 18));
  EXPECT_OK(one("GroupNormalization", {"image", "c", "c"}, {{"num_groups", 2}}, 21));
  EXPECT_ERROR(one("GroupNormalization", {"image", "two", "two"}, {{"num_groups", 2}}, 21),
               "expects 4 scales and biases, one per channel in opset 21");
  EXPECT_ERROR(one("GroupNormalization", {"image", "c", "c"}, {{"num_groups", 3}}, 21),
               "expects groups that divide its 4 channels, found 3");
  EXPECT_ERROR(one("InstanceNormalization", {"image", "d", "d"}),
               "(InstanceNormalization): expects 4 scales and biases, one per channel");
  EXPECT_ERROR(one("InstanceNormalization", {"image", "m", "c"}),
               "expects operand 1 to have one dimension and no samples");
  EXPECT_OK(one("LRN", {"image"}, {{"size", 3}}));
  EXPECT_OK(one("LRN", {"image"}, {{"size", 1000}})); // all channels
  EXPECT_ERROR(one("LRN", {"image"}), "LRN: attribute 'size' is missing");
  EXPECT_ERROR(one("LRN", {"image"}, {{"size", 0}}), "(LRN): expects a size of 1 or more, found 0");
  EXPECT_ERROR(one("LRN", {"ids"}, {{"size", 3}}),
               "(LRN): expects floats of samples x channels x positions");
  EXPECT_ERROR(one("BatchNormalization", {"image", "c", "c", "d", "c"}),
               "expects 4 elements in operand 3, one per channel, found 5");
}

TEST(ComposedOps, Blocks) {
  EXPECT_OK(one("DepthToSpace", {"image"}, {{"blocksize", 2}}));
  EXPECT_ERROR(one("DepthToSpace", {"image"}, {{"blocksize", 3}}),
               "found 4 channels and a blocksize of 3");
  EXPECT_ERROR(one("SpaceToDepth", {"image"}, {{"blocksize", 3}}),
               "expects a height and width in blocks of 3, found 8 and 8");
}

TEST(ComposedOps, ConvolutionsAndPoolings) {
  using Ints = std::vector<int64_t>;
  EXPECT_OK(one("Conv", {"image", "k", "c"}, {{"pads", Ints{1, 1, 1, 1}}}));
  EXPECT_ERROR(one("Conv", {"image", "k"}, {{"group", 2}}),
               "expects a kernel of 2 channels in each of 2 groups, found one of 4 for 4 channels");
  EXPECT_ERROR(one("Conv", {"image", "k", "d"}), "(Conv): expects a bias of 4 elements");
  EXPECT_ERROR(one("Conv", {"image", "k"}, {{"dilations", Ints{4, 1}}}),
               "has windows of 9 elements over 8 in dimension 2, pads included");
  EXPECT_ERROR(one("Conv", {"image", "k"}, {{"strides", Ints{1}}}),
               "expects 2 strides for 2 dimensions of positions, found 1");
  EXPECT_ERROR(one("Conv", {"image", "k"}, {{"strides", Ints{0, 1}}}),
               "has a stride of 0 in dimension 2; expects 1 to 1048576");
  EXPECT_ERROR(one("Conv", {"image", "k"}, {{"kernel_shape", Ints{2, 2}}}),
               "its kernel_shape is not that of its kernel");
  EXPECT_ERROR(one("Conv", {"image", "long"}, {{"pads", Ints{150, 0, 150, 0}}}),
               "has a kernel of 301 elements along its dimensions together; at most 256");
  EXPECT_OK(one("ConvTranspose", {"image", "k"}, {{"strides", Ints{2, 2}}}));
  EXPECT_ERROR(one("ConvTranspose", {"image", "m"}),
               "(ConvTranspose): expects floats of samples x channels x positions, and a kernel of "
               "the same rank");
  EXPECT_OK(one("MaxPool", {"image"}, {{"kernel_shape", Ints{3, 3}}}));
  EXPECT_ERROR(one("MaxPool", {"image"}, {{"kernel_shape", Ints{3, 3}}}, 20, {"y", "index"}),
               "its second output (positions of the largest elements) is used");
  EXPECT_ERROR(one("AveragePool", {"image"}, {{"kernel_shape", Ints{3}}}),
               "expects a kernel of 2 dimensions, found 1");
  EXPECT_ERROR(
      one("AveragePool", {"image"}, {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{2, 0, 0, 0}}}),
      "has windows that lie in its pads alone, in dimension 2");
}

namespace {

/// Imports a loop that adds `row` to its carried value and collects the sums; the body's condition
/// is `condition`.
Outcome loop(int64_t turns, const std::string &condition, bool spareInput = false) {
  Graph graph(2, 20);
  graph.input("row", 1, {2, 5});
  graph.weight("scale", {5});
  graph.ints("turns", {turns});
  graph.node("Mul", {"row", "scale"}, {"start"});
  onnx::Node &node = graph.node("Loop", {"turns", "", "start"}, {"last", "all"});
  auto *attribute = node.add_attribute();
  attribute->set_name("body");
  attribute->set_type(5);
  onnx::Graph &body = *attribute->mutable_g();
  body.set_name("body");
  for (const char *name : {"turn", "before", "sum"})
    body.add_input()->set_name(name);
  if (spareInput)
    body.add_input()->set_name("spare");
  auto add = [&](const std::string &op, const std::vector<std::string> &inputs,
                 const std::string &output) {
    onnx::Node &inner = *body.add_node();
    inner.set_op_type(op);
    inner.set_name("n_" + output);
    for (const std::string &input : inputs)
      inner.add_input(input);
    inner.add_output(output);
  };
  add("Add", {"sum", "row"}, "next");
  add("Greater", {"next", "sum"}, "data");
  add("Identity", {"before"}, "goes");
  body.add_output()->set_name(condition);
  body.add_output()->set_name("next");
  body.add_output()->set_name("next");
  graph.node("ReduceSum", {"all", "zero"}, {"total"});
  graph.ints("zero", {0});
  graph.node("Add", {"total", "last"}, {"both"});
  graph.node("ReduceMean", {"both"}, {"loss"});
  Graph::attribute(*graph.model.mutable_graph()->mutable_node(graph.model.graph().node_size() - 1),
                   "keepdims", 0);
  graph.output("loss");
  ImportOptions options;
  options.trustGuess = true;
  return import(graph.write("loop.onnx"), options);
}

size_t count(const std::string &text, const std::string &part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

} // namespace

TEST(ComposedOps, LoopsAreUnrolled) {
  Outcome three = loop(3, "goes"), five = loop(5, "goes");
  ASSERT_TRUE(three.ok && five.ok) << three.text << five.text;
  EXPECT_EQ(count(five.text, "arith.addf") - count(three.text, "arith.addf"), 2U) << five.text;
  EXPECT_ERROR(loop(2000, "goes"),
               "(Loop): makes more than 1024 turns; loops are unrolled up to this limit");
  EXPECT_ERROR(
      loop(0, "goes"),
      "(Loop): makes no turn, and a result that collects its turns; this is not supported");
  EXPECT_ERROR(loop(3, "data"), "(Loop): whether it continues after turn 1 depends on data; only "
                                "constant conditions are supported");
  EXPECT_ERROR(loop(3, "goes", true), "(Loop): its body has 4 inputs, expects 3");
}
