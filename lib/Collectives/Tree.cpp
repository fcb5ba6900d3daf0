#include "zorse/Collectives/Tree.h"

#include <algorithm>
#include <cmath>

using namespace zorse::collectives;

namespace {

/// Returns the number of pods for `count` nodes, such that as few levels as possible have groups of
/// about the same size. Pods are equal if a divisor is near.
size_t podsFor(size_t count, size_t radix) {
  constexpr double kRounding = 1e-9;
  const double levels = std::ceil(std::log(double(count)) / std::log(double(radix)) - kRounding);
  const auto size = size_t(std::ceil(std::pow(double(count), 1 / levels) - kRounding));
  for (size_t equal = size; equal <= std::min(2 * size, radix); ++equal)
    if (count % equal == 0)
      return count / equal;
  return (count + size - 1) / size;
}

class TreeBuilder {
public:
  TreeBuilder(const Placement &placement, size_t radix) : placement(placement), radix(radix) {}

  Tree build(const std::vector<uint32_t> &contributors) {
    std::vector<Child> sites;
    for (const std::vector<uint32_t> &ofSite :
         divide(contributors, [&](uint32_t d) { return placement.siteOfDevice(d); })) {
      std::vector<Child> nodes;
      for (const std::vector<uint32_t> &ofNode :
           divide(ofSite, [&](uint32_t d) { return placement.nodeOf[d]; }))
        nodes.push_back(group(leaves(ofNode)));
      sites.push_back(inPods(std::move(nodes)));
    }
    if (const Child root = inPods(std::move(sites)); root.isContributor())
      add({root});
    return std::move(tree);
  }

  Tree buildFlat(const std::vector<uint32_t> &contributors) {
    add(leaves(contributors));
    return std::move(tree);
  }

private:
  /// Divides devices by a property, in the order of its first device.
  template <typename Property>
  static std::vector<std::vector<uint32_t>> divide(const std::vector<uint32_t> &devices,
                                                   Property property) {
    std::vector<uint32_t> values;
    std::vector<std::vector<uint32_t>> lists;
    for (uint32_t device : devices) {
      const uint32_t value = property(device);
      const auto at = size_t(std::find(values.begin(), values.end(), value) - values.begin());
      if (at == values.size()) {
        values.push_back(value);
        lists.emplace_back();
      }
      lists[at].push_back(device);
    }
    return lists;
  }

  static std::vector<Child> leaves(const std::vector<uint32_t> &devices) {
    std::vector<Child> children;
    children.reserve(devices.size());
    for (uint32_t device : devices)
      children.push_back(Child::contributor(device));
    return children;
  }

  Child inPods(std::vector<Child> children) {
    while (children.size() > radix) {
      const size_t count = children.size(), pods = podsFor(count, radix);
      std::vector<Child> next;
      next.reserve(pods);
      for (size_t p = 0; p < pods; ++p)
        next.push_back(group({children.begin() + long(count * p / pods),
                              children.begin() + long(count * (p + 1) / pods)}));
      children = std::move(next);
    }
    return group(children);
  }

  Child group(const std::vector<Child> &children) {
    return children.size() == 1 ? children.front() : add(children);
  }

  Child add(const std::vector<Child> &children) {
    Group group;
    group.children = children;
    for (Child child : children) {
      if (child.isContributor()) {
        group.contributors.push_back(child.device());
        continue;
      }
      const Group &below = tree[child.index()];
      group.contributors.insert(group.contributors.end(), below.contributors.begin(),
                                below.contributors.end());
      group.level = std::max(group.level, below.level + 1);
    }
    group.insideNode =
        std::all_of(group.contributors.begin(), group.contributors.end(), [&](uint32_t device) {
          return placement.nodeOf[device] == placement.nodeOf[group.contributors.front()];
        });
    tree.push_back(std::move(group));
    return Child::group(tree.size() - 1);
  }

  const Placement &placement;
  const size_t radix;
  Tree tree;
};

} // namespace

Tree zorse::collectives::makeTree(const Placement &placement,
                                  const std::vector<uint32_t> &contributors, size_t radix) {
  return TreeBuilder(placement, radix).build(contributors);
}

Tree zorse::collectives::makeFlatTree(const Placement &placement,
                                      const std::vector<uint32_t> &contributors) {
  return TreeBuilder(placement, contributors.size()).buildFlat(contributors);
}
