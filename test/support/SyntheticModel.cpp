#include "SyntheticModel.h"

#include "SummaryFunctions.h"

#include "zorse/Summary/Summary.h"

#include <map>
#include <random>

using namespace zorse;
using namespace zorse::test;

namespace {

struct Maker {
  const SyntheticOptions &options;
  SyntheticModel model;
  std::mt19937 random;

  explicit Maker(const SyntheticOptions &options) : options(options), random(options.seed) {}

  uint32_t parameter(const std::string &name, int64_t elements, bool trainable, bool decays) {
    auto *p = model.summary.add_parameters();
    p->set_name(name);
    if (options.block && trainable)
      elements = (elements + options.block - 1) / options.block * options.block;
    p->add_shape(elements);
    p->set_type(bundle::F32);
    p->set_trainable(trainable);
    p->set_update_rule(decays ? 0 : 1);
    return uint32_t(model.summary.parameters_size() - 1);
  }

  uint32_t value(const std::string &name, uint32_t producer, int64_t bytes) {
    auto *v = model.summary.add_values();
    v->set_name(name);
    v->set_bytes_per_row(bytes);
    v->set_type(bundle::F32);
    v->set_producer(producer);
    v->set_needs_gradient(true);
    return uint32_t(model.summary.values_size() - 1);
  }

  uint32_t input(const std::string &name, int64_t bytes) {
    auto *i = model.summary.add_inputs();
    i->set_name(name);
    i->set_type(bundle::I64);
    i->set_bytes_per_row(bytes);
    return uint32_t(model.summary.inputs_size() - 1);
  }

  /// Forms groups of parameters with equal users and trainability. Parameters with weight decay
  /// come first; each begins at a multiple of 512 bytes.
  void group() {
    auto &summary = model.summary;
    std::map<std::vector<uint32_t>, std::vector<uint32_t>> byUsers;
    std::vector<std::vector<uint32_t>> users(summary.parameters_size());
    for (int u = 0; u < summary.units_size(); ++u)
      for (uint32_t p : summary.units(u).parameters())
        users[p].push_back(uint32_t(u));
    for (int p = 0; p < summary.parameters_size(); ++p) {
      auto key = users[p];
      key.push_back(summary.parameters(p).trainable() ? 1000000 : 1000001);
      byUsers[key].push_back(uint32_t(p));
    }
    for (auto &[key, list] : byUsers) {
      auto *g = summary.add_groups();
      uint32_t index = uint32_t(summary.groups_size() - 1);
      g->set_name("group" + std::to_string(index));
      g->set_type(bundle::F32);
      g->set_trainable(key.back() == 1000000);
      if (options.copies && g->trainable() && index % 3 != 1)
        g->set_param_dtype(bundle::BF16);
      for (size_t i = 0; i + 1 < key.size(); ++i)
        g->add_units(key[i]);
      int64_t next = 0;
      for (uint32_t rule : {0u, 1u})
        for (uint32_t p : list)
          if (summary.parameters(int(p)).update_rule() == rule) {
            auto *parameter = summary.mutable_parameters(int(p));
            parameter->set_group(index);
            parameter->set_offset(next);
            g->add_parameters(p);
            next += (parameter->shape(0) + 127) / 128 * 128;
          }
      g->set_elements(next);
    }
  }

  bundle::FunctionArgument *argument(bundle::CompiledFunction *function, bundle::ArgumentKind kind,
                                     uint32_t index, bundle::AccessMode mode, int64_t fixed,
                                     int64_t perRow, const std::string &name) {
    auto *s = function->add_arguments();
    s->set_kind(kind);
    s->set_index(index);
    s->set_mode(mode);
    s->mutable_bytes()->set_fixed(fixed);
    s->mutable_bytes()->set_per_row(perRow);
    s->set_type(bundle::F32);
    s->set_name(name);
    return s;
  }

