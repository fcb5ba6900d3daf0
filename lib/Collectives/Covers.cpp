// Chooses who holds the sums of every group: first of the root, from the owners, then of the groups
// below it, such that a device holds what its counterparts hold.

#include "Extents.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace zorse::collectives;

namespace {

constexpr size_t kNone = SIZE_MAX;

class CoverChooser {
public:
  CoverChooser(const Placement &placement, const Tree &tree, const Cover &owners, Lanes kind)
      : placement(placement), tree(tree), kind(kind), elements(lengthOf(owners)),
        owners(owners.size()), covers(tree.size()), weightOf(placement.nodeOf.size(), 0) {
    std::vector<uint32_t> inNode(placement.siteOf.size(), 0);
    for (uint32_t device : tree.back().contributors)
      ++inNode[placement.nodeOf[device]];
    for (uint32_t device : tree.back().contributors) {
      const uint32_t node = placement.nodeOf[device];
      weightOf[device] = std::min(placement.cardIn[node], placement.cardOut[node]) / inNode[node];
    }
    covers.back() = distribute(tree.size() - 1, owners, 0);
    normalize(covers.back());
    for (size_t g = tree.size(); g-- > 0;)
      descend(g);
  }

  std::vector<Cover> take() { return std::move(covers); }

private:
  std::vector<uint32_t> contributorsOf(Child child) const {
    return child.isContributor() ? std::vector<uint32_t>{child.device()}
                                 : tree[child.index()].contributors;
  }

  /// Returns the elements by which two lists with the owners of this one can differ if all own
  /// equal numbers of grains, and one more or less. Cuts that differ by less are the same, so that
  /// what a device holds at one level is a whole part of what it holds at the next. Otherwise each
  /// cut adds exchanges of a few elements, until a pairwise exchange is better. At most a quarter
  /// of a part, if the list is divided into `parts`.
  int64_t roundingOf(const Cover &list, size_t parts) const {
    const int64_t length = lengthOf(list);
    const double share = double(length) / double(std::max<int64_t>(elements, 1));
    const auto grains = int64_t(1 + list.size() + size_t(std::ceil(double(owners) * share)));
    return std::min(kGrain * grains, length / int64_t(4 * parts));
  }

  /// The child of each device, and of each node that has contributors of one; of a node with
  /// several, the first.
  struct ChildOf {
    std::vector<size_t> device, node;
  };
  ChildOf childOf(const Group &group) const {
    ChildOf of{std::vector<size_t>(placement.nodeOf.size(), kNone),
               std::vector<size_t>(placement.siteOf.size(), kNone)};
    for (size_t c = 0; c < group.children.size(); ++c)
      for (uint32_t device : contributorsOf(group.children[c])) {
        of.device[device] = c;
        size_t &near = of.node[placement.nodeOf[device]];
        near = std::min(near, c);
      }
    return of;
  }

  /// The links of a child to the other children: ports, cards, or uplinks that are slower than the
  /// cards of their site.
  ChildLinks linksOf(const Group &group, Child child) const {
    ChildLinks links, ofSite;
    const std::vector<uint32_t> devices = contributorsOf(child);
    const uint32_t firstSite = placement.siteOfDevice(group.contributors.front());
    const bool crosses =
        std::any_of(group.contributors.begin(), group.contributors.end(),
                    [&](uint32_t device) { return placement.siteOfDevice(device) != firstSite; });
    for (size_t i = 0; i < devices.size(); ++i) {
      const uint32_t node = placement.nodeOf[devices[i]], site = placement.siteOf[node];
      if (group.insideNode) {
        links.in += placement.port[devices[i]];
        links.out += placement.port[devices[i]];
        continue;
      }
      if (i == 0 || placement.nodeOf[devices[i - 1]] != node) { // those of a node are adjacent
        ofSite.in += placement.cardIn[node];
        ofSite.out += placement.cardOut[node];
      }
      if (i + 1 < devices.size() && placement.siteOfDevice(devices[i + 1]) == site)
        continue;
      const double limit = crosses && placement.uplink[site] > 0 ? placement.uplink[site]
                                                                 : INFINITY;
      links.in += std::min(ofSite.in, limit);
      links.out += std::min(ofSite.out, limit);
      ofSite = ChildLinks();
    }
    return links;
  }

  double weight(Child child) const {
    double sum = 0;
    for (uint32_t device : contributorsOf(child))
      sum += weightOf[device];
    return sum;
  }

  /// Lanes of a node's card: equal parts, but what a lane owns if that is nearly the same.
  std::vector<int64_t> lanes(const Group &group, const std::vector<Cover> &own, int64_t whole,
                             int64_t rounding) const {
    const size_t count = group.children.size();
    std::vector<int64_t> share(count);
    double sum = 0;
    for (Child child : group.children)
      sum += weight(child);
    int64_t given = 0;
    for (size_t c = 0; c < count; ++c) {
      const int64_t owned = lengthOf(own[c]);
      share[c] = c + 1 == count ? whole - given
                                : int64_t(double(whole) * weight(group.children[c]) / sum);
      if (std::abs(share[c] - owned) < rounding)
        share[c] = std::min(owned, whole - given);
      given += share[c];
    }
    return share;
  }

  static std::vector<int64_t> lengthsOf(const std::vector<Cover> &covers) {
    std::vector<int64_t> lengths;
    lengths.reserve(covers.size());
    for (const Cover &cover : covers)
      lengths.push_back(lengthOf(cover));
    return lengths;
  }

