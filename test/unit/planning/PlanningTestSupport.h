// A model and a cluster that are small enough to compute times by hand.
#pragma once

#include "SummaryFunctions.h"

#include "zorse/Planning/CostModel.h"

namespace zorse::test {

/// ids [128] → "embedding" (0 FLOPs) → "block 0 mlp", "block 1 mlp" → "head"; values [128, 64] in
/// f32. A block's forward is 128e6 FLOPs and 1e6 bytes.
inline bundle::ModelSummary chain(bool splits = true) {
  bundle::ModelSummary summary;
  summary.set_compute_type(bundle::F32);
  summary.set_content_hash("c0ffee");
  auto *rule = summary.add_update_rules();
  for (int state = 0; state < 2; ++state)
    rule->add_states()->set_entries(1);
  const char *names[] = {"embedding", "block 0 mlp", "block 1 mlp", "head"};
  const uint32_t classes[] = {0, 1, 1, 2};
  for (uint32_t u = 0; u < 4; ++u) {
    bundle::UnitInfo &unit = *summary.add_units();
    unit.set_name(names[u]);
    unit.set_class_id(classes[u]);
    unit.add_parameters(u);
    summary.add_parameters()->set_trainable(true);
    double flops[] = {0, 128e6, 128e6, 512e6};
    auto add = [&](bundle::UnitFunction::Task task, double flops, double bytes) {
      addFunction(summary, static_cast<int>(u), task, flops, bytes);
    };
    add(bundle::UnitFunction::FORWARD, flops[u], 1e6);
    add(bundle::UnitFunction::BACKWARD, 2 * flops[u], 3e6);
    add(bundle::UnitFunction::RECOMPUTE, 0.75 * flops[u], 0.5e6);
    unit.set_splits(splits && u > 0);
    if (unit.splits()) {
      add(bundle::UnitFunction::INPUT_GRADIENTS, 1.25 * flops[u], 1e6);
      add(bundle::UnitFunction::WEIGHT_GRADIENTS, 0.75 * flops[u], 2e6);
    }
    if (u > 0) {
      unit.add_values_in(u - 1);
      bundle::ValueInfo &value = *summary.add_values();
      value.set_needs_gradient(true);
      value.set_producer(u - 1);
      value.add_users(u);
      value.add_shape(128);
      value.add_shape(64);
      value.set_bytes_per_row(128 * 64 * 4);
      summary.mutable_units(static_cast<int>(u) - 1)->add_values_out(u - 1);
    }
  }
  bundle::GraphInput &ids = *summary.add_inputs();
  ids.set_type(bundle::I64);
  ids.add_shape(128);
  summary.mutable_units(0)->add_inputs(0);
  return summary;
}

/// Node n0: two "fast" devices of 1 TFLOP/s; node n1: one "slow" device of 0.25 TFLOP/s. The fast
/// devices reach half their speed at 128 matrix rows, have 1 GB/s of memory bandwidth and a launch
/// overhead of 10 us.
inline planning::Cluster twoNodes() {
  planning::Cluster cluster;
  cluster.nodes.resize(2);
  cluster.nodes[0].name = "n0";
  cluster.nodes[1].name = "n1";
  for (const char *name : {"fast:0", "fast:1", "slow"}) {
    planning::ClusterDevice device;
    device.name = name;
    bool fast = device.name != "slow";
    device.type = fast ? "F1" : "S1";
    device.node = fast ? 0 : 1;
    std::fill(std::begin(device.flopsPerSecond), std::end(device.flopsPerSecond),
              fast ? 1e12 : 0.25e12);
    device.halfPeakRows = fast ? 128 : 0;
    device.memoryBandwidth = fast ? 1e9 : 0;
    device.launchOverhead = fast ? 1e-5 : 0;
    cluster.devices.push_back(device);
    cluster.topology.add_node_of_device(device.node);
  }
  cluster.topology.add_sites()->mutable_fabric()->set_latency(1e-4);
  for (const char *name : {"n0", "n1"}) {
    auto *node = cluster.topology.add_nodes();
    node->set_name(name);
    node->mutable_port()->set_bandwidth(10e9);
    node->mutable_nic()->set_bandwidth(1e9);
  }
  return cluster;
}

} // namespace zorse::test
