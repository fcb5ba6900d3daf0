// Models that are described by their dimensions, for planning before a model is exported ("which
// cluster for a 33B LLaMA?"). They are written as ONNX graphs without weights and imported like any
// other file, so that a shape has the units, costs and memory of the exported model.
#pragma once

#include "zorse/Base/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse::shapes {

/// The dimensions of a transformer and what its blocks consist of. A family is a combination of
/// these (findFamily); dimensions that are 0 are missing, or follow from others (complete).
struct ModelShape {
  enum class Norm : uint8_t { Layer, Rms };
  /// Rotary: of queries and keys. Relative: learned biases of scores by distance (T5).
  enum class Positions : uint8_t { None, Learned, Rotary, Relative };
  enum class Activation : uint8_t { Gelu, Silu, Relu };
  /// What the model computes a loss of. Tokens: the next one or a masked one, by position. Image:
  /// the class of an image. Translation: encoder and decoder, the next token of the second text.
  enum class Task : uint8_t { Tokens, Image, Translation };

  std::string name;
  int64_t layers = 0; ///< blocks; of Translation, of the encoder and again of the decoder
  int64_t hidden = 0, ffn = 0, heads = 0, vocabulary = 0;
  int64_t kvHeads = 0;       ///< heads of keys and values; 0: `heads`
  int64_t headSize = 0;      ///< channels of a head; 0: hidden / heads
  int64_t sequence = 0;      ///< tokens of a sample, of both texts of Translation
  int64_t experts = 0;       ///< MLPs of a block, between which a router chooses; 0: one MLP
  int64_t activeExperts = 0; ///< experts whose results a token uses
  int64_t image = 0, patch = 0, classes = 0; ///< of Task::Image: pixels of an edge, of a patch

  Task task = Task::Tokens;
  Norm norm = Norm::Rms;
  Positions positions = Positions::Rotary;
  Activation activation = Activation::Silu;
  bool gated = true;       ///< the MLP multiplies its activation by a second product
  bool causal = true;      ///< a position sees earlier ones only
  bool biases = false;     ///< of all products, and of layer norms
  bool qkvBiases = false;  ///< of queries, keys and values only
  bool fusedQkv = false;   ///< one product for queries, keys and values (GPT-2)
  bool headNorms = false;  ///< norms of queries and keys per head (Qwen3)
  bool postNorm = false;   ///< norms after the residual instead of before the branch (BERT)
  bool parallel = false;   ///< attention and MLP read the same norm's result (GPT-J, GPT-NeoX)
  bool tied = false;       ///< the output matrix is the embedding
  bool maskedHead = false; ///< a product, activation and norm before the output matrix, and its
                           ///< biases (BERT)
};

/// A setting of a shape by name, such as layers=24.
struct ShapeSetting {
  std::string key, value;
};

/// The dimensions of a published model (llama-7b, gpt2-xl, mixtral-8x7b, ...), or nullopt.
std::optional<ModelShape> findModelShape(const std::string &name);
std::string knownModelShapes(); ///< names, separated by commas

/// A family without dimensions (gpt, llama, mixtral, bert, vit, t5), or nullopt.
std::optional<ModelShape> findFamily(const std::string &name);
std::string knownFamilies();

/// A shape, and what was assumed about it, one sentence each.
struct ReadShape {
  ModelShape shape;
  std::vector<std::string> assumptions;
};

/// Reads config.json of a checkpoint of transformers. Errors name the key, or the known model
/// types.
Result<ReadShape> readModelConfig(const std::string &path);

/// Changes a shape: layers, hidden, ffn, heads, kv_heads, head_dim, vocabulary, experts,
/// experts_per_token, image, patch, classes, tied (yes or no). Errors name the setting.
Status applySetting(ModelShape &shape, const ShapeSetting &setting);

/// Derives missing dimensions from others and checks all of them. Errors name the dimension, the
/// expected and the found value.
Status complete(ModelShape &shape);

/// Writes the training graph of the shape to an ONNX file (opset 23): inputs with a symbolic
/// dimension of samples, mean cross-entropy as only output, parameters without values (external
/// data in a file that does not exist). Products are written as exporters write them, attention as
/// the operators Attention and Softmax. \pre complete(shape) succeeded
Status writeOnnx(const ModelShape &shape, const std::string &path);

} // namespace zorse::shapes
