// Code shared by the re-implemented planners: their representation of a model, bandwidths between
// pairs of devices, and the choice of the first plan that fits.
#pragma once

#include "zorse/Baselines/Baselines.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::planning::baseline {

/// A model as a sequence of equal layers. The embedding and all units before the first layer belong
/// to the first layer, the head to the last one. The planners' own cost models do not count them.
struct Layers {
  std::vector<int32_t> cuts; ///< first unit of each layer, and then the number of units
  int32_t typicalBegin = 0, typicalEnd = 0; ///< units of a layer without embedding or head
  size_t count() const { return cuts.size() - 1; }

  explicit Layers(const bundle::ModelSummary &summary);
};

/// Seconds of units [begin, end) on a device for `rows` rows.
struct Times {
  double forward = 0, backward = 0;
  double both() const { return forward + backward; }
};
Times timesOf(const Problem &problem, uint32_t device, int32_t begin, int32_t end, int64_t rows);
/// Returns the times of one typical layer.
Times layerTimes(const Problem &problem, const Layers &layers, uint32_t device, int64_t rows);

/// Returns the bytes per sample of the values that cross a cut.
double boundaryBytes(const bundle::ModelSummary &summary, int32_t cut);
/// Returns the bytes of the parameters of units [begin, end) in the model's type.
double parameterBytes(const bundle::ModelSummary &summary, int32_t begin, int32_t end);

/// Returns the bytes/s of one flow between two devices: the minimum of the bandwidths and flow
/// limits on its route.
double bandwidth(const Problem &problem, uint32_t a, uint32_t b);
double latency(const Problem &problem, uint32_t a, uint32_t b);
/// Returns the minimum bandwidth between any two devices; unlimited for one device.
double minBandwidth(const Problem &problem, const std::vector<uint32_t> &devices);
inline constexpr double kUnlimited = 1e18;

/// Distributes a pipeline's samples in whole micro-batches: `counts[i]` micro-batches of `rows` for
/// member i. Excess samples are removed from the last member.
std::vector<step::StageDevice> assignMicroBatches(const std::vector<uint32_t> &devices,
                                                  const std::vector<int64_t> &counts, int64_t rows,
                                                  int64_t samples);

struct Candidate {
  Strategy strategy;
  double cost = 0; ///< cost in the planner's own model
};

/// The best plans of a planner by its own model, without those that certainly exceed memory.
class Shortlist {
public:
  explicit Shortlist(const Problem &problem) : problem(problem) {}
  void add(Candidate candidate);
  size_t seen() const { return count; }

  /// \param tried     maximum number of candidates to expand
  /// \param measured  returns the best of these by simulation instead of the first that fits; for
  ///   systems without a cost model
  Result<Strategy> choose(const char *name, size_t tried = 24, bool measured = false);

private:
  void trim();
  const Problem &problem;
  std::vector<Candidate> kept;
  double worst = 1e300; ///< maximum cost of a candidate
  size_t count = 0;
};

} // namespace zorse::planning::baseline
