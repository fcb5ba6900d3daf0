#include "LlamaWork.h"
#include "Planning/Costs/SummaryBuilder.h"

#include "zorse/Base/Apportion.h"
#include "zorse/Base/CommonBoundaries.h"
#include "zorse/Summary/FlatGroups.h"
#include "zorse/Summary/ParameterParts.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>
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
  explicit Builder(const LlamaShape &shape)
      : SummaryBuilder(shape.name, shape.computeType), shape(shape),
        size(static_cast<int64_t>(elementBytes(shape.computeType))), tokens(shape.sequence),
        state(tokens * shape.hidden * size),
        whole{ShapeClass::Embedding, shape.heads, shape.kvHeads, shape.ffn, shape.vocabulary} {}

  Status build(const std::vector<UnitGroup> &groups) {
    addModelUnits();
    for (const UnitGroup &group : groups)
      divideAxes(group);
    for (size_t g = 0; g < groups.size(); ++g)
      addGroup(groups, g);
    for (const UnitGroup &group : groups)
      for (uint32_t u : group.units) {
        out.mutable_units(static_cast<int>(u))->clear_parameters();
        out.mutable_units(static_cast<int>(u))->set_splits(false);
      }
    dropUnreadParameters(out, copies);
    describeTraining();
    markHiddenWeights();
    if (std::string problem = finish(double(shape.sequence)); !problem.empty())
      return userError(problem);
    const int last = out.units_size() - 1;
    for (int u = 0; u < last; ++u)
      addValue(u, state, {shape.sequence, shape.hidden}, true);
    for (bundle::DeviceGroup &group : *out.mutable_device_groups())
      connect(group);
    out.set_blocks_first_unit(1);
    out.set_blocks_period(2);
    out.set_blocks_count(uint32_t(shape.layers));
    addLlamaWork(shape, classes, out);
    return Status::success();
  }

  bundle::ModelSummary summary() { return std::move(out); }

