// Mutations of sums and gathers along the nodes and sites of a plan: exchanges that are missing,
// too early or of the wrong sums, and additions in another order.
#include "Change.h"

#include <utility>

using namespace zorse;
using namespace zorse::test;

namespace {

/// Whether an instruction is one exchange of a sum in levels: its members have different terms, or
/// its result is not yet the sum of all contributors.
bool isLevel(const Instruction &e) {
  return e.has_reduce_scatter() &&
         (e.reduce_scatter().has_terms() || e.reduce_scatter().value().cut() != 0);
}
bool isPartialSum(const Instruction &e) {
  return e.has_reduce_scatter() && e.reduce_scatter().value().cut() != 0;
}
bool isLastLevel(const Instruction &e) { return isLevel(e) && !isPartialSum(e); }
bool isGatherByLevel(const Instruction &e) {
  return e.has_all_gather() && e.all_gather().has_reads();
}

/// Picks an exchange of the same group as the place, with another id.
Instruction *otherLevel(Change &m) {
  const uint32_t group = m.instruction().reduce_scatter().group(), id = m.instruction().id();
  return m.other([&](const Instruction &e) {
    return isLevel(e) && e.reduce_scatter().group() == group && e.id() != id;
  });
}

/// Calls `change` with the value of every half of the exchange.
template <typename F> bool eachValue(Change &m, F change) {
  m.halves([&](bundle::Program &, Instruction &e) {
    change(*e.mutable_reduce_scatter()->mutable_value());
  });
  return true;
}

bool anotherGroupOfTree(Change &m) {
  const uint32_t old = m.instruction().reduce_scatter().value().cut(), fresh = uint32_t(m.draw(6));
  return old != fresh && eachValue(m, [&](bundle::Value &value) { value.set_cut(fresh); });
}

bool exchangeLevels(Change &m) {
  Instruction *other = otherLevel(m);
  if (!other)
    return false;
  swapEverywhere(m.programs, m.instruction().id(), other->id());
  return true;
}

bool moveBeforeLevel(Change &m) {
  Instruction *other = otherLevel(m);
  if (!other || other->id() > m.instruction().id())
    return false;
  moveInstruction(m.programs, m.instruction().id(), other->id());
  return true;
}

void swapItems(bundle::ShardRanges &ranges, int a, int b) {
  ranges.mutable_members()->SwapElements(a, b);
  ranges.mutable_begin()->SwapElements(a, b);
  ranges.mutable_end()->SwapElements(a, b);
}

/// Adds the terms of two members in the opposite order.
bool swapTerms(Change &m) {
  const int count = m.instruction().reduce_scatter().contributors_size();
  if (count < 2)
    return false;
  const int a = m.draw(count), b = m.draw(count);
  if (a == b)
    return false;
  m.halves([&](bundle::Program &, Instruction &e) {
    auto &sum = *e.mutable_reduce_scatter();
    sum.mutable_contributors()->SwapElements(a, b);
    if (sum.terms().members_size() == count)
      swapItems(*sum.mutable_terms(), a, b);
  });
  return true;
}

/// Another device than the tree's gets the sum of a run of elements.
bool swapOwners(Change &m) {
  const int count = m.instruction().reduce_scatter().shards().members_size();
  if (count < 2)
    return false;
  const int a = m.draw(count), b = m.draw(count);
  const auto &shards = m.instruction().reduce_scatter().shards();
  if (shards.members(a) == shards.members(b) ||
      shards.end(a) - shards.begin(a) != shards.end(b) - shards.begin(b))
    return false;
  m.halves([&](bundle::Program &, Instruction &e) {
    e.mutable_reduce_scatter()->mutable_shards()->mutable_members()->SwapElements(a, b);
  });
  return true;
}

/// A half reads or writes the place of another level of the same group, or the place next to its
/// own.
bool anotherPlace(Change &m, bool result) {
  auto region = [&](Instruction &e) {
    return result ? e.mutable_reduce_scatter()->mutable_shard()
                  : e.mutable_reduce_scatter()->mutable_full();
  };
  bundle::Region &mine = *region(m.instruction());
  if (mine.bytes() == 0)
    return false;
  if (Instruction *other = otherLevel(m)) {
    const bundle::Region &theirs = *region(*other);
    if (theirs.bytes() >= mine.bytes() && theirs.offset() != mine.offset()) {
      mine.set_offset(theirs.offset());
      return true;
    }
  }
  mine.set_offset(m.coin() || mine.offset() < mine.bytes() ? mine.offset() + mine.bytes()
                                                           : mine.offset() - mine.bytes());
  return true;
}

/// The result of a level no longer takes the place of the device's term, which the next level
/// reads.
bool resultElsewhere(Change &m) {
  bundle::Region &shard = *m.instruction().mutable_reduce_scatter()->mutable_shard();
  if (shard.bytes() == 0)
    return false;
  shard.set_offset(freshBytes(m.program(), shard.arena(), shard.bytes()));
  return true;
}

void exchangeRounding(Instruction &e) {
  auto &sum = *e.mutable_reduce_scatter();
  sum.set_term_type(sum.term_type() ? bundle::ELEMENT_TYPE_UNSPECIFIED : bundle::BF16);
}

/// Makes a run of results 128 elements shorter.
bool moveBorder(Change &m) {
  constexpr int64_t kStep = 128;
  const int count = m.instruction().reduce_scatter().shards().members_size();
  if (count == 0)
    return false;
  const int i = m.draw(count);
  const auto &shards = m.instruction().reduce_scatter().shards();
  if (shards.end(i) - shards.begin(i) <= kStep)
    return false;
  const uint32_t device = shards.members(i);
  const uint64_t bytes = kStep * (m.instruction().reduce_scatter().type() == bundle::F64 ? 8 : 4);
  m.halves([&](bundle::Program &program, Instruction &e) {
    auto &sum = *e.mutable_reduce_scatter();
    sum.mutable_shards()->set_end(i, sum.shards().end(i) - kStep);
    if (program.device() == device && sum.shard().bytes() > bytes)
      sum.mutable_shard()->set_bytes(sum.shard().bytes() - bytes);
  });
  return true;
}

} // namespace

