// Makes the simplest correct programs of a plan: buffers do not share bytes, and every device
// executes one instruction at a time, in list order. Independent of lib/Step. Unit tests of the
// verifier introduce one fault at a time into these programs.
#pragma once

#include "SyntheticModel.h"

#include <vector>

namespace zorse::test {

struct SerialCell {
  int firstUnit, endUnit;
  int64_t firstSample, endSample;
  uint32_t device;
};

struct SerialShard {
  uint32_t group, device;
  int64_t begin, end;
};

struct SerialPlan {
  int64_t batch = 0;
  int devices = 1;
  std::vector<SerialCell> cells;
  std::vector<SerialShard> owners; ///< several per device; default: the whole group on its first
                                   ///< device with a cell that uses it
  bool splitBackward = false;      ///< W runs directly after B
  bool compact = false; ///< parameters and gradient accumulators without the padding between
                        ///< parameters
};

std::vector<bundle::Program> serialPrograms(const SyntheticModel &model, const SerialPlan &plan);

} // namespace zorse::test
