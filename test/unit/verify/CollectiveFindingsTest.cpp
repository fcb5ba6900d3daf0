// Findings in uneven collectives: shards, extents and contributors. One change to correct programs
// each.
#include "FindingsSupport.h"

using namespace zorse;
using namespace zorse::test;
using verify::Code;

namespace {

/// Programs in which devices have several runs, and one of their collectives, with a given number
/// of shards, which is changed on all of its members.
struct Runs : Case {
  explicit Runs(bool gather = false)
      : Case({}, ownersInTurns(makeModel({}), /*compact=*/true)), gather(gather) {
    id = find(*this, 0, [&](const bundle::Instruction &e) {
           return gather ? e.all_gather().shards().members_size() > 4
                         : e.reduce_scatter().shards().members_size() > 4;
         }).id();
  }
  template <typename F> void change(F f) {
    for (auto &program : programs)
      for (auto &instruction : *program.mutable_instructions())
        if (instruction.id() == id)
          f(instruction, program.device());
  }
  bundle::ShardRanges &shards(bundle::Instruction &instruction) const {
    return gather ? *instruction.mutable_all_gather()->mutable_shards()
                  : *instruction.mutable_reduce_scatter()->mutable_shards();
  }
  static int last(const bundle::ShardRanges &extents, uint32_t device) {
    int i = extents.members_size() - 1;
    while (extents.members(i) != device)
      --i;
    return i;
  }
  static int64_t remove(bundle::ShardRanges &extents, int i) {
    const int64_t elements = extents.end(i) - extents.begin(i);
    extents.mutable_members()->erase(extents.members().begin() + i);
    extents.mutable_begin()->erase(extents.begin().begin() + i);
    extents.mutable_end()->erase(extents.end().begin() + i);
    return elements;
  }

  bool gather;
  uint32_t id;
};

} // namespace

TEST(Findings, RunsThatDoNotAscend) {
  Runs order;
  order.change([&](bundle::Instruction &instruction, uint32_t) {
    bundle::ShardRanges &shards = order.shards(instruction);
    ASSERT_EQ(shards.members(0), 0u);
    const int other = Runs::last(shards, 0);
    for (auto *numbers : {shards.mutable_begin(), shards.mutable_end()})
      numbers->SwapElements(0, other);
  });
  expectFinding(order, Code::Malformed, {"shards of d0", "expects them to ascend"});

  Runs overlap(/*gather=*/true);
  overlap.change([&](bundle::Instruction &instruction, uint32_t) {
    bundle::ShardRanges &shards = overlap.shards(instruction);
    shards.set_begin(Runs::last(shards, 0), shards.begin(0) + 16);
  });
  expectFinding(overlap, Code::Malformed, {"shards of d0", "expects them to ascend"});
}

TEST(Findings, RunsWithAHole) {
  for (bool gather : {false, true}) {
    Runs owners(gather);
    owners.change([&](bundle::Instruction &instruction, uint32_t device) {
      const int64_t elements =
          Runs::remove(owners.shards(instruction), Runs::last(owners.shards(instruction), 2));
      bundle::Region *shard = gather ? instruction.mutable_all_gather()->mutable_shard()
                                     : instruction.mutable_reduce_scatter()->mutable_shard();
      if (device == 2)
        shard->set_bytes(shard->bytes() - uint64_t(elements) * 4);
    });
    expectFinding(
        owners, Code::Mismatched,
        {gather ? "no device has elements" : "its shards are not the extents the owners hold"});
  }

  Runs reader(/*gather=*/true);
  reader.change([&](bundle::Instruction &instruction, uint32_t device) {
    bundle::ShardRanges &reads = *instruction.mutable_all_gather()->mutable_reads();
    const int64_t elements = Runs::remove(reads, Runs::last(reads, 1));
    bundle::Region *full = instruction.mutable_all_gather()->mutable_full();
    if (device == 1)
      full->set_bytes(full->bytes() - uint64_t(elements) * 4);
  });
  EXPECT_NE(reader.text(), "") << "device 1 reads undefined bytes";

  Runs part;
  part.change([&](bundle::Instruction &instruction, uint32_t) {
    bundle::ShardRanges &terms = *instruction.mutable_reduce_scatter()->mutable_terms();
    const int i = Runs::last(terms, 1);
    terms.set_end(i, terms.end(i) - 8);
  });
  expectFinding(part, Code::Malformed, {"terms of d1", "have a part of the shard"});
}

