#include "ToyExchange.h"

#include "SummaryFunctions.h"

#include "zorse/Summary/Summary.h"

using namespace zorse;
using namespace zorse::test;
using bundle::UnitFunction;

namespace {

class Maker {
public:
  Maker(ToyExchange &toy, bool exchanges)
      : summary(toy.summary), functions(toy.functions), exchanges(exchanges) {}

  void run() {
    summary.set_name("toy");
    summary.set_content_hash("toy");
    summary.set_compute_type(bundle::F32);
    summary.set_count_function(-1);
    functions.set_arch("x86-64");
    functions.add_objects("toy.so");
    for (const char *name : {"scale", "pair", "pair again", "loss"})
      summary.add_units()->set_name(name);
    auto *input = summary.add_inputs();
    input->set_name("x");
    input->add_shape(ToyExchange::kWidth);
    input->set_type(bundle::F32);
    input->set_bytes_per_row(ToyExchange::kRow);
    input->add_units(0);
    summary.mutable_units(0)->add_inputs(0);
    summary.add_loss()->set_factor("1/B");
    summary.mutable_units(3)->add_loss_terms(0);
    addParameter("a", 0);
    addParameter("w", 3);
    addValues();
    addUnits();
    addState();
    summary.mutable_training()->set_optimizer(bundle::TrainingOptions::SGD);
    summary.mutable_training()->set_learning_rate(0.125);
    summary.mutable_training()->set_schedule(bundle::TrainingOptions::CONSTANT);
  }

private:
  void addParameter(const char *name, uint32_t unit) {
    constexpr int64_t kPadded = 128; // elements of 512 bytes
    const auto index = uint32_t(summary.parameters_size());
    auto *parameter = summary.add_parameters();
    parameter->set_name(name);
    parameter->add_shape(ToyExchange::kWidth);
    parameter->set_type(bundle::F32);
    parameter->set_group(index);
    parameter->set_trainable(true);
    auto *group = summary.add_groups();
    group->set_name(name);
    group->set_type(bundle::F32);
    group->set_trainable(true);
    group->set_elements(kPadded);
    group->add_parameters(index);
    group->add_units(unit);
    summary.mutable_units(int(unit))->add_parameters(index);
  }

  uint32_t addValue(const std::string &name, uint32_t producer) {
    auto *value = summary.add_values();
    value->set_name(name);
    value->set_bytes_per_row(ToyExchange::kRow);
    value->set_type(bundle::F32);
    value->set_producer(producer);
    const auto index = uint32_t(summary.values_size() - 1);
    summary.mutable_units(int(producer))->add_values_out(index);
    return index;
  }

  void addValues() {
    for (uint32_t u = 0; u < 3; ++u) {
      const uint32_t index = addValue("h" + std::to_string(u), u);
      summary.mutable_values(int(index))->add_users(u + 1);
      summary.mutable_values(int(index))->set_needs_gradient(true);
      summary.mutable_units(int(u + 1))->add_values_in(index);
    }
    for (uint32_t u : ToyExchange::kPairs)
      for (const char *name : {"squares", "terms", "sum"})
        if (exchanges)
          addValue(name + std::to_string(u), u);
  }

  // ---- Functions.

  bundle::CompiledFunction *addFunction(const char *name) {
    functions.add_functions()->set_name(name);
    return functions.mutable_functions(functions.functions_size() - 1);
  }
  uint32_t latest() const { return uint32_t(functions.functions_size() - 1); }

  static void argument(bundle::CompiledFunction *function, bundle::ArgumentKind kind,
                       uint32_t index, bundle::AccessMode mode, int64_t fixed, int64_t perRow) {
    auto *argument = function->add_arguments();
    argument->set_kind(kind);
    argument->set_index(index);
    argument->set_mode(mode);
    argument->mutable_bytes()->set_fixed(fixed);
    argument->mutable_bytes()->set_per_row(perRow);
    argument->set_type(bundle::F32);
    argument->set_name(bundle::ArgumentKind_Name(kind) + std::to_string(index));
  }
  static void rows(bundle::CompiledFunction *function, bundle::ArgumentKind kind, uint32_t index,
                   bundle::AccessMode mode) {
    argument(function, kind, index, mode, 0, ToyExchange::kRow);
  }