  void unitFunctions(int u) {
    auto &summary = model.summary;
    auto *unit = summary.mutable_units(u);
    bool keepsInput = random() % 3 != 0, backwardReadsInputs = random() % 3 != 0;
    const uint32_t draw = uint32_t(u) + options.seed;
    bool inputs = false, weights = false;
    for (uint32_t v : unit->values_in())
      inputs = inputs || summary.values(int(v)).needs_gradient();
    for (uint32_t p : unit->parameters())
      weights = weights || summary.parameters(int(p)).trainable();
    unit->set_splits(options.splits && inputs && weights && draw % 5 != 0);
    using Function = bundle::UnitFunction;
    auto &unitClass = mutableClass(summary, u);
    const int64_t saved = unitClass.saved_bytes().per_row();
    const double forwardFlops = mutableFunction(summary, u, Function::FORWARD).flops_per_row();
    const double backwardFlops = mutableFunction(summary, u, Function::BACKWARD).flops_per_row();
    if (unit->splits()) {
      unitClass.mutable_saved_for_weight_grad_bytes()->set_per_row(draw % 4 ? 64 * (1 + draw % 2)
                                                                            : 0);
      addFunction(summary, u, Function::INPUT_GRADIENTS, backwardFlops * 0.6)
          .mutable_workspace()
          ->set_per_row(draw % 3 ? 64 : 0);
      addFunction(summary, u, Function::WEIGHT_GRADIENTS, backwardFlops * 0.4)
          .mutable_workspace()
          ->set_per_row(draw % 7 ? 128 : 0);
    }
    if (saved)
      addFunction(summary, u, Function::RECOMPUTE, forwardFlops * 0.7)
          .mutable_workspace()
          ->set_per_row(draw % 5 ? 64 : 0);
    unitClass.set_name(unit->name());
    for (Function::Task task : {Function::FORWARD, Function::BACKWARD, Function::RECOMPUTE,
                                Function::INPUT_GRADIENTS, Function::WEIGHT_GRADIENTS}) {
      if (!findFunction(unitClass, task))
        continue;
      const bool forward = task == Function::FORWARD || task == Function::RECOMPUTE;
      const bool part = task == Function::INPUT_GRADIENTS || task == Function::WEIGHT_GRADIENTS;
      auto *body = model.functions.add_functions();
      uint32_t index = uint32_t(model.functions.functions_size() - 1);
      body->set_name(functionName(unitClass, task));
      auto &function = mutableFunction(summary, u, task);
      function.set_function(index);
      for (int i = 0; i < unit->parameters_size(); ++i) {
        const auto &p = summary.parameters(int(unit->parameters(i)));
        const bool copy = summary.groups(int(p.group())).param_dtype() !=
                          bundle::ELEMENT_TYPE_UNSPECIFIED;
        if (task == Function::RECOMPUTE && i > 0 && i + 1 == unit->parameters_size() && draw % 2)
          continue; // a matmul that only results need
        argument(body, bundle::PARAMETER, uint32_t(i), bundle::READ, p.shape(0) * (copy ? 2 : 4), 0,
                 p.name());
        if (!forward && task != Function::INPUT_GRADIENTS && p.trainable())
          argument(body, bundle::PARAMETER_GRADIENT, uint32_t(i), bundle::ACCUMULATE,
                   p.shape(0) * 4, 0, "d_" + p.name());
      }
      if (forward || backwardReadsInputs)
        for (int i = 0; i < unit->inputs_size(); ++i)
          argument(body, bundle::INPUT, uint32_t(i), bundle::READ, 0,
                   summary.inputs(int(unit->inputs(i))).bytes_per_row(),
                   summary.inputs(int(unit->inputs(i))).name());
      for (int i = 0; i < unit->values_in_size(); ++i) {
        const auto &v = summary.values(int(unit->values_in(i)));
        if (forward || keepsInput)
          argument(body, bundle::BOUNDARY_IN, uint32_t(i), bundle::READ, 0, v.bytes_per_row(),
                   v.name());
        if (!forward && task != Function::WEIGHT_GRADIENTS && v.needs_gradient())
          argument(body, bundle::BOUNDARY_IN_GRADIENT, uint32_t(i), bundle::ACCUMULATE, 0,
                   v.bytes_per_row(), "d_" + v.name());
      }
      for (int i = 0; i < unit->values_out_size() && task != Function::RECOMPUTE; ++i) {
        const auto &v = summary.values(int(unit->values_out(i)));
        if (forward || v.needs_gradient())
          argument(body, forward ? bundle::BOUNDARY_OUT : bundle::BOUNDARY_OUT_GRADIENT,
                   uint32_t(i), forward ? bundle::WRITE : bundle::READ, 0, v.bytes_per_row(),
                   v.name());
      }
      if (saved)
        argument(body, bundle::SAVED, 0, forward ? bundle::WRITE : bundle::READ, 0, saved, "saved");
      if (const int64_t deferred = unitClass.saved_for_weight_grad_bytes().per_row();
          part && deferred)
        argument(body, bundle::SAVED_FOR_WEIGHT_GRAD, 0,
                 task == Function::INPUT_GRADIENTS ? bundle::WRITE : bundle::READ, 0, deferred,
                 "deferred");
      if (function.workspace().per_row())
        argument(body, bundle::WORKSPACE, 0, bundle::WRITE, 0, function.workspace().per_row(),
                 "workspace");
      argument(body, bundle::SCALARS, 0, bundle::READ, kScalarsBytes, 0, "scalars");
      if (task == Function::FORWARD)
        for (int i = 0; i < unit->loss_terms_size(); ++i)
          argument(body, bundle::LOSS, uint32_t(i), bundle::WRITE, 0, 4, "loss");
    }
  }

