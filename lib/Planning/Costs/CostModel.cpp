#include "zorse/Planning/CostModel.h"

#include "zorse/Summary/Summary.h"

#include "CostModelTables.h"

#include "zorse/Bundle/ContentHash.h"
#include "zorse/Bundle/DeviceKinds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <unordered_map>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Key for equality of devices: everything that times and memory depend on, and prices.
auto keyOf(const ClusterDevice &device, double speed, const ClusterNode &node, double port,
           const DeviceProfile *profile) {
  return std::make_tuple(device.kind, device.type, device.arch, speed,
                         device.flopsPerSecond[speedIndex(bundle::F32)], device.halfPeakRows,
                         device.multiprocessors, device.executionMode, device.slowdown,
                         device.memoryBandwidth, device.launchOverhead, device.memory,
                         device.reservedMemory, device.price, node.pcie, port, profile);
}

Status checkProfile(const Profile &profile, const bundle::ModelSummary &summary) {
  if (bundle::differentModels(profile.model, summary.content_hash()))
    return userError("the profile was measured for another model (" + profile.model +
                     ", this one is " + summary.content_hash() +
                     "); measure again with zorse-profile, or remove \"model\" from it if their "
                     "units are the same");
  if (!profile.precision.empty() && profile.precision != precisionOf(summary).name())
    return userError("the profile was measured in " + profile.precision +
                     ", this model is compiled for " + precisionOf(summary).name() +
                     "; measure again with zorse-profile on a bundle of this precision");
  return Status::success();
}

/// Returns the cluster indices of the plan's devices, or of all devices of the cluster.
Result<std::vector<uint32_t>> chooseDevices(const Cluster &cluster,
                                            const std::vector<step::PlanDevice> &planDevices) {
  std::vector<uint32_t> chosen(planDevices.empty() ? cluster.devices.size() : planDevices.size());
  std::iota(chosen.begin(), chosen.end(), 0);
  std::unordered_map<std::string, uint32_t> byName;
  for (uint32_t d = 0; d < cluster.devices.size(); ++d)
    byName[cluster.devices[d].name] = d;
  for (size_t i = 0; i < planDevices.size(); ++i) {
    auto it = byName.find(planDevices[i].name);
    if (it == byName.end())
      return userError("device '" + planDevices[i].name + "' of the plan is not in the cluster");
    chosen[i] = it->second;
  }
  return chosen;
}

std::string cannotCompute(bundle::ElementType type, std::string unable) {
  if (unable.size() > 300)
    unable = unable.substr(0, unable.find(',', 250)) + ", ...";
  return "the model computes in " + std::string(elementTypeName(type)) +
         ", which these devices do not support: " + unable +
         "; remove them from the cluster, compile the model in another type, or give their speed "
         "with values that are only stored in it "
         "(flops_per_second: "
         "{" +
         elementTypeName(type) + ": ...}, about that of f32): the results are the same";
}

/// Sets the costs of communication by the device's CPUs. Returns whether it costs any time.
bool setCommunicationCost(const DeviceProfile *measured,
                          bundle::Topology::CpuCommunicationCost &moving) {
  if (!(measured && measured->communicationPerByte >= 0))
    return false;
  moving.set_per_byte(measured->communicationPerByte);
  moving.set_per_message(measured->communicationPerMessage);
  moving.set_delay(measured->communicationDelay);
  return moving.per_byte() > 0 || moving.per_message() > 0 || moving.delay() > 0;
}

} // namespace

Result<CostModel> CostModel::make(const bundle::ModelSummary &summary, const Cluster &cluster,
                                  const Profile *profile,
                                  const std::vector<step::PlanDevice> &planDevices) {
  if (Status status = profile ? checkProfile(*profile, summary) : Status::success();
      status.failed())
    return status;
  const Result<std::vector<uint32_t>> chosen = chooseDevices(cluster, planDevices);
  if (chosen.failed())
    return chosen.error();
  auto tables = std::make_shared<Tables>();
  if (profile)
    tables->profile = *profile;
  const std::vector<UnitWork> units = tables->classifyUnits(summary);
  const bundle::ElementType type = productType(summary);
  using Key = decltype(keyOf(cluster.devices[0], 0.0, cluster.nodes[0], 0.0, nullptr));
  std::map<Key, uint32_t> classes;
  bundle::Topology topology = cluster.topology;
  topology.clear_node_of_device();
  topology.clear_cpu_communication_costs();
  topology.clear_direct_group_of_device();
  const std::vector<int32_t> direct = directGroups(cluster);
  bool moves = false;
  std::string unable;
  for (size_t i = 0; i < chosen->size(); ++i) {
    const ClusterDevice &device = cluster.devices[(*chosen)[i]];
    double speed = !planDevices.empty() && planDevices[i].flopsPerSecond > 0
                       ? planDevices[i].flopsPerSecond
                       : device.flopsPerSecond[speedIndex(type)];
    if (!(speed > 0)) {
      unable += (unable.empty() ? "" : ", ") +
                ("'" + device.name + "'" + (device.type.empty() ? "" : " (" + device.type + ")"));
      continue;
    }
    const ClusterNode &node = cluster.nodes[device.node];
    double port = static_cast<int>(device.node) < topology.nodes_size()
                      ? topology.nodes(static_cast<int>(device.node)).port().bandwidth()
                      : 0;
    const DeviceProfile *measured = profile ? findProfile(*profile, device) : nullptr;
    auto [it, isNew] = classes.emplace(keyOf(device, speed, node, port, measured),
                                       static_cast<uint32_t>(tables->times.size()));
    if (isNew)
      tables->times.push_back(
          deviceTimes(summary, units, device, speed, node.pcie, port, measured));
    tables->deviceClass.push_back(it->second);
    topology.add_node_of_device(device.node);
    topology.add_direct_group_of_device(direct[(*chosen)[i]]);
    moves |= setCommunicationCost(measured, *topology.add_cpu_communication_costs());
  }
  if (!unable.empty())
    return userError(cannotCompute(type, unable));
  if (profile)
    applyLinks(profile->links, cluster, topology);
  if (!moves)
    topology.clear_cpu_communication_costs();
  tables->network = sim::Network(topology);
  tables->topology = std::move(topology);
  CostModel model;
  model.tables = std::move(tables);
  return model;
}

