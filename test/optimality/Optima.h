// Reads and writes files of optima of instances, with one JSON object per line.
#pragma once

#include "Exhaustive.h"
#include "Instances.h"

#include <map>
#include <string>

namespace zorse::optimality {

struct Known {
  bool feasible = false;
  double step = 0;
  planning::Strategy strategy;
  uint64_t simulated = 0;
  double sample = 0; ///< sampleTimes() when the optimum was computed
};

/// Sum of the simulated times of a few layouts drawn from the seed. It changes if the simulator,
/// the costs or the instance change.
double sampleTimes(const Instance &instance);

/// Draws a random layout of the enumerated space, with at least one sample per member. Returns
/// nullopt if the draw is not a valid layout.
std::optional<planning::Strategy> randomStrategy(const Instance &instance, Random &random);

std::string writeKnown(uint64_t seed, const Known &known); ///< returns one line
/// Reads a file of optima. Prints a message and exits if the file cannot be read.
std::map<uint64_t, Known> readOptima(const std::string &path);

} // namespace zorse::optimality