  /// Functions for f32 sums of terms that are rounded to bf16.
  void addRoundedSums() {
    auto add = [&](uint32_t terms, bundle::ElementType type, bundle::ElementType term,
                   bool continues) {
      auto *sum = model.functions.add_functions();
      sum->set_name("rounded_sum");
      for (uint32_t i = 0; i <= terms; ++i) {
        const bool isSum = i == terms;
        const bundle::ElementType own = isSum || (i == 0 && continues) ? type : term;
        argument(sum, isSum ? bundle::SUM : bundle::CONTRIBUTION, isSum ? 0 : i,
                 isSum ? bundle::WRITE : bundle::READ, 0, own == bundle::F32 ? 4 : 2,
                 isSum ? "sum" : "part");
        sum->mutable_arguments(int(i))->set_type(own);
      }
      auto *known = model.summary.add_sums();
      known->set_type(type);
      known->set_num_contributions(terms);
      known->set_function(uint32_t(model.functions.functions_size() - 1));
      known->set_term_type(term);
      known->set_continues(continues);
    };
    add(1, bundle::BF16, bundle::F32, false);
    for (bool continues : {false, true})
      for (uint32_t terms = 2; terms <= options.sumTerms; ++terms)
        add(terms, bundle::F32, bundle::BF16, continues);
  }
  void stateFunctions() {
    auto &summary = model.summary;
    for (bool decay : {true, false}) {
      auto *function = model.functions.add_functions();
      function->set_name(decay ? "update_decay" : "update_plain");
      for (int s = 0; s < 2 + options.moments; ++s)
        argument(function, bundle::STATE, uint32_t(s), s == 1 ? bundle::READ : bundle::UPDATE, 0,
                 4 * (options.block && (s < 2 || s % 2) ? options.block : 1),
                 s == 0   ? "parameters"
                 : s == 1 ? "gradients"
                          : "moments");
      argument(function, bundle::SCALARS, 0, bundle::READ, kScalarsBytes, 0, "scalars");
      argument(function, bundle::OPTIMIZER_STEP, 0, bundle::READ, 8, 0, "step");
    }
    const auto functions = uint32_t(model.functions.functions_size());
    addUpdateRules(summary, functions - 2, functions - 1, uint32_t(options.moments), options.block);
    auto *norm = model.functions.add_functions();
    norm->set_name("norm");
    argument(norm, bundle::STATE, 1, bundle::READ, 0, 4, "gradients");
    argument(norm, bundle::LOCAL_METRICS, 0, bundle::ACCUMULATE, 128, 0, "sums");
    summary.set_norm_function(model.functions.functions_size() - 1);
    auto *loss = model.functions.add_functions();
    loss->set_name("sum_loss");
    for (int k = 0; k < options.lossTerms; ++k)
      argument(loss, bundle::LOSS, uint32_t(k), bundle::READ, 0, 4, "loss");
    argument(loss, bundle::LOCAL_METRICS, 0, bundle::ACCUMULATE, 128, 0, "sums");
    summary.set_sum_loss_function(model.functions.functions_size() - 1);
    auto *decide = model.functions.add_functions();
    decide->set_name("decide");
    argument(decide, bundle::LOCAL_METRICS, 0, bundle::READ, 128, 0, "sums");
    argument(decide, bundle::SCALARS, 0, bundle::UPDATE, kScalarsBytes, 0, "scalars");
    argument(decide, bundle::OPTIMIZER_STEP, 0, bundle::UPDATE, options.scales ? 32 : 8, 0, "step");
    summary.set_clip_and_check_function(model.functions.functions_size() - 1);
    if (options.scales) {
      auto *scale = model.functions.add_functions();
      scale->set_name("scale_seeds");
      argument(scale, bundle::SCALARS, 0, bundle::UPDATE, kScalarsBytes, 0, "scalars");
      argument(scale, bundle::OPTIMIZER_STEP, 0, bundle::READ, 32, 0, "step");
      summary.set_scale_loss_gradient_function(model.functions.functions_size() - 1);
      summary.mutable_training()->set_loss_scale(1024);
      summary.mutable_training()->set_loss_scale_interval(2000);
    }
    for (auto [type, size] : {std::pair(bundle::F32, 4), std::pair(bundle::F64, 8)})
      for (uint32_t terms = 2; terms <= options.sumTerms; ++terms) {
        auto *sum = model.functions.add_functions();
        sum->set_name("sum");
        for (uint32_t term = 0; term < terms; ++term)
          argument(sum, bundle::CONTRIBUTION, term, bundle::READ, 0, size, "part");
        argument(sum, bundle::SUM, 0, bundle::WRITE, 0, size, "sum");
        for (auto &made : *sum->mutable_arguments())
          made.set_type(type);
        auto *known = summary.add_sums();
        known->set_type(type);
        known->set_num_contributions(terms);
        known->set_function(uint32_t(model.functions.functions_size() - 1));
      }
    if (options.sumTerms >= 2)
      addRoundedSums();
    if (!options.copies)
      return;
    auto *cast = model.functions.add_functions();
    cast->set_name("cast");
    argument(cast, bundle::STATE, 0, bundle::READ, 0, 4, "parameters");
    argument(cast, bundle::PARAMETER, 0, bundle::WRITE, 0, 2, "copy");
    summary.set_cast_function(model.functions.functions_size() - 1);
  }

