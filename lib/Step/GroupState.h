// State groups on devices: what a device reads, contributes to and owns, in which buffers, and when
// gathered copies of parameters exist.
#pragma once

#include "zorse/Base/Runs.h"
#include "zorse/Step/Plan.h"
#include "zorse/Summary/Optimizers.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace zorse::step {

inline constexpr uint32_t kNone = UINT32_MAX;

/// State and buffers of one device for one state group.
struct GroupState {
  uint32_t group = 0;
  bool reads = false;       ///< has cells that use the group
  bool contributes = false; ///< computes its gradient, or a summand of it
  Compact read;  ///< elements that units read, as they are in images and `gradients`: all,
                 ///< unless groups of devices divide parameters at different places
  Compact owned; ///< owned elements
  /// Position in images at which owned elements are concatenated, behind those that units read; -1:
  /// they are among those.
  int64_t ownedApart = -1;
  double weight = 0; ///< units x samples that the device contributes
  StatePlacement at;
  uint32_t persistentShard = kNone;   ///< persistent buffer of parameters in the group's type: the
                                      ///< owned elements; see `readsPersistentBuffer`
  bool readsPersistentBuffer = false; ///< units read, and gathers fill, the home: the whole group
                                      ///< for readers, else the owned elements
  uint32_t firstUnshardedParam = kNone; ///< PlanLowering::unshardedParams: the first window's
                                        ///< buffer, which units read: compute type, as large
  uint32_t gradients = kNone;           ///< buffer: as large, in the group's type
  uint32_t reduced = kNone; ///< buffer of their sum over all contributors: `gradients`, or only the
                            ///< owned elements
  uint32_t hostGradients = kNone; ///< host buffer of the owned reduced gradients, from their norm
                                  ///< to the update
  uint32_t moments[kMaxOptimizerStates] = {kNone, kNone, kNone, kNone}; ///< optimizer states of the
                                                                        ///< owned elements
  bool owns() const { return !owned.empty(); }
  /// Whether units read all elements of the group.
  bool readsAll(int64_t elements) const {
    const Compact::Runs runs = read.runs();
    return runs.size() == 1 && runs[0].begin == 0 && runs[0].end == elements;
  }
  /// Returns the number of elements of an image.
  int64_t imageElements() const {
    return !reads           ? owned.elements()
           : ownedApart < 0 ? read.elements()
                            : ownedApart + owned.elements();
  }
  /// Returns the position of an owned run in images and in `gradients`, and that in `reduced`; in
  /// other buffers it is run.place.
  int64_t position(const Compact::Run &run) const {
    return !reads            ? run.place
           : ownedApart >= 0 ? ownedApart + run.place
                             : read.place(run.begin, run.end);
  }
  int64_t reducedPosition(const Compact::Run &run) const {
    return reduced == gradients && contributes ? read.place(run.begin, run.end) : run.place;
  }
};

/// The update of the elements of a group that a device owns.
struct GroupUpdate {
  const GroupState *groupState = nullptr;
  std::vector<uint32_t> hostGradients; ///< ops that copied the reduced gradients to the host, by
                                       ///< owned run; none: they are on the device
  std::vector<uint32_t> after;         ///< ops
};

/// (device, op) of a gather or a reduction, sorted.
struct CollectiveOps {
  using List = std::vector<std::pair<uint32_t, uint32_t>>;
  List begins; ///< ops that read what tasks of the device have computed
  List ends;   ///< ops that make what tasks of the device read

  bool exists() const { return !begins.empty() || !ends.empty(); }

  /// Calls `visit` with the ops of a device in a list.
  template <typename Visit> static void on(const List &list, uint32_t device, Visit visit) {
    auto at = std::lower_bound(list.begin(), list.end(), std::pair(device, 0u));
    for (; at != list.end() && at->first == device; ++at)
      visit(at->second);
  }
  /// Calls `visit` with all ops of a device; some may be visited twice.
  template <typename Visit> void on(uint32_t device, Visit visit) const {
    on(begins, device, visit);
    on(ends, device, visit);
  }
  void add(uint32_t device, uint32_t op, bool begin, bool end) {
    if (begin)
      begins.push_back({device, op});
    if (end)
      ends.push_back({device, op});
  }
  void sort() {
    std::sort(begins.begin(), begins.end());
    std::sort(ends.begin(), ends.end());
  }
};

/// A window (unshard interval): the tasks of a group's readers that read one gathered copy (image)
/// of its parameters.
struct UnshardInterval {
  uint32_t group = 0;
  int32_t unit = 0;      ///< first unit that reads it
  bool backward = false; ///< only backwards read it
  std::vector<uint32_t> readers;
  CollectiveOps gather = {}; ///< none: every reader owns all of the group
};

/// The window of a group for the tasks of one direction. Applies to cells in which `unit` is the
/// first unit that uses the group.
struct UnshardUse {
  bool backward = false;
  int32_t unit = 0;
  uint32_t interval = 0;
};

/// Constraints for cells that offload, from the preliminary list.
struct OffloadHints {
  /// By cell: its F starts when so few earlier cells have activations on the device that its own
  /// stay there.
  std::vector<uint8_t> stays;
  struct Limit {
    uint32_t cell; ///< cell with activations that are copied back after a task
    TaskId after;
  };
  std::vector<Limit> back;
  std::vector<std::pair<uint32_t, uint32_t>> out; ///< (cell, later cell): activations of the first
                                                  ///< are copied out before F of the second
  std::vector<std::vector<TaskId>> order; ///< by device: tasks in the preliminary list, consistent
                                          ///< with all these limits
};

/// Constraints for windows and for cells that offload, from the preliminary list. Windows are
/// numbered within their group.
struct UnshardHints {
  struct Limit {
    uint32_t group = 0, interval = 0, device = 0;
    std::vector<TaskId> tasks; ///< tasks of the device after which the window's image may be made
  };
  std::vector<std::vector<uint32_t>> same; ///< by group and use: number of the window
  std::vector<Limit> limits;
  OffloadHints offload;
};

} // namespace zorse::step
