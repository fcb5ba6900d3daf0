// Tests what the importer refuses, and its error messages.
#include "TestGraph.h"

#include "WeightFile.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>

using namespace zorse;
using namespace zorse::test;

namespace {

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
  EXPECT_ERROR(outcome, "node 'n_places' (Gather): id 7 is outside 'wpe.weight', which has 5 "
                        "entries along axis 0; positions up to 4 exist: compile "
                        "with --seq-length at most 5");
  EXPECT_ERROR(outcome,
               "its operands: 'wpe.weight' float32 [5, 4], 'positions' constant int64 [8]");
}

// The safetensors format reserves this name: a checkpoint with such a tensor could not be read.
TEST(ImportErrors, ANameThatNoCheckpointCanHold) {
  Graph graph;
  graph.weight("__metadata__", {4});
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.node("Add", {"x", "__metadata__"}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  graph.output("loss");
  EXPECT_ERROR(import(graph.write("metadata.onnx")), "initializer '__metadata__'");
}

TEST(ImportErrors, MixingSamplesNamesTheNode) {
  Graph graph;
  graph.node("Gather", {"w", "ids"}, {"x"});
  graph.ints("axis", {0});
  graph.node("ReduceMean", {"x", "axis"}, {"centre"}); // over samples
  graph.node("Sub", {"x", "centre"}, {"y"});
  graph.node("ReduceMean", {"y"}, {"loss"});
  graph.output("loss");
  EXPECT_ERROR(import(graph.write("mix.onnx")),
               "node 'n_y' (Sub): adds a sum over samples to values of samples: it combines "
               "samples of activations");
}

TEST(ImportErrors, UnknownOperatorsAreReportedTogether) {
  Graph graph;
  graph.node("ImageDecoder", {"ids"}, {"a"});
  graph.node("NonMaxSuppression", {"a"}, {"b"});
  graph.node("ImageDecoder", {"b"}, {"loss"});
  graph.output("loss");
  Outcome outcome = import(graph.write("unknown.onnx"));
  EXPECT_ERROR(outcome, "2 operators are not supported: ImageDecoder (2 nodes: 'n_a', 'n_loss'), "
                        "NonMaxSuppression (1 node: 'n_b')");
}

// Messages about operators contain a hint if one exists; attributes are reported together with
// operators.
TEST(ImportErrors, AllLimitsAtOnceWithRemedies) {
  Graph graph;
  graph.input("image", 1, {2, 3, 8, 8});
  graph.node("NonZero", {"image"}, {"large"});
  graph.node("AdaptiveMaxPool", {"large"}, {"pooled"});
  Graph::attribute(graph.node("Pad", {"pooled", "k"}, {"loss"}), "edge", 1);
  graph.weight("k", {4, 3, 3, 3});
  graph.output("loss");
  Outcome outcome = import(graph.write("limits.onnx"));
  EXPECT_ERROR(outcome, "2 operators are not supported: AdaptiveMaxPool (1 node: 'n_pooled'), "
                        "NonZero (1 node: 'n_large')");
  EXPECT_ERROR(outcome, "\n  AdaptiveMaxPool: give the pooling a kernel and strides");
  EXPECT_ERROR(outcome, "\n  NonZero: how many elements it takes depends on data");
  EXPECT_ERROR(outcome, "\n  Pad: attribute 'edge' is not known (1 node: 'n_loss')");
}

// The importer refuses attributes that it does not read. Otherwise, for example, an attention
// window would be ignored and all keys be visible.
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
  auto integer = [&](const char *name, int64_t value) {
    return with([=](onnx::Node &node) { Graph::attribute(node, name, value); });
  };
  Outcome plain = with([](onnx::Node &) {}), causal = integer("is_causal", 1);
  EXPECT_TRUE(plain.ok) << plain.text;
  EXPECT_TRUE(causal.ok && contains(causal.text, "causal")) << causal.text;
  EXPECT_TRUE(integer("left_window_size", -1).ok); // the default of the specification
  EXPECT_TRUE(integer("softmax_precision", 1).ok);
  EXPECT_ERROR(
      integer("left_window_size", 2),
      "Attention: attribute 'left_window_size' is 2; only -1 is supported (1 node: 'n_y')");
  EXPECT_ERROR(integer("sliding_window", 2),
               "Attention: attribute 'sliding_window' is not known (1 node: 'n_y')");
  EXPECT_ERROR(integer("scale", 2), "attribute 'scale': expects a float, found an integer");
  // A writer that omits zeros writes only the type: the value is zero, not the default.
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
  EXPECT_ERROR(import(operands.write("operands.onnx")),
               "Gather: has 3 operands; at most 2 are known");
  Graph missing;
  missing.node("Gather", {"w", "ids"}, {"x"});
  missing.node("Concat", {"x", "x"}, {"y"});
  missing.node("ReduceMean", {"y"}, {"loss"});
  missing.output("loss");
  EXPECT_ERROR(import(missing.write("missing.onnx")), "Concat: attribute 'axis' is missing");
}

