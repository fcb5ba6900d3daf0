#include "Mutations.h"

using namespace zorse;

const test::MutationList &test::mutations() {
  static const MutationList list = [] {
    MutationList all;
    for (auto add : {addOrderMutations, addMatchMutations, addPlaceMutations, addStateMutations,
                     addScaleMutations, addValueMutations, addStepMutations, addSplitMutations,
                     addResidencyMutations, addLevelMutations})
      add(all);
    return all;
  }();
  return list;
}
