#include "SummaryBuilder.h"

#include "zorse/Summary/FlatGroups.h"
#include "zorse/Summary/Summary.h"
#include "zorse/Summary/UpdateRules.h"
#include "zorse/runtime/Expression.h"

using namespace zorse;
using namespace zorse::planning;

SummaryBuilder::SummaryBuilder(const std::string &name, bundle::ElementType computeType) {
  out.set_name(name);
  out.set_compute_type(computeType);
  out.set_count_function(-1);
}

void SummaryBuilder::addRule(uint32_t optimizerStates) {
  bundle::UpdateRule &rule = *out.add_update_rules();
  rule.set_name("decay");
  rule.set_learning_rate_scale(1);
  for (uint32_t state = 0; state < optimizerStates; ++state)
    rule.add_states()->set_entries(1);
}

bundle::GraphInput &SummaryBuilder::addInput(const std::string &name, const std::string &role,
                                             const std::vector<int64_t> &dims, int64_t bytes,
                                             uint32_t unit) {
  out.mutable_units(static_cast<int>(unit))->add_inputs(static_cast<uint32_t>(out.inputs_size()));
  bundle::GraphInput *input = out.add_inputs();
  input->set_name(name);
  for (int64_t dim : dims)
    input->add_shape(dim);
  input->set_type(bundle::I64);
  input->set_bytes_per_row(bytes);
  input->set_role(role);
  input->add_units(unit);
  return *input;
}

void SummaryBuilder::addFunction(bundle::UnitClass &unitClass, bundle::UnitFunction::Task task,
                                 const bundle::AffineSize &workspace, double flops, double bytes) {
  bundle::UnitFunction &function = *unitClass.add_functions();
  function.set_task(task);
  function.set_function(functions++);
  *function.mutable_workspace() = workspace;
  function.set_flops_per_row(flops);
  function.set_bytes_per_row(bytes);
}

bundle::UnitClass &SummaryBuilder::addClass(const std::string &name, const Work &work,
                                            bool splits) {
  bundle::UnitClass &unitClass = *out.add_classes();
  unitClass.set_name(name);
  unitClass.mutable_saved_bytes()->set_per_row(work.saved);
  unitClass.mutable_saved_for_weight_grad_bytes();
  addFunction(unitClass, bundle::UnitFunction::FORWARD, work.workspace, work.forward,
              work.elementwise);
  addFunction(unitClass, bundle::UnitFunction::BACKWARD, work.workspace, 2 * work.forward,
              2 * work.elementwise);
  addFunction(unitClass, bundle::UnitFunction::RECOMPUTE, work.workspace, work.forward - work.last,
              work.elementwise);
  if (splits)
    addSplit(unitClass, work);
  return unitClass;
}

void SummaryBuilder::addSplit(bundle::UnitClass &unitClass, const Work &work) {
  unitClass.mutable_saved_for_weight_grad_bytes()->set_per_row(work.deferred);
  addFunction(unitClass, bundle::UnitFunction::INPUT_GRADIENTS, work.workspace,
              2 * work.forward - work.weights, 2 * work.elementwise);
  addFunction(unitClass, bundle::UnitFunction::WEIGHT_GRADIENTS, {}, work.weights, 0);
}

void SummaryBuilder::addUnit(const std::string &name, uint32_t classId, const Work &work,
                             const std::vector<Parameter> &parameters, bool splits) {
  auto *unit = out.add_units();
  unit->set_name(name);
  unit->set_class_id(classId);
  unit->set_splits(splits);
  const bool isNew = classId >= static_cast<uint32_t>(out.classes_size());
  auto &unitClass = isNew ? addClass(name, work, splits)
                          : *out.mutable_classes(static_cast<int>(classId));
  // The first layer of a class may have no input gradients to compute; later layers of the class
  // may have them.
  if (splits && !findFunction(unitClass, bundle::UnitFunction::INPUT_GRADIENTS))
    addSplit(unitClass, work);
  for (const Parameter &p : parameters) {
    unit->add_parameters(uint32_t(out.parameters_size()));
    auto *parameter = out.add_parameters();
    parameter->set_name(name + "." + p.name);
    for (int64_t dim : p.shape)
      parameter->add_shape(dim);
    parameter->set_type(bundle::F32);
    parameter->set_trainable(true);
    copies.push_back(isHalf(out.compute_type()) ? out.compute_type()
                                                : bundle::ELEMENT_TYPE_UNSPECIFIED);
  }
}

void SummaryBuilder::addValue(int u, int64_t bytes, const std::vector<int64_t> &dims,
                              bool needsGradient) {
  const uint32_t number = uint32_t(out.values_size());
  auto *value = out.add_values();
  value->set_name("hidden." + std::to_string(u));
  value->set_bytes_per_row(bytes);
  value->set_type(out.compute_type());
  value->set_producer(uint32_t(u));
  value->add_users(uint32_t(u) + 1);
  value->set_needs_gradient(needsGradient);
  for (int64_t dim : dims)
    value->add_shape(dim);
  out.mutable_units(u)->add_values_out(number);
  out.mutable_units(u + 1)->add_values_in(number);
}

std::string SummaryBuilder::finish(double lossTermsPerRow) {
  if (out.update_rules_size() > 0)
    layOutGroups(out, copies);
  else if (std::string problem = setUpdateRules(out, {}, copies); !problem.empty())
    return problem;
  out.mutable_units(out.units_size() - 1)->add_loss_terms(0);
  auto *loss = out.add_loss();
  loss->set_name("loss");
  loss->set_factor(Expression::apply(Expression::Op::Divide,
                                     {Expression::number(1),
                                      Expression::apply(Expression::Op::Multiply,
                                                        {Expression::number(lossTermsPerRow),
                                                         Expression::samples()})})
                       .print());
  for (bundle::UpdateRule &rule : *out.mutable_update_rules())
    rule.set_function(functions);
  out.set_norm_function(functions + 2);
  out.set_sum_loss_function(functions + 3);
  out.set_clip_and_check_function(functions + 4);
  return {};
}
