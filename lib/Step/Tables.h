// Data shared by the expansions of one model. Internal to lib/Step.
#pragma once

#include "CellTemplates.h"
#include "Order.h"
#include "ReductionLevels.h"

#include "zorse/Step/Costs.h"
#include "zorse/Step/StepGraph.h"
#include "zorse/Summary/Summary.h"

#include <memory>
#include <vector>

namespace zorse::step {

struct LoweringArrays;

/// Seconds of F, B and W of cells of one shape on devices of one class.
struct TaskSeconds {
  double seconds[3] = {0, 0, 0};
  bool works[3] = {false, false, false}; ///< whether a unit has a call
};

struct LoweringTables {
  LoweringTables(const bundle::ModelSummary &summary, const bundle::FunctionLibrary *functions,
                 const Costs *costs);
  ~LoweringTables();

  const bundle::ModelSummary &summary;
  std::vector<std::vector<uint32_t>> liveAt,
      gradsAt; ///< per cut: values live across it; those with gradients
  std::vector<std::vector<uint32_t>> groupsOf; ///< per unit, ascending

  bool functionHas(uint32_t function, bundle::ArgumentKind kind, uint32_t index) const;
  /// The units of a cell's device: those of the model or, in a group, those of the device.
  LoweringTables &of(const Cell &cell) {
    return cell.group < 0 ? *this : *members[static_cast<size_t>(cell.group)][cell.member];
  }
  /// Whether a unit computes a gradient of the group, or a summand of it.
  bool contributes(int32_t unit, uint32_t group) const;

  /// Whether the launches of a segment of a function with exchanges access an argument.
  bool segmentHas(uint32_t function, uint32_t segment, bundle::ArgumentKind kind,
                  uint32_t index) const;

  const UnitCalls &unitCalls() const { return calls; }
  CellTemplates &shapes(bool splitBackward) { return shapesOf[splitBackward]; }
  /// Valid while this object exists.
  const TaskSeconds &seconds(const Cell &cell, const CellTemplate &shape, bool splitBackward);

  /// Returns arrays that no expansion uses: empty, with the memory of the previous expansion.
  LoweringArrays &spare() { return *spareArrays; }

  ReductionLevels reductions;
  sim::Traffic traffic; ///< for one simulation at a time; caches the costs of collectives

  /// Memory that one simulation, or one order by time, at a time uses.
  struct {
    std::vector<uint32_t> missing;
    std::vector<uint8_t> finished;
    IndexLists next;
    std::vector<double> time, instruction;
  } listScratch;

private:
  /// Tables of a device of a group.
  LoweringTables(std::unique_ptr<bundle::ModelSummary> own,
                 const bundle::FunctionLibrary *functions, const Costs *costs, int32_t group,
                 uint32_t member);
  void findUsed(const bundle::CompiledFunction &function);

  std::unique_ptr<bundle::ModelSummary> ownSummary; ///< of a device of a group
  int32_t group = -1;                               ///< of a device of a group
  uint32_t member = 0;
  std::vector<std::vector<std::unique_ptr<LoweringTables>>> members; ///< by group and device
  std::unique_ptr<LoweringArrays> spareArrays;
  const Costs *costs;
  bool hasFunctions;
  std::vector<std::vector<uint64_t>> functionSlots; ///< sorted (kind << 32 | index)
  /// By function and segment, for functions with exchanges: arguments that its launches access, as
  /// in `functionSlots`.
  std::vector<std::vector<std::vector<uint64_t>>> segmentSlots;
  UnitCalls calls;
  CellTemplates shapesOf[2];
  std::vector<std::vector<std::unique_ptr<TaskSeconds>>> times[2]; ///< by device class and shape
};

} // namespace zorse::step
