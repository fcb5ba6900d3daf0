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
                                 const std::vector<uint32_t> &readers, double start,
                                 Algorithm algorithm) {
  return run(Operation::Gather, owners, readers, 0, start, algorithm);
}

TransferTimes Traffic::reduceScatter(const std::vector<uint32_t> &contributors,
                                     const std::vector<Piece> &owners, double start,
                                     Algorithm algorithm) {
  return run(Operation::Scatter, owners, contributors, 0, start, algorithm);
}

TransferTimes Traffic::allReduce(const std::vector<uint32_t> &devices, double bytes, double start,
                                 Algorithm algorithm) {
  return run(Operation::Reduce, {}, devices, bytes, start, algorithm);
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

/// Adds a flow, or `several` flows with equal shares of the bytes, to the loads. For the mirrored
/// operation callers swap the ends: a reduce-scatter is an all-gather with reversed transfers.
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

/// A ring over members [begin, end) with the parts that they own. Between nodes it is `several`
/// rings, each with a share of the bytes.
void Traffic::ring(Operation operation, size_t begin, size_t end, size_t several) {
  if (end - begin < 2)
    return;
  size_t n = end - begin;
  double sum = 0, latencies = 0, shortest = 0;
  for (size_t i = begin; i < end; ++i)
    sum += members[i].owned;
  for (size_t i = begin; i < end; ++i) {
    const Member &a = members[i], &b = members[i + 1 < end ? i + 1 : begin];
    size_t flows = a.node != b.node ? several : 1;
    if (operation == Operation::Reduce)
      flow(a.device, b.device, 2 * total * static_cast<double>(n - 1) / static_cast<double>(n),
           flows);
    else if (operation == Operation::Gather)
      flow(a.device, b.device, sum - b.owned, flows);
    else
      flow(b.device, a.device, sum - b.owned, flows);
    latencies += lastHop;
    shortest = i == begin ? lastHop : std::min(shortest, lastHop);
  }
  latency += (latencies - shortest) * (operation == Operation::Reduce ? 2 : 1); // no part crosses
                                                                                // all of them
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

void Traffic::tree(Operation operation) {
  size_t n = members.size();
  std::vector<double> below(n), up(n, 0); // bytes owned in a member's subtree; latency to the root
  for (size_t i = 0; i < n; ++i)
    below[i] = members[i].owned;
  for (size_t i = n; i-- > 1;)
    below[(i - 1) / 2] += below[i];
  double deepest = 0;
  for (size_t i = 1; i < n; ++i) {
    uint32_t child = members[i].device, parent = members[(i - 1) / 2].device;
    double upwards = operation == Operation::Gather    ? below[i]
                     : operation == Operation::Scatter ? total - below[i]
                                                       : total;
    flow(child, parent, upwards);
    flow(parent, child, operation == Operation::Reduce ? total : total - upwards);
    up[i] = up[(i - 1) / 2] + lastHop;
    deepest = std::max(deepest, up[i]);
  }
  latency += 2 * deepest;
}

void Traffic::allPairs(Operation operation) {
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

/// Returns the runs of members of one site, or of one node, and the bytes that each run owns.
std::vector<Traffic::Run> Traffic::runsOf(uint32_t Member::*place) const {
  std::vector<Run> runs;
  for (size_t i = 0; i < members.size(); ++i) {
    if (i == 0 || members[i].*place != members[i - 1].*place)
      runs.push_back({i, i, 0});
    runs.back().end = i + 1;
    runs.back().owned += members[i].owned;
  }
  return runs;
}

/// All-gather: first inside each site, then between the sites' leaders, then each site distributes
/// the data from other sites. A reduce-scatter is mirrored.
void Traffic::hierarchical(Operation operation) {
  const std::vector<Run> sites = runsOf(&Member::site);
  // Phases are sequential; sites execute a phase in parallel.
  double time = 0, hops = 0;
  auto phase = [&](auto &&perSite) {
    double longest = 0, furthest = 0;
    for (const Run &site : sites) {
      min = latency = 0;
      perSite(site);
      longest = std::max(longest, min);
      furthest = std::max(furthest, latency);
    }
    time += longest;
    hops += furthest;
  };
  auto around = [&](const Run &site, double bytes) {
    for (size_t i = site.begin; i + 1 < site.end; ++i) {
      if (operation == Operation::Scatter)
        flow(members[i + 1].device, members[i].device, bytes);
      else
        flow(members[i].device, members[i + 1].device, bytes);
      latency += lastHop;
    }
  };
  phase([&](const Run &site) {
    operation == Operation::Reduce ? around(site, total) : ring(operation, site.begin, site.end, 1);
  });
  phase([&](const Run &site) {
    around(site, operation == Operation::Reduce ? total : total - site.owned);
  });
  min = latency = 0;
  double latencies = 0, shortest = 0;
  size_t n = sites.size();
  for (size_t s = 0; s < n && n > 1; ++s) {
    const Run &a = sites[s], &b = sites[s + 1 < n ? s + 1 : 0];
    uint32_t from = members[a.begin].device, to = members[b.begin].device;
    if (operation == Operation::Scatter)
      std::swap(from, to);
    flow(from, to,
         operation == Operation::Reduce
             ? 2 * total * static_cast<double>(n - 1) / static_cast<double>(n)
             : total - b.owned);
    latencies += lastHop;
    shortest = s == 0 ? lastHop : std::min(shortest, lastHop);
  }
  min += time;
  latency = hops + (latencies - shortest) * (operation == Operation::Reduce ? 2 : 1);
}

/// All-gather: rings across the nodes transfer all bytes to every node, a share to each member;
/// then a ring inside each node distributes the rest. A reduce-scatter is mirrored.
void Traffic::rails(Operation operation, size_t several) {
  const std::vector<Run> nodes = runsOf(&Member::node);
  const double twice = operation == Operation::Reduce ? 2 : 1;
  auto move = [&](const Member &a, const Member &b, double bytes) {
    operation == Operation::Scatter ? flow(b.device, a.device, bytes)
                                    : flow(a.device, b.device, bytes);
    return lastHop;
  };
  double hops = 0, furthest = 0, longest = 0, shortest = 0;
  const double n = static_cast<double>(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Run &a = nodes[i], &b = nodes[i + 1 < nodes.size() ? i + 1 : 0];
    double bytes = operation == Operation::Reduce ? twice * total * (n - 1) / n : total - b.owned,
           hop = 0;
    for (size_t rail = 0; rail < several; ++rail)
      hop = std::max(hop, move(members[a.begin + rail], members[b.begin + rail],
                               bytes / static_cast<double>(several)));
    hops += hop;
    shortest = i == 0 ? hop : std::min(shortest, hop);
  }
  double across = min;
  for (uint32_t r : touched) // rails share cards
    across = std::max(across, load[r] * network->secondsPerByte(r));
  for (const Run &node : nodes) {
    const double size = static_cast<double>(node.end - node.begin);
    double inside = 0, min1 = 0;
    for (size_t i = node.begin; i < node.end && size > 1; ++i) {
      min = 0;
      inside += move(members[i], members[i + 1 < node.end ? i + 1 : node.begin],
                     twice * total * (size - 1) / size);
      min1 = std::max(min1, min);
    }
    furthest = std::max(furthest, inside * (size - 1) / size); // no part crosses all links
    longest = std::max(longest, min1);
  }
  min = across + longest;
  latency = (hops - shortest + furthest) * twice;
}

Traffic::CollectiveCost Traffic::cost(Operation operation, Algorithm algorithm) {
  min = latency = 0;
  switch (algorithm) {
  case Algorithm::AllPairs:
    allPairs(operation);
    break;
  case Algorithm::Tree:
    tree(operation);
    break;
  case Algorithm::Hierarchical:
    hierarchical(operation);
    break;
  case Algorithm::Rails:
    rails(operation, fewestOfNode());
    break;
  default:
    ring(operation, 0, members.size(), fewestOfNode());
  }
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
const std::vector<Traffic::CollectiveCost> &Traffic::choices(Operation operation,
                                                             const std::vector<Piece> &owners,
                                                             const std::vector<uint32_t> &readers,
                                                             double bytes, Algorithm algorithm) {
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
  mix(static_cast<uint64_t>(operation) << 8 | static_cast<uint64_t>(algorithm));
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
  std::vector<CollectiveCost> &found = entry->second;
  if (!isNew)
    return found;
  addMembers(owners, readers);
  if (operation == Operation::Reduce)
    total = bytes;
  if (members.size() < 2)
    return found;
  constexpr size_t kMaxInExchange = 32;
  for (Algorithm candidate : {Algorithm::Ring, Algorithm::Tree, Algorithm::Hierarchical,
                              Algorithm::Rails, Algorithm::AllPairs}) {
    if (algorithm != Algorithm::Best)
      break;
    if (!network->allows(static_cast<uint8_t>(candidate)) ||
        (candidate == Algorithm::AllPairs && members.size() > kMaxInExchange))
      continue;
    if (candidate == Algorithm::Hierarchical && members.front().site == members.back().site)
      continue;
    if (candidate == Algorithm::Rails &&
        (members.front().node == members.back().node || fewestOfNode() < 2))
      continue;
    found.push_back(cost(operation, candidate));
  }
  if (found.empty()) // the requested algorithm, or a ring if no allowed one is possible
    found.push_back(cost(operation, algorithm));
  for (const CollectiveCost &one : found)
    knownLoads += one.loads.size() + one.work.size() + 8;
  return found;
}

TransferTimes Traffic::run(Operation operation, const std::vector<Piece> &owners,
                           const std::vector<uint32_t> &readers, double bytes, double start,
                           Algorithm algorithm) {
  const CollectiveCost *best = nullptr;
  double bestEnd = 0, sent = start;
  for (const CollectiveCost &one : choices(operation, owners, readers, bytes, algorithm)) {
    const double end = endOf(one, start);
    if (!best || end + one.latency < bestEnd) {
      best = &one;
      bestEnd = end + one.latency;
      sent = end;
    }
  }
  if (!best)
    return {start, start};
  for (auto [r, load] : best->loads)
    freeAt[r] = std::max(freeAt[r], start) + load * network->secondsPerByte(r);
  for (auto [device, seconds] : best->work)
    charge(device, seconds, start);
  return {sent, sent + best->latency};
}

Algorithm zorse::sim::algorithmOf(zorse::bundle::Topology::Algorithm algorithm) {
  switch (algorithm) {
  case zorse::bundle::Topology::ALL_PAIRS:
    return Algorithm::AllPairs;
  case zorse::bundle::Topology::RING:
    return Algorithm::Ring;
  case zorse::bundle::Topology::TREE:
    return Algorithm::Tree;
  case zorse::bundle::Topology::HIERARCHICAL:
    return Algorithm::Hierarchical;
  case zorse::bundle::Topology::RAILS:
    return Algorithm::Rails;
  default:
    return Algorithm::Best;
  }
}

zorse::bundle::Topology::Algorithm zorse::sim::algorithmOf(Algorithm algorithm) {
  switch (algorithm) {
  case Algorithm::AllPairs:
    return zorse::bundle::Topology::ALL_PAIRS;
  case Algorithm::Ring:
    return zorse::bundle::Topology::RING;
  case Algorithm::Tree:
    return zorse::bundle::Topology::TREE;
  case Algorithm::Hierarchical:
    return zorse::bundle::Topology::HIERARCHICAL;
  case Algorithm::Rails:
    return zorse::bundle::Topology::RAILS;
  case Algorithm::Best:
    break;
  }
  return zorse::bundle::Topology::BEST;
}
