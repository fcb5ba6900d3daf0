#include "Instances.h"

#include "Must.h"
#include "SummaryFunctions.h"

#include <algorithm>
#include <cmath>

using namespace zorse;
using namespace zorse::optimality;
using namespace zorse::planning;

double Random::magnitude(double low, double high) {
  double x = static_cast<double>(next() >> 11) * 0x1p-53;
  return low * std::pow(high / low, x);
}

const char *zorse::optimality::nameOf(Kind kind) {
  static const char *const names[] = {"plain",      "tight-memory", "slow-links",
                                      "heavy-head", "two-sites",    "odd-batch"};
  return names[static_cast<int>(kind)];
}

namespace {

constexpr int64_t kPositions = 64;

void makeModel(Random &random, Kind kind, int units, bundle::ModelSummary &model) {
  model.set_name("random");
  model.set_content_hash("random");
  model.set_compute_type(bundle::F32);
  model.set_count_function(-1);
  const int types = static_cast<int>(random.between(1, 2)); // inner units alternate between types
  double flops[2], saved[2];
  int64_t elements[2];
  for (int t = 0; t < 2; ++t) {
    flops[t] = random.magnitude(0.4e9, 2e9);
    saved[t] = random.magnitude(0.3e6, 2e6);
    elements[t] = static_cast<int64_t>(random.magnitude(2e5, 2e6)) / 128 * 128;
  }
  const int64_t boundary = static_cast<int64_t>(random.magnitude(3e4, 3e5)) / 256 * 256;
  const double headTimes = kind == Kind::HeavyHead ? random.magnitude(3, 8)
                                                   : random.magnitude(0.5, 2);
  for (int u = 0; u < units; ++u) {
    const bool first = u == 0, last = u + 1 == units;
    const int t = (u - 1 + 2 * types) % types;
    bundle::UnitInfo &unit = *model.add_units();
    unit.set_name(first ? "embedding" : last ? "head" : "block " + std::to_string(u - 1) + " part");
    unit.set_class_id(static_cast<uint32_t>(first  ? 0
                                            : last ? std::min(1 + types, units - 1)
                                                   : 1 + t));
    double work = first ? 0.05 * flops[0] : last ? headTimes * flops[0] : flops[t];
    using Function = bundle::UnitFunction;
    test::addFunction(model, u, Function::FORWARD, work).mutable_workspace()->set_per_row(boundary);
    test::addFunction(model, u, Function::BACKWARD, 2 * work)
        .mutable_workspace()
        ->set_per_row(boundary);
    test::addFunction(model, u, Function::RECOMPUTE, 0);
    test::mutableClass(model, u).mutable_saved_bytes()->set_per_row(
        static_cast<int64_t>((first  ? 0.1
                              : last ? std::min(headTimes, 3.0)
                                     : 1) *
                             saved[t]) /
        64 * 64);
    int64_t count = first  ? 2 * elements[0]
                    : last ? static_cast<int64_t>(headTimes * static_cast<double>(elements[0])) /
                                 128 * 128
                           : elements[t];
    unit.add_parameters(static_cast<uint32_t>(u));
    bundle::ParameterInfo &parameter = *model.add_parameters();
    parameter.set_name("p" + std::to_string(u));
    parameter.add_shape(count);
    parameter.set_type(bundle::F32);
    parameter.set_trainable(true);
    parameter.set_group(static_cast<uint32_t>(u));
    bundle::FlatGroupInfo &group = *model.add_groups();
    group.set_name("g" + std::to_string(u));
    group.add_parameters(static_cast<uint32_t>(u));
    group.set_elements(count);
    group.set_trainable(true);
    group.set_type(bundle::F32);
    group.add_units(static_cast<uint32_t>(u));
    if (!last) {
      bundle::ValueInfo &value = *model.add_values();
      value.set_name("v" + std::to_string(u));
      value.set_type(bundle::F32);
      value.set_producer(static_cast<uint32_t>(u));
      value.add_users(static_cast<uint32_t>(u + 1));
      value.set_needs_gradient(true);
      value.add_shape(kPositions);
      value.add_shape(boundary / 4 / kPositions);
      value.set_bytes_per_row(boundary);
      unit.add_values_out(static_cast<uint32_t>(u));
    }
    if (!first)
      unit.add_values_in(static_cast<uint32_t>(u - 1));
  }
  for (const char *name : {"ids", "labels"}) {
    uint32_t index = static_cast<uint32_t>(model.inputs_size()),
             unit = index == 0 ? 0 : static_cast<uint32_t>(units - 1);
    bundle::GraphInput &input = *model.add_inputs();
    input.set_name(name);
    input.set_type(bundle::I64);
    input.add_shape(kPositions);
    input.set_bytes_per_row(8 * kPositions);
    input.add_units(unit);
    model.mutable_units(static_cast<int>(unit))->add_inputs(index);
  }
  bundle::LossTerm &loss = *model.add_loss();
  loss.set_name("loss");
  loss.set_factor("1/B");
  model.mutable_units(units - 1)->add_loss_terms(0);
  const uint32_t functions = static_cast<uint32_t>(2 * units);
  test::addUpdateRules(model, functions, functions + 1, /*states=*/2);
  model.set_norm_function(functions + 2);
  model.set_sum_loss_function(functions + 3);
  model.set_clip_and_check_function(functions + 4);
}

void makeCluster(Random &random, Kind kind, int devices, int types, int64_t batch,
                 const bundle::ModelSummary &model, Cluster &cluster) {
  double work = 0, whole = 0;
  for (int u = 0; u < model.units_size(); ++u) {
    work += functionOf(model, model.units(u), bundle::UnitFunction::FORWARD).flops_per_row() /
            model.units_size();
    whole += 16.0 * static_cast<double>(model.groups(u).elements()) +
             static_cast<double>(batch * classOf(model, model.units(u)).saved_bytes().per_row());
  }
  struct Type {
    double speed, halfRows, memory;
  };
  std::vector<Type> table;
  for (int t = 0; t < types; ++t)
    table.push_back({random.magnitude(0.5e12, 4e12),
                     random.chance(50) ? random.magnitude(20, 200) : 0,
                     kind == Kind::TightMemory ? random.magnitude(0.2, 0.6) * whole : 4 * whole});
  std::vector<int> typeOf(static_cast<size_t>(devices));
  for (int d = 0; d < devices; ++d)
    typeOf[d] = d < types ? d : static_cast<int>(random.between(0, types - 1));
  if (random.chance(75)) // nodes of one type, else mixed nodes
    std::sort(typeOf.begin(), typeOf.end());
  int inNode = 0, room = 0;
  for (int d = 0; d < devices; ++d) {
    if (inNode == room) {
      ClusterNode node;
      node.name = "n" + std::to_string(cluster.nodes.size());
      cluster.nodes.push_back(node);
      inNode = 0;
      room = static_cast<int>(random.between(1, 3));
    }
    ++inNode;
    const Type &type = table[typeOf[d]];
    ClusterDevice device;
    device.name = "d" + std::to_string(d);
    device.type = "type" + std::to_string(typeOf[d]);
    device.kind = "sim";
    device.node = static_cast<uint32_t>(cluster.nodes.size() - 1);
    std::fill(std::begin(device.flopsPerSecond), std::end(device.flopsPerSecond), type.speed);
    device.halfPeakRows = type.halfRows;
    device.memoryBandwidth = type.speed / 10;
    device.launchOverhead = 1e-5;
    device.memory = static_cast<uint64_t>(type.memory);
    cluster.devices.push_back(device);
    cluster.topology.add_node_of_device(device.node);
  }
  // Bandwidths are relative to compute time: a unit's forward for one sample on a device of 1
  // TFLOP/s.
  const double boundary = static_cast<double>(model.values(0).bytes_per_row()), unit = work / 1e12;
  const double card = kind == Kind::SlowLinks ? boundary / (unit * random.magnitude(0.3, 3))
                                              : boundary / (unit * random.magnitude(0.01, 0.1));
  const size_t sites = kind == Kind::TwoSites && cluster.nodes.size() > 1 ? 2 : 1;
  for (size_t n = 0; n < cluster.nodes.size(); ++n) {
    auto *node = cluster.topology.add_nodes();
    node->set_name(cluster.nodes[n].name);
    node->set_site(static_cast<uint32_t>(sites == 2 && n >= (cluster.nodes.size() + 1) / 2));
    node->mutable_port()->set_bandwidth(10 * card);
    node->mutable_port()->set_latency(5e-6);
    node->mutable_nic()->set_bandwidth(card);
    node->mutable_nic()->set_latency(5e-6);
  }
  for (size_t s = 0; s < sites; ++s) {
    auto *site = cluster.topology.add_sites();
    site->set_name("s" + std::to_string(s));
    site->mutable_fabric()->set_latency(2e-5);
    if (sites == 2)
      site->mutable_uplink()->set_bandwidth(card / 2);
  }
  if (sites == 2) {
    cluster.topology.mutable_between_sites()->set_bandwidth(card / 4);
    cluster.topology.mutable_between_sites()->set_latency(unit * random.magnitude(0.5, 5));
  }
}

} // namespace