private:
  /// The options that decide about optimizer states; all parameters have one rule where it can be.
  void describeTraining() {
    bundle::TrainingOptions &training = *out.mutable_training();
    training = shape.training;
    training.clear_weight_decay();
    training.clear_clip_norm();
    if (training.optimizer() == bundle::TrainingOptions::OPTIMIZER_UNSPECIFIED)
      training.set_optimizer(bundle::TrainingOptions::ADAMW);
  }

  /// Matrices of attention and MLPs, which Muon updates as a whole.
  void markHiddenWeights() {
    auto mark = [&](const bundle::UnitInfo &unit) {
      const ShapeClass::Kind kind = classes[unit.class_id()].kind;
      if (kind != ShapeClass::Attention && kind != ShapeClass::Mlp)
        return;
      for (uint32_t p : unit.parameters())
        if (bundle::ParameterInfo &info = *out.mutable_parameters(int(p)); info.shape_size() == 2) {
          info.mutable_hidden()->set_rows(info.shape(0));
          info.mutable_hidden()->set_columns(info.shape(1));
        }
    };
    for (const bundle::UnitInfo &unit : out.units())
      mark(unit);
    for (const bundle::DeviceGroup &group : out.device_groups())
      for (const bundle::DeviceGroup::Member &member : group.members())
        for (const bundle::UnitInfo &unit : member.units())
          mark(unit);
  }

  // ---- Units of the model.

  void addModelUnits() {
    addClassUnit("embedding", ShapeClass::Embedding);
    addIds("input_ids", "ids", 0);
    for (int64_t i = 0; i < shape.layers; ++i) {
      std::string block = "block " + std::to_string(i);
      addClassUnit(block + " attention", ShapeClass::Attention);
      addClassUnit(block + " mlp", ShapeClass::Mlp);
    }
    addClassUnit("head", ShapeClass::Head);
    addIds("labels", "labels", uint32_t(out.units_size() - 1));
  }

  void addClassUnit(const std::string &name, ShapeClass::Kind kind) {
    ShapeClass part = whole;
    part.kind = kind;
    if (kind == static_cast<int>(classes.size()))
      classes.push_back(part);
    addUnit(name, kind, workOf(part), parametersOf(kind), kind != ShapeClass::Embedding);
  }

  std::vector<Parameter> parametersOf(ShapeClass::Kind kind) const {
    const int64_t h = shape.hidden, kv = h / shape.heads * shape.kvHeads;
    switch (kind) {
    case ShapeClass::Embedding:
      return {{"embedding", {shape.vocabulary, h}}};
    case ShapeClass::Attention:
      return {{"norm", {h}}, {"q", {h, h}}, {"k", {h, kv}}, {"v", {h, kv}}, {"o", {h, h}}};
    case ShapeClass::Mlp:
      return {{"norm", {h}},
              {"gate", {h, shape.ffn}},
              {"up", {h, shape.ffn}},
              {"down", {shape.ffn, h}}};
    case ShapeClass::Head:
      break;
    }
    return {{"norm", {h}}, {"head", {h, shape.vocabulary}}};
  }

  /// Norms, residuals and boundary values are whole.
  Work workOf(const ShapeClass &part) const {
    const double s = double(tokens), h = double(shape.hidden), f = double(part.ffn),
                 v = double(part.vocabulary);
    const int64_t width = shape.hidden / shape.heads, local = width * part.heads,
                  kvWidth = width * part.kvHeads;
    const double q = double(local), kv = double(kvWidth);
    Work work;
    switch (part.kind) {
    case ShapeClass::Embedding:
      work.elementwise = 2 * double(state);
      break;
    case ShapeClass::Attention:
      work.weights = s * (4 * h * q + 4 * h * kv);
      work.forward = work.weights + 4 * s * s * q;
      work.last = 2 * s * h * q;
      work.elementwise = 4 * double(state) + 4 * double(tokens * local * size);
      work.saved = tokens * (2 * shape.hidden + 3 * local + 2 * kvWidth) * size;
      work.deferred = tokens * (local + 2 * kvWidth) * size;
      work.workspace.set_per_row(state + 2 * tokens * local * size);
      break;
    case ShapeClass::Mlp:
      work.weights = work.forward = s * 6 * h * f;
      work.last = work.forward / 3;
      work.elementwise = 6 * double(state) + 6 * double(tokens * part.ffn * size);
      work.saved = tokens * (2 * shape.hidden + 3 * part.ffn) * size;
      work.deferred = 2 * tokens * part.ffn * size;
      work.workspace.set_per_row(tokens * (shape.hidden + 2 * part.ffn) * size);
      break;
    case ShapeClass::Head:
      work.weights = work.forward = s * 2 * h * v;
      work.elementwise = 6 * s * v * double(size);
      work.saved = tokens * (part.vocabulary + shape.hidden) * size;
      work.deferred = tokens * part.vocabulary * size;
      work.workspace.set_per_row(2 * state);
      break;
    }
    return work;
  }

  void addIds(const char *name, const char *role, uint32_t unit) {
    bundle::GraphInput &input = addInput(name, role, {shape.sequence}, shape.sequence * 8, unit);
    input.set_upper_bound(shape.vocabulary);
  }

  // ---- Units of the devices of groups.

  using Exchange = bundle::UnitFunction::Exchange;

  enum Axis : uint8_t { KeyHeads, Columns, Vocabulary };
  /// Granules of every axis, by device of a group.
  using Division = std::array<std::vector<int64_t>, 3>;

  void divideAxes(const UnitGroup &group) {
    Division &division = divisions.emplace_back();
    division[KeyHeads] = apportion(shape.kvHeads, group.shares);
    division[Columns] = apportion(shape.ffn, group.shares);
    division[Vocabulary] = apportion(shape.vocabulary, group.shares);
  }

  void addGroup(const std::vector<UnitGroup> &groups, size_t g) {
    const UnitGroup &group = groups[g];
    bundle::DeviceGroup &made = *out.add_device_groups();
    made.set_name(group.name);
    made.mutable_units()->Add(group.units.begin(), group.units.end());
    std::map<std::vector<size_t>, std::vector<CommonBoundaries>> known; // by groups that divide
    std::vector<const std::vector<CommonBoundaries> *> boundaries;      // by unit of the group
    for (uint32_t u : group.units) {
      std::vector<size_t> dividers;
      for (size_t other = 0; other < groups.size(); ++other)
        if (std::binary_search(groups[other].units.begin(), groups[other].units.end(), u))
          dividers.push_back(other);
      std::vector<CommonBoundaries> &common = known[dividers];
      for (size_t axis = 0; axis < 3 && common.size() < 3; ++axis) {
        std::vector<std::vector<int64_t>> counts;
        for (size_t other : dividers)
          counts.push_back(divisions[other][axis]);
        common.emplace_back(counts);
      }
      boundaries.push_back(&common);
    }
    for (size_t m = 0; m < group.shares.size(); ++m)
      addMember(*made.add_members(), group, divisions[g], boundaries, m);
  }

  /// \param boundaries  by unit of the group and axis
  void addMember(bundle::DeviceGroup::Member &member, const UnitGroup &group,
                 const Division &division,
                 const std::vector<const std::vector<CommonBoundaries> *> &boundaries, size_t m) {
    std::array<GranuleRange, 3> shares;
    for (size_t axis = 0; axis < 3; ++axis)
      shares[axis] = {std::accumulate(division[axis].begin(),
                                      division[axis].begin() + static_cast<ptrdiff_t>(m),
                                      int64_t(0)),
                      division[axis][m]};
    for (uint32_t u : group.units) {
      bundle::UnitInfo &unit = *member.add_units();
      unit = out.units(static_cast<int>(u));
      const auto kind = static_cast<ShapeClass::Kind>(unit.class_id());
      unit.set_class_id(classOf(kind, shares, group.shares.size()));
      divideParameters(unit, kind, shares,
                       *boundaries[static_cast<size_t>(member.units_size()) - 1], m,
                       group.shares.size() == 1);
    }
  }

  /// Returns the class of a device's part, shared by groups with an equal number of devices.
  uint32_t classOf(ShapeClass::Kind kind, const std::array<GranuleRange, 3> &shares,
                   size_t devices) {
    const int64_t kvHeads = shares[KeyHeads].count, columns = shares[Columns].count,
                  vocabulary = shares[Vocabulary].count;
    auto [known, isNew] = partClasses.try_emplace({kind, kvHeads, columns, vocabulary, devices},
                                                  uint32_t(out.classes_size()));
    if (isNew) {
      classes.push_back(
          {kind, kvHeads * (shape.heads / shape.kvHeads), kvHeads, columns, vocabulary});
      addExchanges(
          addClass(out.classes(kind).name() + " part " + std::to_string(partClasses.size()),
                   workOf(classes.back()), kind != ShapeClass::Embedding),
          kind, devices);
    }
    return known->second;
  }

  /// Adds the sums of the hidden state and of its gradient, and the parts of the loss.
  void addExchanges(bundle::UnitClass &unitClass, ShapeClass::Kind kind, size_t devices) const {
    if (devices == 1)
      return;
    for (bundle::UnitFunction &function : *unitClass.mutable_functions()) {
      const bool forward = function.task() == bundle::UnitFunction::FORWARD,
                 inputs = function.task() == bundle::UnitFunction::BACKWARD ||
                          function.task() == bundle::UnitFunction::INPUT_GRADIENTS;
      if (kind == ShapeClass::Embedding || (!forward && !inputs))
        continue;
      Exchange &exchange = *function.add_exchanges();
      exchange.set_number(inputs);
      const bool loss = forward && kind == ShapeClass::Head;
      exchange.set_kind(loss ? Exchange::ALL_GATHER : Exchange::ALL_REDUCE);
      exchange.set_type(loss ? bundle::F32 : shape.computeType);
      for (size_t part = 0; part < (loss ? devices : 1); ++part)
        exchange.add_parts()->set_per_row(static_cast<int64_t>(
            alignRegion(static_cast<uint64_t>(loss ? tokens * 3 * 4 : state))));
    }
  }

  /// Replaces the parameters of a unit of a device by the device's parts of them. The first device
  /// computes the gradients of whole parameters.
  void divideParameters(bundle::UnitInfo &unit, ShapeClass::Kind kind,
                        const std::array<GranuleRange, 3> &shares,
                        const std::vector<CommonBoundaries> &boundaries, size_t m, bool alone) {
    for (int p = 0; p < unit.parameters_size(); ++p) {
      const bool down = kind == ShapeClass::Mlp && p == 3,
                 result = kind == ShapeClass::Attention && p == 4;
      if (kind == ShapeClass::Embedding || p == 0) {
        if (m > 0)
          unit.add_other_contributes(static_cast<uint32_t>(p));
        continue;
      }
      const bool heads = kind == ShapeClass::Attention, queries = heads && (p == 1 || result);
      const Axis axis = heads ? KeyHeads : kind == ShapeClass::Mlp ? Columns : Vocabulary;
      if (!boundaries[axis].areDifferent() && alone)
        continue;
      const int64_t width =
          heads ? shape.hidden / shape.heads * (queries ? shape.heads / shape.kvHeads : 1) : 1;
      ParameterDivision part{down || result ? 0u : 1u, {0}, {width}, shares[axis], shares[axis]};
      if (boundaries[axis].areDifferent()) {
        const auto [begin, end] =
            boundaries[axis].containing(part.share.first, part.share.first + part.share.count);
        part.stored = {begin, end - begin};
      }
      parts.divide(unit, static_cast<uint32_t>(p), part);
    }
  }

  /// Gives units of devices the values, inputs and losses of the units in place of which they are.
  void connect(bundle::DeviceGroup &group) {
    for (bundle::DeviceGroup::Member &member : *group.mutable_members())
      for (int i = 0; i < group.units_size(); ++i) {
        const bundle::UnitInfo &unit = out.units(static_cast<int>(group.units(i)));
        bundle::UnitInfo &own = *member.mutable_units(i);
        *own.mutable_values_in() = unit.values_in();
        *own.mutable_values_out() = unit.values_out();
        *own.mutable_loss_terms() = unit.loss_terms();
      }
  }

  const LlamaShape &shape;
  const int64_t size, tokens, state;
  const ShapeClass whole;
  std::vector<ShapeClass> classes; ///< of `out`
  /// Classes of devices of groups, by kind, granules of every axis and devices of the group.
  std::map<std::tuple<ShapeClass::Kind, int64_t, int64_t, int64_t, size_t>, uint32_t> partClasses;
  std::vector<Division> divisions; ///< by group
  ParameterParts parts{out, copies};
};

} // namespace

std::optional<LlamaShape> planning::findLlamaShape(const std::string &name) {
  for (const Entry &e : kShapes)
    if (name == e.name)
      return LlamaShape{e.name,    e.layers,     e.hidden, e.ffn,       e.heads,
                        e.kvHeads, e.vocabulary, 0,        bundle::BF16};
  return std::nullopt;
}

std::string planning::knownLlamaShapes() {
  std::string names;
  for (const Entry &e : kShapes)
    names += std::string(names.empty() ? "" : ", ") + e.name;
  return names;
}

Result<bundle::ModelSummary> planning::makeSummary(const LlamaShape &shape,
                                                   const std::vector<UnitGroup> &groups) {
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
  Builder builder(shape);
  if (Status status = builder.build(groups); status.failed())
    return status;
  return builder.summary();
}

Result<DividedModel> DivisibleLlama::divide(const std::vector<UnitGroup> &groups) {
  Result<bundle::ModelSummary> summary = makeSummary(shape, groups);
  if (summary.failed())
    return summary.error();
  return DividedModel{std::move(*summary), std::nullopt};
}
