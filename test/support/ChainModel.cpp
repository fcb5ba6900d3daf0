#include "ChainModel.h"

#include "SummaryFunctions.h"

#include "zorse/Step/AssignMicroBatches.h"

using namespace zorse;
using namespace zorse::test;

bundle::ModelSummary zorse::test::chainSummary(const std::vector<ChainUnit> &units) {
  bundle::ModelSummary model;
  model.set_name("chain");
  model.set_content_hash("chain");
  model.set_compute_type(bundle::F32);
  model.set_count_function(-1);
  addUpdateRules(model, 0, 0);
  for (uint32_t u = 0; u < units.size(); ++u) {
    auto *unit = model.add_units();
    unit->set_name("unit " + std::to_string(u));
    unit->set_class_id(u);
    unit->set_splits(u > 0);
    const int index = static_cast<int>(u);
    mutableClass(model, index).mutable_saved_bytes()->set_per_row(units[u].saved);
    addFunction(model, index, bundle::UnitFunction::FORWARD, units[u].forward);
    addFunction(model, index, bundle::UnitFunction::BACKWARD, units[u].inputs + units[u].weights);
    addFunction(model, index, bundle::UnitFunction::INPUT_GRADIENTS, units[u].inputs);
    addFunction(model, index, bundle::UnitFunction::WEIGHT_GRADIENTS, units[u].weights);
    addFunction(model, index, bundle::UnitFunction::RECOMPUTE, 0);
    auto *group = model.add_groups();
    group->set_name("g" + std::to_string(u));
    group->set_trainable(true);
    group->set_type(bundle::F32);
    group->set_elements(128);
    group->add_units(u);
    group->add_parameters(u);
    auto *parameter = model.add_parameters();
    parameter->set_name("p" + std::to_string(u));
    parameter->add_shape(128);
    parameter->set_type(bundle::F32);
    parameter->set_trainable(true);
    parameter->set_group(u);
    unit->add_parameters(u);
    if (u + 1 == units.size())
      break;
    auto *value = model.add_values();
    value->set_name("v" + std::to_string(u));
    value->set_bytes_per_row(units[u].boundary);
    value->set_type(bundle::F32);
    value->set_producer(u);
    value->add_users(u + 1);
    value->set_needs_gradient(true);
    unit->add_values_out(u);
  }
  for (uint32_t u = 1; u < units.size(); ++u)
    model.mutable_units(static_cast<int>(u))->add_values_in(u - 1);
  auto *loss = model.add_loss();
  loss->set_name("loss");
  loss->set_factor("1/B");
  model.mutable_units(static_cast<int>(units.size()) - 1)->add_loss_terms(0);
  return model;
}

double ChainCosts::unit(uint32_t device, step::UnitRef unit, step::UnitTask task,
                        int64_t rows) const {
  const ChainUnit &u = units[static_cast<size_t>(unit.unit)];
  double seconds = 0;
  switch (task) {
  case step::UnitTask::Forward:
  case step::UnitTask::Recompute:
    seconds = u.forward;
    break;
  case step::UnitTask::Backward:
    seconds = u.inputs + u.weights;
    break;
  case step::UnitTask::InputGradients:
    seconds = u.inputs;
    break;
  case step::UnitTask::WeightGradients:
    seconds = u.weights;
    break;
  }
  return seconds * static_cast<double>(rows) / speeds[device];
}

bundle::Topology zorse::test::oneDevicePerNode(size_t devices, double bandwidth, double latency) {
  bundle::Topology topology;
  auto *site = topology.add_sites();
  site->set_name("s");
  site->mutable_fabric()->set_latency(latency);
  for (uint32_t d = 0; d < devices; ++d) {
    auto *node = topology.add_nodes();
    node->set_name("n" + std::to_string(d));
    node->mutable_nic()->set_bandwidth(bandwidth);
    topology.add_node_of_device(d);
  }
  return topology;
}

step::Plan zorse::test::chainPlan(int stages, int64_t batch) {
  step::Plan plan;
  plan.batch = batch;
  for (int s = 0; s < stages; ++s) {
    plan.devices.push_back({"d" + std::to_string(s), 1, 0, ""});
    step::assignMicroBatches(s, s + 1, 0, {{static_cast<uint32_t>(s), batch, 1}}, plan.cells);
  }
  return plan;
}