  /// \param perColumn  a point is one of the 16 columns, else a row. \param accumulated  operand
  /// that may be added to; -1: none
  static void kernel(bundle::CompiledFunction *function, const char *symbol,
                     const std::vector<uint32_t> &operands, bool perColumn = false,
                     int accumulated = -1) {
    auto *launch = function->add_launches()->mutable_kernel();
    launch->set_symbol(symbol);
    for (uint32_t argument : operands)
      launch->add_operands()->set_argument(argument);
    launch->mutable_iterations()->set_fixed(perColumn ? ToyExchange::kWidth : 0);
    launch->mutable_iterations()->set_per_row(!perColumn);
    if (accumulated >= 0)
      launch->add_accumulates(uint32_t(accumulated));
  }
  static void library(bundle::CompiledFunction *function, const char *name) {
    auto *call = function->add_launches()->mutable_library();
    call->set_name(name);
    call->set_type(bundle::F32);
    for (int s = 0; s < function->arguments_size(); ++s)
      call->add_operands()->set_argument(uint32_t(s));
  }

  void addUnits() {
    for (uint32_t u = 0; u < 4; ++u)
      summary.mutable_units(int(u))->set_class_id(u == 0 ? 0 : u == 3 ? 2 : 1);
    for (int u : {0, 1, 3}) {
      mutableClass(summary, u).set_name(summary.units(u).name());
      for (auto task : {UnitFunction::FORWARD, UnitFunction::BACKWARD})
        ::addFunction(summary, u, task, 1000);
    }
    addScale();
    exchanges ? addExchangingPair() : addPair();
    addLoss();
  }

  void addScale() {
    auto *forward = addFunction("scale.forward");
    rows(forward, bundle::INPUT, 0, bundle::READ);
    argument(forward, bundle::PARAMETER, 0, bundle::READ, ToyExchange::kRow, 0);
    rows(forward, bundle::BOUNDARY_OUT, 0, bundle::WRITE);
    kernel(forward, "toy_scale", {0, 1, 2});
    mutableFunction(summary, 0, UnitFunction::FORWARD).set_function(latest());
    auto *backward = addFunction("scale.backward");
    rows(backward, bundle::INPUT, 0, bundle::READ);
    rows(backward, bundle::BOUNDARY_OUT_GRADIENT, 0, bundle::READ);
    argument(backward, bundle::PARAMETER_GRADIENT, 0, bundle::ACCUMULATE, ToyExchange::kRow, 0);
    kernel(backward, "toy_scale_gradient", {0, 1, 2}, /*perColumn=*/true, 2);
    mutableFunction(summary, 0, UnitFunction::BACKWARD).set_function(latest());
  }

  void addPair() {
    auto *forward = addFunction("pair.forward");
    rows(forward, bundle::BOUNDARY_IN, 0, bundle::READ);
    rows(forward, bundle::BOUNDARY_OUT, 0, bundle::WRITE);
    kernel(forward, "toy_pair", {0, 1});
    mutableFunction(summary, 1, UnitFunction::FORWARD).set_function(latest());
    auto *backward = addFunction("pair.backward");
    rows(backward, bundle::BOUNDARY_IN, 0, bundle::READ);
    rows(backward, bundle::BOUNDARY_OUT_GRADIENT, 0, bundle::READ);
    rows(backward, bundle::BOUNDARY_IN_GRADIENT, 0, bundle::ACCUMULATE);
    kernel(backward, "toy_pair_gradient", {0, 1, 2}, /*perColumn=*/false, 2);
    mutableFunction(summary, 1, UnitFunction::BACKWARD).set_function(latest());
  }

  UnitFunction::Segment *addSegment(UnitFunction &function, UnitFunction::Segment::Exchange before,
                                    const std::vector<uint32_t> &of) {
    auto *segment = function.add_segments();
    segment->set_before(before);
    segment->mutable_functions()->Add(of.begin(), of.end());
    if (function.segments_size() == 1)
      function.set_function(of.front());
    return segment;
  }