std::string Instance::describe() const {
  std::string text = std::string(nameOf(kind)) + ", " + std::to_string(cluster.devices.size()) +
                     " devices in " + std::to_string(cluster.nodes.size()) + " nodes, " +
                     std::to_string(summary.units_size()) + " units, batch " +
                     std::to_string(problem->batch);
  return text;
}

std::unique_ptr<Instance> zorse::optimality::makeInstance(uint64_t seed, const Size &max) {
  auto instance = std::make_unique<Instance>();
  instance->seed = seed;
  instance->kind = static_cast<Kind>(seed % kKinds);
  Random random(seed);
  int devices = static_cast<int>(random.between(2, max.devices));
  int types = static_cast<int>(random.between(1, std::min(max.types, devices)));
  int units = static_cast<int>(random.between(std::min(3, max.units), max.units));
  int64_t batch = random.between(std::min<int64_t>(4, max.batch), max.batch);
  if (instance->kind == Kind::OddBatch)
    batch = std::max<int64_t>(batch - 1, std::min<int64_t>(4, max.batch - 1)) | 1;
  makeModel(random, instance->kind, units, instance->summary);
  makeCluster(random, instance->kind, devices, types, batch, instance->summary, instance->cluster);
  instance->costs = must(CostModel::make(instance->summary, instance->cluster, nullptr, {}));
  instance->problem.reset(
      new Problem{instance->summary, instance->cluster, *instance->costs, batch, nullptr});
  return instance;
}