CostModel CostModel::reordered(const std::vector<uint32_t> &devices,
                               bundle::Topology topology) const {
  auto made = std::make_shared<Tables>(*tables);
  made->times.clear();
  std::map<uint32_t, uint32_t> classes; // by class here
  for (size_t d = 0; d < devices.size(); ++d) {
    const uint32_t from = tables->deviceClass[devices[d]];
    auto [known, isNew] = classes.try_emplace(from, static_cast<uint32_t>(made->times.size()));
    if (isNew)
      made->times.push_back(tables->times[from]);
    made->deviceClass[d] = known->second;
  }
  made->network = sim::Network(topology);
  made->topology = std::move(topology);
  CostModel model;
  model.tables = std::move(made);
  return model;
}

std::vector<UnitWork> CostModel::Tables::classifyUnits(const bundle::ModelSummary &summary) {
  std::map<UnitWork, uint32_t> known;
  std::vector<UnitWork> units;
  auto classOf = [&](step::UnitRef unit) {
    auto [it, isNew] = known.emplace(unitWork(summary, unit), known.size());
    if (isNew)
      units.push_back(it->first);
    return it->second;
  };
  for (int32_t u = 0; u < summary.units_size(); ++u)
    unitClass.push_back(classOf(u));
  for (int g = 0; g < summary.device_groups_size(); ++g) {
    const bundle::DeviceGroup &group = summary.device_groups(g);
    groupUnitClass.emplace_back(static_cast<size_t>(group.members_size()), unitClass);
    for (int m = 0; m < group.members_size(); ++m)
      for (uint32_t u : group.units())
        groupUnitClass.back()[static_cast<size_t>(m)][u] =
            classOf({static_cast<int32_t>(u), g, static_cast<uint32_t>(m)});
  }
  unitClasses = static_cast<uint32_t>(units.size());
  return units;
}

double CostModel::unit(uint32_t device, step::UnitRef unit, step::UnitTask task,
                       int64_t rows) const {
  const auto &classes = unit.group < 0
                            ? tables->unitClass
                            : tables->groupUnitClass[static_cast<size_t>(unit.group)][unit.member];
  const size_t index = size_t(task);
  double seconds = tables->times[tables->deviceClass[device]]
                       .curves[classes[static_cast<size_t>(unit.unit)] * kUnitTasks + index]
                       .at(rows);
  // A minimum, because shares and rates divide by the time of a forward: a device could execute any
  // number of forwards that take no time. A backward may have no work.
  constexpr double kMinForward = 1e-13;
  return index == size_t(step::UnitTask::Forward) && rows > 0 ? std::max(seconds, kMinForward)
                                                              : seconds;
}

double CostModel::update(uint32_t device, step::UpdateWork work) const {
  const DeviceTimes &times = tables->times[tables->deviceClass[device]];
  return times.update.at(static_cast<double>(work.elements)) + times.updatePerFlop * work.flops;
}
double CostModel::norm(uint32_t device, int64_t elements) const {
  return tables->times[tables->deviceClass[device]].norm.at(static_cast<double>(elements));
}
double CostModel::hostUpdate(uint32_t device, step::UpdateWork work) const {
  const DeviceTimes &times = tables->times[tables->deviceClass[device]];
  return times.hostUpdate.at(static_cast<double>(work.elements)) +
         times.hostUpdatePerFlop * work.flops;
}
double CostModel::copy(uint32_t device, uint64_t bytes) const {
  return tables->times[tables->deviceClass[device]].copy.at(static_cast<double>(bytes));
}
double CostModel::load(uint32_t device, uint64_t bytes) const {
  return tables->times[tables->deviceClass[device]].load.at(static_cast<double>(bytes));
}

const sim::Network &CostModel::network() const { return tables->network; }
const bundle::Topology &CostModel::topology() const { return tables->topology; }

const Profile *CostModel::profile() const { return tables->profile ? &*tables->profile : nullptr; }

const std::string &CostModel::source(uint32_t device) const {
  return tables->times[tables->deviceClass[device]].source;
}

uint32_t CostModel::deviceClass(uint32_t device) const { return tables->deviceClass[device]; }
uint32_t CostModel::unitClass(int32_t unit) const {
  return tables->unitClass[static_cast<size_t>(unit)];
}
