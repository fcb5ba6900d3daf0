// Summary, functions and plan, checked once and indexed for the replay. They determine the expected
// value of everything.
#pragma once

#include "zorse/Verify/Verify.h"

#include "Collectives.h"
#include "ParameterRuns.h"

#include "zorse/Collectives/Tree.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace zorse::verify {

/// Larger sizes are refused, so that no sum and no `product` of two sizes overflows 64 bits.
inline constexpr int64_t kMaxSize = int64_t(1) << 50;

/// Maximum number of terms that one function adds.
inline constexpr uint32_t kMaxTerms = 64;

/// a * b, or -1 if a factor is negative or the result exceeds kMaxSize.
inline int64_t product(int64_t a, int64_t b) {
  int64_t result;
  return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &result) || result > kMaxSize ? -1 : result;
}
/// fixed + perRow * rows, or -1.
inline int64_t extentBytes(int64_t fixed, int64_t perRow, int64_t rows) {
  const int64_t varying = product(perRow, rows);
  return varying < 0 || fixed < 0 || fixed > kMaxSize || varying + fixed > kMaxSize
             ? -1
             : varying + fixed;
}
inline int64_t extentBytes(const bundle::AffineSize &extent, int64_t rows) {
  return extentBytes(extent.fixed(), extent.per_row(), rows);
}
/// 0 for an unknown type.
int64_t elementSize(bundle::ElementType type);

/// Buffers of packed tensors of one unit and the rows of one cell. They cannot be divided.
inline bool isBlock(bundle::Value::Kind kind) {
  return kind == bundle::Value::SAVED_BLOCK || kind == bundle::Value::SAVED_FOR_WEIGHT_GRAD_BLOCK;
}

/// Elements of a state group.
inline bool isState(bundle::Value::Kind kind) {
  return kind == bundle::Value::PARAMETERS || kind == bundle::Value::MOMENTS ||
         kind == bundle::Value::GRADIENTS || kind == bundle::Value::REDUCED_GRADIENTS ||
         kind == bundle::Value::LOW_PRECISION_PARAMETERS;
}

struct Range {
  int64_t begin, end;
  bool operator==(const Range &o) const { return begin == o.begin && end == o.end; }
  bool operator<(const Range &o) const { return begin != o.begin ? begin < o.begin : end < o.end; }
};

class Model {
public:
  /// Adds findings without a device if summary, functions or plan are unusable; no other function
  /// may be called then.
  Model(const bundle::ModelSummary &summary, const bundle::FunctionLibrary &functions,
        const PlanView &plan, std::vector<Finding> &findings);

  const bundle::ModelSummary &summary;
  const bundle::FunctionLibrary &functions;
  const PlanView &plan;

  /// A parameter's elements inside its group. The elements between pieces are padding without a
  /// defined value.
  struct Piece {
    int64_t begin, end;
    uint32_t parameter;
  };
  std::vector<std::vector<Piece>> pieces; ///< per group, ascending.

  /// An optimizer state of a group. Its entries that belong to a parameter are a piece.
  struct State {
    bundle::ElementType type = bundle::ELEMENT_TYPE_UNSPECIFIED;
    int64_t entries = 0; ///< with padding
    std::vector<Piece> pieces;
  };
  std::vector<std::vector<State>> states; ///< per group

  /// Units with a backward that adds to the gradient of the parameter, or of the value; ascending.
  std::vector<std::vector<uint32_t>> parameterContributors, valueContributors;
  /// Devices with a cell that adds to the group's gradient; ascending.
  std::vector<std::vector<uint32_t>> groupContributors;
  /// The order of additions of the group's reduction; empty if nothing contributes.
  const collectives::Tree &treeOf(uint32_t group) const { return *trees[group]; }
  /// Whether numbers are added in this order of devices: that of the plan, or the order in which
  /// devices own elements along nodes and sites.
  bool isOrderOfSum(const std::vector<uint32_t> &devices) const;
  /// Whether the plan rounds the terms of a sum of gradients: its devices are on several nodes (or
  /// sites), and it is more than copies.
  bool roundsTerms(const bundle::Collective &sum) const;
  /// Whether some devices add to a part of the group's elements only.
  bool addsToParts(uint32_t group) const {
    return std::any_of(
        groupContributors[group].begin(), groupContributors[group].end(),
        [&](uint32_t device) { return partialContributions.count({device, group}); });
  }
  /// Devices with a cell of a unit that has loss terms; ascending.
  std::vector<uint32_t> lossDevices;
  std::vector<std::vector<uint32_t>> cellsOfDevice;