void test::addLevelMutations(MutationList &list) {
  addRows(
      list, "levels of a sum",
      {
          {"level dropped", isLevel, dropInstruction},
          {"level doubled", isPartialSum, doubleInstruction},
          {"member's half of a level dropped", isLevel, dropHalf},
          {"levels exchanged", isLevel, exchangeLevels, 20},
          {"level before one that it reads", isLevel, moveBeforeLevel, 20},
          {"halves of a level exchanged on one device", isLevel,
           [](Change &m) { return swapWith(m, isLevel); }},
          {"sum of another group of the tree", isLevel, anotherGroupOfTree, 10},
          {"partial sum taken for the whole", isPartialSum,
           [](Change &m) { return eachValue(m, [](bundle::Value &value) { value.set_cut(0); }); }},
          {"whole sum taken for a partial one", isLastLevel,
           [](Change &m) { return eachValue(m, [](bundle::Value &value) { value.set_cut(1); }); }},
          {"terms in another order", isLevel, swapTerms, 20},
          {"results of two devices exchanged", isLevel, swapOwners, 20},
          {"term of another place", isLevel, [](Change &m) { return anotherPlace(m, false); }, 20},
          {"result in another place", isLevel, [](Change &m) { return anotherPlace(m, true); }, 20},
          {"result outside of the accumulator", isPartialSum, resultElsewhere, 20},
          {"result shorter than its terms", isLevel, moveBorder, 20},
          {"rounding of one half changed",
           [](const Instruction &e) { return e.has_reduce_scatter(); },
           [](Change &m) {
             exchangeRounding(m.instruction());
             return true;
           }},
          {"rounding of all halves changed",
           [](const Instruction &e) { return e.has_reduce_scatter(); },
           [](Change &m) {
             m.halves([](bundle::Program &, Instruction &e) { exchangeRounding(e); });
             return true;
           }},
          {"waits of a level dropped",
           [](const Instruction &e) { return isLevel(e) && hasWaits(e); }, dropWaits},
          {"gather of a level dropped", isGatherByLevel, dropInstruction},
          {"gather of a level before the one that it passes on", isGatherByLevel, moveAnywhere, 20},
      });
}
