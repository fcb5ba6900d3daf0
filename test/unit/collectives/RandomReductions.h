// Random reductions, and what a schedule must do, written without lib/Collectives.
#pragma once

#include "zorse/Collectives/Schedule.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace zorse::test {

using namespace zorse::collectives;

struct RandomReduction {
  Placement placement;
  std::vector<uint32_t> contributors;
  Cover owners;
  int64_t elements = 0;
  bool equalLinks = false, equalOwners = false;
};

class ReductionMaker {
public:
  explicit ReductionMaker(uint64_t seed) : random(seed) {}

  RandomReduction make() {
    RandomReduction made;
    made.equalLinks = chance(0.4);
    made.equalOwners = chance(0.4);
    place(made);
    std::vector<uint32_t> owners;
    const auto devices = uint32_t(made.placement.nodeOf.size());
    for (uint32_t d = 0; d < devices; ++d) {
      if (chance(0.85))
        made.contributors.push_back(d);
      if (chance(0.85))
        owners.push_back(d);
    }
    if (made.contributors.empty())
      made.contributors.push_back(devices - 1);
    if (owners.empty())
      owners.push_back(below(devices));
    std::shuffle(made.contributors.begin(), made.contributors.end(), random);
    made.elements = chance(0.2) ? 1 + below(12000)
                                : kGrain * (1 + below(4096)) * devices + below(kGrain);
    own(made, owners);
    return made;
  }

  uint32_t below(uint64_t n) { return uint32_t(random() % n); }
  bool chance(double p) { return double(random() % 1000000) < p * 1e6; }
  std::mt19937_64 random;

private:
  void place(RandomReduction &made) {
    Placement &at = made.placement;
    const uint32_t sites = chance(0.3) ? 2 + below(3) : 1, most = chance(0.1) ? 40 : 9,
                   usual = 1 + below(8);
    const bool sameSize = chance(0.4);
    for (uint32_t s = 0; s < sites; ++s) {
      for (uint32_t n = 1 + below(most / sites); n > 0; --n) {
        at.siteOf.push_back(s);
        at.cardIn.push_back(made.equalLinks ? 6e9 : (2 + below(61)) * 0.25e9);
        at.cardOut.push_back(at.cardIn.back());
        for (uint32_t d = sameSize ? usual : 1 + below(8); d > 0; --d) {
          at.nodeOf.push_back(uint32_t(at.siteOf.size() - 1));
          at.port.push_back(made.equalLinks ? 300e9 : 20e9 + 40e9 * below(8));
        }
      }
      at.uplink.push_back(sites > 1 && chance(0.5) ? 4e9 + 2e9 * below(11) : 0);
    }
  }

  void own(RandomReduction &made, const std::vector<uint32_t> &owners) {
    std::vector<double> share;
    double sum = 0, passed = 0;
    for (size_t i = 0; i < owners.size(); ++i)
      sum += share.emplace_back(made.equalOwners ? 1
                                : chance(0.2)    ? 0
                                : chance(0.1)    ? 20
                                                 : 0.05 + below(101) / 50.0);
    if (sum == 0)
      sum += share[0] = 1;
    int64_t begin = 0;
    for (size_t i = 0; i < owners.size(); ++i) {
      passed += share[i];
      const int64_t border = int64_t(double(made.elements) * passed / sum) / kGrain * kGrain,
                    end = i + 1 == owners.size() ? made.elements : std::min(made.elements, border);
      if (end > begin)
        made.owners.push_back({begin, end, owners[i]});
      begin = std::max(begin, end);
    }
  }
};

/// The sum along the tree as text, such as "((0+1)+2)".
inline std::string sumText(const Tree &tree, size_t group) {
  std::string text;
  for (Child child : tree[group].children)
    text += (text.empty() ? "(" : "+") +
            (child.isContributor() ? std::to_string(child.device()) : sumText(tree, child.index()));
  return text + ")";
}

/// Checks a schedule by expressions. Returns what is wrong; empty: owners get the sum along the
/// tree of all of their elements, every value is used once, and a sum takes the place of one of its
/// terms.
inline std::string faultOf(const RandomReduction &of, const Tree &tree, const Schedule &schedule) {
  std::vector<std::string> sums;
  std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> uses; // by part, or ~contributor
  auto contributes = [&](uint32_t d) {
    return std::count(of.contributors.begin(), of.contributors.end(), d) == 1;
  };
  for (const Part &part : schedule.parts) {
    const std::string name = "part " + std::to_string(sums.size());
    std::string sum;
    bool inPlace = part.terms == 1 || !contributes(part.device);
    if (part.begin >= part.end || part.terms == 0)
      return name + " is empty";
    for (uint32_t t = part.firstTerm; t < part.firstTerm + part.terms; ++t) {
      const Term &term = schedule.terms[t];
      const bool contribution = term.part == Term::kContribution;
      if (contribution ? !contributes(term.device) : term.part >= sums.size())
        return name + " reads what is not there";
      if (!contribution) {
        const Part &from = schedule.parts[term.part];
        if (from.device != term.device || from.begin > part.begin || from.end < part.end)
          return name + " reads elements that its source does not have";
      }
      const std::string text = contribution ? std::to_string(term.device) : sums[term.part];
      sum += part.terms == 1 && !contribution ? text : (sum.empty() ? "(" : "+") + text;
      uses[contribution ? ~int64_t(term.device) : int64_t(term.part)].emplace_back(part.begin,
                                                                                   part.end);
      inPlace |= term.device == part.device;
    }
    if (!inPlace)
      return name + " takes the place of a contribution that is no term of it";
    sums.push_back(part.terms == 1 && sum.front() == '(' && sum.back() == ')' &&
                           schedule.terms[part.firstTerm].part != Term::kContribution
                       ? sum
                       : sum + ")");
  }
  Cover owned;
  for (const Owned &one : schedule.owned) {
    const Part &from = schedule.parts[one.part];
    uses[one.part].emplace_back(one.extent.begin, one.extent.end);
    if (from.device != one.extent.device || from.begin > one.extent.begin ||
        from.end < one.extent.end || sums[one.part] != sumText(tree, tree.size() - 1))
      return "an owner gets " + sums[one.part];
    if (!owned.empty() && owned.back().end == one.extent.begin &&
        owned.back().device == one.extent.device)
      owned.back().end = one.extent.end;
    else
      owned.push_back(one.extent);
  }
  if (owned != of.owners)
    return "owners get other elements than they own";
  for (auto &[value, ranges] : uses) {
    std::sort(ranges.begin(), ranges.end());
    int64_t next = value < 0 ? 0 : schedule.parts[size_t(value)].begin;
    for (const auto &[begin, end] : ranges) {
      if (begin != next)
        return "a value is used twice, or not at all";
      next = end;
    }
    if (next != (value < 0 ? of.elements : schedule.parts[size_t(value)].end))
      return "a value is not used";
  }
  return uses.size() == of.contributors.size() + schedule.parts.size() ? "" : "a value is not used";
}

} // namespace zorse::test
