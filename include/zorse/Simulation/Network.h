// Bytes between devices on a simulated clock: resources that flows share, and how long transfers and collectives take over them. Used by the expansion
// (which simulates while it lists a step), by the planner's quick simulation and by the runtime's simulated device, so that all three agree.
#pragma once

#include "bundle.pb.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace zorse::sim {

/// How a flow goes from one device to another. A resource is one direction of a port, a network card, an uplink, or a shared bus or fabric.
struct Route {
  std::array<uint32_t, 7> resources;
  uint8_t count = 0;
  double latency = 0;  ///< seconds
  double flow = 0;     ///< bytes/s of one flow at most; 0: not limited
};

/// What is connected to what; immutable, shared by threads.
///
///   in a node       sender's port out · bus · receiver's port in              port's latency
///   in a site       card out · fabric · card in                               fabric's latency and twice the card's
///   between sites   card out · uplink out · pair · uplink in · card in         the pair's latency and twice the card's
///
/// A flow runs at no more than the least of the `flow` limits and bandwidths it crosses. Links without a bandwidth are not limited.
class Network {
public:
  Network() = default;
  /// The topology must name existing nodes and sites (Planning's reader and the runtime's loader check it).
  explicit Network(const bundle::Topology &topology);

  size_t devices() const { return nodeOf.size(); }
  uint32_t node(uint32_t device) const { return nodeOf[device]; }
  uint32_t site(uint32_t device) const { return siteOfNode[nodeOf[device]]; }
  Route route(uint32_t from, uint32_t to) const;

  size_t resources() const { return bandwidths.size(); }
  double bandwidth(uint32_t resource) const { return bandwidths[resource]; } ///< bytes/s, > 0
  const std::string &name(uint32_t resource) const { return names[resource]; } ///< "card of node n1, out": for reports

private:
  std::vector<uint32_t> nodeOf, siteOfNode;
  std::vector<double> bandwidths;
  std::vector<std::string> names;
  struct Shape;
  std::vector<uint32_t> portOut, portIn, bus, cardOut, cardIn, fabric, uplinkOut, uplinkIn; ///< resource or kNoResource, by device, node or site
  std::vector<bundle::LinkClass> portOfNode, cardOfNode, fabricOfSite, uplinkOfSite;
  std::vector<uint32_t> pairResource; ///< sites x sites
  std::vector<bundle::LinkClass> pairLink;
};

inline constexpr uint32_t kNoResource = UINT32_MAX;

/// How a collective moves its bytes. `Exchange`: every piece goes straight to whoever needs it (what Gloo's transport does for sums); the others are the
/// textbook algorithms; `Hierarchical`: inside each site first, then one member per site across. `Best`: the one that ends first.
enum class Algorithm : uint8_t { Exchange, Ring, Tree, Hierarchical, Best };

struct Passage {
  double sent = 0;    ///< when the sender's queue is free again
  double arrived = 0; ///< when the last byte is there: `sent` and the latency
};

struct Piece {
  uint32_t device = 0;
  double bytes = 0;
};

/// Resources in use. Flows reserve each resource they cross in the order of these calls, whose `start` must not decrease: a resource passes bytes at its
/// bandwidth, first come, first served; a flow ends when the last of its resources has passed its bytes, and not before its own limit allows.
/// So parallel flows add up to no more than a bandwidth, one slow flow leaves the rest of it to others, and a simulation is one pass.
class Traffic {
public:
  explicit Traffic(const Network &network) : network(&network), freeAt(network.resources(), 0) {}
  void reset() { freeAt.assign(freeAt.size(), 0); }

  Passage send(uint32_t from, uint32_t to, double bytes, double start);
  /// Every reader gets every owner's piece (uneven all-gather).
  Passage allGather(const std::vector<Piece> &owners, const std::vector<uint32_t> &readers, double start, Algorithm algorithm);
  /// Every owner gets the sum over the contributors of its piece (uneven reduce-scatter).
  Passage reduceScatter(const std::vector<uint32_t> &contributors, const std::vector<Piece> &owners, double start, Algorithm algorithm);
  /// Every member gets the sum of `bytes` over all.
  Passage allReduce(const std::vector<uint32_t> &members, double bytes, double start, Algorithm algorithm);

  double busyUntil(uint32_t resource) const { return freeAt[resource]; }

private:
  const Network *network;
  std::vector<double> freeAt;
};

} // namespace zorse::sim
