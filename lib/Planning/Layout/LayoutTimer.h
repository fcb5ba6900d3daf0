// How a layout does, by the expansion itself: times and peaks of memory alone, twins once. Internal to Planning.
#pragma once

#include "Twins.h"

#include "zorse/Planning/Layout.h"

#include <memory>
#include <vector>

namespace zorse::planning {

/// One per thread; what layouts of one problem have in common is found once.
class LayoutTimer {
public:
  /// Placed buffers usually leave gaps of one part of the activations in so many.
  static constexpr uint64_t kGaps = 50;

  /// \param gaps  memory counts one part of the activations in so many for gaps; 0: none, plans may turn out not to fit, and none that fits seems not
  /// to
  /// \param tries  how often fewer samples in flight are tried where memory is short
  explicit LayoutTimer(const Problem &problem, uint64_t gaps = kGaps, int tries = 1);

  struct Result {
    bool ran = false;             ///< false: the order cannot run
    double step = 0;              ///< seconds
    uint64_t excess = 0;          ///< bytes that devices lack, summed
    std::vector<uint64_t> memory; ///< per device of the cluster, gaps included
    std::vector<uint64_t> gaps;   ///< per device: what was counted for them
    std::vector<double> busy;     ///< per device: seconds of compute
    uint32_t tasks = 0;           ///< entries of the list that was simulated
  };
  const Result &run(const Layout &layout);

  /// The layout's plan, all pipelines in it.
  step::Plan plan(const Layout &layout);

private:
  void deal(const Layout &layout, bool withTwins, step::Plan &plan) const;
  zorse::Result<step::StepTimes> time(const step::Plan &plan, bool withTwins);
  void ownByMemory(const Layout &layout, bool withTwins, step::Plan &plan);

  const Problem &problem;
  const uint64_t gaps;
  const int tries;
  std::shared_ptr<step::ExpansionTables> tables;
  TwinFinder twins;
  step::Plan reused;          ///< devices and links are the same for all layouts
  std::vector<uint64_t> host; ///< by device: bytes in its host's memory
  Result result;
};

} // namespace zorse::planning
