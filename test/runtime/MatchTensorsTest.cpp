// Tests matching of checkpoint tensors to parameters by names, facts and shapes, and errors that
// list all mismatches.
#include "zorse/runtime/MatchTensors.h"
#include "TemporaryDirectory.h"

#include <gtest/gtest.h>

#include <cstring>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  float value = 1; ///< value of all elements
  StoredType type = StoredType::F32;
};

class MatchTensors : public ::testing::Test {
protected:
  /// Writes a safetensors file.
  std::string write(const std::string &name, const std::vector<Tensor> &tensors,
                    const std::map<std::string, std::string> &metadata = {}) {
    std::vector<SafetensorsItem> items;
    items.reserve(tensors.size());
    for (const Tensor &tensor : tensors)
      items.push_back({tensor.name, tensor.type, tensor.shape, [tensor](std::byte *to) {
                         for (int64_t i = 0; i < elementCount(tensor.shape).value_or(0); ++i)
                           convertElements(&tensor.value, StoredType::F32,
                                           to + i * int64_t(bytesOf(tensor.type)), tensor.type, 1);
                       }});
    EXPECT_TRUE(
        writeSafetensors(directory.path(name), std::move(items), nullptr, metadata).succeeded());
    return directory.path(name);
  }

  static WantedTensor wanted(const std::string &name, std::vector<int64_t> shape,
                             bundle::HubFact hub = {}, bool trainable = true) {
    return {name, std::move(shape), trainable, true, std::move(hub)};
  }

  struct Outcome {
    TensorMatching matching;
    std::string error;
    /// "tensor", "tensor^T", "tensor=tied"; "-": none
    std::string text() const {
      std::string out;
      for (const MatchedTensor &match : matching.parameters) {
        out += out.empty() ? "" : " ";
        for (const std::string &name : match.names)
          out += (&name == &match.names.front() ? "" : "=") + name;
        out += match.names.empty() ? "-" : match.transposed ? "^T" : "";
      }
      return error.empty() ? out : error;
    }
  };

  Outcome match(const std::vector<Tensor> &tensors, const std::vector<WantedTensor> &parameters,
                const std::vector<std::string> &skip = {},
                const std::vector<std::string> &buffers = {},
                const std::map<std::string, std::string> &metadata = {}) {
    Result<TensorFiles> files = TensorFiles::open(write("t.safetensors", tensors, metadata));
    if (files.failed())
      return {{}, files.message()};
    bundle::HubModel model;
    model.buffers = buffers;
    Result<TensorMatching> matching = matchTensors(*files, parameters, model, skip);
    return matching.failed() ? Outcome{{}, matching.message()} : Outcome{std::move(*matching), ""};
  }

