// Ways to break programs, one file per family of faults. Each takes correct programs and changes one thing, at both ends where a compiler would have,
// mostly so that sizes and order stay legal.
//
//   OrderMutations.cpp    ordering, waits
//   MatchMutations.cpp    matching
//   PlaceMutations.cpp    offsets, sizes, lifetimes
//   StateMutations.cpp    groups, extents, versions
//   ScaleMutations.cpp    scales
//   ValueMutations.cpp    rows, values, tasks
//   ResidencyMutations.cpp  state and activations on the host, activations made again
//   StepMutations.cpp     the step boundary: what shows in the second step, or in an evaluation
#pragma once

#include "RealPrograms.h"

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace zorse::test {

struct Mutation {
  const char *fault; ///< the class, e.g. "ordering"
  std::string name;
  /// Changes `programs` in one random place; false when there is no such place. `what` says what was done.
  std::function<bool(std::vector<bundle::Program> &programs, const RealCase &original, std::mt19937 &random, std::string &what)> apply;
};

using MutationList = std::vector<Mutation>;

/// All, class by class.
const MutationList &mutations();

void addOrderMutations(MutationList &list);
void addMatchMutations(MutationList &list);
void addPlaceMutations(MutationList &list);
void addStateMutations(MutationList &list);
void addValueMutations(MutationList &list);
void addScaleMutations(MutationList &list);
void addStepMutations(MutationList &list);
void addSplitMutations(MutationList &list);
void addResidencyMutations(MutationList &list);

/// Whether a checker of sizes and order alone would find nothing: regions inside arenas, slots as long as their bodies say, ids ascending, waits
/// earlier, both halves there with equal sizes, members of collectives agreeing.
bool keepsSizesAndOrder(const RealCase &original, const std::vector<bundle::Program> &programs);

} // namespace zorse::test
