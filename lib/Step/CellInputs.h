// Loads of the graph inputs that cells read: one per device and range of rows. A cell with rows
// inside another cell's range reads from that range. Internal to lib/Step.
#pragma once

#include "PlanLowering.h"

namespace zorse::step {

class CellInputs {
public:
  explicit CellInputs(PlanLowering &x) : x(x) {}

  /// Finds the ranges that devices load.
  void plan();
  /// Adds the loads that a cell needs, unless they exist. Precondition: plan().
  void load(uint32_t cell);

private:
  struct Range {
    int64_t begin, end;
    uint32_t loaded = kNone; ///< index in PlanLowering::inputs
  };

  std::vector<Range> &rangesOf(uint32_t device, uint32_t input);
  Range &find(const Cell &cell, uint32_t input);
  InputRows loadRange(uint32_t c, uint32_t input, int64_t begin, int64_t end);

  PlanLowering &x;
  std::vector<std::vector<Range>> ranges; ///< per device and input
};

} // namespace zorse::step
