// Transfer times on a simulated clock: resources that flows share, and the durations of transfers
// and collectives over them. The expansion (which simulates while it lists a step), the planner's
// timer (which is the expansion) and the runtime's simulated device use this code, so their times
// agree.
#pragma once

#include "bundle.pb.h"

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace zorse::sim {

inline constexpr uint32_t kNoResource = UINT32_MAX;

/// Path of a flow from one device to another. A resource is one direction of a port, a network
/// card, an uplink, or a shared bus or fabric.
struct Route {
  std::array<uint32_t, 5> resources;
  uint32_t count = 0;
  double latency = 0;          ///< seconds
  double perFlowBandwidth = 0; ///< maximum bytes/s of one flow; 0: unlimited
  double startupSeconds = 0;   ///< seconds of a message in addition to the time of its bytes; the
                               ///< resources are free for others during this time
};

/// Parameters of a device that moves data with its own CPUs. Moving data takes compute time from
/// the device, and at least as long as the work.
struct CpuCommunicationCost {
  double perByte = 0, perMessage = 0; ///< seconds of work
  double delay = 0; ///< seconds that a message waits for a CPU while the device computes
  double work(double bytes) const { return perMessage + bytes * perByte; }
};

/// Network topology. Immutable; threads may share it.
///
///     in a node       sender's device link out · bus · receiver's device link in
///     in a site       NIC out · fabric · NIC in
///     between sites   NIC out · uplink out · pair · uplink in · NIC in
///
/// Latencies that count:
/// - in a node: of the device link, once, and of the bus;
/// - in a site: of the fabric and of both NICs;
/// - between sites: of the pair, of both uplinks and of both NICs.
///
/// The rate of a flow is at most the minimum of the `flow` limits and bandwidths on its route.
/// Links without a bandwidth are unlimited. Small messages are slower: a message of n bytes takes
/// (n + half_bandwidth_bytes) / rate over a link (Hockney's n1/2), and the largest such delay on
/// the route counts (Route::startupSeconds). With more than kMaxSitesInPairs sites, pairs of sites
/// are not shared resources: their bandwidth limits each flow separately.
class Network {
public:
  static constexpr size_t kMaxSitesInPairs = 1024;

  Network() = default;
  /// The topology must refer to existing nodes and sites (the planner's reader and the runtime's
  /// loader check it).
  explicit Network(const bundle::Topology &topology);

  size_t devices() const { return deviceLinks.size(); }
  size_t sites() const { return siteLinks.size(); }
  uint32_t node(uint32_t device) const { return deviceLinks[device].node; }
  uint32_t site(uint32_t device) const { return nodeLinks[deviceLinks[device].node].site; }
  /// Bytes/s of a device's links in one direction: inside its node, of its node's card, and of its
  /// site's uplink; 0: unlimited.
  double portBandwidth(uint32_t device) const {
    return bandwidthOf(deviceLinks[device].deviceLinkOut);
  }
  double nicBandwidth(uint32_t device) const {
    return bandwidthOf(nodeLinks[deviceLinks[device].node].nic.out);
  }
  double uplinkBandwidth(uint32_t device) const {
    return bandwidthOf(siteLinks[site(device)].uplink.out);
  }
  /// Returns the route in constant time. The route from a device to itself is empty.
  Route route(uint32_t from, uint32_t to) const;

  /// Whether any device moves data with its own CPUs (Topology.moving).
  bool hasCommunicationCost() const { return !communicationCosts.empty(); }
  const CpuCommunicationCost &communicationCost(uint32_t device) const {
    return communicationCosts[device];
  } ///< only if hasCommunicationCost()

  /// Devices of one group exchange from memory to memory; -1: with none.
  int32_t directGroup(uint32_t device) const {
    return directGroups.empty() ? -1 : directGroups[device];
  }
  /// Whether gradients are summed by one exchange.
  bool sumsPairwise() const { return pairwiseSums; }

  size_t resources() const { return bandwidths.size(); }
  double bandwidth(uint32_t resource) const { return bandwidths[resource]; } ///< bytes/s, > 0
  double secondsPerByte(uint32_t resource) const { return inverse[resource]; }
  /// Returns a resource's name for reports: "NIC of node n1, out", "device link of a100:3, in".
  /// `deviceNames`: per device; empty: numbers.
  std::string name(uint32_t resource, const std::vector<std::string> &deviceNames = {}) const;

private:
  /// Both directions of a link; a resource may be kNoResource.
  struct DuplexLink {
    uint32_t out = kNoResource, in = kNoResource;
    double latency = 0, perFlowBandwidth = 0, startupSeconds = 0;
  };
  struct SharedLink {
    uint32_t resource = kNoResource;
    double latency = 0, perFlowBandwidth = 0, startupSeconds = 0;
  };
  struct DeviceLinks {
    uint32_t node, deviceLinkOut, deviceLinkIn;
  };
  struct NodeLinks {
    uint32_t site;
    double deviceLinkLatency, deviceLinkPerFlowBandwidth, deviceLinkStartupSeconds;
    SharedLink bus;
    DuplexLink nic;
  };
  struct SiteLinks {
    SharedLink fabric;
    DuplexLink uplink;
  };
  enum class Kind : uint8_t {
    DeviceLinkOut,
    DeviceLinkIn,
    Bus,
    NicOut,
    NicIn,
    Fabric,
    UplinkOut,
    UplinkIn,
    Pair
  };

  double bandwidthOf(uint32_t resource) const {
    return resource == kNoResource ? 0 : bandwidths[resource];
  }
  uint32_t addResource(const bundle::LinkSpec &link, Kind kind, uint32_t owner);
  const SharedLink &pair(uint32_t from, uint32_t to) const;

  std::vector<DeviceLinks> deviceLinks;
  std::vector<NodeLinks> nodeLinks;
  std::vector<SiteLinks> siteLinks;
  std::vector<SharedLink> pairs; ///< sites x sites, if the number of sites is small enough
  std::unordered_map<uint64_t, SharedLink> listedPairs; ///< otherwise: (from << 32 | to)
  SharedLink otherPairs;
  std::vector<double> bandwidths, inverse;
  std::vector<CpuCommunicationCost> communicationCosts; ///< per device; empty if no device moves
                                                        ///< data itself
  std::vector<int32_t> directGroups;                    ///< per device, or empty
  bool pairwiseSums = false;
  std::vector<std::pair<Kind, uint32_t>> owners; ///< per resource: index of a device, node, site or
                                                 ///< pair
  std::vector<std::string> nodeNames, siteNames;
};

struct TransferTimes {
  double sent = 0;    ///< time at which the queues of the participants are free again
  double arrived = 0; ///< arrival time of the last byte: `sent` plus the latency
};

struct Piece {
  uint32_t device = 0;
  double bytes = 0;
};

/// Resources in use. Flows reserve each resource on their route in the order of these calls;
/// `start` must not decrease. A resource transfers bytes at its bandwidth, first come, first
/// served. A flow ends when the last of its resources has transferred its bytes, but not before its
/// own limit allows. Parallel flows therefore share a bandwidth, a slow flow leaves the rest to
/// others, and a simulation is one pass. A collective reserves its total bytes on every resource.
///
/// If a device moves data with its own CPUs, these are also a resource, shared by both directions.
/// While the device computes they have half their time for transfers, and a message first waits for
/// them (CpuCommunicationCost::delay, or until computing ends).
class Traffic {
public:
  explicit Traffic(const Network &network)
      : network(&network), freeAt(network.resources(), 0), load(network.resources(), 0) {
    reset();
  }
  void reset() {
    freeAt.assign(freeAt.size(), 0);
    backlogs.assign(network->hasCommunicationCost() ? network->devices() : 0,
                    CommunicationBacklog());
  }

  TransferTimes send(uint32_t from, uint32_t to, double bytes, double start);
  /// Every reader gets every owner's part (uneven all-gather). Neither list may contain a device
  /// twice. If all members exchange directly and read, they use NCCL's rings; else owners send
  /// their parts to the readers.
  TransferTimes allGather(const std::vector<Piece> &owners, const std::vector<uint32_t> &readers,
                          double start);
  /// Every owner gets the sum of its part over the contributors (uneven reduce-scatter), who send
  /// it their terms.
  TransferTimes reduceScatter(const std::vector<uint32_t> &contributors,
                              const std::vector<Piece> &owners, double start);
  /// Every member gets the sum of a few numbers over all members: from every member or, if there
  /// are many, from the first.
  TransferTimes allReduce(const std::vector<uint32_t> &members, double bytes, double start);

  /// Returns the end time of `seconds` of compute that starts at `start`. It includes the compute
  /// time lost to transfers (CpuCommunicationCost) during the previous computation, minus idle time
  /// since then, and the transfers that the CPUs still have to execute, at half of their time. A
  /// device computes one task at a time.
  double compute(uint32_t device, double seconds, double start);
  /// Marks the device as computing until `end`, which already includes lost time.
  void occupy(uint32_t device, double end) {
    if (!backlogs.empty())
      backlogs[device].until = end;
  }

  double busyUntil(uint32_t resource) const { return freeAt[resource]; }

private:
  struct Member {
    uint32_t device, site, node;
    double owned; ///< bytes of its part
    bool reads;
  };
  enum class Operation : uint8_t { Gather, Scatter, Reduce };
  struct CollectiveCost {                           ///< on an idle network
    double min = 0, latency = 0;                    ///< seconds
    std::vector<std::pair<uint32_t, double>> loads; ///< bytes per resource
    std::vector<std::pair<uint32_t, double>> work;  ///< seconds of transfers per device
  };
  using Key = std::array<uint64_t, 2>;
  struct KeyHash {
    size_t operator()(const Key &key) const { return static_cast<size_t>(key[0]); }
  };
  struct CommunicationBacklog {
    double until = 0;   ///< end of the current computation
    double seconds = 0; ///< seconds of transfers before `until` that `until` does not include; idle
                        ///< time after it reduces them
    double free = 0;    ///< time at which its CPUs have executed their transfers
  };

  void charge(uint32_t device, double work, double start);
  double delay(uint32_t device, double start) const;
  double moved(uint32_t device, double work, double start) const;
  TransferTimes run(Operation operation, const std::vector<Piece> &owners,
                    const std::vector<uint32_t> &readers, double bytes, double start);
  const CollectiveCost &costOf(Operation operation, const std::vector<Piece> &owners,
                               const std::vector<uint32_t> &readers, double bytes);
  CollectiveCost cost(Operation operation);
  bool gathersByRings() const;
  void flow(uint32_t from, uint32_t to, double bytes, size_t several = 1);
  void rings(size_t several);
  size_t fewestOfNode() const;
  void exchange(Operation operation);
  void star();
  double endOf(const CollectiveCost &collective, double start) const;
  void addMembers(const std::vector<Piece> &owners, const std::vector<uint32_t> &readers);

  const Network *network;
  std::vector<double> freeAt;
  // State of the current collective: its members by (site, node, device), bytes per resource,
  // minimum time and latency on an idle network.
  std::vector<Member> members;
  double total = 0;
  std::vector<double> load;
  std::vector<uint32_t> touched;
  std::vector<double> work; ///< seconds of transfers per device; only if devices move data
                            ///< themselves
  std::vector<uint32_t> movers;
  std::vector<CommunicationBacklog> backlogs;
  double min = 0, latency = 0, lastHop = 0;
  std::unordered_map<Key, CollectiveCost, KeyHash> known; ///< by what identifies a collective
  size_t knownLoads = 0;
};

} // namespace zorse::sim