  void expectSays(const std::string &text, const std::vector<std::string> &parts) {
    for (const std::string &part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
  }

  std::string openError(const std::string &path) {
    Result<TensorFiles> files = TensorFiles::open(path);
    return files.failed() ? files.message() : "accepted";
  }

  std::string index(const std::string &map) {
    return directory.write("d/model.safetensors.index.json", R"({"weight_map":)" + map + "}");
  }

  TemporaryDirectory directory;
  const std::vector<WantedTensor> facts = {
      wanted("m.t.wte", {8, 4}, {{"t.wte", "head"}, {}, false, false}),
      wanted("val_3", {4, 6}, {{"t.w"}, {}, true, false}),
      wanted("m.t.norm", {4}, {{"t.norm"}, {}, false, false}, false),
      wanted("m.t.A", {2, 4}, {{"base.t.A"}, {}, false, true})};
};

TEST_F(MatchTensors, FactsSayNamesTransposesAndTies) {
  EXPECT_EQ(match({{"t.wte", {8, 4}}, {"t.w", {6, 4}}, {"t.norm", {4}}}, facts).text(),
            "t.wte t.w^T t.norm -");
  EXPECT_EQ(
      match({{"t.wte", {8, 4}}, {"head", {8, 4}}, {"t.w", {6, 4}}, {"t.norm", {4}}}, facts).text(),
      "t.wte=head t.w^T t.norm -");
  EXPECT_EQ(match({{"head", {8, 4}}, {"t.w", {6, 4}}, {"t.norm", {4}}}, facts).text(),
            "head t.w^T t.norm -");
  EXPECT_EQ(match({{"t.wte", {8, 4}}, {"t.w", {6, 4}}, {"t.norm", {4}}}, facts).matching.note, "");
}

TEST_F(MatchTensors, BeginningsOfNames) {
  Outcome base = match({{"wte", {8, 4}}, {"w", {6, 4}}, {"norm", {4}}}, facts);
  EXPECT_EQ(base.text(), "wte w^T norm -");
  expectSays(base.matching.note, {"do not begin with 't.'"});
  Outcome wrapped =
      match({{"module.t.wte", {8, 4}}, {"module.t.w", {6, 4}}, {"module.t.norm", {4}}}, facts);
  EXPECT_EQ(wrapped.text(), "module.t.wte module.t.w^T module.t.norm -");
  expectSays(wrapped.matching.note, {"begin with 'module.'"});
  // A head next to a base model keeps its name.
  EXPECT_EQ(match({{"wte", {8, 4}}, {"head", {8, 4}}, {"w", {6, 4}}, {"norm", {4}}}, facts).text(),
            "wte=head w^T norm -");
  Outcome both = match({{"a.t.wte", {8, 4}},
                        {"a.t.w", {6, 4}},
                        {"a.t.norm", {4}},
                        {"b.t.wte", {8, 4}},
                        {"b.t.w", {6, 4}},
                        {"b.t.norm", {4}}},
                       facts);
  expectSays(both.error,
             {"'a.t.wte'", "'b.t.wte'", "both choices match the same number of parameters",
              "--ignore-tensors=PATTERN"});
}

TEST_F(MatchTensors, WhatIsWrongIsListedWithShapes) {
  Outcome wrong = match({{"t.wte", {8, 5}}, {"t.norm", {4}}, {"t.q_norm", {3}}}, facts);
  expectSays(wrong.error,
             {"1 parameter of the model missing: 'val_3' 4x6 ('t.w' there)",
              "expects shape 8x4, got 8x5", "1 tensor is not of the model: 't.q_norm' 3",
              "--ignore-tensors=PATTERN", "give the checkpoint of the model that was exported"});
  // A frozen parameter that the hub has must be present. Otherwise it would keep the values of
  // another checkpoint.
  expectSays(match({{"t.wte", {8, 4}}, {"t.w", {6, 4}}}, facts).error,
             {"1 parameter of the model missing: 'm.t.norm' 4"});
  expectSays(
      match({{"t.wte", {8, 4}}, {"t.w", {6, 4}}, {"t.norm", {4}, 1, StoredType::I64}}, facts).error,
      {"'t.norm'", "expects floating-point numbers, got I64"});
  expectSays(
      match({{"t.wte", {8, 4}, 1}, {"head", {8, 4}, 2}, {"t.w", {6, 4}}, {"t.norm", {4}}}, facts)
          .error,
      {"'t.wte' and 'head' hold different numbers", "the model ties them",
       "--ignore-tensors=head"});
  expectSays(match({{"t.wte", {8, 4}}}, facts, {"none*"}).error, {"no tensor is called 'none*'"});
}

TEST_F(MatchTensors, WhatIsLeftOverOnPurpose) {
  std::vector<Tensor> tensors = {{"t.wte", {8, 4}}, {"t.w", {6, 4}}, {"t.norm", {4}}};
  std::vector<Tensor> more = tensors;
  more.push_back({"t.rope.inv_freq", {2}});
  more.push_back({"t.h.0.attn.bias", {2, 2}});
  more.push_back({"step", {}, 1, StoredType::I64});
  Outcome buffers = match(more, facts, {}, {"rope.inv_freq", "attn.bias"});
  EXPECT_EQ(buffers.text(), "t.wte t.w^T t.norm -");
  expectSays(buffers.matching.note, {"3 tensors not used", "'t.h.0.attn.bias' 2x2"});
  expectSays(match(more, facts).error, {"2 tensors are not of the model"});
  Outcome skipped = match(more, facts, {"t.rope.*", "*.attn.bias"});
  EXPECT_EQ(skipped.text(), "t.wte t.w^T t.norm -");
  expectSays(skipped.matching.note, {"2 tensors left out (--ignore-tensors)"});
  // One of two tied names, with different values.
  tensors.push_back({"head", {8, 4}, 2});
  EXPECT_EQ(match(tensors, facts, {"head"}).text(), "t.wte t.w^T t.norm -");
}

TEST_F(MatchTensors, WithoutFactsByNameAndShape) {
  const std::vector<WantedTensor> plain = {wanted("a.w", {4, 6}), wanted("a.b", {4}),
                                           wanted("a.frozen", {3}, {}, false)};
  Outcome own = match({{"a.w", {4, 6}}, {"a.b", {4}}, {"more", {1}}}, plain);
  EXPECT_EQ(own.text(), "a.w a.b -");
  EXPECT_TRUE(own.matching.byOnnxNames);
  expectSays(own.matching.note, {"1 tensor is not of the model: 'more' 1"});
  Outcome turned = match({{"x.a.w", {6, 4}}, {"x.a.b", {4}}}, plain);
  EXPECT_EQ(turned.text(), "x.a.w^T x.a.b -");
  expectSays(turned.matching.note,
             {"2 parameters found by name and shape", "1 matrix transposed, by shape: 'x.a.w' 6x4",
              "1 frozen parameter not in it"});
  expectSays(match({{"x.a.w", {6, 4}}, {"x.a.b", {4}}, {"more", {1}}}, plain).error,
             {"1 tensor is not of the model: 'more' 1"});
  std::vector<WantedTensor> square = plain;
  square.push_back(wanted("a.square", {4, 4}));
  expectSays(match({{"x.a.w", {6, 4}}, {"x.a.b", {4}}, {"x.a.square", {4, 4}}}, square).error,
             {"square matrices that may be transposed or not", "'x.a.square' 4x4", "hub="});
  EXPECT_EQ(match({{"x.a.w", {4, 6}}, {"x.a.b", {4}}, {"x.a.square", {4, 4}}}, square).text(),
            "x.a.w x.a.b - x.a.square");
  // The ties of the model are known.
  const std::vector<WantedTensor> tied = {wanted("head.w", {8, 4}, {{}, {"wte.w"}, false, false}),
                                          wanted("b", {4})};
  EXPECT_EQ(match({{"x.wte.w", {8, 4}}, {"x.b", {4}}}, tied).text(), "x.wte.w x.b");
}

TEST_F(MatchTensors, OurOwnCheckpointsAreNotTurned) {
  // The hub stores the transpose of our tensor under the same name.
  const std::vector<WantedTensor> same = {wanted("w", {4, 4}, {{"w"}, {}, true, false})};
  EXPECT_EQ(match({{"w", {4, 4}}}, same).text(), "w^T");
  EXPECT_EQ(match({{"w", {4, 4}}}, same, {}, {}, onnxNames()).text(), "w");
  expectSays(match({{"v", {4, 4}}}, same, {}, {}, onnxNames()).error,
             {"1 parameter of the model missing: 'w' 4x4", "names of the ONNX file"});
}

TEST_F(MatchTensors, Directories) {
  directory.write("d/config.json", "{}");
  write("d/one.safetensors", {{"a", {1}}});
  write("d/two.safetensors", {{"b", {2}}});
  index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  Result<TensorFiles> files = TensorFiles::open(directory.path("d"));
  ASSERT_FALSE(files.failed()) << files.message();
  EXPECT_EQ(files->files(), (std::vector<std::string>{"one.safetensors", "two.safetensors"}));
  EXPECT_EQ(files->tensors().at("b").file, 1u);
  EXPECT_EQ(files->index(), "model.safetensors.index.json");
  const std::string path = directory.path("d/model.safetensors.index.json");
  EXPECT_EQ(openError(path), "accepted");
  struct {
    std::string map, says;
  } const cases[] = {
      {R"({"a":"one.safetensors","b":"three.safetensors"})",
       "names three.safetensors, which is not in its directory"},
      {R"({"a":"two.safetensors","b":"two.safetensors"})",
       "tensor 'a' is in two.safetensors, which does not hold it"},
      {R"({"a":"one.safetensors","b":"../d/two.safetensors"})",
       "expects the name of a file in the directory of the index"},
      {R"({"a":"one.safetensors","b":""})",
       "expects the name of a file in the directory of the index"},
      {R"({"a":"one.safetensors","b":7})", "tensor 'b' is in no named file"},
      {R"({"a":"one.safetensors","c":"one.safetensors","b":"two.safetensors"})",
       "says that tensor 'c' is in one.safetensors"},
      {R"(7)", "expects a JSON object with the object 'weight_map'"},
      {std::string(100000, '['), "is no index of safetensors files"},
  };
  for (const auto &each : cases) {
    index(each.map);
    expectSays(openError(path), {path, each.says});
  }
  index(R"({"a":"one.safetensors"})");
  EXPECT_EQ(openError(path), "accepted"); // two.safetensors is not referenced
  write("d/one.safetensors", {{"a", {1}}, {"b", {2}}});
  index(R"({"a":"one.safetensors"})");
  expectSays(openError(path), {"does not list tensor 'b'"});
  index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  expectSays(openError(path), {"tensor 'b' is in one.safetensors and in two.safetensors"});
  write("d/model.safetensors", {{"a", {1}}});
  expectSays(openError(directory.path("d")), {"holds both", "name the one"});
  directory.write("e/pytorch_model.bin", "");
  expectSays(openError(directory.path("e")), {"pytorch_model.bin", "save_pretrained"});
  directory.write("f/adapter_model.safetensors", "");
  expectSays(openError(directory.path("f")), {"an adapter", "base model"});
  directory.write("g/config.json", "{}");
  expectSays(openError(directory.path("g")), {"holds neither"});
}

} // namespace