TEST(ImportErrors, AttributesOfFunctions) {
  auto with = [](const std::function<void(onnx::Function &, onnx::Node & body, onnx::Node & call)>
                     &change) {
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
  EXPECT_TRUE(with([&](auto &, auto &body, auto &call) {
                refer(body, "keep"), Graph::attribute(call, "keep", 1);
              }).ok);
  EXPECT_ERROR(with([&](auto &, auto &body, auto &call) {
                 refer(body, "keep"), Graph::attribute(call, "keeep", 1);
               }),
               "attribute 'keeep', which the function does not have");
  EXPECT_ERROR(with([&](auto &, auto &body, auto &) { refer(body, "kept"); }),
               "'kept', and the function around it has none of this name");
  Outcome newer =
      with([&](auto &function, auto &, auto &) { function.add_opset_import()->set_version(27); });
  EXPECT_ERROR(newer, "operator set version 13 to 26, found 27");
}

// The error about an unsupported training algorithm names the unsupported part;
// test/e2e/own_training.py trains the supported ones.
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
  EXPECT_ERROR(with([](auto &info, auto &) { info.mutable_algorithm()->clear_node(); }),
               "training_info: has no Gradient");
  EXPECT_ERROR(with([](auto &, auto &) {}), "training_info: updates no parameter by a gradient");
  EXPECT_ERROR(with([](auto &info, auto &) { info.add_initialization_binding()->set_key("w"); }),
               "training_info: initializes 'w'");
  EXPECT_ERROR(with([&](auto &info, auto &) { bind(info, "v", "next"); }),
               "training_info: updates 'v', which is not an initializer");
  EXPECT_ERROR(with([&](auto &info, auto &) { bind(info, "w", "next"), bind(info, "w", "other"); }),
               "training_info: updates 'w' twice");
  EXPECT_ERROR(with([&](auto &info, auto &) { bind(info, "w", "next"); }),
               "training_info: 'w' is updated by the value 'next'");
  EXPECT_ERROR(with([&](auto &, auto &gradient) { gradient.set_input(0, "ids"); }),
               "is taken at another value than 'w'");
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

// Flat buffers may have arbitrary contents: truncated files and files with arbitrary references
// give an error, not a crash.
TEST(ImportErrors, CheckpointsOfTrainingArtifacts) {
  std::ifstream file(ZORSE_SOURCE_DIR "/models/small/training/artifact/checkpoint",
                     std::ios::binary);
  std::string good{std::istreambuf_iterator<char>(file), {}};
  auto read = [&](const std::string &bytes) {
    return onnx_import::readWeightFile(reinterpret_cast<const uint8_t *>(bytes.data()),
                                       bytes.size(), "checkpoint");
  };
  auto whole = read(good);
  ASSERT_FALSE(whole.failed()) << whole.message();
  ASSERT_EQ(whole->parameters.size(), 7u);
  EXPECT_EQ(whole->parameters[0].name, "emb");
  EXPECT_EQ(whole->parameters[0].dims, (std::vector<int64_t>{16, 8}));
  for (size_t size = 0; size < good.size(); size += 7)
    if (auto cut = read(good.substr(0, size)); cut.failed())
      EXPECT_FALSE(cut.message().empty());
  for (size_t at = 8; at + 4 <= std::min<size_t>(good.size(), 2000); at += 4) {
    std::string bytes = good;
    bytes.replace(at, 4, "\xf0\xff\xff\x7f");
    (void)read(bytes); // a result or an error
  }
}

// Parts of the file that the importer does not read are an error, such as a field of a later format
// version.
TEST(ImportErrors, PartsThatAreNotRead) {
  Graph sparse;
  sparse.languageModel().model.mutable_graph()->add_sparse_initializer("");
  EXPECT_ERROR(import(sparse.write("sparse.onnx")), "sparse initializers");
  Graph later;
  onnx::Node *node = later.languageModel().model.mutable_graph()->mutable_node(0);
  node->GetReflection()->MutableUnknownFields(node)->AddVarint(77, 1);
  EXPECT_ERROR(import(later.write("later.onnx")), "holds field 77 of a Node");
  Graph documented; // documentation and hints are known and have no effect
  documented.languageModel().model.set_doc_string("text");
  documented.model.mutable_graph()->mutable_node(0)->set_doc_string("text");
  EXPECT_TRUE(import(documented.write("documented.onnx")).ok);
  Graph twice;
  twice.languageModel();
  auto *set = twice.model.add_opset_import();
  set->set_domain("ai.onnx");
  set->set_version(19);
  EXPECT_ERROR(import(twice.write("twice-opset.onnx")),
               "both version 18 and 19 of the default operator set");
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
  EXPECT_ERROR(import(Graph(2, 12).languageModel().write("old.onnx")),
               "operator set version 13 to 26, found 12");
  EXPECT_ERROR(import(Graph(2, 27).languageModel().write("new.onnx")),
               "operator set version 13 to 26, found 27");
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
    for (auto [key, value] :
         {std::pair<std::string, std::string>{"location", location}, {"offset", offset}}) {
      auto *entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    return graph.write("external.onnx");
  };
  EXPECT_ERROR(import(withLocation("/etc/passwd")), "relative path");
  EXPECT_ERROR(import(withLocation("a/../../b")), "without '..'");
  EXPECT_ERROR(import(withLocation("missing.data")), "cannot be read");
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
  EXPECT_ERROR(import(graph.write("shapes.onnx")),
               "node 'n_y' (MatMul): expects inner dimensions to agree, got 4 and 5");
}

TEST(ImportErrors, TruncatedAndCorruptedFilesNeverCrash) {
  Graph graph;
  std::string bytes = graph.languageModel().model.SerializeAsString();
  std::string path = ::testing::TempDir() + "/damaged.onnx";
  std::mt19937 random(1); // NOLINT(bugprone-random-generator-seed): the same damage in every run
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

} // namespace
