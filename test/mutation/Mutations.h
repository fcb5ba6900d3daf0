// Mutations that break correct programs, with one file per family of faults. A mutation makes one
// change, at both ends of a transfer if a compiler bug would affect both. Most mutations keep sizes
// and order legal.
//
//   OrderMutations.cpp      ordering, waits
//   MatchMutations.cpp      matching
//   PlaceMutations.cpp      offsets, sizes, lifetimes
//   StateMutations.cpp      groups, extents, versions
//   ScaleMutations.cpp      scales
//   ValueMutations.cpp      rows, values, tasks
//   ResidencyMutations.cpp  state and activations on the host, recomputed activations
//   LevelMutations.cpp      sums and gathers along nodes and sites
//   StepMutations.cpp       the step boundary: faults that only the second step or an evaluation
//                           shows
#pragma once

#include "RealPrograms.h"

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace zorse::test {

struct Mutation {
  const char *fault; ///< class of the fault, e.g. "ordering"
  std::string name;
  /// Changes `programs` in one random place and describes the change in `what`. Returns false if no
  /// place is suitable.
  std::function<bool(std::vector<bundle::Program> &programs, const RealCase &original,
                     std::mt19937 &random, std::string &what)>
      apply;
};

using MutationList = std::vector<Mutation>;

/// All mutations, ordered by class.
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
void addLevelMutations(MutationList &list);

/// Whether a checker of only sizes and order would find no error: regions lie inside arenas,
/// arguments have the sizes that functions declare, ids ascend, waits refer to earlier
/// instructions, transfers have both halves with equal sizes, and the members of a collective
/// agree.
bool keepsSizesAndOrder(const RealCase &original, const std::vector<bundle::Program> &programs);

} // namespace zorse::test