  /// Adds irregularities of real models to the chain.
  void vary() {
    auto &summary = model.summary;
    auto pick = [&](int begin, int end) { return begin + int(random() % uint32_t(end - begin)); };
    for (int u = 0; u < options.units; ++u) {
      auto *unit = summary.mutable_units(u);
      if (random() % 4 == 0)
        mutableClass(summary, u).mutable_saved_bytes()->set_per_row(0);
      for (auto task : {bundle::UnitFunction::FORWARD, bundle::UnitFunction::BACKWARD})
        if (random() % 4 == 0)
          mutableFunction(summary, u, task).mutable_workspace()->set_per_row(0);
      if (u > 0 && u + 1 < options.units && random() % 4 == 0)
        unit->clear_parameters();
      if (u > 0 && u + 1 < options.units && random() % 4 == 0)
        unit->add_inputs(uint32_t(random() % uint32_t(summary.inputs_size())));
    }
    // Values with arbitrary users after their producer.
    for (int extra = pick(0, 3); extra > 0 && options.units > 2; --extra) {
      const int producer = pick(0, options.units - 1);
      uint32_t v = value("x" + std::to_string(extra), uint32_t(producer), 64 * (1 + random() % 2));
      summary.mutable_values(int(v))->set_needs_gradient(random() % 2);
      summary.mutable_units(producer)->add_values_out(v);
      const int last = pick(producer + 1, options.units);
      for (int u = producer + 1; u <= last; ++u)
        if (u == last || random() % 2)
          summary.mutable_units(u)->add_values_in(v);
    }
    for (int extra = pick(0, 3); extra > 0; --extra) { // parameters used by arbitrary units
      uint32_t p = parameter("shared" + std::to_string(extra), 16 * pick(1, 20), random() % 4 != 0,
                             random() % 2);
      for (int u = 0; u < options.units; ++u)
        if (u == int(p) % options.units || random() % 3 == 0)
          summary.mutable_units(u)->add_parameters(p);
    }
    for (int p = 0; p < summary.parameters_size(); ++p) { // parameters that are no longer used
      bool used = false;
      for (const auto &unit : summary.units())
        for (uint32_t q : unit.parameters())
          used = used || q == uint32_t(p);
      if (!used)
        summary.mutable_units(0)->add_parameters(uint32_t(p));
    }
  }

