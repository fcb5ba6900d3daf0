// A model on a cluster as flat numbers, for whoever weighs many layouts: bytes of cells, seconds of tasks, state. Internal to Planning.
#pragma once

#include "zorse/Summary/Summary.h"

#include "zorse/Planning/Layout.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace zorse::planning {

/// Bytes that a cell takes and frees on its device, by the event that does it. Every buffer counts in multiples of 64 bytes, as arenas place them.
struct CellBytes {
  uint64_t takenByReceive = 0; ///< the first transfer of what the stage in front sends
  uint64_t takenByForward = 0, freedByForward = 0;
  uint64_t freedBySend = 0; ///< the last transfer to the stage behind
  uint64_t takenByGradientReceive = 0;
  uint64_t takenByBackward = 0, freedByBackward = 0;
  uint64_t freedByGradientSend = 0;
  uint64_t freedByWeights = 0; ///< W, where the backward is split
  // What admission by memory counts (lib/Step/CellShapes.h).
  uint64_t hold = 0;     ///< from the first receive to the last task
  uint64_t deferred = 0; ///< of it, what only begins with the backward (for W)
  uint64_t passing = 0;  ///< besides, while a task runs or its results leave
};

/// A state group as Planning sees it.
struct GroupTable {
  int64_t elements = 0;
  uint64_t elementSize = 4;
  uint64_t computeSize = 4; ///< of an element as units read it and gathers carry it
  bool casts = false;       ///< owners cast what units read in every step
  bool trainable = false;
  std::vector<uint32_t> units; ///< ascending
};

/// Facts about the model alone. Immutable, shared by threads.
class UnitTables {
public:
  explicit UnitTables(const Problem &problem);

  int32_t units() const { return static_cast<int32_t>(unitInfo.size()); }
  /// Bytes per row of every value that crosses a cut, forwards and (its gradient) backwards, in the order of their transfers.
  const std::vector<uint64_t> &valuesAt(int32_t cut) const { return forwardAt[static_cast<size_t>(cut)]; }
  const std::vector<uint64_t> &gradientsAt(int32_t cut) const { return backwardAt[static_cast<size_t>(cut)]; }
  double forwardBytesAt(int32_t cut) const { return forwardSum[static_cast<size_t>(cut)]; }
  double backwardBytesAt(int32_t cut) const { return backwardSum[static_cast<size_t>(cut)]; }

  CellBytes cellBytes(int32_t unitBegin, int32_t unitEnd, int64_t rows, bool split) const;
  double inputBytesOf(int32_t unitBegin, int32_t unitEnd) const;
  uint64_t workspace(int32_t unitBegin, int32_t unitEnd, int64_t rows, bool split) const;

  const std::vector<GroupTable> &groups() const { return groupTable; }
  /// Groups whose first using unit of the range is counted once: every group that a unit of the range uses, ascending, no repeats.
  void groupsOf(int32_t unitBegin, int32_t unitEnd, std::vector<uint32_t> &result) const;
  const std::vector<uint32_t> &groupsOfUnit(int32_t unit) const { return unitInfo[static_cast<size_t>(unit)].groups; }
  uint32_t moments() const { return momentCount; }
  bool hasLoss(int32_t unitBegin, int32_t unitEnd) const;
  /// Whether any unit's backward comes in two parts.
  bool canSplit() const { return anySplits; }
  bool inBackward(int32_t unit, bool split) const;
  bool inWeights(int32_t unit) const;
  bool splits(int32_t unit) const { return unitInfo[static_cast<size_t>(unit)].splits; }

private:
  struct Use {
    uint32_t value;
    bool needsGradient, readByBackward, readByB, readByW; ///< of the boundary input
  };
  struct Made {
    uint32_t value;
    bool needsGradient, gradientReadByB, gradientReadByW;
  };
  struct Unit {
    std::vector<Use> in;
    std::vector<Made> out;
    std::vector<uint32_t> inputs, groups;
    int64_t savedFixed, savedPerRow, deferredFixed, deferredPerRow;
    int64_t workspace[4][2]; ///< by UnitTask: fixed, per row
    bool hasTask[4];         ///< undivided: F, B; split: its B or W
    bool splits, splitInB, splitInW, savedReadByB;
    uint32_t lossTerms;
  };
  struct ValueTable {
    uint64_t bytes;
    int32_t producer, last;
    bool needsGradient;
  };
  std::vector<Unit> unitInfo;
  std::vector<ValueTable> values;
  std::vector<uint64_t> inputBytes;
  std::vector<std::vector<uint64_t>> forwardAt, backwardAt;
  std::vector<std::vector<uint32_t>> liveAt;
  std::vector<double> forwardSum, backwardSum;
  std::vector<GroupTable> groupTable;
  uint32_t momentCount = 0;
  const bool recompute; ///< every cell
  bool anySplits = false;
};

/// Seconds of tasks over ranges of units: prefix sums per device class and rows, made when first asked for. One per thread.
class UnitTimes {
public:
  UnitTimes(const Problem &problem, const UnitTables &tables);

  struct Prefix {
    std::vector<double> forward, backward, inputGradients, weightGradients; ///< units() + 1 each
  };
  const Prefix &of(uint32_t deviceClass, int64_t rows);
  uint32_t classes() const { return static_cast<uint32_t>(deviceOfClass.size()); }
  uint32_t deviceOf(uint32_t deviceClass) const { return deviceOfClass[deviceClass]; }

private:
  const Problem &problem;
  const UnitTables &tables;
  std::vector<uint32_t> deviceOfClass;
  std::vector<std::vector<std::unique_ptr<Prefix>>> known; ///< class, rows (few)
  std::vector<std::vector<std::pair<int64_t, std::unique_ptr<Prefix>>>> large;
};

} // namespace zorse::planning