  /// Devices that have a term of the sum; ascending.
  std::vector<uint32_t> contributorsOf(const bundle::Value &sum) const;

  /// Maximum number of terms that one function adds in a type; 0: there is no such function.
  uint32_t maxTerms(bundle::ElementType type) const {
    uint32_t max = 0;
    for (const auto &sum : summary.sums())
      max = sum.type() == type && !sum.term_type() ? std::max(max, sum.num_contributions()) : max;
    return max;
  }
  /// The same for f32 sums of terms rounded to bf16.
  uint32_t maxRoundedTerms() const;

  static constexpr uint32_t kNoFunction = UINT32_MAX;
  const bundle::UnitClass &classOf(const bundle::UnitInfo &unit) const {
    return summary.classes(int(unit.class_id()));
  }
  /// The compiled function of one of a unit's functions, or kNoFunction if the summary does not
  /// name one.
  uint32_t functionOf(const bundle::UnitInfo &unit, bundle::UnitFunction::Task task) const {
    for (const auto &function : classOf(unit).functions())
      if (function.task() == task)
        return function.function();
    return kNoFunction;
  }
  /// The unit that a device has in place of a unit of the model: the same, or that of a device of a
  /// group.
  const bundle::UnitInfo &unitOf(uint32_t device, int64_t unit) const {
    const bundle::UnitInfo *own = device < ownUnits.size() && !ownUnits[device].empty()
                                      ? ownUnits[device][size_t(unit)]
                                      : nullptr;
    return own ? *own : summary.units(int(unit));
  }
  /// Returns the summary's data about the exchanges of a function of a unit; null if it has none.
  const bundle::UnitFunction *exchangesOf(const bundle::UnitInfo &unit, uint32_t function) const {
    for (const auto &one : classOf(unit).functions())
      if (one.function() == function && one.exchanges_size())
        return &one;
    return nullptr;
  }
  /// Whether the launches of a segment access an argument, the first or the last segment that does.
  /// Without exchanges, a function has one segment that accesses all arguments.
  bool segmentHas(uint32_t function, uint32_t segment, int argument) const;
  bool hasSegments(uint32_t function) const { return !segments[function].empty(); }
  bool hasSegment(uint32_t function, uint32_t segment) const {
    return segment < std::max<size_t>(segments[function].size(), 1);
  }
  bool isFirst(uint32_t function, uint32_t segment, int argument) const;
  bool isLast(uint32_t function, uint32_t segment, int argument) const;
  /// Whether a device's unit adds to the gradient of a parameter.
  /// Returns the elements of a parameter of a device's unit, by position in the unit's list.
  Compact parameterRuns(uint32_t device, int64_t unit, uint32_t argument) const {
    return bundle::parameterRuns(summary, unitOf(device, uint32_t(unit)), argument);
  }
  /// Whether units are bound to parts of parameters.
  bool hasParts() const { return !partialContributions.empty(); }
  /// Returns the devices with tasks that add to the gradients of a shard of a group; it has no
  /// padding.
  std::vector<uint32_t> contributorsTo(uint32_t group, const Shard &shard) const;
  bool contributes(uint32_t device, uint32_t unit, uint32_t parameter) const {
    const auto found = contributed.find(&unitOf(device, unit));
    return found != contributed.end() && found->second.count(parameter) != 0;
  }
  /// Whether a device adds the losses of its unit: the devices of a group compute equal ones.
  bool addsLoss(uint32_t device, uint32_t unit) const {
    return device >= ownUnits.size() || ownUnits[device].empty() || !ownUnits[device][unit] ||
           isFirstOfGroup[device];
  }

