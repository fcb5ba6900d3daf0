// What cells of one shape (unit range, rows, activations) have in common, found once per shape. Internal to lib/Step.
#pragma once

#include "zorse/Step/Costs.h"
#include "zorse/Step/Plan.h"

#include "bundle.pb.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace zorse::step {

struct Expansion;
struct ExpansionTables;

/// A set of F, B and W of one cell: bit 0 is F, bit 1 B, bit 2 W.
using TaskSet = uint8_t;
inline constexpr TaskSet kInF = 1, kInB = 2, kInW = 4;

/// What a slot of a call is bound to, whatever the cell.
enum class Operand : uint8_t { Parameter, ParameterGradient, Input, Value, Gradient, Saved, Deferred, Workspace, Scalars, Loss };

struct Binding {
  bundle::SlotKind slot = bundle::SLOT_UNSPECIFIED;
  uint32_t index = 0;
  bundle::AccessMode mode = bundle::READ;
  Operand of = Operand::Scalars;
  uint32_t id = 0;  ///< of the parameter, the input, the value or the loss term
  uint32_t cut = 0; ///< of a gradient: it holds what users at or after this unit have added
};

/// A call of a unit function's body, with the slots that the body has.
struct UnitCall {
  uint32_t body = 0;
  std::vector<Binding> slots;
};

/// What all cells of one unit range, number of rows and way with activations have in common, as planning needs it: sums, and the buffers that others
/// touch, too.
///
/// The buffers of a cell's F are numbered one after the other, and so are those that its B and W need besides. A `place` counts from the first.
struct CellTemplate {
  uint32_t index = 0; ///< counts the templates of a model
  Cell like;          ///< a cell of this template
  bool again = false; ///< B begins with the forward
  uint32_t numbersOfF = 0, numbersOfB = 0;

  /// Bytes of buffers nobody else touches, by the first and the last task that does: saved and deferred blocks, values and gradients inside the cell.
  uint64_t inside[3][3] = {};
  /// A buffer that the cell makes.
  struct Made {
    uint32_t id; ///< of the value; of loss rows, of the unit
    uint32_t place;
    TaskSet tasks;
  };
  std::vector<TaskSet> in;                          ///< per value of liveAt at the first cut: tasks that touch the buffer the cell has it in
  std::vector<Made> produced;                       ///< values made here that are live at the last cut
  std::vector<TaskSet> gradIn;                      ///< per value of gradsAt at the last cut
  std::vector<Made> gradOut;                        ///< gradients that begin here and leave by the first cut
  std::vector<std::pair<uint32_t, TaskSet>> inputs; ///< graph inputs
  std::vector<Made> losses;                         ///< loss rows, from F to their sum; the terms of a unit in its order
  struct GroupUse {
    uint32_t group;
    TaskSet parameters, gradients;
  };
  std::vector<GroupUse> groups;            ///< state the cell's tasks touch
  std::vector<uint8_t> usesIn, usesGradIn; ///< per value at the first and at the last cut: some unit here takes it, or makes it
  std::vector<int32_t> out;                ///< per value of liveAt at the last cut: index in `produced`, or -1 - index in `in`
  struct GradOut {
    int32_t from; ///< index in `gradOut`, or -1 - index in `gradIn`
    bool touched; ///< the cell adds to it; otherwise it passes through
  };
  std::vector<GradOut> gradsOut; ///< per value of gradsAt at the first cut
  /// Of a cell that offloads: what leaves after F and is back for later tasks. Arrays above count only F among those that touch its buffer.
  struct Leaving {
    bool block; ///< a saved block, of unit `id`; otherwise the cell's rows of value `id`
    uint32_t id;
    uint32_t place; ///< of its buffer, where that is no port's
    uint64_t bytes;
    TaskSet later;     ///< what touches the image: of B and W
    int32_t port = -1; ///< where the value comes in, index in `in`, or is made, `in.size()` + index in `produced`; -1: inside the cell
  };
  std::vector<Leaving> leaving;
  uint64_t workspace = 0;
  uint64_t hold = 0;     ///< bytes from the cell's first receive to its last task, at most
  uint64_t deferred = 0; ///< of it, what begins with B (for W)
  uint64_t passing = 0;  ///< bytes it needs besides while a task runs or its results leave, at most
};

/// The rest of a template, as programs need it: calls, and the buffers that they alone touch.
struct CellInside {
  struct Call {
    int32_t unit;
    UnitTask task;
    const UnitCall *call; ///< one of those of the unit and the task
  };
  std::vector<Call> calls[3]; ///< of F, of B (what it makes again first) and of W
  struct Local {
    uint64_t bytes;
    uint32_t place;
    TaskSet tasks;
    bool late; ///< among those of B
  };
  std::vector<Local> locals; ///< CellTemplate::inside has their bytes

  std::vector<CellTemplate::Made> values;      ///< all that units here make, among F's buffers
  std::vector<CellTemplate::Made> remade;      ///< of them, what B makes again, among B's
  std::vector<CellTemplate::Made> gradients;   ///< all that begin here, among B's
  std::vector<CellTemplate::Made> lossesAgain; ///< among B's: nobody reads them
  uint32_t savedAgain = 0;                     ///< place of the first unit's saved block among B's, where B makes them again; F's begin with it
  uint32_t deferred = 0;                       ///< place of the first unit's block for W
};

/// What tasks do with each unit of a model: the calls of a function, in order.
class UnitCalls {
public:
  UnitCalls() = default;
  explicit UnitCalls(const ExpansionTables &tables);
  /// Valid as long as this object.
  const std::vector<UnitCall> &of(int32_t unit, UnitTask task) const { return calls[static_cast<size_t>(unit) * kTasks + static_cast<size_t>(task)]; }

private:
  static constexpr size_t kTasks = 5;
  std::vector<std::vector<UnitCall>> calls;
};

class CellTemplates {
public:
  /// \param split  whether backwards are
  CellTemplates(const ExpansionTables &tables, bool split) : tables(tables), split(split) {}
  /// Valid as long as this object.
  const CellTemplate &of(const Cell &cell);
  const CellInside &inside(const CellTemplate &shape);

private:
  struct Key {
    int32_t unitBegin, unitEnd;
    int64_t rows;
    Activations activations; ///< Recompute only where there is a B that recomputes
    bool operator==(const Key &o) const { return unitBegin == o.unitBegin && unitEnd == o.unitEnd && rows == o.rows && activations == o.activations; }
  };
  struct Hash {
    size_t operator()(const Key &key) const {
      return (static_cast<uint64_t>(key.unitBegin) << 40 ^ static_cast<uint64_t>(key.unitEnd) << 20 ^ static_cast<uint64_t>(key.rows) ^
              static_cast<uint64_t>(key.activations) << 60) *
                 0x9e3779b97f4a7c15ull >>
             16;
    }
  };

  const ExpansionTables &tables;
  const bool split;
  std::deque<CellTemplate> templates;
  std::vector<std::unique_ptr<CellInside>> insides; ///< by template, those that were asked for
  std::unordered_map<Key, const CellTemplate *, Hash> known;
  Key lastKey{-1, -1, -1, Activations::Keep};
  const CellTemplate *last = nullptr;
};

/// Per device: bytes of state, gradients, gathered parameters and workspace, all at once.
std::vector<uint64_t> fixedBytes(const Expansion &x);

} // namespace zorse::step
