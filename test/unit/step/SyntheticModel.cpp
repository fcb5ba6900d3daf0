#include "SyntheticModel.h"

#include "SummaryFunctions.h"

#include <algorithm>
#include <map>
#include <set>

using namespace zorse::bundle;

namespace {

class Builder {
public:
  explicit Builder(int units) {
    model.set_name("synthetic");
    model.set_content_hash("synthetic-" + std::to_string(units));
    model.set_compute_type(F32);
    for (int u = 0; u < units; ++u) {
      UnitInfo *unit = model.add_units();
      unit->set_name("unit " + std::to_string(u));
      unit->set_class_id(u);
      unit->set_rng_id_base(1000 * u);
      zorse::test::mutableClass(model, u).mutable_saved_bytes()->set_per_row(64 + 4 * u);
      function(u, UnitFunction::FORWARD, 2 * u, 1e6 * (1 + u % 3))->set_fixed(128);
      function(u, UnitFunction::BACKWARD, 2 * u + 1, 2e6 * (1 + u % 3))->set_per_row(32);
      function(u, UnitFunction::RECOMPUTE, 4 * units + 6 + u, 0.7e6 * (1 + u % 3))->set_fixed(192);
    }
    zorse::test::addUpdateRules(model, 2 * units, 2 * units + 1, /*states=*/2);
    model.set_norm_function(2 * units + 2);
    model.set_sum_loss_function(2 * units + 3);
    model.set_clip_and_check_function(2 * units + 4);
    model.set_count_function(-1);
  }

  /// Adds a function and returns its workspace, which the caller sets.
  AffineSize *function(int unit, UnitFunction::Task task, uint32_t function, double flops) {
    UnitFunction &added = zorse::test::addFunction(model, unit, task, flops);
    added.set_function(function);
    return added.mutable_workspace();
  }

  /// Adds a parameter to the group with the same users, or to a new group.
  void parameter(int64_t elements, std::vector<uint32_t> units, bool trainable = true,
                 bool decays = true) {
    uint32_t index = model.parameters_size();
    ParameterInfo *p = model.add_parameters();
    p->set_name("p" + std::to_string(index));
    p->add_shape(elements);
    p->set_type(F32);
    p->set_trainable(trainable);
    p->set_update_rule(trainable && decays ? 0 : 1);
    auto [it, fresh] = groupOf.emplace(std::pair(units, trainable), model.groups_size());
    if (fresh) {
      FlatGroupInfo *g = model.add_groups();
      g->set_name("g" + std::to_string(it->second));
      g->set_trainable(trainable);
      g->set_type(F32);
      for (uint32_t u : units)
        g->add_units(u);
    }
    p->set_group(it->second);
    for (uint32_t u : units)
      model.mutable_units(u)->add_parameters(index);
  }

  void layout() {
    for (int g = 0; g < model.groups_size(); ++g) {
      int64_t offset = 0;
      for (uint32_t rule : {0u, 1u})
        for (int p = 0; p < model.parameters_size(); ++p) {
          ParameterInfo *info = model.mutable_parameters(p);
          if (info->group() != static_cast<uint32_t>(g) || info->update_rule() != rule)
            continue;
          info->set_offset(offset);
          offset += (info->shape(0) + 127) / 128 * 128;
          model.mutable_groups(g)->add_parameters(p);
        }
      model.mutable_groups(g)->set_elements(offset);
    }
  }

  void value(int64_t bytesPerRow, uint32_t producer, std::vector<uint32_t> users,
             bool gradient = true) {
    uint32_t index = model.values_size();
    ValueInfo *v = model.add_values();
    v->set_name("v" + std::to_string(index));
    v->set_bytes_per_row(bytesPerRow);
    v->set_type(F32);
    v->set_producer(producer);
    v->set_needs_gradient(gradient);
    v->add_shape(bytesPerRow / 4);
    model.mutable_units(producer)->add_values_out(index);
    for (uint32_t u : users) {
      v->add_users(u);
      model.mutable_units(u)->add_values_in(index);
    }
  }

  void input(const std::string &name, int64_t bytesPerRow, std::vector<uint32_t> units) {
    uint32_t index = model.inputs_size();
    GraphInput *in = model.add_inputs();
    in->set_name(name);
    in->set_bytes_per_row(bytesPerRow);
    in->set_type(I64);
    in->add_shape(bytesPerRow / 8);
    for (uint32_t u : units) {
      in->add_units(u);
      model.mutable_units(u)->add_inputs(index);
    }
  }

  /// Splits the backward of units that have gradients of inputs and of parameters, except every
  /// fourth unit.
  void split() {
    for (int u = 0; u < model.units_size(); ++u) {
      UnitInfo *unit = model.mutable_units(u);
      auto any = [](const auto &list, auto what) {
        return std::any_of(list.begin(), list.end(), what);
      };
      if (u % 4 == 3 ||
          !any(unit->values_in(), [&](uint32_t v) { return model.values(v).needs_gradient(); }) ||
          !any(unit->parameters(), [&](uint32_t p) { return model.parameters(p).trainable(); }))
        continue;
      unit->set_splits(true);
      const double backward =
          zorse::test::mutableFunction(model, u, UnitFunction::BACKWARD).flops_per_row();
      zorse::test::mutableClass(model, u).mutable_saved_for_weight_grad_bytes()->set_per_row(
          u % 2 ? 64 + 8 * u : 0);
      function(u, UnitFunction::INPUT_GRADIENTS, 2 * model.units_size() + 5 + 2 * u, 0.6 * backward)
          ->set_per_row(24);
      function(u, UnitFunction::WEIGHT_GRADIENTS, 2 * model.units_size() + 6 + 2 * u,
               0.4 * backward)
          ->set_fixed(64 * u);
    }
  }

  ModelSummary model;
  std::map<std::pair<std::vector<uint32_t>, bool>, uint32_t> groupOf;
};

} // namespace

ModelSummary zorse::test::syntheticModel(int units) {
  Builder b(units);
  uint32_t last = units - 1;
  b.parameter(300, {0, last}); // tied
  for (uint32_t u = 0; u <= last; ++u) {
    b.parameter(130 + 64 * u, {u});
    b.parameter(20, {u}, true, false);
  }
  if (units > 3)
    b.parameter(50, {1, 3}, /*trainable=*/false);
  b.layout();
  for (uint32_t u = 0; u < last; ++u)
    b.value(64 + 16 * (u % 2), u, {u + 1});
  if (units >= 6) {
    b.value(48, 0, {2, 4, 5}); // skip with several users
    b.value(64, 1, {5});       // long skip, passed through units that do not use it
    b.value(32, 0, {3, 5}, /*gradient=*/false);
  }
  b.input("ids", 24, {0});
  b.input("labels", 40, {last});
  if (units > 3)
    b.input("mask", 64, {1, 3});
  for (int k = 0; k < 2; ++k) {
    LossTerm *term = b.model.add_loss();
    term->set_name("loss" + std::to_string(k));
    term->set_factor("1/B");
    b.model.mutable_units(last)->add_loss_terms(k);
  }
  b.split();
  return b.model;
}
