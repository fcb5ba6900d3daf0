// A transfer reserves the resources on its route one by one. For a collective, first the bytes per
// resource, the minimum time on an idle network and the latency are computed; then all resources
// are reserved together. The phases of a collective are not reserved sequentially, because a
// reservation in the future would block other transfers before it.

#include "zorse/Simulation/Network.h"

#include <algorithm>
#include <cstring>
#include <tuple>

using namespace zorse::sim;

/// Adds a transfer to the work of the device's CPUs.
void Traffic::charge(uint32_t device, double work, double start) {
  CommunicationBacklog &backlog = backlogs[device];
  backlog.free = moved(device, work, start);
  if (start < backlog.until)
    backlog.seconds += work;
}

/// Returns the time at which the CPUs have executed their previous work and `work`. While the
/// device computes they have half of their time for it.
double Traffic::moved(uint32_t device, double work, double start) const {
  const CommunicationBacklog &backlog = backlogs[device];
  return std::max(backlog.free, start) + work +
         std::min(work, std::max(backlog.until - start, 0.0));
}

/// Returns the seconds that a message waits for the CPUs.
double Traffic::delay(uint32_t device, double start) const {
  return std::min(network->communicationCost(device).delay,
                  std::max(backlogs[device].until - start, 0.0));
}

double Traffic::compute(uint32_t device, double seconds, double start) {
  if (backlogs.empty())
    return start + seconds;
  CommunicationBacklog &backlog = backlogs[device];
  double lost = std::max(0.0, backlog.seconds - std::max(start - backlog.until, 0.0)),
         still = std::max(backlog.free - start, 0.0);
  backlog.seconds = 0;
  backlog.until = start + seconds + lost + std::min(seconds, still);
  return backlog.until;
}

TransferTimes Traffic::send(uint32_t from, uint32_t to, double bytes, double start) {
  Route route = network->route(from, to);
  double begin = start;
  if (!backlogs.empty() && from != to) // before any card is reserved
    for (uint32_t device : {from, to})
      begin += delay(device, start);
  if (bytes > 0)
    begin += route.startupSeconds;
  double sent = route.perFlowBandwidth > 0 ? begin + bytes / route.perFlowBandwidth : begin;
  if (!backlogs.empty() && from != to)
    for (uint32_t device : {from, to}) {
      charge(device, network->communicationCost(device).work(bytes), start);
      sent = std::max(sent, backlogs[device].free + (begin - start));
    }
  if (bytes > 0)
    for (uint32_t i = 0; i < route.count; ++i) {
      double &free = freeAt[route.resources[i]];
      free = std::max(free, start) + bytes * network->secondsPerByte(route.resources[i]);
      sent = std::max(sent, free + (begin - start));
    }
  return {sent, sent + route.latency};
}

TransferTimes Traffic::allGather(const std::vector<Piece> &owners,
                                 const std::vector<uint32_t> &readers, double start) {
  return run(Operation::Gather, owners, readers, 0, start);
}

TransferTimes Traffic::reduceScatter(const std::vector<uint32_t> &contributors,
                                     const std::vector<Piece> &owners, double start) {
  return run(Operation::Scatter, owners, contributors, 0, start);
}

TransferTimes Traffic::allReduce(const std::vector<uint32_t> &devices, double bytes, double start) {
  return run(Operation::Reduce, {}, devices, bytes, start);
}

void Traffic::addMembers(const std::vector<Piece> &owners, const std::vector<uint32_t> &readers) {
  members.clear();
  total = 0;
  for (const Piece &piece : owners) {
    members.push_back({piece.device, network->site(piece.device), network->node(piece.device),
                       piece.bytes, false});
    total += piece.bytes;
  }
  for (uint32_t device : readers)
    members.push_back({device, network->site(device), network->node(device), 0, true});
  auto before = [](const Member &a, const Member &b) {
    return std::tie(a.site, a.node, a.device) < std::tie(b.site, b.node, b.device);
  };
  if (!std::is_sorted(members.begin(), members.end(), before))
    std::sort(members.begin(), members.end(), before);
  size_t kept = 0; // owners that also read are one member
  for (size_t i = 0; i < members.size(); ++i)
    if (kept > 0 && members[kept - 1].device == members[i].device) {
      members[kept - 1].owned += members[i].owned;
      members[kept - 1].reads |= members[i].reads;
    } else {
      members[kept++] = members[i];
    }
  members.resize(kept);
}

/// Adds a flow, or `several` flows with equal shares of the bytes, to the loads.
void Traffic::flow(uint32_t from, uint32_t to, double bytes, size_t several) {
  Route route = network->route(from, to);
  lastHop = route.latency;
  if (!(bytes > 0))
    return;
  lastHop += route.startupSeconds;
  if (!backlogs.empty() && from != to)
    for (uint32_t device : {from, to}) {
      if (work.empty())
        work.assign(network->devices(), -1);
      if (work[device] < 0) {
        work[device] = 0;
        movers.push_back(device);
      }
      work[device] += network->communicationCost(device).work(bytes);
    }
  for (uint32_t i = 0; i < route.count; ++i) {
    uint32_t r = route.resources[i];
    if (load[r] == 0)
      touched.push_back(r);
    load[r] += bytes;
    min = std::max(min, bytes * network->secondsPerByte(r));
  }
  if (route.perFlowBandwidth > 0)
    min = std::max(min, bytes / (route.perFlowBandwidth * static_cast<double>(several)));
}

