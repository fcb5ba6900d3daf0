// A model on a cluster as flat arrays: seconds of tasks, and state. For code that estimates many
// strategies. Internal to Planning.
#pragma once

#include "zorse/Summary/Summary.h"

#include "zorse/Planning/Strategy.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace zorse::planning {

/// A state group in the planner's representation.
struct GroupTable {
  int64_t elements = 0;
  uint64_t elementSize = 4;
  uint64_t computeSize = 4; ///< bytes per element of the copy that units read and all-gathers
                            ///< transfer
  bool trainable = false;
  double stateBytes = 0; ///< of optimizer states, per element
};

/// Data about the model alone. Immutable; threads may share it.
class UnitTables {
public:
  /// \param functions  as Problem::functions
  explicit UnitTables(const bundle::ModelSummary &summary,
                      const bundle::FunctionLibrary *functions = nullptr);

  int32_t units() const { return static_cast<int32_t>(groupsOfUnits.size()); }
  /// Returns the bytes per row of all values that cross a cut forward, and of the gradients that
  /// cross it backward.
  double forwardBytesAt(int32_t cut) const { return forwardAt[static_cast<size_t>(cut)]; }
  double backwardBytesAt(int32_t cut) const { return backwardAt[static_cast<size_t>(cut)]; }

  const std::vector<GroupTable> &groups() const { return groupTable; }
  /// Collects every group that a unit of the range uses, ascending, without duplicates.
  void groupsOf(int32_t unitBegin, int32_t unitEnd, std::vector<uint32_t> &result) const;
  const std::vector<uint32_t> &groupsOfUnit(int32_t unit) const {
    return groupsOfUnits[static_cast<size_t>(unit)];
  }
  /// Whether any unit has a backward in two parts, and the functions for it exist.
  bool canSplit() const { return anySplits; }

private:
  std::vector<std::vector<uint32_t>> groupsOfUnits;
  std::vector<double> forwardAt, backwardAt;
  std::vector<GroupTable> groupTable;
  bool anySplits = false;
};

/// Seconds of tasks over ranges of units: prefix sums per device class and row count, computed on
/// first use. One per thread.
class UnitTimes {
public:
  UnitTimes(const Problem &problem, const UnitTables &tables);

  struct Prefix {
    std::vector<double> forward, backward, inputGradients, weightGradients; ///< units() + 1 each
  };
  const Prefix &of(uint32_t deviceClass, int64_t rows);

private:
  const Problem &problem;
  const UnitTables &tables;
  std::vector<uint32_t> deviceOfClass;
  std::vector<std::vector<std::unique_ptr<Prefix>>> known; ///< by class and row count (few)
  std::vector<std::vector<std::pair<int64_t, std::unique_ptr<Prefix>>>> large;
};

} // namespace zorse::planning
