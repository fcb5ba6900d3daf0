// The simplest correct programs of a plan: every buffer has bytes of its own and every device does one thing at a time, in list order.
// Independent of lib/Step: unit tests of the verifier break these programs one way at a time.
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
  std::vector<SerialShard> owners; ///< groups without owners: all of it on the first device with a cell that uses it. A device may have several
  bool splitBackward = false;      ///< B and W, one right after the other
  bool compact = false;            ///< devices read parameters, and add up their gradients, without the padding between them
};

std::vector<bundle::Program> serialPrograms(const SyntheticModel &model, const SerialPlan &plan);

} // namespace zorse::test
