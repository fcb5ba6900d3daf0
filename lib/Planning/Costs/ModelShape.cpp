#include "ShapeWork.h"
#include "SummaryBuilder.h"

#include "zorse/Summary/Summary.h"

#include <vector>

using namespace zorse;
using namespace zorse::planning;

namespace {

struct Entry {
  const char *name;
  int64_t layers, hidden, ffn, heads, kvHeads, vocabulary;
};

// Touvron et al. 2023 (arXiv 2302.13971, 2307.09288); the vocabulary is that of published
// comparisons of heterogeneous training.
constexpr Entry kShapes[] = {
    {"llama-7b", 32, 4096, 11008, 32, 32, 49152},  {"llama-13b", 40, 5120, 13824, 40, 40, 49152},
    {"llama-33b", 60, 6656, 17920, 52, 52, 49152}, {"llama-65b", 80, 8192, 22016, 64, 64, 49152},
    {"llama-70b", 80, 8192, 28672, 64, 8, 32000},
};

constexpr int64_t kMaxLayers = 4096, kMaxWidth = int64_t(1) << 24, kMaxSequence = int64_t(1) << 24;

class Builder : SummaryBuilder {
public:
  explicit Builder(const ModelShape &shape)
      : SummaryBuilder(shape.name, shape.computeType, 2), shape(shape),
        size(static_cast<int64_t>(elementBytes(shape.computeType))) {}

  bundle::ModelSummary build() {
    const double s = double(shape.sequence), h = double(shape.hidden), f = double(shape.ffn),
                 v = double(shape.vocabulary);
    const double kv = h * double(shape.kvHeads) / double(shape.heads);
    const int64_t tokens = shape.sequence, state = tokens * shape.hidden * size;

    Work embedding;
    embedding.elementwise = 2 * double(state);
    addUnit("embedding", 0, embedding, {{"embedding", {shape.vocabulary, shape.hidden}, true}},
            false);
    addIds("input_ids", "ids", 0);

    const int64_t kvWidth = shape.hidden / shape.heads * shape.kvHeads;
    Work attention;
    attention.weights = s * (4 * h * h + 4 * h * kv);
    attention.forward = attention.weights + 4 * s * s * h;
    attention.last = 2 * s * h * h;
    attention.elementwise = 8 * double(state);
    attention.saved = tokens * (5 * shape.hidden + 2 * kvWidth) * size;
    attention.deferred = tokens * (shape.hidden + 2 * kvWidth) * size;
    attention.workspace.set_per_row(3 * state);
    Work mlp;
    mlp.weights = mlp.forward = s * 6 * h * f;
    mlp.last = mlp.forward / 3;
    mlp.elementwise = 6 * double(state) + 6 * double(tokens * shape.ffn * size);
    mlp.saved = tokens * (2 * shape.hidden + 3 * shape.ffn) * size;
    mlp.deferred = 2 * tokens * shape.ffn * size;
    mlp.workspace.set_per_row(tokens * (shape.hidden + 2 * shape.ffn) * size);
    for (int64_t i = 0; i < shape.layers; ++i) {
      std::string block = "block " + std::to_string(i);
      addUnit(block + " attention", 1, attention,
              {{"norm", {shape.hidden}, false},
               {"q", {shape.hidden, shape.hidden}, true},
               {"k", {shape.hidden, kvWidth}, true},
               {"v", {shape.hidden, kvWidth}, true},
               {"o", {shape.hidden, shape.hidden}, true}},
              true);
      addUnit(block + " mlp", 2, mlp,
              {{"norm", {shape.hidden}, false},
               {"gate", {shape.hidden, shape.ffn}, true},
               {"up", {shape.hidden, shape.ffn}, true},
               {"down", {shape.ffn, shape.hidden}, true}},
              true);
    }

    Work head;
    head.weights = head.forward = s * 2 * h * v;
    head.elementwise = 6 * s * v * double(size);
    head.saved = tokens * (shape.vocabulary + shape.hidden) * size;
    head.deferred = tokens * shape.vocabulary * size;
    head.workspace.set_per_row(2 * state);
    addUnit("head", 3, head,
            {{"norm", {shape.hidden}, false}, {"head", {shape.hidden, shape.vocabulary}, true}},
            true);
    const int last = out.units_size() - 1;
    addIds("labels", "labels", uint32_t(last));
    finish(s);
    for (int u = 0; u < last; ++u)
      addValue(u, state, {shape.sequence, shape.hidden}, true);
    out.set_blocks_first_unit(1);
    out.set_blocks_period(2);
    out.set_blocks_count(uint32_t(shape.layers));
    return std::move(out);
  }

private:
  void addIds(const char *name, const char *role, uint32_t unit) {
    bundle::GraphInput &input = addInput(name, role, {shape.sequence}, shape.sequence * 8, unit);
    input.set_upper_bound(shape.vocabulary);
  }

  const ModelShape &shape;
  const int64_t size;
};

} // namespace

std::optional<ModelShape> planning::findModelShape(const std::string &name) {
  for (const Entry &e : kShapes)
    if (name == e.name)
      return ModelShape{e.name,    e.layers,     e.hidden, e.ffn,       e.heads,
                        e.kvHeads, e.vocabulary, 0,        bundle::BF16};
  return std::nullopt;
}

std::string planning::knownModelShapes() {
  std::string names;
  for (const Entry &e : kShapes)
    names += std::string(names.empty() ? "" : ", ") + e.name;
  return names;
}

Result<bundle::ModelSummary> planning::makeSummary(const ModelShape &shape) {
  struct {
    const char *what;
    int64_t found, max;
  } const sizes[] = {{"layers", shape.layers, kMaxLayers},
                     {"hidden", shape.hidden, kMaxWidth},
                     {"ffn", shape.ffn, kMaxWidth},
                     {"heads", shape.heads, shape.hidden},
                     {"kv_heads", shape.kvHeads, shape.heads},
                     {"vocabulary", shape.vocabulary, kMaxWidth},
                     {"sequence", shape.sequence, kMaxSequence}};
  for (const auto &[what, found, max] : sizes)
    if (found < 1 || found > max)
      return userError("model '" + shape.name + "': " + what + " is " + std::to_string(found) +
                       ", expected 1 to " + std::to_string(max));
  if (shape.hidden % shape.heads || shape.heads % shape.kvHeads)
    return userError("model '" + shape.name + "': " + std::to_string(shape.heads) + " heads with " +
                     std::to_string(shape.kvHeads) +
                     " for keys and values do not divide a hidden size of " +
                     std::to_string(shape.hidden) +
                     ". Give heads that divide hidden, and kv_heads that divide heads");
  if (shape.computeType != bundle::BF16 && shape.computeType != bundle::F16 &&
      shape.computeType != bundle::F32)
    return userError("model '" + shape.name + "': expected bf16, f16 or f32");
  bundle::ModelSummary summary = Builder(shape).build();
  addShapeWork(shape, summary);
  return summary;
}
