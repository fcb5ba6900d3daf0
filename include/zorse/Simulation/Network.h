// Bytes between devices on a simulated clock: resources that flows share, and how long transfers and collectives take over them. Used by the
// expansion (which simulates while it lists a step), by the planner's timer, which is the expansion, and by the runtime's simulated device, so that
// all three agree.
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

/// How a flow goes from one device to another. A resource is one direction of a port, a network card, an uplink, or a shared bus or fabric.
struct Route {
  std::array<uint32_t, 5> resources;
  uint32_t count = 0;
  double latency = 0; ///< seconds
  double flow = 0;    ///< bytes/s of one flow at most; 0: not limited
  double ramp = 0;    ///< seconds that a message takes besides those of its bytes, whatever it crosses being free for others
};

/// A device whose own processors move what it sends and receives. That is work: computing loses it, and moving takes at least as long.
struct Moving {
  double perByte = 0, perMessage = 0; ///< seconds of work
  double delay = 0;                   ///< seconds that a message waits for a processor where the device computes
  double work(double bytes) const { return perMessage + bytes * perByte; }
};

/// What is connected to what; immutable, shared by threads.
///
///   in a node       sender's port out · bus · receiver's port in              latency: of the port, once, and the bus
///   in a site       card out · fabric · card in                               of the fabric and both cards
///   between sites   card out · uplink out · pair · uplink in · card in        of the pair, both uplinks and both cards
///
/// A flow runs at no more than the least of the `flow` limits and bandwidths it crosses. Links without a bandwidth are not limited. Small messages
/// run at less: one of n bytes takes (n + half_size) / rate over a link (Hockney's n1/2), and the slowest link to get going counts (Route::ramp).
/// With more than kMostSitesInPairs sites, pairs of sites are no shared resources: their bandwidth limits each flow alone.
class Network {
public:
  static constexpr size_t kMostSitesInPairs = 1024;

  Network() = default;
  /// The topology must name existing nodes and sites (Planning's reader and the runtime's loader check it).
  explicit Network(const bundle::Topology &topology);

  size_t devices() const { return ofDevice.size(); }
  size_t sites() const { return ofSite.size(); }
  uint32_t node(uint32_t device) const { return ofDevice[device].node; }
  uint32_t site(uint32_t device) const { return ofNode[ofDevice[device].node].site; }
  /// Constant time. From a device to itself nothing is crossed.
  Route route(uint32_t from, uint32_t to) const;

  /// Whether processors of any device move bytes themselves (Topology.moving).
  bool hasMoving() const { return !movers.empty(); }
  const Moving &moving(uint32_t device) const { return movers[device]; } ///< only if hasMoving()

  /// Whether Algorithm::Best may choose it (Topology.algorithms).
  bool allows(uint8_t algorithm) const { return allowed >> algorithm & 1; }

  size_t resources() const { return bandwidths.size(); }
  double bandwidth(uint32_t resource) const { return bandwidths[resource]; } ///< bytes/s, > 0
  double secondsPerByte(uint32_t resource) const { return inverse[resource]; }
  /// "card of node n1, out", "port of a100:3, in": for reports. `deviceNames`: by device; empty: numbers.
  std::string name(uint32_t resource, const std::vector<std::string> &deviceNames = {}) const;

private:
  /// Both ends of a link that has a direction each way; resources may be kNoResource.
  struct Ends {
    uint32_t out = kNoResource, in = kNoResource;
    double latency = 0, flow = 0, ramp = 0;
  };
  struct Shared {
    uint32_t resource = kNoResource;
    double latency = 0, flow = 0, ramp = 0;
  };
  struct OfDevice {
    uint32_t node, portOut, portIn;
  };
  struct OfNode {
    uint32_t site;
    double portLatency, portFlow, portRamp;
    Shared bus;
    Ends card;
  };
  struct OfSite {
    Shared fabric;
    Ends uplink;
  };
  enum class Kind : uint8_t { PortOut, PortIn, Bus, CardOut, CardIn, Fabric, UplinkOut, UplinkIn, Pair };

  uint32_t addResource(const bundle::LinkClass &link, Kind kind, uint32_t owner);
  const Shared &pair(uint32_t from, uint32_t to) const;

  std::vector<OfDevice> ofDevice;
  std::vector<OfNode> ofNode;
  std::vector<OfSite> ofSite;
  std::vector<Shared> pairs;                        ///< sites x sites, if there are not too many
  std::unordered_map<uint64_t, Shared> listedPairs; ///< otherwise: (from << 32 | to)
  Shared otherPairs;
  std::vector<double> bandwidths, inverse;
  std::vector<Moving> movers;                    ///< by device, or empty
  uint32_t allowed = ~0u;                        ///< a bit per sim::Algorithm
  std::vector<std::pair<Kind, uint32_t>> owners; ///< per resource: index of a device, node, site or pair
  std::vector<std::string> nodeNames, siteNames;
};

/// How a collective moves its bytes.
///   Exchange      every piece goes straight to whoever needs it (what Gloo's transport does for sums)
///   Ring          members by site, node and device; every link carries all but one piece. As many rings as every node has
///                 members, each with its part and leaving nodes by another device: so many flows cross a card
///   Tree          a binary tree over the members in that order
///   Hierarchical  a ring inside each site, a ring over one member per site, a ring inside each site
///   Rails         across nodes, the members of equal place in their nodes in rings side by side, each with its part of the bytes; inside each node a
///   ring. A
///                 card passes all but what its node owns; where nodes have one member it is Ring
///   Best          of those the topology allows, the one that ends first; Exchange is tried up to 32 members
/// Rings and trees pass bytes on in small parts: bandwidth counts once, latency with every hop.
enum class Algorithm : uint8_t { Exchange, Ring, Tree, Hierarchical, Rails, Best };

