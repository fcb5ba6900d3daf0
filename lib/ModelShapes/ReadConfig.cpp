// Reads config.json of transformers: the keys of every model type, and what its blocks consist of.
// transformers writes all dimensions, also those that are the type's default.
#include "zorse/ModelShapes/ModelShape.h"

#include "zorse/Support/JsonFields.h"
#include "zorse/Support/RegularFile.h"

#include <optional>

using namespace zorse;
using namespace zorse::shapes;
using namespace zorse::fields;

namespace {

using Shape = ModelShape;

constexpr size_t kMaxBytes = size_t(1) << 20;
constexpr int64_t kMaxDimension = int64_t(1) << 24;

/// How a model type names its dimensions. Null: the type does not have it.
struct Keys {
  const char *layers, *hidden, *ffn, *heads, *kvHeads;
};

constexpr Keys kUsual = {"num_hidden_layers", "hidden_size", "intermediate_size",
                         "num_attention_heads", "num_key_value_heads"};
constexpr Keys kGpt2 = {"n_layer", "n_embd", "n_inner", "n_head", nullptr};
constexpr Keys kGptNeo = {"num_layers", "hidden_size", "intermediate_size", "num_heads", nullptr};
constexpr Keys kOpt = {"num_hidden_layers", "hidden_size", "ffn_dim", "num_attention_heads",
                       nullptr};
constexpr Keys kMpt = {"n_layers", "d_model", nullptr, "n_heads", nullptr};
constexpr Keys kBloom = {"n_layer", "hidden_size", nullptr, "n_head", nullptr};
constexpr Keys kT5 = {"num_layers", "d_model", "d_ff", "num_heads", nullptr};

/// A model type: its family, what differs from it, and its keys.
struct Type {
  const char *name, *family;
  const Keys &keys;
  void (*change)(Shape &);
  const char *assumption; ///< null: none
};

void nothing(Shape &) {}

constexpr const char *kExportInstead = ". Export the model instead (zorse.export)";
constexpr const char *kAlibi = "biases of scores by distance (ALiBi) cost nothing";

const Type kTypes[] = {
    {"llama", "llama", kUsual, nothing, nullptr},
    {"mistral", "llama", kUsual, nothing, nullptr},
    {"phi3", "llama", kUsual, nothing, nullptr},
    {"granite", "llama", kUsual, nothing, nullptr},
    {"qwen2", "llama", kUsual, [](Shape &s) { s.qkvBiases = true; }, nullptr},
    {"qwen3", "llama", kUsual, [](Shape &s) { s.headNorms = true; }, nullptr},
    {"gemma", "llama", kUsual,
     [](Shape &s) {
       s.activation = Shape::Activation::Gelu;
       s.tied = true;
     },
     nullptr},
    {"mixtral", "mixtral", kUsual, nothing, nullptr},
    {"qwen3_moe", "mixtral", kUsual, [](Shape &s) { s.headNorms = true; },
     "every block has experts"},
    {"gpt2", "gpt", kGpt2, nothing, nullptr},
    {"gpt_neo", "gpt", kGptNeo, [](Shape &s) { s.fusedQkv = false; },
     "local attention has the cost of attention to all positions"},
    {"gpt_neox", "gpt", kUsual,
     [](Shape &s) {
       s.positions = Shape::Positions::Rotary;
       s.parallel = true;
       s.tied = false;
     },
     "all channels of queries and keys are rotated"},
    {"opt", "gpt", kOpt,
     [](Shape &s) {
       s.activation = Shape::Activation::Relu;
       s.fusedQkv = false;
     },
     nullptr},
    {"mpt", "gpt", kMpt,
     [](Shape &s) {
       s.positions = Shape::Positions::None;
       s.biases = false;
     },
     kAlibi},
    {"bloom", "gpt", kBloom, [](Shape &s) { s.positions = Shape::Positions::None; }, kAlibi},
    {"bert", "bert", kUsual, nothing, nullptr},
    {"roberta", "bert", kUsual, nothing, nullptr},
    {"vit", "vit", kUsual, nothing, nullptr},
    {"t5", "t5", kT5, nothing, nullptr},
};

int64_t dimension(const Json &config, const char *key) {
  if (!config.contains(key))
    fail(key, "missing");
  return toInteger(config[key], key, 1, kMaxDimension);
}

/// The dimension, or nothing if the file does not have it or says null.
std::optional<int64_t> optionalDimension(const Json &config, const char *key) {
  if (!key || !config.contains(key) || config[key].is_null())
    return std::nullopt;
  return dimension(config, key);
}

const Type &typeOf(const Json &config) {
  if (!config.is_object() || !config.contains("model_type"))
    fail("model_type", "missing: expected config.json of a model of transformers");
  const std::string name = toText(config["model_type"], "model_type");
  std::string known;
  for (const Type &type : kTypes) {
    if (name == type.name)
      return type;
    known += std::string(known.empty() ? "" : ", ") + type.name;
  }
  fail("model_type", "'" + name + "' is not among those with known blocks: " + known +
                         kExportInstead + ", or give family= and dimensions");
}

void readExperts(const Json &config, Shape &shape) {
  for (const char *key : {"num_local_experts", "num_experts"})
    if (auto experts = optionalDimension(config, key))
      shape.experts = *experts;
  shape.activeExperts = dimension(config, "num_experts_per_tok");
  if (auto ffn = optionalDimension(config, "moe_intermediate_size"))
    shape.ffn = *ffn;
}

void readImage(const Json &config, Shape &shape) {
  shape.image = dimension(config, "image_size");
  shape.patch = dimension(config, "patch_size");
  if (config.contains("num_labels"))
    shape.classes = dimension(config, "num_labels");
  else if (config.contains("id2label") && config["id2label"].is_object())
    shape.classes = static_cast<int64_t>(config["id2label"].size());
}

/// T5's MLP: "relu" or "gated-gelu".
void readT5(const Json &config, Shape &shape) {
  shape.headSize = dimension(config, "d_kv");
  if (auto decoder = optionalDimension(config, "num_decoder_layers");
      decoder && *decoder != shape.layers)
    fail("num_decoder_layers", "expected the " + std::to_string(shape.layers) +
                                   " blocks of the encoder, got " + std::to_string(*decoder) +
                                   kExportInstead);
  if (config.contains("feed_forward_proj") &&
      toText(config["feed_forward_proj"], "feed_forward_proj").rfind("gated", 0) == 0) {
    shape.gated = true;
    shape.activation = Shape::Activation::Gelu;
  }
}

ReadShape readConfig(const Json &config) {
  const Type &type = typeOf(config);
  ReadShape read{*findFamily(type.family), {}};
  Shape &shape = read.shape;
  type.change(shape);
  shape.name = type.name;
  shape.layers = dimension(config, type.keys.layers);
  shape.hidden = dimension(config, type.keys.hidden);
  shape.heads = dimension(config, type.keys.heads);
  shape.kvHeads = optionalDimension(config, type.keys.kvHeads).value_or(shape.heads);
  shape.headSize = optionalDimension(config, "head_dim").value_or(0);
  shape.ffn =
      optionalDimension(config, type.keys.ffn)
          .value_or(optionalDimension(config, "expansion_ratio").value_or(4) * shape.hidden);
  if (shape.task != Shape::Task::Image)
    shape.vocabulary = dimension(config, "vocab_size");
  shape.tied = toSwitch(config, "", "tie_word_embeddings", shape.tied);
  if (auto width = optionalDimension(config, "word_embed_proj_dim");
      width && *width != shape.hidden)
    fail("word_embed_proj_dim", "expected hidden_size, " + std::to_string(shape.hidden) + ", got " +
                                    std::to_string(*width) + kExportInstead);
  if (shape.experts > 0)
    readExperts(config, shape);
  if (shape.task == Shape::Task::Image)
    readImage(config, shape);
  if (shape.task == Shape::Task::Translation)
    readT5(config, shape);
  if (type.assumption)
    read.assumptions.emplace_back(type.assumption);
  if (optionalDimension(config, "sliding_window"))
    read.assumptions.emplace_back("attention reads all positions, not a window of them");
  return read;
}

} // namespace

Result<ReadShape> shapes::readModelConfig(const std::string &path) {
  return parseRegularFile(path, kMaxBytes, [](const std::string &text) {
    return fields::read(text, "the configuration", kMaxBytes, readConfig);
  });
}