  /// Returns the number of elements that each child of a group sums.
  std::vector<int64_t> sharesOf(size_t g, const Cover &set, const std::vector<Cover> &own,
                                const std::vector<ChildLinks> &links, double terms) const {
    const bool areLanes = tree[g].insideNode && g + 1 != tree.size();
    const int64_t whole = lengthOf(set), rounding = roundingOf(set, own.size());
    return areLanes ? lanes(tree[g], own, whole, rounding)
                    : shareSums(links, terms, whole, rounding);
  }

  /// Chooses the contributors below group g that sum `set` for good.
  /// \param set         elements with their owners
  /// \param termsAbove  terms of each element that come from outside of the group
  Cover distribute(size_t g, const Cover &set, double termsAbove) const {
    const Group &group = tree[g];
    const size_t count = group.children.size();
    const ChildOf of = childOf(group);
    std::vector<Cover> parts(count), own(count);
    Cover pool; // owners without a contribution here
    for (const Extent &extent : set) {
      size_t c = of.device[extent.device];
      if (c == kNone && !group.insideNode) // another device of its node passes the sum to it
        c = of.node[placement.nodeOf[extent.device]];
      (c == kNone ? pool : own[c]).push_back(extent);
    }
    const double terms = termsAbove + double(count) - 1;
    std::vector<ChildLinks> links;
    for (size_t c = 0; c < count; ++c) {
      links.push_back(linksOf(group, group.children[c]));
      links.back().owned = lengthOf(own[c]);
    }
    const std::vector<int64_t> share = kind == Lanes::LikeOwners && pool.empty()
                                           ? lengthsOf(own)
                                           : sharesOf(g, set, own, links, terms);
    auto add = [](Cover &to, Cover more) { to.insert(to.end(), more.begin(), more.end()); };
    for (size_t c = 0; c < count; ++c) {
      parts[c] = takeFront(own[c], share[c]);
      add(pool, own[c]);
    }
    for (size_t c = 0; c < count; ++c)
      if (const int64_t missing = share[c] - lengthOf(parts[c]); missing > 0)
        add(parts[c], takeFront(pool, missing));
    add(parts[size_t(std::max_element(share.begin(), share.end()) - share.begin())], pool);
    Cover result;
    for (size_t c = 0; c < count; ++c) {
      const Child child = group.children[c];
      if (child.isContributor())
        for (Extent &extent : parts[c])
          extent.device = child.device();
      add(result, child.isContributor() ? parts[c]
                  : parts[c].empty()    ? Cover()
                                        : distribute(child.index(), parts[c], terms));
    }
    return result;
  }

  /// Chooses the covers of a group's children: they keep what they hold of the group's sums. Of
  /// what another child holds, they take lanes: cut in the order of its lanes, so that equal
  /// members are counterparts.
  void descend(size_t g) {
    const Group &group = tree[g];
    std::vector<Cover> held(placement.nodeOf.size());
    for (const Extent &extent : covers[g])
      held[extent.device].push_back(extent);
    std::vector<Cover> segments;
    for (Child child : group.children) {
      segments.emplace_back();
      for (uint32_t device : contributorsOf(child))
        segments.back().insert(segments.back().end(), held[device].begin(), held[device].end());
    }
    for (size_t c = 0; c < group.children.size(); ++c)
      if (const Child child = group.children[c]; !child.isContributor()) {
        Cover &cover = covers[child.index()] = segments[c];
        const std::vector<uint32_t> &members = tree[child.index()].contributors;
        const std::vector<double> weights = freeWeights(members, held);
        for (size_t other = 0; other < segments.size(); ++other) {
          if (other == c)
            continue;
          const std::vector<Cover> parts = divideByWeights(
              segments[other], weights, roundingOf(segments[other], weights.size()));
          for (size_t i = 0; i < parts.size(); ++i)
            for (const Extent &extent : parts[i])
              cover.push_back({extent.begin, extent.end, members[i]});
        }
        normalize(cover);
      }
  }

  /// Weights by which members take what they do not hold yet: such that all together are lanes, or
  /// in proportion to what they hold.
  std::vector<double> freeWeights(const std::vector<uint32_t> &members,
                                  const std::vector<Cover> &held) const {
    double sum = 0, free = 0;
    std::vector<double> weights;
    if (kind == Lanes::LikeOwners) {
      for (uint32_t member : members)
        free += weights.emplace_back(double(lengthOf(held[member])));
      return free > 0 ? weights : std::vector<double>(members.size(), 1);
    }
    for (uint32_t member : members)
      sum += weightOf[member];
    for (uint32_t member : members)
      free += weights.emplace_back(std::max(0.0, double(elements) * weightOf[member] / sum -
                                                     double(lengthOf(held[member]))));
    return free > 0 ? weights : std::vector<double>(members.size(), 1);
  }

  const Placement &placement;
  const Tree &tree;
  const Lanes kind;
  const int64_t elements;
  const size_t owners;
  std::vector<Cover> covers;
  std::vector<double> weightOf; ///< by device: its part of its node's card
};

} // namespace

std::vector<Cover> zorse::collectives::chooseCovers(const Placement &placement, const Tree &tree,
                                                    const Cover &owners, Lanes lanes) {
  return CoverChooser(placement, tree, owners, lanes).take();
}
