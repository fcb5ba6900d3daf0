// Tests models given by dimensions: parameters of published models, configurations of transformers,
// and mistakes.
#include "zorse/ModelShapes/ModelShape.h"

#include "onnx_wire.pb.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

using namespace zorse;
using namespace zorse::shapes;

namespace {

std::string temporary(const std::string &name) {
  return (std::filesystem::temp_directory_path() /
          (name + "." + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "." +
           std::to_string(::getpid())))
      .string();
}

onnx::Model graphOf(ModelShape shape) {
  const Status completed = complete(shape);
  EXPECT_FALSE(completed.failed()) << completed.message();
  const std::string path = temporary(shape.name + ".onnx");
  EXPECT_FALSE(writeOnnx(shape, path).failed());
  onnx::Model model;
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(model.ParseFromIstream(&file));
  std::filesystem::remove(path);
  return model;
}

int64_t parametersOf(const ModelShape &shape) {
  int64_t sum = 0;
  const onnx::Model model = graphOf(shape);
  for (const onnx::Tensor &tensor : model.graph().initializer()) {
    int64_t elements = 1;
    for (int64_t dim : tensor.dims())
      elements *= dim;
    sum += elements;
  }
  return sum;
}

ModelShape known(const std::string &name, int64_t sequence, int64_t vocabulary = 0) {
  ModelShape shape = *findModelShape(name);
  shape.sequence = sequence;
  if (vocabulary)
    shape.vocabulary = vocabulary;
  return shape;
}

Result<ReadShape> readText(const std::string &text) {
  const std::string path = temporary("config.json");
  std::ofstream(path) << text;
  Result<ReadShape> read = readModelConfig(path);
  std::filesystem::remove(path);
  return read;
}

TEST(ModelShapes, ParametersOfPublishedModels) {
  EXPECT_EQ(parametersOf(known("gpt2", 1024)), 124439808);
  EXPECT_EQ(parametersOf(known("gpt2-xl", 1024)), 1557611200);
  EXPECT_EQ(parametersOf(known("llama-7b", 2048, 32000)), 6738415616);
  EXPECT_EQ(parametersOf(known("llama3-8b", 8192)), 8030261248);
  EXPECT_EQ(parametersOf(known("mistral-7b", 4096)), 7241732096);
  EXPECT_EQ(parametersOf(known("qwen2.5-7b", 4096)), 7615616512);
  EXPECT_EQ(parametersOf(known("mixtral-8x7b", 4096)), 46702792704);
  EXPECT_EQ(parametersOf(known("vit-base", 0)), 86567656);
  EXPECT_EQ(parametersOf(known("t5-base", 512)), 222903552);
  // Without embeddings of segments.
  EXPECT_EQ(parametersOf(known("bert-base", 512)), 109514298 - 2 * 768);
}

TEST(ModelShapes, ParametersHaveTheirOwnPlacesInTheFile) {
  const onnx::Model model = graphOf(known("gpt2", 128));
  int64_t next = 0;
  for (const onnx::Tensor &tensor : model.graph().initializer()) {
    ASSERT_EQ(tensor.external_data_size(), 3);
    EXPECT_EQ(tensor.external_data(1).value(), std::to_string(next));
    next += std::stoll(tensor.external_data(2).value());
  }
}

TEST(ModelShapes, ConfigurationsOfTransformers) {
  auto llama = readText(R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "vocab_size": 128256, "tie_word_embeddings": false})");
  ASSERT_FALSE(llama.failed()) << llama.message();
  llama->shape.sequence = 8192;
  EXPECT_EQ(parametersOf(llama->shape), 8030261248);

  auto gpt = readText(R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
      "n_inner": null, "vocab_size": 50257})");
  ASSERT_FALSE(gpt.failed()) << gpt.message();
  gpt->shape.sequence = 1024;
  EXPECT_EQ(parametersOf(gpt->shape), 124439808);

  auto mixtral = readText(R"({"model_type": "mixtral", "hidden_size": 4096,
      "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
      "vocab_size": 32000, "sliding_window": 4096, "tie_word_embeddings": false})");
  ASSERT_FALSE(mixtral.failed()) << mixtral.message();
  mixtral->shape.sequence = 64;
  EXPECT_EQ(parametersOf(mixtral->shape), 46702792704);
  EXPECT_EQ(mixtral->assumptions.size(), 1u) << "the window";

  auto qwen = readText(R"({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
      "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
      "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": true})");
  ASSERT_FALSE(qwen.failed()) << qwen.message();
  qwen->shape.sequence = 64;
  EXPECT_EQ(parametersOf(qwen->shape), 596049920); // Qwen3-0.6B
}

TEST(ModelShapes, MistakesInConfigurations) {
  EXPECT_NE(readText("{}").message().find("model_type: missing"), std::string::npos);
  EXPECT_NE(readText(R"({"model_type": "mamba"})").message().find("'mamba' is not among"),
            std::string::npos);
  EXPECT_NE(readText(R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 0})")
                .message()
                .find("n_layer: expected a whole number from 1"),
            std::string::npos);
  EXPECT_NE(readText(R"({"model_type": "llama"})").message().find("num_hidden_layers: missing"),
            std::string::npos);
  EXPECT_TRUE(readModelConfig("/does/not/exist/config.json").failed());
}

TEST(ModelShapes, MistakesInDimensions) {
  auto mistake = [](auto change) {
    ModelShape shape = known("llama-7b", 2048);
    change(shape);
    return complete(shape).message();
  };
  EXPECT_EQ(mistake([](ModelShape &s) { s.layers = 0; }),
            "model 'llama-7b': layers is 0, expected 1 to 4096");
  EXPECT_NE(mistake([](ModelShape &s) { s.heads = s.kvHeads = 33; }).find("33 heads do not divide"),
            std::string::npos);
  EXPECT_NE(mistake([](ModelShape &s) { s.kvHeads = 5; }).find("kv_heads that divide heads"),
            std::string::npos);
  EXPECT_NE(mistake([](ModelShape &s) { s.headSize = 127; }).find("cannot be rotated"),
            std::string::npos);
  EXPECT_NE(mistake([](ModelShape &s) { s.activeExperts = 2; }).find("experts is 0"),
            std::string::npos);
  ModelShape image = known("vit-base", 0);
  image.patch = 15;
  EXPECT_NE(complete(image).message().find("do not divide an image of 224"), std::string::npos);
  ModelShape distant = known("t5-base", 8192);
  EXPECT_NE(complete(distant).message().find("expected at most 4096"), std::string::npos);
}

TEST(ModelShapes, Settings) {
  ModelShape shape = known("llama-7b", 2048);
  EXPECT_FALSE(applySetting(shape, {"layers", "24"}).failed());
  EXPECT_EQ(shape.layers, 24);
  EXPECT_FALSE(applySetting(shape, {"tied", "yes"}).failed());
  EXPECT_TRUE(shape.tied);
  EXPECT_EQ(applySetting(shape, {"tied", "1"}).message(), "tied: expected yes or no, got '1'");
  EXPECT_EQ(applySetting(shape, {"hidden", "-4"}).message(),
            "hidden: expected a whole number, got '-4'");
  EXPECT_NE(applySetting(shape, {"width", "4"}).message().find("unknown setting 'width'"),
            std::string::npos);
}

} // namespace