  void addExchangingPair() {
    using Segment = UnitFunction::Segment;
    auto *squares = addFunction("pair.forward.0");
    rows(squares, bundle::BOUNDARY_IN, 0, bundle::READ);
    rows(squares, bundle::BOUNDARY_OUT, ToyExchange::kSquares, bundle::WRITE);
    kernel(squares, "toy_square", {0, 1});
    UnitFunction &forward = mutableFunction(summary, 1, UnitFunction::FORWARD);
    addSegment(forward, Segment::NOTHING, {latest(), latest()})->set_shared(true);
    auto *mix = addFunction("pair.forward.1");
    rows(mix, bundle::BOUNDARY_OUT, ToyExchange::kSquares, bundle::READ);
    rows(mix, bundle::BOUNDARY_OUT, 0, bundle::WRITE);
    kernel(mix, "toy_mix", {0, 1});
    addSegment(forward, Segment::GATHER, {latest(), latest()})->set_value(ToyExchange::kSquares);

    for (const char *symbol : {"toy_terms_0", "toy_terms_1"}) {
      auto *terms = addFunction(symbol);
      rows(terms, bundle::BOUNDARY_OUT_GRADIENT, 0, bundle::READ);
      rows(terms, bundle::BOUNDARY_OUT, ToyExchange::kTerm, bundle::WRITE);
      kernel(terms, symbol, {0, 1});
    }
    UnitFunction &backward = mutableFunction(summary, 1, UnitFunction::BACKWARD);
    addSegment(backward, Segment::NOTHING, {latest() - 1, latest()});
    auto *finish = addFunction("pair.backward.1");
    rows(finish, bundle::BOUNDARY_IN, 0, bundle::READ);
    rows(finish, bundle::BOUNDARY_OUT, ToyExchange::kSum, bundle::READ);
    rows(finish, bundle::BOUNDARY_IN_GRADIENT, 0, bundle::ACCUMULATE);
    kernel(finish, "toy_finish", {0, 1, 2}, /*perColumn=*/false, 2);
    auto *segment = addSegment(backward, Segment::REDUCE, {latest(), latest()});
    segment->set_value(ToyExchange::kSum);
    segment->set_term(ToyExchange::kTerm);
  }

  void addLoss() {
    auto *forward = addFunction("loss.forward");
    rows(forward, bundle::BOUNDARY_IN, 0, bundle::READ);
    argument(forward, bundle::PARAMETER, 0, bundle::READ, ToyExchange::kRow, 0);
    argument(forward, bundle::LOSS, 0, bundle::WRITE, 0, 4);
    kernel(forward, "toy_loss", {0, 1, 2});
    mutableFunction(summary, 3, UnitFunction::FORWARD).set_function(latest());
    auto *backward = addFunction("loss.backward");
    rows(backward, bundle::BOUNDARY_IN, 0, bundle::READ);
    argument(backward, bundle::PARAMETER, 0, bundle::READ, ToyExchange::kRow, 0);
    argument(backward, bundle::SCALARS, 0, bundle::READ, int64_t(kScalarsBytes), 0);
    rows(backward, bundle::BOUNDARY_IN_GRADIENT, 0, bundle::ACCUMULATE);
    argument(backward, bundle::PARAMETER_GRADIENT, 0, bundle::ACCUMULATE, ToyExchange::kRow, 0);
    kernel(backward, "toy_loss_gradient", {1, 2, 3}, /*perColumn=*/false, 2);
    kernel(backward, "toy_weight_gradient", {0, 2, 4}, /*perColumn=*/true, 2);
    mutableFunction(summary, 3, UnitFunction::BACKWARD).set_function(latest());
  }

  void addState() {
    auto *sum = addFunction("sum_loss");
    argument(sum, bundle::LOSS, 0, bundle::READ, 0, 4);
    argument(sum, bundle::LOCAL_METRICS, 0, bundle::ACCUMULATE, int64_t(kSumsBytes), 0);
    library(sum, "sum_loss");
    summary.set_sum_loss_function(latest());
    auto *norm = addFunction("norm");
    argument(norm, bundle::STATE, 1, bundle::READ, 0, 4);
    argument(norm, bundle::LOCAL_METRICS, 0, bundle::ACCUMULATE, int64_t(kSumsBytes), 0);
    library(norm, "squared_norm");
    summary.set_norm_function(latest());
    auto *decide = addFunction("decide");
    argument(decide, bundle::LOCAL_METRICS, 0, bundle::READ, int64_t(kSumsBytes), 0);
    argument(decide, bundle::SCALARS, 0, bundle::UPDATE, int64_t(kScalarsBytes), 0);
    argument(decide, bundle::OPTIMIZER_STEP, 0, bundle::UPDATE, 8, 0);
    library(decide, "decide");
    summary.set_clip_and_check_function(latest());
    auto *update = addFunction("update");
    argument(update, bundle::STATE, 0, bundle::UPDATE, 0, 4);
    argument(update, bundle::STATE, 1, bundle::READ, 0, 4);
    argument(update, bundle::SCALARS, 0, bundle::READ, int64_t(kScalarsBytes), 0);
    kernel(update, "toy_sgd", {0, 1, 2});
    summary.set_update_function_decay(latest());
    summary.set_update_function_plain(latest());
  }

  bundle::ModelSummary &summary;
  bundle::FunctionLibrary &functions;
  const bool exchanges;
};

} // namespace

ToyExchange::ToyExchange(bool exchanges) { Maker(*this, exchanges).run(); }