TEST(Findings, OrderOfAdditions) {
  Runs order;
  order.change([&](bundle::Instruction &instruction, uint32_t) {
    bundle::ShardRanges &terms = *instruction.mutable_reduce_scatter()->mutable_terms();
    const auto first = std::find(terms.members().begin(), terms.members().end(), 1u) -
                       terms.members().begin();
    auto moveUp = [&](auto &column) { // the first run of device 1 precedes all others
      std::rotate(column.begin(), column.begin() + first, column.begin() + first + 1);
    };
    moveUp(*terms.mutable_members());
    moveUp(*terms.mutable_begin());
    moveUp(*terms.mutable_end());
  });
  expectFinding(order, Code::Contributions, {"adds to elements", "in another order"});

  Case whole({}, dataParallel(makeModel({})));
  Case sums = whole;
  for (size_t d = 0; d < whole.programs.size(); ++d)
    for (int i = 0; i < whole.programs[d].instructions_size(); ++i) {
      if (whole.programs[d].instructions(i).has_reduce_scatter())
        whole.programs[d]
            .mutable_instructions(i)
            ->mutable_reduce_scatter()
            ->mutable_contributors()
            ->SwapElements(0, 1);
      if (sums.programs[d].instructions(i).has_all_reduce())
        sums.programs[d]
            .mutable_instructions(i)
            ->mutable_all_reduce()
            ->mutable_members()
            ->SwapElements(0, 1);
    }
  expectFinding(whole, Code::Contributions, {"reduce-scatter", "adds in another order"});
  expectFinding(sums, Code::Contributions, {"all-reduce", "adds in another order"});
}

TEST(Findings, RoundingOfTerms) {
  auto make = [](verify::PlanView::RoundedSums rounded, const char *site) {
    Case test({}, dataParallel(makeModel({})));
    test.view.roundedSums = rounded;
    test.view.devices[1].node = "other";
    test.view.devices[1].site = site;
    return test;
  };
  auto round = [](Case &test, bundle::ElementType type, size_t programs) {
    for (size_t p = 0; p < programs; ++p)
      for (auto &instruction : *test.programs[p].mutable_instructions())
        if (instruction.has_reduce_scatter())
          instruction.mutable_reduce_scatter()->set_term_type(type);
  };
  using Rounded = verify::PlanView::RoundedSums;
  Case none = make(Rounded::None, "");
  EXPECT_EQ(none.text(), "");
  round(none, bundle::BF16, 2);
  expectFinding(none, Code::Mismatched, {"rounds its terms to bf16, which"});

  Case nodes = make(Rounded::BetweenNodes, "");
  expectFinding(nodes, Code::Mismatched, {"does not round its terms to bf16"});
  round(nodes, bundle::BF16, 1);
  expectFinding(nodes, Code::Mismatched, {"differs from the half"});
  round(nodes, bundle::BF16, 2);
  EXPECT_EQ(nodes.text(), "");
  round(nodes, bundle::F16, 2);
  expectFinding(nodes, Code::Malformed, {"another type than bf16"});

  Case oneSite = make(Rounded::BetweenSites, "");
  EXPECT_EQ(oneSite.text(), "");
  Case sites = make(Rounded::BetweenSites, "far");
  expectFinding(sites, Code::Mismatched, {"does not round its terms to bf16"});
  round(sites, bundle::BF16, 2);
  EXPECT_EQ(sites.text(), "");
}

TEST(Findings, ContributorsOfAShard) {
  Runs incomplete;
  incomplete.change([&](bundle::Instruction &instruction, uint32_t device) {
    bundle::ShardRanges &terms = *instruction.mutable_reduce_scatter()->mutable_terms();
    const int64_t elements = Runs::remove(terms, Runs::last(terms, 1));
    bundle::Region *full = instruction.mutable_reduce_scatter()->mutable_full();
    if (device == 1)
      full->set_bytes(full->bytes() - uint64_t(elements) * 4);
  });
  expectFinding(incomplete, Code::Contributions, {"misses contributor d1 to elements"});

  Runs none;
  none.change([&](bundle::Instruction &instruction, uint32_t) {
    for (uint32_t &member :
         *instruction.mutable_reduce_scatter()->mutable_terms()->mutable_members())
      member = 0;
  });
  expectFinding(none, Code::Malformed);

  Runs other;
  other.change([&](bundle::Instruction &instruction, uint32_t) { // a device without a cell
    for (uint32_t &member :
         *instruction.mutable_reduce_scatter()->mutable_terms()->mutable_members())
      member = member == 1 ? 2 : member;
    instruction.mutable_reduce_scatter()->mutable_contributors()->Set(1, 2);
  });
  EXPECT_NE(other.text(), "");

  Runs unnamed;
  unnamed.change([&](bundle::Instruction &instruction, uint32_t) {
    instruction.mutable_reduce_scatter()->mutable_contributors()->RemoveLast();
  });
  expectFinding(unnamed, Code::Malformed, {"terms: name d1, which takes no part"});
}
