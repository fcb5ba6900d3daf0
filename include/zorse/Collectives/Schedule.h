// Which device adds which elements of a reduction along its tree, and what that puts on the links.
#pragma once

#include "zorse/Collectives/Tree.h"

namespace zorse::collectives {

/// Elements [begin, end) on a device.
struct Extent {
  int64_t begin = 0, end = 0;
  uint32_t device = 0;

  int64_t length() const { return end - begin; }
  bool operator==(const Extent &other) const {
    return begin == other.begin && end == other.end && device == other.device;
  }
};
/// Disjoint extents. A cover of a group says which device holds the sum of which elements.
using Cover = std::vector<Extent>;

/// Borders between devices that share the elements of an owner are multiples of 128 elements, 512
/// bytes of f32: the alignment of state.
inline constexpr int64_t kGrain = 128;

/// What devices hold of the sums of a group.
enum class Lanes : uint8_t {
  /// The busiest link is busy for a short time. Owners add what their links allow, others add the
  /// rest and send them the sum. In a node the elements are divided in proportion to the card's
  /// capacity; in other groups, devices hold what their counterparts need.
  Balanced,
  /// Owners add what they own, and their counterparts hold the same part of it. Needs fewer
  /// exchanges if devices own different amounts, and links of those that own more are busier.
  LikeOwners,
};

/// Chooses the devices that hold the sums of each group.
/// \param owners  ascending extents of all elements
/// \returns by group: ascending extents of all elements, held by contributors of the group
std::vector<Cover> chooseCovers(const Placement &placement, const Tree &tree, const Cover &owners,
                                Lanes lanes = Lanes::Balanced);

/// A term of a part: a device's contribution, or its result of an earlier part.
struct Term {
  static constexpr uint32_t kContribution = UINT32_MAX;
  uint32_t device = 0;
  uint32_t part = kContribution;
};

/// A device adds terms in order, or (with a single term) receives a sum that another device added.
struct Part {
  int64_t begin = 0, end = 0; ///< elements
  uint32_t device = 0;
  uint32_t group = 0; ///< of the tree; kForward: passes the sum to its owner
  uint32_t firstTerm = 0, terms = 0;

  static constexpr uint32_t kForward = UINT32_MAX;
};

/// An owner's elements, and the part with their sum.
struct Owned {
  Extent extent;
  uint32_t part = 0;
};

struct Schedule {
  std::vector<Part> parts; ///< after the parts that they read
  std::vector<Term> terms;
  std::vector<Owned> owned; ///< ascending
};

/// Makes the parts of a reduction. The gather of the same group is this list backwards, with copies
/// instead of additions.
Schedule makeSchedule(const Tree &tree, const std::vector<Cover> &covers, const Cover &owners);

/// Elements that links carry, and messages. Integers, so that the order of devices changes nothing.
struct Loads {
  std::vector<int64_t> portIn, portOut;     ///< by device
  std::vector<int64_t> cardIn, cardOut;     ///< by node
  std::vector<int64_t> uplinkIn, uplinkOut; ///< by site
  std::vector<uint32_t> messages;           ///< by device: sends and receives
};
Loads loadsOf(const Placement &placement, const Schedule &schedule);

/// Returns the seconds for which the busiest card or uplink is busy. \param bytes  of an element
double busiestLink(const Placement &placement, const Loads &loads, double bytes);

/// Returns the seconds below which no reduction keeps its cards and uplinks: a node that
/// contributes sends what it does not own, if only as one sum; it receives what it owns, if others
/// contribute; and all of these sums enter some node. The same holds for sites.
double lowerBound(const Placement &placement, const std::vector<uint32_t> &contributors,
                  const Cover &owners, double bytes);

} // namespace zorse::collectives