  SyntheticModel make() {
    auto &summary = model.summary;
    summary.set_name("synthetic");
    summary.set_compute_type(bundle::F32);
    summary.set_count_function(-1);
    summary.mutable_training()->set_optimizer(options.moments == 2 ? bundle::TrainingOptions::ADAMW
                                                                   : bundle::TrainingOptions::SGD);
    summary.mutable_training()->set_clip_norm(options.clipNorm);
    uint32_t ids = input("ids", 64), labels = input("labels", 64);
    uint32_t table = parameter("table", 96 + 32 * (random() % 3), true, true);
    uint32_t frozen = options.frozen && options.units > 2 ? parameter("rotary", 32, false, false)
                                                          : 0;
    uint32_t first = 0;
    for (int u = 0; u < options.units; ++u) {
      auto *unit = summary.add_units();
      bool last = u == options.units - 1;
      unit->set_name("unit" + std::to_string(u));
      unit->set_class_id(uint32_t(u));
      unit->set_rng_id_base(uint64_t(u) * 3);
      mutableClass(summary, u).mutable_saved_bytes()->set_per_row(64 * (1 + random() % 3));
      // Repeated messages stay where they are.
      auto &forward = mutableFunction(summary, u, bundle::UnitFunction::FORWARD);
      auto &backward = mutableFunction(summary, u, bundle::UnitFunction::BACKWARD);
      forward.mutable_workspace()->set_per_row(64);
      backward.mutable_workspace()->set_per_row(64 * (1 + random() % 2));
      forward.set_flops_per_row(1000 + random() % 1000);
      backward.set_flops_per_row(2000 + random() % 2000);
      if (u == 0) {
        unit->add_parameters(table);
        unit->add_inputs(ids);
      }
      unit->add_parameters(parameter("w" + std::to_string(u), 32 * (1 + random() % 6), true, true));
      unit->add_parameters(
          parameter("b" + std::to_string(u), 16 * (1 + random() % 3), true, false));
      if (last) {
        if (options.tied)
          unit->add_parameters(table);
        unit->add_inputs(labels);
        for (int k = 0; k < options.lossTerms; ++k)
          unit->add_loss_terms(uint32_t(k));
      } else if (u > 0 && options.frozen) {
        unit->add_parameters(frozen);
      }
      if (u > 0) {
        unit->add_values_in(uint32_t(summary.values_size() - 1));
        if (options.skip && u > 1 && u % 2 == 0)
          unit->add_values_in(first);
      }
      if (!last) {
        uint32_t made = value("h" + std::to_string(u), uint32_t(u), 64 * (1 + random() % 2));
        if (u == 0)
          first = made;
        unit->add_values_out(made);
      }
    }
    if (options.irregular)
      vary();
    for (int u = 0; u < options.units; ++u) {
      for (uint32_t v : summary.units(u).values_in())
        summary.mutable_values(int(v))->add_users(uint32_t(u));
      for (uint32_t i : summary.units(u).inputs())
        summary.mutable_inputs(int(i))->add_units(uint32_t(u));
    }
    for (int k = 0; k < options.lossTerms; ++k) {
      auto *term = summary.add_loss();
      term->set_factor("1/B");
    }
    group();
    for (int u = 0; u < options.units; ++u)
      unitFunctions(u);
    stateFunctions();
    summary.set_content_hash("synthetic");
    return std::move(model);
  }
};

} // namespace

SyntheticModel test::makeModel(const SyntheticOptions &options) { return Maker(options).make(); }
