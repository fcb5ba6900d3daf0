// Lower bounds on the step times of sets of layouts, for the enumeration in Exhaustive.cpp.
#pragma once

#include "zorse/Planning/Strategy.h"

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace zorse::optimality {

using Mask = uint32_t;
using Shape = std::vector<Mask>;                      ///< devices of every stage
using Samples = std::vector<std::array<int64_t, 16>>; ///< samples of every device in every stage

/// Times and sizes that the bounds use, as prefix sums over units.
class Tables {
public:
  explicit Tables(const planning::Problem &problem);

  double cellForward(int d, int begin, int end, int rows) const {
    return forward[d][rows - 1][end] - forward[d][rows - 1][begin];
  }
  double cellBackward(int d, int begin, int end, int rows) const {
    return backward[d][rows - 1][end] - backward[d][rows - 1][begin];
  }
  double busy(int d, int begin, int end, int64_t samples, int rows) const {
    auto cell = [&](int r) {
      return cellForward(d, begin, end, r) + cellBackward(d, begin, end, r);
    };
    return rows == 1 ? static_cast<double>(samples) * cell(1)
                     : static_cast<double>(samples / 2) * cell(2) +
                           static_cast<double>(samples % 2) * cell(1);
  }

  const planning::Problem &problem;
  const int devices, units;
  std::vector<double> forward[16][2], backward[16][2];
  double latency[16][16], perByte[16][16];
  std::vector<double> parameterBytes, savedBytes; ///< prefix sums over units
  std::vector<double> boundary;                   ///< by cut: bytes per sample
};

/// A pipeline of a family: devices and units of its stages, and its number of samples.
struct PipelineShape {
  const Shape *shape = nullptr;
  std::vector<int> ends; ///< end of the units of every stage
  int64_t samples = 0;
  int begin(size_t s) const { return s ? ends[s - 1] : 0; }
};

/// Lower bounds on the times of operations on state.
struct State {
  std::vector<double> gather; ///< by device: gathers before its first forward
  std::vector<double> reduce; ///< by device: reduction and norm of its shards, between its last
                              ///< backward and the decision
  double update = 0;          ///< the longest update, after the decision that all devices wait for
};

/// Computes the state bounds. With equal shares, all shards are known. With other rules, only
/// groups with one contributor count: it is the owner.
State stateOf(const Tables &t, const std::vector<PipelineShape> &pipelines,
              planning::ShardSizing rule);

/// Minimum latencies of one pipeline for one sample: before the first forward of a stage, after its
/// last backward, and of the whole way to the end and back.
struct Path {
  std::vector<double> down, up, link; ///< by stage; link: to the next stage
  double whole = 0;
};

/// A lower bound from the bandwidth of NICs and of the link between sites in one direction: the
/// time for all bytes, and the time for the bytes of one stage boundary plus the latencies before
/// the first and after the last of them. `samples`: samples of every device in every stage.
double linkBound(const Tables &t, const std::vector<PipelineShape> &pipelines,
                 const std::vector<Samples> &samples, const std::vector<Path> &paths);

/// A lower bound for gathers and reductions if shard sizes are not known: one of k contributors
/// owns at most 1/k and must receive the rest. `min` returns a lower bound on the compute time of a
/// device.
double stateBound(const Tables &t, const std::vector<PipelineShape> &pipelines,
                  const std::vector<Path> &paths,
                  const std::function<double(size_t pipeline, size_t stage, int device)> &min);

} // namespace zorse::optimality