/// NCCL's all-gather: rings over all members, each with a share of the bytes. Between nodes it is
/// `several` flows.
void Traffic::rings(size_t several) {
  const size_t n = members.size();
  double latencies = 0, shortest = 0;
  for (size_t i = 0; i < n; ++i) {
    const Member &a = members[i], &b = members[i + 1 < n ? i + 1 : 0];
    flow(a.device, b.device, total - b.owned, a.node != b.node ? several : 1);
    latencies += lastHop;
    shortest = i == 0 ? lastHop : std::min(shortest, lastHop);
  }
  latency += latencies - shortest; // no part crosses all of them
}

/// Returns the members of the node with the fewest. This is the number of rings that enter and
/// leave their nodes by different devices (NCCL's channels), and of flows that share a card.
size_t Traffic::fewestOfNode() const {
  size_t fewest = members.size(), run = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    ++run;
    if (i + 1 == members.size() || members[i + 1].node != members[i].node) {
      fewest = std::min(fewest, run);
      run = 0;
    }
  }
  return fewest;
}

/// Every part goes from its owner to the readers, or from the contributors to its owner.
void Traffic::exchange(Operation operation) {
  double longest = 0;
  for (const Member &a : members)
    for (const Member &b : members) {
      if (a.device == b.device || !b.reads || (operation != Operation::Reduce && !(a.owned > 0)))
        continue;
      if (operation == Operation::Scatter)
        flow(b.device, a.device, a.owned);
      else
        flow(a.device, b.device, operation == Operation::Reduce ? total : a.owned);
      longest = std::max(longest, lastHop);
    }
  latency += longest;
}

/// All send to the first, which sends the sum to all.
void Traffic::star() {
  double there = 0, back = 0;
  for (size_t i = 1; i < members.size(); ++i) {
    flow(members[i].device, members[0].device, total);
    there = std::max(there, lastHop);
    flow(members[0].device, members[i].device, total);
    back = std::max(back, lastHop);
  }
  latency += there + back;
}

bool Traffic::gathersByRings() const {
  const int32_t group = network->directGroup(members[0].device);
  return group >= 0 && std::all_of(members.begin(), members.end(), [&](const Member &member) {
           return member.reads && network->directGroup(member.device) == group;
         });
}

Traffic::CollectiveCost Traffic::cost(Operation operation) {
  constexpr size_t kMaxToAll = 16; // members that send their numbers to all others
  min = latency = 0;
  if (operation == Operation::Gather && gathersByRings())
    rings(fewestOfNode());
  else if (operation == Operation::Reduce && members.size() > kMaxToAll)
    star();
  else
    exchange(operation);
  CollectiveCost cost{min, latency, {}, {}};
  cost.loads.reserve(touched.size());
  for (uint32_t r : touched) {
    cost.loads.push_back({r, load[r]});
    load[r] = 0;
  }
  for (uint32_t device : movers) {
    cost.work.push_back({device, work[device]});
    work[device] = -1;
  }
  touched.clear();
  movers.clear();
  return cost;
}

/// Returns the arrival time of the last byte without reserving resources.
double Traffic::endOf(const CollectiveCost &collective, double start) const {
  double end = start + collective.min;
  for (auto [r, bytes] : collective.loads)
    end = std::max(end, std::max(freeAt[r], start) + bytes * network->secondsPerByte(r));
  double longest = 0;
  for (auto [device, seconds] : collective.work) {
    end = std::max(end, moved(device, seconds, start));
    longest = std::max(longest, delay(device, start));
  }
  return end + longest;
}

/// Costs are cached, because steps have few different collectives, and planners simulate steps that
/// differ little. The cache key is a 128-bit hash.
const Traffic::CollectiveCost &Traffic::costOf(Operation operation,
                                               const std::vector<Piece> &owners,
                                               const std::vector<uint32_t> &readers, double bytes) {
  Key key{0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f};
  auto mix = [&](uint64_t value) {
    key[0] = (key[0] ^ value) * 0xff51afd7ed558ccd;
    key[0] ^= key[0] >> 32;
    key[1] = (key[1] + value) * 0xc4ceb9fe1a85ec53;
    key[1] ^= key[1] >> 29;
  };
  auto mixNumber = [&](double number) {
    uint64_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    mix(bits);
  };
  mix(static_cast<uint64_t>(operation));
  mix(owners.size());
  for (const Piece &piece : owners) {
    mix(piece.device);
    mixNumber(piece.bytes);
  }
  for (uint32_t device : readers)
    mix(device);
  mixNumber(bytes);
  constexpr size_t kMaxLoads = 1 << 21; // 32 MiB
  if (knownLoads > kMaxLoads) {
    known.clear();
    knownLoads = 0;
  }
  auto [entry, isNew] = known.try_emplace(key);
  CollectiveCost &found = entry->second;
  if (!isNew)
    return found;
  addMembers(owners, readers);
  if (operation == Operation::Reduce)
    total = bytes;
  if (members.size() > 1)
    found = cost(operation);
  knownLoads += found.loads.size() + found.work.size() + 8;
  return found;
}

TransferTimes Traffic::run(Operation operation, const std::vector<Piece> &owners,
                           const std::vector<uint32_t> &readers, double bytes, double start) {
  const CollectiveCost &cost = costOf(operation, owners, readers, bytes);
  const double sent = endOf(cost, start);
  for (auto [r, load] : cost.loads)
    freeAt[r] = std::max(freeAt[r], start) + load * network->secondsPerByte(r);
  for (auto [device, seconds] : cost.work)
    charge(device, seconds, start);
  return {sent, sent + cost.latency};
}
