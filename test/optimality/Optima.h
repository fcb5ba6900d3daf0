// Optima of instances, kept in a file: one JSON object per line.
#pragma once

#include "Exhaustive.h"
#include "Instances.h"

#include <map>
#include <string>

namespace zorse::optimality {

struct Known {
  bool feasible = false;
  double step = 0;
  planning::Layout layout;
  uint64_t simulated = 0;
  double sample = 0; ///< sampleTimes when it was computed
};

/// Sum of the simulated times of a few layouts drawn from the seed: differs if the simulator, the costs or the instance do.
double sampleTimes(const Instance &instance);

/// A layout of the enumerated space, drawn at random; every member gets a sample. Returns nothing for a draw that is not one.
std::optional<planning::Layout> randomLayout(const Instance &instance, Random &random);

std::string writeKnown(uint64_t seed, const Known &known); ///< a line
/// Ends the program with a message for a file that cannot be read.
std::map<uint64_t, Known> readOptima(const std::string &path);

} // namespace zorse::optimality