Algorithm algorithmOf(bundle::Topology::Algorithm algorithm);
bundle::Topology::Algorithm algorithmOf(Algorithm algorithm);

struct Passage {
  double sent = 0;    ///< when the queues of those who take part are free again
  double arrived = 0; ///< when the last byte is there: `sent` and the latency
};

struct Piece {
  uint32_t device = 0;
  double bytes = 0;
};

/// Resources in use. Flows reserve each resource they cross in the order of these calls, whose `start` must not decrease: a resource passes bytes at
/// its bandwidth, first come, first served; a flow ends when the last of its resources has passed its bytes, and not before its own limit allows. So
/// parallel flows add up to no more than a bandwidth, one slow flow leaves the rest of it to others, and a simulation is one pass. A collective
/// reserves on every resource the bytes it passes there in all. Where a device's processors move bytes they are a resource too, of both directions.
/// While the device computes they have half as much for it, and a message waits for them first (Moving::delay, or until computing is over).
class Traffic {
public:
  explicit Traffic(const Network &network) : network(&network), freeAt(network.resources(), 0), load(network.resources(), 0) { reset(); }
  void reset() {
    freeAt.assign(freeAt.size(), 0);
    debts.assign(network->hasMoving() ? network->devices() : 0, Debt());
  }

  Passage send(uint32_t from, uint32_t to, double bytes, double start);
  /// Every reader gets every owner's piece (uneven all-gather). Neither list names a device twice.
  Passage allGather(const std::vector<Piece> &owners, const std::vector<uint32_t> &readers, double start, Algorithm algorithm);
  /// Every owner gets the sum over the contributors of its piece (uneven reduce-scatter).
  Passage reduceScatter(const std::vector<uint32_t> &contributors, const std::vector<Piece> &owners, double start, Algorithm algorithm);
  /// Every member gets the sum of `bytes` over all.
  Passage allReduce(const std::vector<uint32_t> &members, double bytes, double start, Algorithm algorithm);

  /// When a device that computes for `seconds` from `start` on is done. On top comes what it lost to what it moved (Moving) while it computed before,
  /// less the time that it was idle since; and what its processors still have to move, which they do half of the time. A device computes one thing at
  /// a time.
  double compute(uint32_t device, double seconds, double start);
  /// Says that a device computes until `end`, where what it loses is already part of that.
  void occupy(uint32_t device, double end) {
    if (!debts.empty())
      debts[device].until = end;
  }

  double busyUntil(uint32_t resource) const { return freeAt[resource]; }

private:
  struct Member {
    uint32_t device, site, node;
    double owned; ///< bytes of its piece
    bool reads;
  };
  struct Run { ///< members [begin, end)
    size_t begin, end;
    double owned;
  };
  enum class Operation : uint8_t { Gather, Scatter, Reduce };
  struct Weighed {                                  ///< a collective by one algorithm, on an idle network
    double least, latency;                          ///< seconds
    std::vector<std::pair<uint32_t, double>> loads; ///< bytes by resource
    std::vector<std::pair<uint32_t, double>> work;  ///< seconds of moving by device
  };
  using Key = std::array<uint64_t, 2>;
  struct KeyHash {
    size_t operator()(const Key &key) const { return static_cast<size_t>(key[0]); }
  };
  struct Debt {
    double until = 0;   ///< computes until then
    double seconds = 0; ///< of moving before `until` which that does not know of; idle time after it works them off
    double free = 0;    ///< when its processors have moved what they were given
  };

  void charge(uint32_t device, double work, double start);
  double delay(uint32_t device, double start) const;
  double moved(uint32_t device, double work, double start) const;
  Passage run(Operation operation, const std::vector<Piece> &owners, const std::vector<uint32_t> &readers, double bytes, double start,
              Algorithm algorithm);
  const std::vector<Weighed> &choices(Operation operation, const std::vector<Piece> &owners, const std::vector<uint32_t> &readers, double bytes,
                                      Algorithm algorithm);
  Weighed weigh(Operation operation, Algorithm algorithm);
  void flow(uint32_t from, uint32_t to, double bytes, size_t several = 1);
  void ring(Operation operation, size_t begin, size_t end, size_t several);
  size_t fewestOfNode() const;
  std::vector<Run> runsOf(uint32_t Member::*place) const;
  void tree(Operation operation);
  void exchange(Operation operation);
  void hierarchical(Operation operation);
  void rails(Operation operation, size_t several);
  double endOf(const Weighed &collective, double start) const;
  void addMembers(const std::vector<Piece> &owners, const std::vector<uint32_t> &readers);

  const Network *network;
  std::vector<double> freeAt;
  // Of the collective at hand: its members by (site, node, device), bytes per resource, least time and latency on an idle network.
  std::vector<Member> members;
  double total = 0;
  std::vector<double> load;
  std::vector<uint32_t> touched;
  std::vector<double> work; ///< seconds of moving by device; only where moving is work
  std::vector<uint32_t> movers;
  std::vector<Debt> debts;
  double least = 0, latency = 0, lastHop = 0;
  std::unordered_map<Key, std::vector<Weighed>, KeyHash> known; ///< collectives that were weighed, by each algorithm that may do
  size_t knownLoads = 0;
};

} // namespace zorse::sim
