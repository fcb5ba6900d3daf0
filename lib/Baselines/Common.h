// What the re-implemented planners share: the model as they see it, links between pairs, and the choice of the first plan that fits.
#pragma once

#include "zorse/Baselines/Baselines.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::planning::baseline {

/// A model as a row of equal layers. Embedding and whatever is in front go with the first, the head with the last; no cost model here but ours counts
/// them.
struct Layers {
  std::vector<int32_t> cuts;                ///< unit at which each layer begins, and the number of units
  int32_t typicalBegin = 0, typicalEnd = 0; ///< units of one layer without embedding or head
  size_t count() const { return cuts.size() - 1; }

  explicit Layers(const bundle::ModelSummary &summary);
};

/// Seconds of units [begin, end) on a device for so many rows.
struct Times {
  double forward = 0, backward = 0;
  double both() const { return forward + backward; }
};
Times timesOf(const Problem &problem, uint32_t device, int32_t begin, int32_t end, int64_t rows);
/// Of one typical layer.
Times layerTimes(const Problem &problem, const Layers &layers, uint32_t device, int64_t rows);

/// Bytes of the values that cross a cut, per sample.
double boundaryBytes(const bundle::ModelSummary &summary, int32_t cut);
/// Bytes of the parameters of units [begin, end) in the model's type.
double parameterBytes(const bundle::ModelSummary &summary, int32_t begin, int32_t end);

/// Of one flow between two devices: the least of the bandwidths and limits it crosses.
double bandwidth(const Problem &problem, uint32_t a, uint32_t b);
double latency(const Problem &problem, uint32_t a, uint32_t b);
/// Least bandwidth between any two; unlimited for one device.
double leastBandwidth(const Problem &problem, const std::vector<uint32_t> &devices);
inline constexpr double kUnlimited = 1e18;

/// Micro-batches of a pipeline's samples as whole units of work: `counts[i]` micro-batches of `rows` for member i; what is too much is taken from the
/// last.
std::vector<Member> dealMicroBatches(const std::vector<uint32_t> &devices, const std::vector<int64_t> &counts, int64_t rows, int64_t samples);

struct Candidate {
  Layout layout;
  double cost = 0; ///< by the planner's own model
};

/// The best plans of a planner by its own model, without those that certainly lack memory.
class Shortlist {
public:
  explicit Shortlist(const Problem &problem) : problem(problem) {}
  void add(Candidate candidate);
  size_t seen() const { return count; }

  /// \param tried  how many candidates may be expanded.
  /// \param measured  the best by simulation among those (who has no cost model measures) instead of the first that fits.
  Result<Layout> choose(const char *name, size_t tried = 24, bool measured = false);

private:
  void trim();
  const Problem &problem;
  std::vector<Candidate> kept;
  double worst = 1e300; ///< what a candidate must not exceed
  size_t count = 0;
};

} // namespace zorse::planning::baseline