  /// A call of a unit function, for samples.
  struct UnitCall {
    int64_t unit;
    uint32_t function;
    Range samples;
    uint32_t segment = 0; ///< number of exchanges of the function before the launches
  };
  /// Appends the calls of a cell's task F, B or W, in order.
  void callsOf(const PlanView::Cell &cell, bundle::Compute::Task task,
               std::vector<UnitCall> &calls) const;
  /// Whether a cell's task has any call.
  bool hasWork(const PlanView::Cell &cell, bundle::Compute::Task task) const;

  int64_t groupElementSize(uint32_t group) const {
    return elementSize(summary.groups(group).type());
  }
  /// Whether units read copies of a group's parameters in another type, and the size of an element
  /// of these copies.
  bool hasCopy(uint32_t group) const {
    return summary.groups(group).param_dtype() != bundle::ELEMENT_TYPE_UNSPECIFIED;
  }
  int64_t copyElementSize(uint32_t group) const {
    return hasCopy(group) ? elementSize(summary.groups(group).param_dtype())
                          : groupElementSize(group);
  }
  bool hasCopies() const { return copies; }
  /// Whether gradients are multiplied by a scale that devices keep from step to step, and the bytes
  /// of the state that a decision changes.
  bool scales() const { return summary.training().loss_scale() != 0; }
  int64_t optimizerStepBytes() const { return scales() ? 32 : 8; }
  bool isScaling(int32_t unit, uint32_t function) const {
    return scales() && unit < 0 && function == summary.scale_loss_gradient_function();
  }
  bool isUpdate(uint32_t function) const {
    const auto &rules = summary.update_rules();
    return std::any_of(rules.begin(), rules.end(),
                       [&](const auto &rule) { return rule.function() == function; });
  }
  /// Returns the elements in a row of a call of an update.
  int64_t elementsPerRow(uint32_t function) const {
    for (const bundle::UpdateRule &rule : summary.update_rules())
      if (rule.function() == function)
        return blockSize(rule);
    return 1;
  }
  /// Returns the entries of an optimizer state in such a row.
  int64_t entriesPerRow(uint32_t function, uint32_t state) const {
    for (const bundle::UpdateRule &rule : summary.update_rules())
      if (rule.function() == function && state < uint32_t(rule.states_size()))
        return rule.states(int(state)).entries();
    return 1;
  }
  /// Returns the number and the type of elements of a group, or of entries of an optimizer state,
  /// which exists.
  int64_t countOf(bundle::Value::Kind kind, uint32_t group, uint32_t state) const {
    return kind == bundle::Value::MOMENTS ? states[group][state].entries
                                          : summary.groups(int(group)).elements();
  }
  bundle::ElementType typeOf(bundle::Value::Kind kind, uint32_t group, uint32_t state) const {
    return kind == bundle::Value::MOMENTS ? states[group][state].type
                                          : summary.groups(int(group)).type();
  }
  /// Calls f as forPieces does, for elements or entries [begin, end) of a value of a state group.
  template <typename F>
  void forPiecesOf(bundle::Value::Kind kind, uint32_t group, uint32_t state, Range range,
                   F f) const {
    forPieces(kind == bundle::Value::MOMENTS ? states[group][state].pieces : pieces[group],
              range.begin, range.end, f);
  }
  /// Returns the entries of an optimizer state that belong to elements of a group, which begin and
  /// end inside or at the borders of parameters.
  Range entriesOf(uint32_t group, uint32_t state, Range elements) const;
  static int64_t blockSize(const bundle::UpdateRule &rule);
  bool trainable(uint32_t group) const { return summary.groups(group).trainable(); }
  /// Returns the number of optimizer states of a group.
  uint32_t statesOf(uint32_t group) const { return uint32_t(states[group].size()); }
  /// Whether some state is updated: there is then a decision, and the host receives it.
  bool decides() const {
    return std::any_of(summary.groups().begin(), summary.groups().end(),
                       [](const auto &group) { return group.trainable() && group.elements() > 0; });
  }

