// Which devices need a communicator together.
#include "Collectives.h"
#include "zorse/Summary/Summary.h"
#include "zorse/runtime/DeviceTransport.h"

#include <algorithm>
#include <map>
#include <set>

using namespace zorse;
using namespace zorse::runtime;

namespace {

bool isDirect(const bundle::Program &program, const bundle::Instruction &instruction) {
  return program.queues(int(instruction.queue())).kind() == bundle::DEVICE_TO_DEVICE;
}

/// Devices that all gather from and to each other in `instruction`, in the order of their shards;
/// empty for other instructions.
std::vector<uint32_t> gatherersOf(const bundle::Instruction &instruction) {
  const bundle::AllGather &gather = instruction.all_gather();
  if (gather.reads().members_size())
    return {};
  std::vector<uint32_t> devices;
  auto addOnce = [&](uint32_t device) {
    if (std::find(devices.begin(), devices.end(), device) == devices.end())
      devices.push_back(device);
  };
  for (uint32_t device : gather.shards().members())
    addOnce(device);
  for (uint32_t device : bundle::participantsOf(instruction))
    addOnce(device);
  return devices.size() ==
                 std::set<uint32_t>(gather.readers().begin(), gather.readers().end()).size()
             ? devices
             : std::vector<uint32_t>();
}

std::vector<uint32_t> sorted(std::vector<uint32_t> devices) {
  std::sort(devices.begin(), devices.end());
  return devices;
}

/// Peers of device `d` in `instruction`: for point-to-point transfers and for collectives without a
/// dedicated communicator.
std::vector<uint32_t> partnersOf(uint32_t d, const bundle::Instruction &instruction,
                                 const DeviceTransferPlan &plan) {
  auto list = [](const auto &members) {
    return std::vector<uint32_t>(members.begin(), members.end());
  };
  auto isGroup = [&](const std::vector<uint32_t> &devices) {
    return std::any_of(plan.groups.begin(), plan.groups.end(),
                       [&](const auto &group) { return sorted(group) == sorted(devices); });
  };
  /// Adds the devices of two lists, one of which sends to the other, without `d` itself.
  auto between = [&](const std::vector<uint32_t> &from, const std::vector<uint32_t> &to) {
    std::vector<uint32_t> partners;
    for (const auto &[mine, theirs] : {std::pair(&from, &to), std::pair(&to, &from)})
      if (std::find(mine->begin(), mine->end(), d) != mine->end())
        partners.insert(partners.end(), theirs->begin(), theirs->end());
    return partners;
  };
  switch (instruction.what_case()) {
  case bundle::Instruction::kSend:
    return {instruction.send().peer()};
  case bundle::Instruction::kReceive:
    return {instruction.receive().peer()};
  case bundle::Instruction::kAllGather:
  case bundle::Instruction::kReduceScatter: {
    const bundle::Collective collective = *bundle::collectiveOf(instruction);
    const std::vector<uint32_t> gatherers = collective.gathers ? gatherersOf(instruction)
                                                               : std::vector<uint32_t>();
    return !gatherers.empty() && isGroup(gatherers)
               ? std::vector<uint32_t>()
               : between(list(collective.shards.members()), list(collective.members));
  }
  case bundle::Instruction::kAllReduce: {
    const std::vector<uint32_t> members = list(instruction.all_reduce().members());
    return std::find(plan.groups.begin(), plan.groups.end(), members) != plan.groups.end()
               ? std::vector<uint32_t>()
               : between(members, members);
  }
  default:
    return {};
  }
}

} // namespace

DeviceTransferPlan zorse::runtime::deviceTransferPlan(const Bundle &bundle) {
  std::map<int32_t, std::set<uint32_t>> all;           // key: group number in the bundle
  std::map<uint32_t, std::vector<uint32_t>> gatherers; // key: instruction
  for (uint32_t d = 0; d < bundle.programs.size(); ++d)
    for (const bundle::Instruction &instruction : bundle.programs[d].instructions())
      if (isDirect(bundle.programs[d], instruction)) {
        all[bundle.devices[d].d2dGroup].insert(d);
        if (instruction.has_all_gather())
          if (std::vector<uint32_t> members = gatherersOf(instruction); members.size() > 1)
            gatherers[instruction.id()] = std::move(members);
      }
  DeviceTransferPlan plan;
  std::vector<size_t> taken(bundle.devices.size(), 0);
  auto add = [&](std::vector<uint32_t> group) {
    for (uint32_t device : group)
      ++taken[device];
    plan.groups.push_back(std::move(group));
  };
  for (const auto &[number, devices] : all) {
    std::vector<uint32_t> group(devices.begin(), devices.end());
    for (const auto &[instruction, gathering] : gatherers)
      if (sorted(gathering) == std::vector<uint32_t>(devices.begin(), devices.end())) {
        group = gathering;
        break;
      }
    add(std::move(group));
  }
  for (const auto &[instruction, group] : gatherers)
    if (std::none_of(plan.groups.begin(), plan.groups.end(),
                     [&, like = sorted(group)](const auto &one) { return sorted(one) == like; }) &&
        std::all_of(group.begin(), group.end(),
                    [&](uint32_t device) { return taken[device] < kMaxCommunicators; }))
      add(group);
  for (uint32_t d = 0; d < bundle.programs.size(); ++d) {
    std::set<uint32_t> peers;
    for (const bundle::Instruction &instruction : bundle.programs[d].instructions())
      if (isDirect(bundle.programs[d], instruction))
        for (uint32_t peer : partnersOf(d, instruction, plan))
          peers.insert(peer);
    peers.erase(d);
    plan.peers.emplace_back(peers.begin(), peers.end());
  }
  return plan;
}

DeviceSums zorse::runtime::deviceSums(const bundle::ModelSummary &summary) {
  DeviceSums sums;
  for (auto [type, functions] :
       {std::pair(bundle::F32, &sums.f32), std::pair(bundle::F64, &sums.f64)})
    for (uint32_t terms = 2; terms <= maxTerms(summary, type); ++terms)
      functions->push_back(sumFunction(summary, type, terms));
  sums.rounded = roundedSumFunctions(summary);
  return sums;
}
