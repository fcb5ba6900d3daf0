// Ways to break programs. Each takes correct programs and changes one thing, mostly so that sizes and order stay legal.
#pragma once

#include "RealPrograms.h"

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace zorse::test {

struct Mutation {
  const char *name;
  /// Changes `programs` in one random place; false when there is no such place. `what` says what was done.
  std::function<bool(std::vector<bundle::Program> &programs, const RealCase &original, std::mt19937 &random, std::string &what)> apply;
};

const std::vector<Mutation> &mutations();

/// Whether a checker of sizes and order alone would find nothing: regions inside arenas, slots as long as their bodies say, ids ascending, waits
/// earlier, both halves there with equal sizes, members of collectives agreeing.
bool keepsSizesAndOrder(const RealCase &original, const std::vector<bundle::Program> &programs);

} // namespace zorse::test
