// Makes small random planning problems. A seed gives the same problem on every machine.
#pragma once

#include "../../lib/Planning/Search/SplitMix64.h"

#include "zorse/Planning/Strategy.h"

#include <memory>
#include <string>

namespace zorse::optimality {

class Random : public planning::SplitMix64 {
public:
  using SplitMix64::SplitMix64;
  /// A random number in [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  /// A random number in [low, high), uniform in its logarithm.
  double magnitude(double low, double high);
};

enum class Kind { Plain, TightMemory, SlowLinks, HeavyHead, TwoSites, OddBatch };
inline constexpr int kKinds = 6;
const char *nameOf(Kind kind);

struct Size {
  int devices = 6, types = 3, units = 8;
  int64_t batch = 12;
};

/// A problem and the objects that it refers to.
struct Instance {
  uint64_t seed = 0;
  Kind kind = Kind::Plain;
  bundle::ModelSummary summary;
  planning::Cluster cluster;
  std::optional<planning::CostModel> costs;
  std::unique_ptr<planning::Problem> problem;
  std::string describe() const; ///< one line
};

/// Kinds alternate with the seed; sizes are drawn up to `max`.
///
/// Models are chains of units with random work, parameters and activations; the last unit is a
/// head. Clusters have 2 devices or more of up to three types, with speeds that differ by up to a
/// factor of 8, with and without lower speed at few rows. Nodes have one to three devices, of equal
/// or mixed types. Kinds:
///
///   plain         fast links, enough memory for everything
///   tight-memory  memory for 20 to 60 % of the model with all activations
///   slow-links    transferring a boundary between nodes takes 0.3 to 3 times a unit's compute
///   heavy-head    the head costs 3 to 8 units
///   two-sites     half of the nodes at a second site, over a link with latency
///   odd-batch     a batch that is odd and larger than 3
std::unique_ptr<Instance> makeInstance(uint64_t seed, const Size &max = {});

} // namespace zorse::optimality