  /// Calls f(begin, end, parameter) for elements [begin, end) of a group except padding.
  template <typename F> void forPieces(uint32_t group, int64_t begin, int64_t end, F f) const {
    forPieces(pieces[group], begin, end, f);
  }
  template <typename F>
  static void forPieces(const std::vector<Piece> &list, int64_t begin, int64_t end, F f) {
    size_t lo = 0, hi = list.size();
    while (lo < hi) {
      size_t mid = (lo + hi) / 2;
      if (list[mid].end <= begin)
        lo = mid + 1;
      else
        hi = mid;
    }
    for (; lo < list.size() && list[lo].begin < end; ++lo)
      f(std::max(begin, list[lo].begin), std::min(end, list[lo].end), list[lo].parameter);
  }

private:
  /// By device and unit, for devices of groups; null: the model's.
  std::vector<std::vector<const bundle::UnitInfo *>> ownUnits;
  /// By function with exchanges, segment and argument: whether its launches access it.
  std::vector<std::vector<std::vector<bool>>> segments;
  std::vector<bool> isFirstOfGroup; ///< by device
  /// By unit: parameters to whose gradients it adds.
  std::map<const bundle::UnitInfo *, std::set<uint32_t>> contributed;
  /// By device and group: the elements to which its tasks add, if they are not all.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<Shard>> partialContributions;
  collectives::Placement placement;
  std::vector<std::shared_ptr<const collectives::Tree>> trees; ///< per group
  bool copies = false;                                         ///< some group has a param_dtype
  std::set<const bundle::UnitInfo *> repeated; ///< some B recomputes only their saved blocks,
                                               ///< without their other results

  /// The function that task F, B or W calls for a unit; kNoFunction: the task does not call one. In
  /// a plan that splits the backward, B and W have separate functions if the unit supports it.
  /// Otherwise the whole backward belongs to W if only parameters have gradients, and to B if not.
  uint32_t functionOf(const bundle::UnitInfo &unit, bundle::Compute::Task task) const;
  /// The function that B of a cell with recomputation calls first for a unit: the forward function
  /// or, for the last unit, the function that computes only the saved block. kNoFunction: nothing
  /// is saved, so there is no such call.
  uint32_t repeatedFunction(const PlanView::Cell &cell, uint32_t unit) const;
  /// Calls visit(unit, index) for the units of the model and those of the devices of groups.
  template <typename Visit> void forUnits(Visit visit) const {
    for (int u = 0; u < summary.units_size(); ++u)
      visit(summary.units(u), uint32_t(u));
    for (const auto &group : summary.device_groups())
      for (const auto &member : group.members())
        for (int i = 0; i < member.units_size(); ++i)
          visit(member.units(i), group.units(i));
  }
  void findSegments();
  void findTrees();
  bool checkDeviceGroups(std::vector<Finding> &findings);
  bool checkMembers(std::vector<Finding> &findings) const;
  /// Whether B of a cell begins by recomputing its F.
  bool recomputes(const PlanView::Cell &cell) const {
    return cell.recompute && hasWork(cell, bundle::Compute::B);
  }
  /// The functions of a unit that tasks of the plan may call.
  std::vector<uint32_t> functionsOf(const bundle::UnitInfo &unit) const;
  bool checkSummary(std::vector<Finding> &findings);
  bool checkGroups(std::vector<Finding> &findings);
  bool checkScale(std::vector<Finding> &findings) const;
  bool findRepeated(std::vector<Finding> &findings);
  bool placeParameters(std::vector<Finding> &findings);
  void placeStates();
  /// Whether everything that a unit names exists.
  bool isSound(const bundle::UnitInfo &unit) const;
  bool checkFunctions(std::vector<Finding> &findings) const;
  bool checkArguments(std::vector<Finding> &findings) const;
  bool checkUnitFunctions(std::vector<Finding> &findings) const;
  bool checkParts(std::vector<Finding> &findings) const;
  bool checkParts(const bundle::UnitInfo &unit, std::vector<Finding> &findings) const;
  bool checkCommit(std::vector<Finding> &findings) const;
  bool checkSums(std::vector<Finding> &findings);
  bool checkPlan(std::vector<Finding> &findings);
  void index();
  void addPartialContributions(uint32_t device, const bundle::UnitInfo &unit);
};

} // namespace zorse::verify
