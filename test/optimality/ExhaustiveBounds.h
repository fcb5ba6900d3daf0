// Times that no layout of a kind can be below, for the enumeration in Exhaustive.cpp.
#pragma once

#include "zorse/Planning/Layout.h"

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace zorse::optimality {

using Mask = uint32_t;
using Shape = std::vector<Mask>;                      ///< devices of every stage
using Samples = std::vector<std::array<int64_t, 16>>; ///< of every device in every stage

/// Times and sizes of everything the bounds ask for, by prefix sums over units.
class Tables {
public:
  explicit Tables(const planning::Problem &problem);

  double cellForward(int d, int begin, int end, int rows) const { return forward[d][rows - 1][end] - forward[d][rows - 1][begin]; }
  double cellBackward(int d, int begin, int end, int rows) const { return backward[d][rows - 1][end] - backward[d][rows - 1][begin]; }
  double busy(int d, int begin, int end, int64_t samples, int rows) const {
    auto cell = [&](int r) { return cellForward(d, begin, end, r) + cellBackward(d, begin, end, r); };
    return rows == 1 ? static_cast<double>(samples) * cell(1)
                     : static_cast<double>(samples / 2) * cell(2) + static_cast<double>(samples % 2) * cell(1);
  }

  const planning::Problem &problem;
  const int devices, units;
  std::vector<double> forward[16][2], backward[16][2];
  double latency[16][16], perByte[16][16];
  std::vector<double> parameterBytes, savedBytes; ///< prefix sums over units
  std::vector<double> boundary;                   ///< by cut: bytes of a sample
};

/// A pipeline's place in a family: devices and units of its stages, its samples.
struct PipelineShape {
  const Shape *shape = nullptr;
  std::vector<int> ends; ///< units
  int64_t samples = 0;
  int begin(size_t s) const { return s ? ends[s - 1] : 0; }
};

/// What bounds need to know of state.
struct State {
  std::vector<double> gather; ///< by device: before its first forward
  std::vector<double> reduce; ///< between its last backward and the decision: the reduction and the norm of what it owns
  double update = 0;          ///< after the decision, for which all devices wait: the longest update
};

/// Under equal shares everything is known; under another rule only what has one contributor, who owns it.
State stateOf(const Tables &t, const std::vector<PipelineShape> &pipelines, planning::StateRule rule);

/// Latencies of one pipeline for one sample, each the least possible: before the first forward of a stage, after its last backward, there and back.
struct Path {
  std::vector<double> down, up, link; ///< by stage; link: to the next stage
  double whole = 0;
};

/// Bytes that a network card, or the link between sites, must pass in one direction over its bandwidth: all of them together, and those of one
/// boundary with what is in front of the first and behind the last. `samples`: of every device in every stage.
double linkBound(const Tables &t, const std::vector<PipelineShape> &pipelines, const std::vector<Samples> &samples, const std::vector<Path> &paths);

/// Gathers and reductions when it is not known who owns how much: of k contributors one owns at most 1/k, and has to get the rest. `least` gives a
/// bound on the compute of a device.
double stateBound(const Tables &t, const std::vector<PipelineShape> &pipelines, const std::vector<Path> &paths,
                  const std::function<double(size_t pipeline, size_t stage, int device)> &least);

} // namespace zorse::optimality
