// Dimensions of published models, and families.
#include "zorse/ModelShapes/ModelShape.h"

#include <utility>

using namespace zorse;
using namespace zorse::shapes;

namespace {

using Shape = ModelShape;

Shape llama() { return {}; }

Shape gpt() {
  Shape shape;
  shape.norm = Shape::Norm::Layer;
  shape.positions = Shape::Positions::Learned;
  shape.activation = Shape::Activation::Gelu;
  shape.gated = false;
  shape.biases = shape.tied = shape.fusedQkv = true;
  return shape;
}

Shape mixtral() {
  Shape shape = llama();
  shape.experts = 8;
  shape.activeExperts = 2;
  return shape;
}

Shape bert() {
  Shape shape = gpt();
  shape.causal = shape.fusedQkv = false;
  shape.postNorm = shape.maskedHead = true;
  return shape;
}

Shape vit() {
  Shape shape = gpt();
  shape.task = Shape::Task::Image;
  shape.causal = shape.tied = shape.fusedQkv = false;
  shape.image = 224;
  shape.patch = 16;
  shape.classes = 1000;
  return shape;
}

Shape t5() {
  Shape shape = llama();
  shape.task = Shape::Task::Translation;
  shape.positions = Shape::Positions::Relative;
  shape.activation = Shape::Activation::Relu;
  shape.gated = false;
  shape.tied = true;
  return shape;
}

constexpr std::pair<const char *, Shape (*)()> kFamilies[] = {
    {"llama", llama}, {"gpt", gpt}, {"mixtral", mixtral}, {"bert", bert}, {"vit", vit}, {"t5", t5},
};

struct Entry {
  const char *name;
  Shape (*family)();
  int64_t layers, hidden, ffn, heads, kvHeads, vocabulary, headSize;
};

// LLaMA: Touvron et al. 2023 (arXiv 2302.13971, 2307.09288), with the vocabulary of published
// comparisons of heterogeneous training; Llama 3: arXiv 2407.21783; Mistral: 2310.06825; Mixtral:
// 2401.04088; Qwen2.5: 2412.15115; GPT-2: Radford et al. 2019; GPT-3: 2005.14165, table 2.1; BERT:
// 1810.04805; ViT: 2010.11929; T5: 1910.10683.
constexpr Entry kShapes[] = {
    {"llama-7b", llama, 32, 4096, 11008, 32, 32, 49152, 0},
    {"llama-13b", llama, 40, 5120, 13824, 40, 40, 49152, 0},
    {"llama-33b", llama, 60, 6656, 17920, 52, 52, 49152, 0},
    {"llama-65b", llama, 80, 8192, 22016, 64, 64, 49152, 0},
    {"llama-70b", llama, 80, 8192, 28672, 64, 8, 32000, 0},
    {"llama3-8b", llama, 32, 4096, 14336, 32, 8, 128256, 0},
    {"llama3-70b", llama, 80, 8192, 28672, 64, 8, 128256, 0},
    {"mistral-7b", llama, 32, 4096, 14336, 32, 8, 32000, 0},
    {"qwen2.5-7b", llama, 28, 3584, 18944, 28, 4, 152064, 0},
    {"mixtral-8x7b", mixtral, 32, 4096, 14336, 32, 8, 32000, 0},
    {"gpt2", gpt, 12, 768, 3072, 12, 12, 50257, 0},
    {"gpt2-medium", gpt, 24, 1024, 4096, 16, 16, 50257, 0},
    {"gpt2-large", gpt, 36, 1280, 5120, 20, 20, 50257, 0},
    {"gpt2-xl", gpt, 48, 1600, 6400, 25, 25, 50257, 0},
    {"gpt3-2.7b", gpt, 32, 2560, 10240, 32, 32, 50257, 0},
    {"gpt3-6.7b", gpt, 32, 4096, 16384, 32, 32, 50257, 0},
    {"gpt3-13b", gpt, 40, 5120, 20480, 40, 40, 50257, 0},
    {"gpt3-175b", gpt, 96, 12288, 49152, 96, 96, 50257, 0},
    {"bert-base", bert, 12, 768, 3072, 12, 12, 30522, 0},
    {"bert-large", bert, 24, 1024, 4096, 16, 16, 30522, 0},
    {"vit-base", vit, 12, 768, 3072, 12, 12, 0, 0},
    {"vit-large", vit, 24, 1024, 4096, 16, 16, 0, 0},
    {"t5-base", t5, 12, 768, 3072, 12, 12, 32128, 64},
    {"t5-large", t5, 24, 1024, 4096, 16, 16, 32128, 64},
    {"t5-3b", t5, 24, 1024, 16384, 32, 32, 32128, 128},
};

template <typename List> std::string namesOf(const List &list, const char *(*name)(size_t)) {
  std::string names;
  for (size_t i = 0; i < std::size(list); ++i)
    names += std::string(names.empty() ? "" : ", ") + name(i);
  return names;
}

} // namespace

std::optional<ModelShape> shapes::findModelShape(const std::string &name) {
  for (const Entry &e : kShapes)
    if (name == e.name) {
      ModelShape shape = e.family();
      shape.name = e.name;
      shape.layers = e.layers;
      shape.hidden = e.hidden;
      shape.ffn = e.ffn;
      shape.heads = e.heads;
      shape.kvHeads = e.kvHeads;
      shape.vocabulary = e.vocabulary;
      shape.headSize = e.headSize;
      shape.qkvBiases = name.rfind("qwen2", 0) == 0;
      return shape;
    }
  return std::nullopt;
}

std::string shapes::knownModelShapes() {
  return namesOf(kShapes, [](size_t i) { return kShapes[i].name; });
}

std::optional<ModelShape> shapes::findFamily(const std::string &name) {
  for (const auto &[known, family] : kFamilies)
    if (name == known) {
      ModelShape shape = family();
      shape.name = name;
      return shape;
    }
  return std::nullopt;
}

std::string shapes::knownFamilies() {
  return namesOf(kFamilies, [](size_t i) { return kFamilies[i].first; });
}
