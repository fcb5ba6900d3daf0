// Schedules of random reductions. ZORSE_TRIALS sets the number of cases.

#include "RandomReductions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

using namespace zorse::test;

namespace {

int trialsOr(int usual) {
  const char *text = std::getenv("ZORSE_TRIALS");
  return text ? std::atoi(text) : usual;
}

struct Made {
  Tree tree;
  Schedule schedule;
};

Made make(const RandomReduction &of, size_t radix) {
  Made made{makeTree(of.placement, of.contributors, radix), {}};
  made.schedule =
      makeSchedule(made.tree, chooseCovers(of.placement, made.tree, of.owners), of.owners);
  return made;
}

Schedule exchange(const RandomReduction &of) {
  return makeSchedule(makeFlatTree(of.placement, of.contributors), {of.owners}, of.owners);
}

struct Ratios {
  std::vector<double> values;
  double mean() const {
    return std::exp(std::accumulate(values.begin(), values.end(), 0.0,
                                    [](double sum, double x) { return sum + std::log(x); }) /
                    double(values.size()));
  }
  double max() const { return *std::max_element(values.begin(), values.end()); }
};

/// Sums are those of the tree, and the busiest card or uplink passes little more than the bound.
TEST(RandomReduction, SumsAlongTheTreeNearTheBound) {
  ReductionMaker maker(7);
  Ratios even, uneven, any, gain;
  const int trials = trialsOr(2000);
  for (int trial = 0; trial < trials; ++trial) {
    const RandomReduction of = maker.make();
    const Made made = make(of, trial % 3 ? kRadix : 4);
    ASSERT_EQ(faultOf(of, made.tree, made.schedule), "") << trial;
    const double bound = lowerBound(of.placement, of.contributors, of.owners, 4);
    if (bound == 0 || of.elements < int64_t(of.placement.nodeOf.size()) * 64 * kGrain)
      continue;
    const double busy = busiestLink(of.placement, loadsOf(of.placement, made.schedule), 4);
    ASSERT_GE(busy, bound * (1 - 1e-9)) << trial;
    (!of.equalLinks ? any : of.equalOwners ? even : uneven).values.push_back(busy / bound);
    gain.values.push_back(busiestLink(of.placement, loadsOf(of.placement, exchange(of)), 4) / busy);
  }
  std::printf("%d reductions; busiest card or uplink over the bound: equal links and owners %.3f "
              "(worst %.2f), any owners %.3f (%.2f), any links %.3f (%.2f); bytes of the "
              "exchange over these: %.1f\n",
              trials, even.mean(), even.max(), uneven.mean(), uneven.max(), any.mean(), any.max(),
              gain.mean());
  EXPECT_LT(even.mean(), 1.06);
  EXPECT_LT(uneven.mean(), 1.09);
  EXPECT_LT(any.mean(), 1.08);
  EXPECT_LT(std::max({even.max(), uneven.max(), any.max()}), 2.5);
  EXPECT_GT(gain.mean(), 4);
}

/// One change that makes a schedule wrong. Returns false if it does not apply.
bool spoil(ReductionMaker &maker, Schedule &schedule) {
  Part &part = schedule.parts[maker.below(schedule.parts.size())];
  Term &term = schedule.terms[part.firstTerm + maker.below(part.terms)];
  switch (maker.below(7)) {
  case 0: // a term is missing
    if (part.terms < 2)
      return false;
    --part.terms;
    return true;
  case 1: // terms in another order
    if (part.terms > 1)
      std::swap(schedule.terms[part.firstTerm], schedule.terms[part.firstTerm + 1]);
    return part.terms > 1;
  case 2: // a term twice
    if (part.terms > 1)
      schedule.terms[part.firstTerm + 1] = schedule.terms[part.firstTerm];
    return part.terms > 1;
  case 3: // an element more
    ++part.end;
    return true;
  case 4: // on another device
    ++part.device;
    return true;
  case 5: // a contribution instead of a sum
    return std::exchange(term.part, Term::kContribution) != Term::kContribution;
  default: // a result is missing
    schedule.owned.erase(schedule.owned.begin() + maker.below(schedule.owned.size()));
    return true;
  }
}

/// The check of these tests finds mistakes.
TEST(RandomReduction, MistakesAreFound) {
  ReductionMaker maker(17);
  int found = 0, all = 0;
  for (int trial = 0; trial < trialsOr(2000); ++trial) {
    const RandomReduction of = maker.make();
    Made made = make(of, kRadix);
    if (!spoil(maker, made.schedule))
      continue;
    ++all;
    found += !faultOf(of, made.tree, made.schedule).empty();
  }
  std::printf("%d of %d mistakes found\n", found, all);
  EXPECT_EQ(found, all);
  EXPECT_GT(all, trialsOr(2000) / 2);
}

/// The sum of one element along a tree, in f32.
float sumOf(const Tree &tree, size_t group, const std::vector<float> &terms) {
  float sum = 0;
  for (size_t c = 0; c < tree[group].children.size(); ++c) {
    const Child child = tree[group].children[c];
    const float term = child.isContributor() ? terms[child.device()]
                                             : sumOf(tree, child.index(), terms);
    sum = c == 0 ? term : sum + term;
  }
  return sum;
}

/// Runs a schedule on one element of each part. Returns the owners' sums, by owned extent.
std::vector<float> runOn(const Schedule &schedule, const std::vector<float> &terms) {
  std::vector<float> sums, owned;
  for (const Part &part : schedule.parts) {
    float sum = 0;
    for (uint32_t t = 0; t < part.terms; ++t) {
      const Term &term = schedule.terms[part.firstTerm + t];
      const float value = term.part == Term::kContribution ? terms[term.device] : sums[term.part];
      sum = t == 0 ? value : sum + value;
    }
    sums.push_back(sum);
  }
  for (const Owned &one : schedule.owned)
    owned.push_back(sums[one.part]);
  return owned;
}

uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// Other owners, links, speeds and numbers of devices, nodes and sites change no bit.
TEST(RandomReduction, OnlyTheTreeDecidesBits) {
  ReductionMaker maker(11);
  for (int trial = 0; trial < trialsOr(500); ++trial) {
    RandomReduction of = maker.make();
    std::vector<float> terms;
    terms.reserve(of.placement.nodeOf.size());
    for (size_t d = 0; d < of.placement.nodeOf.size(); ++d)
      terms.push_back(std::ldexp(float(maker.below(2000001)) - 1000000, int(maker.below(12)) - 30));
    const Made made = make(of, kRadix);
    const float expected = sumOf(made.tree, made.tree.size() - 1, terms);
    auto expectBits = [&](const Schedule &schedule, const std::vector<float> &given) {
      for (float sum : runOn(schedule, given))
        ASSERT_EQ(bitsOf(sum), bitsOf(expected)) << trial;
    };
    expectBits(made.schedule, terms);
    for (double &card : of.placement.cardIn)
      card *= 1 + maker.below(4);
    of.owners = {{0, of.elements, of.contributors[maker.below(of.contributors.size())]}};
    expectBits(make(of, kRadix).schedule, terms);
    // Reverses the numbers of devices, nodes and sites.
    RandomReduction other = of;
    const auto devices = uint32_t(of.placement.nodeOf.size()),
               nodes = uint32_t(of.placement.siteOf.size()),
               sites = uint32_t(of.placement.uplink.size());
    for (uint32_t d = 0; d < devices; ++d)
      other.placement.nodeOf[devices - 1 - d] = nodes - 1 - of.placement.nodeOf[d];
    for (uint32_t n = 0; n < nodes; ++n)
      other.placement.siteOf[nodes - 1 - n] = sites - 1 - of.placement.siteOf[n];
    for (auto *list : {&other.placement.port, &other.placement.cardIn, &other.placement.cardOut,
                       &other.placement.uplink})
      std::reverse(list->begin(), list->end());
    for (uint32_t &d : other.contributors)
      d = devices - 1 - d;
    for (Extent &owner : other.owners)
      owner.device = devices - 1 - owner.device;
    std::vector<float> reversed(terms.rbegin(), terms.rend());
    expectBits(make(other, kRadix).schedule, reversed);
  }
}

/// The gather is the schedule backwards: every contributor gets every element once.
TEST(RandomReduction, BackwardsItGathers) {
  ReductionMaker maker(13);
  for (int trial = 0; trial < trialsOr(500); ++trial) {
    const RandomReduction of = maker.make();
    const Schedule schedule = make(of, kRadix).schedule;
    std::vector<int64_t> arrived(schedule.parts.size(), 0);
    std::map<uint32_t, int64_t> contributors;
    for (const Owned &one : schedule.owned)
      arrived[one.part] += one.extent.length();
    for (size_t p = schedule.parts.size(); p-- > 0;) {
      const Part &part = schedule.parts[p];
      ASSERT_EQ(arrived[p], part.end - part.begin) << trial;
      for (uint32_t t = part.firstTerm; t < part.firstTerm + part.terms; ++t) {
        const Term &term = schedule.terms[t];
        (term.part == Term::kContribution ? contributors[term.device] : arrived[term.part]) +=
            part.end - part.begin;
      }
    }
    ASSERT_EQ(contributors.size(), of.contributors.size());
    for (const auto &[device, elements] : contributors)
      ASSERT_EQ(elements, of.elements) << trial << ", device " << device;
  }
}

} // namespace
