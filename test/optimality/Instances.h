// Random small planning problems, the same from a seed on every machine.
#pragma once

#include "../../lib/Planning/Search/Draws.h"

#include "zorse/Planning/Layout.h"

#include <memory>
#include <string>

namespace zorse::optimality {

class Random : public planning::Draws {
public:
  using Draws::Draws;
  /// In [low, high].
  int64_t between(int64_t low, int64_t high) { return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1)); }
  /// In [low, high), all magnitudes equally likely.
  double magnitude(double low, double high);
};

enum class Kind { Plain, TightMemory, SlowLinks, HeavyHead, TwoSites, OddBatch };
inline constexpr int kKinds = 6;
const char *nameOf(Kind kind);

struct Size {
  int devices = 6, types = 3, units = 8;
  int64_t batch = 12;
};

/// Owns what the problem refers to.
struct Instance {
  uint64_t seed = 0;
  Kind kind = Kind::Plain;
  bundle::ModelSummary summary;
  planning::Cluster cluster;
  std::optional<planning::CostModel> costs;
  std::unique_ptr<planning::Problem> problem;
  std::string describe() const; ///< one line
};

/// Kinds take turns by seed; sizes are drawn up to `most`.
///
/// Chains of units with random work, parameters and activations, the last one a head; 2 devices or more of up to three types (speeds over a factor of
/// 8, with and without a loss at few rows) in nodes of one to three, alike or mixed; then
///
///   plain         links that cost little, memory for everything
///   tight-memory  memory for 20 to 60 % of the model with all activations
///   slow-links    a boundary takes 0.3 to 3 times a unit's compute between nodes
///   heavy-head    the head costs 3 to 8 units
///   two-sites     half of the nodes behind a link with latency
///   odd-batch     a batch that is odd and larger than 3
std::unique_ptr<Instance> makeInstance(uint64_t seed, const Size &most = {});

} // namespace zorse::optimality
