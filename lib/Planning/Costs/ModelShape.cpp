#include "ShapeWork.h"

#include "zorse/Summary/Summary.h"

#include <vector>

using namespace zorse;
using namespace zorse::planning;

namespace {

struct Entry {
  const char *name;
  int64_t layers, hidden, ffn, heads, kvHeads, vocabulary;
};

// Touvron et al. 2023 (arXiv 2302.13971, 2307.09288); the vocabulary is that of the published comparisons of heterogeneous training.
constexpr Entry kShapes[] = {
    {"llama-7b", 32, 4096, 11008, 32, 32, 49152},  {"llama-13b", 40, 5120, 13824, 40, 40, 49152}, {"llama-33b", 60, 6656, 17920, 52, 52, 49152},
    {"llama-65b", 80, 8192, 22016, 64, 64, 49152}, {"llama-70b", 80, 8192, 28672, 64, 8, 32000},
};

constexpr int64_t kMostLayers = 4096, kMostWidth = int64_t(1) << 24, kMostSequence = int64_t(1) << 24;

/// Work of one unit per sample.
struct Work {
  double forward = 0, weights = 0; ///< FLOPs; of the forward, those of products with weights
  double elementwise = 0;          ///< bytes touched besides
  int64_t saved = 0, deferred = 0, workspace = 0;
};

class Builder {
public:
  explicit Builder(const ModelShape &shape) : shape(shape), size(static_cast<int64_t>(elementBytes(shape.computeType))) {
    out.set_name(shape.name);
    out.set_compute_type(shape.computeType);
    out.set_moments(2);
    out.set_denominator_body(-1);
  }

  bundle::ModelSummary build() {
    const double s = double(shape.sequence), h = double(shape.hidden), f = double(shape.ffn), v = double(shape.vocabulary);
    const double kv = h * double(shape.kvHeads) / double(shape.heads);
    const int64_t tokens = shape.sequence, state = tokens * shape.hidden * size;

    addInput("input_ids", "ids");
    Work embedding;
    embedding.elementwise = 2 * double(state);
    addUnit("embedding", 0, embedding, {{"embedding", {shape.vocabulary, shape.hidden}, true}});
    out.mutable_units(0)->add_inputs(0);
    out.mutable_inputs(0)->add_units(0);

    const int64_t kvWidth = shape.hidden / shape.heads * shape.kvHeads;
    Work attention;
    attention.weights = s * (4 * h * h + 4 * h * kv);
    attention.forward = attention.weights + 4 * s * s * h;
    attention.elementwise = 8 * double(state);
    attention.saved = tokens * (5 * shape.hidden + 2 * kvWidth) * size;
    attention.deferred = tokens * (shape.hidden + 2 * kvWidth) * size;
    attention.workspace = 3 * state;
    Work mlp;
    mlp.weights = mlp.forward = s * 6 * h * f;
    mlp.elementwise = 6 * double(state) + 6 * double(tokens * shape.ffn * size);
    mlp.saved = tokens * (2 * shape.hidden + 3 * shape.ffn) * size;
    mlp.deferred = 2 * tokens * shape.ffn * size;
    mlp.workspace = tokens * (shape.hidden + 2 * shape.ffn) * size;
    for (int64_t i = 0; i < shape.layers; ++i) {
      std::string block = "block " + std::to_string(i);
      addUnit(block + " attention", 1, attention,
              {{"norm", {shape.hidden}, false},
               {"q", {shape.hidden, shape.hidden}, true},
               {"k", {shape.hidden, kvWidth}, true},
               {"v", {shape.hidden, kvWidth}, true},
               {"o", {shape.hidden, shape.hidden}, true}});
      addUnit(block + " mlp", 2, mlp,
              {{"norm", {shape.hidden}, false},
               {"gate", {shape.hidden, shape.ffn}, true},
               {"up", {shape.hidden, shape.ffn}, true},
               {"down", {shape.ffn, shape.hidden}, true}});
    }

    Work head;
    head.weights = head.forward = s * 2 * h * v;
    head.elementwise = 6 * s * v * double(size);
    head.saved = tokens * (shape.vocabulary + shape.hidden) * size;
    head.deferred = tokens * shape.vocabulary * size;
    head.workspace = 2 * state;
    addUnit("head", 3, head, {{"norm", {shape.hidden}, false}, {"head", {shape.hidden, shape.vocabulary}, true}});
    const int last = out.units_size() - 1;
    addInput("labels", "labels");
    out.mutable_units(last)->add_inputs(1);
    out.mutable_inputs(1)->add_units(uint32_t(last));
    out.mutable_units(last)->add_loss_terms(0);
    auto *loss = out.add_loss();
    loss->set_name("loss");
    loss->set_coefficient(1);
    loss->set_constant_denominator(true);
    loss->set_denominator_per_row(s);

    for (int u = 0; u < last; ++u)
      addValue(u, state);
    const uint32_t bodies = uint32_t(4 * out.units_size());
    out.set_update_body_decay(bodies);
    out.set_update_body_plain(bodies + 1);
    out.set_norm_body(bodies + 2);
    out.set_sum_loss_body(bodies + 3);
    out.set_decide_body(bodies + 4);
    out.set_blocks_first_unit(1);
    out.set_blocks_period(2);
    out.set_blocks_count(uint32_t(shape.layers));
    return std::move(out);
  }

private:
  struct Parameter {
    const char *name;
    std::vector<int64_t> shape;
    bool decays;
  };

  void addInput(const char *name, const char *role) {
    auto *input = out.add_inputs();
    input->set_name(name);
    input->add_shape(shape.sequence);
    input->set_type(bundle::I64);
    input->set_bytes_per_row(shape.sequence * 8);
    input->set_role(role);
    input->set_upper_bound(shape.vocabulary);
  }

