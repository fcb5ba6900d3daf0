// The order in which a reduction adds its contributions. It alone decides the bits of the sum: who
// adds, which links carry the terms and in how many rounds changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zorse::collectives {

/// Nodes and sites of devices, and the speed of their links in bytes per second per direction. The
/// tree depends on nodes and sites only.
struct Placement {
  std::vector<uint32_t> nodeOf;        ///< by device
  std::vector<uint32_t> siteOf;        ///< by node
  std::vector<double> port;            ///< by device: links inside its node
  std::vector<double> cardIn, cardOut; ///< by node: links to other nodes
  std::vector<double> uplink;          ///< by site: links to other sites; 0: unlimited

  uint32_t siteOfDevice(uint32_t device) const { return siteOf[nodeOf[device]]; }
};

/// A child of a group: a contributor, or a group before it in the tree.
class Child {
public:
  static Child contributor(uint32_t device) { return Child(~int64_t(device)); }
  static Child group(size_t index) { return Child(int64_t(index)); }
  bool isContributor() const { return value < 0; }
  uint32_t device() const { return uint32_t(~value); }
  size_t index() const { return size_t(value); }
  bool operator==(const Child &other) const { return value == other.value; }

private:
  explicit Child(int64_t value) : value(value) {}
  int64_t value;
};

/// Terms that are added sequentially, the first to the last.
struct Group {
  std::vector<Child> children;
  std::vector<uint32_t> contributors; ///< all below it, in the order of the tree
  bool insideNode = false;            ///< all contributors are devices of one node
  uint32_t level = 0;                 ///< 0: of contributors only; otherwise one more than the
                                      ///< highest child
};

/// Groups after their children; the last one is the root.
using Tree = std::vector<Group>;

/// Maximum children of a group of nodes or sites. Groups with more are divided into pods of about
/// equal size, so that a device has radix - 1 peers per level; pods cost no bytes on the cards.
inline constexpr size_t kRadix = 16;

/// Makes the tree of a reduction: the members of a node are a group, nodes of a site (in pods) are
/// a group, and sites. Nodes and sites are in the order of their first contributor, so that other
/// numbers of devices, nodes and sites change no bit. Groups of one child are replaced by it.
/// \param contributors  in the order of the list, each once, at least one
Tree makeTree(const Placement &placement, const std::vector<uint32_t> &contributors,
              size_t radix = kRadix);

/// Makes the tree of a pairwise exchange: one group.
Tree makeFlatTree(const Placement &placement, const std::vector<uint32_t> &contributors);

} // namespace zorse::collectives