  void addUnit(const std::string &name, uint32_t classId, const Work &work, const std::vector<Parameter> &parameters) {
    const uint32_t index = uint32_t(out.units_size());
    auto *unit = out.add_units();
    unit->set_name(name);
    unit->set_class_id(classId);
    unit->set_forward_body(4 * index);
    unit->set_backward_body(4 * index + 1);
    unit->set_splits(index > 0); // the embedding has no gradient of inputs
    unit->set_input_gradient_body(4 * index + 2);
    unit->set_weight_gradient_body(4 * index + 3);
    auto perRow = [](bundle::Extent *extent, int64_t bytes) { extent->set_per_row(bytes); };
    perRow(unit->mutable_saved_bytes(), work.saved);
    perRow(unit->mutable_deferred_bytes(), work.deferred);
    perRow(unit->mutable_forward_workspace(), work.workspace);
    perRow(unit->mutable_backward_workspace(), work.workspace);
    perRow(unit->mutable_input_gradient_workspace(), work.workspace);
    perRow(unit->mutable_weight_gradient_workspace(), 0);
    unit->set_forward_flops_per_row(work.forward);
    unit->set_backward_flops_per_row(2 * work.forward);
    unit->set_input_gradient_flops_per_row(index == 0 ? 0 : 2 * work.forward - work.weights);
    unit->set_weight_gradient_flops_per_row(work.weights);
    unit->set_forward_bytes_per_row(work.elementwise);
    unit->set_backward_bytes_per_row(2 * work.elementwise);
    unit->set_input_gradient_bytes_per_row(index == 0 ? 0 : 2 * work.elementwise);
    unit->set_weight_gradient_bytes_per_row(index == 0 ? 2 * work.elementwise : 0);

    // One state group per unit: decaying parameters first, each on a multiple of 512 bytes.
    auto *group = out.add_groups();
    group->set_name(name);
    group->set_trainable(true);
    group->set_type(bundle::F32);
    if (isHalf(shape.computeType))
      group->set_copy_type(shape.computeType);
    group->add_units(index);
    int64_t offset = 0;
    for (bool decays : {true, false}) {
      for (const Parameter &p : parameters) {
        if (p.decays != decays)
          continue;
        auto *parameter = out.add_parameters();
        parameter->set_name(name + "." + p.name);
        int64_t elements = 1;
        for (int64_t dim : p.shape) {
          parameter->add_shape(dim);
          elements *= dim;
        }
        parameter->set_type(bundle::F32);
        parameter->set_group(index);
        parameter->set_offset(offset);
        parameter->set_trainable(true);
        parameter->set_decays(decays);
        const uint32_t number = uint32_t(out.parameters_size() - 1);
        group->add_parameters(number);
        unit->add_parameters(number);
        offset += (elements + 127) / 128 * 128;
      }
      if (decays)
        group->set_decaying_elements(offset);
    }
    group->set_elements(offset);
  }

  /// From unit u to unit u + 1.
  void addValue(int u, int64_t bytes) {
    auto *value = out.add_values();
    const uint32_t number = uint32_t(out.values_size() - 1);
    value->set_name("hidden." + std::to_string(u));
    value->set_bytes_per_row(bytes);
    value->set_type(shape.computeType);
    value->set_producer(uint32_t(u));
    value->add_users(uint32_t(u) + 1);
    value->set_needs_gradient(true);
    value->add_shape(shape.sequence);
    value->add_shape(shape.hidden);
    out.mutable_units(u)->add_values_out(number);
    out.mutable_units(u + 1)->add_values_in(number);
  }

  const ModelShape &shape;
  const int64_t size;
  bundle::ModelSummary out;
};

} // namespace

std::optional<ModelShape> planning::findModelShape(const std::string &name) {
  for (const Entry &e : kShapes)
    if (name == e.name)
      return ModelShape{e.name, e.layers, e.hidden, e.ffn, e.heads, e.kvHeads, e.vocabulary, 0, bundle::BF16};
  return std::nullopt;
}

std::string planning::knownModelShapes() {
  std::string names;
  for (const Entry &e : kShapes)
    names += std::string(names.empty() ? "" : ", ") + e.name;
  return names;
}

std::optional<bundle::ModelSummary> planning::makeSummary(const ModelShape &shape, std::string &error) {
  auto within = [&](const char *what, int64_t found, int64_t most) {
    if (found >= 1 && found <= most)
      return true;
    error = "model '" + shape.name + "': " + what + " is " + std::to_string(found) + ", expected 1 to " + std::to_string(most);
    return false;
  };
  if (!within("layers", shape.layers, kMostLayers) || !within("hidden", shape.hidden, kMostWidth) || !within("ffn", shape.ffn, kMostWidth) ||
      !within("heads", shape.heads, shape.hidden) || !within("kv_heads", shape.kvHeads, shape.heads) ||
      !within("vocabulary", shape.vocabulary, kMostWidth) || !within("sequence", shape.sequence, kMostSequence))
    return std::nullopt;
  if (shape.hidden % shape.heads || shape.heads % shape.kvHeads) {
    error = "model '" + shape.name + "': " + std::to_string(shape.heads) + " heads with " + std::to_string(shape.kvHeads) +
            " for keys and values do not divide a hidden size of " + std::to_string(shape.hidden) +
            ". Give heads that divide hidden, and kv_heads that divide heads";
    return std::nullopt;
  }
  if (shape.computeType != bundle::BF16 && shape.computeType != bundle::F16 && shape.computeType != bundle::F32) {
    error = "model '" + shape.name + "': expected bf16, f16 or f32";
    return std::nullopt;
  }
  bundle::ModelSummary summary = Builder(shape).build();
  addShapeWork(shape, summary);
  return summary;
}
