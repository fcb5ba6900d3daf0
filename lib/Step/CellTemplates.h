// Templates of cells: data shared by all cells of one shape (unit range, rows, activations),
// computed once per shape. Internal to lib/Step.
#pragma once

#include "zorse/Step/Costs.h"
#include "zorse/Step/Plan.h"

#include "bundle.pb.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace zorse::step {

struct PlanLowering;
struct LoweringTables;

/// A set of F, B and W of one cell: bit 0 is F, bit 1 B, bit 2 W.
using TaskSet = uint8_t;
inline constexpr TaskSet kInF = 1, kInB = 2, kInW = 4;

/// What an argument of a call is bound to, independent of the cell.
enum class Operand : uint8_t {
  Parameter,
  ParameterGradient,
  Input,
  Value,
  Gradient,
  Saved,
  Deferred,
  Workspace,
  Scalars,
  Loss,
  Exchange, ///< what devices of a group exchange
};

struct Binding {
  bundle::ArgumentKind argument = bundle::ARGUMENT_UNSPECIFIED;
  uint32_t index = 0;
  bundle::AccessMode mode = bundle::READ;
  Operand of = Operand::Scalars;
  uint32_t id = 0;  ///< id of the parameter, the input, the value or the loss term; number of the
                    ///< exchange
  uint32_t cut = 0; ///< for a gradient: the sum of the contributions of users at or after this unit
};

/// A call of a compiled unit function, with the arguments that the function has.
struct UnitCall {
  uint32_t function = 0;
  uint32_t segment = 0; ///< number of exchanges of the function before its launches
  std::vector<Binding> arguments;
};

/// Data for planning that all cells with one unit range, number of rows and handling of activations
/// share: sums, and the buffers that other cells or transfers also access.
///
/// The buffers of a cell's F have consecutive numbers, and so have the additional buffers of its B
/// and W. A `place` is relative to the first number.
struct CellTemplate {
  uint32_t index = 0; ///< index among the templates of a model
  Cell like;          ///< a cell of this template
  bool again = false; ///< B begins with the forward
  uint32_t numbersOfF = 0, numbersOfB = 0;

  /// Bytes of buffers that no other op accesses, by the first and the last task that accesses them:
  /// saved and deferred blocks, values and gradients inside the cell.
  uint64_t inside[3][3] = {};
  /// A buffer that the cell makes.
  struct Made {
    uint32_t id; ///< id of the value; for loss rows, of the unit
    uint32_t place;
    TaskSet tasks;
  };
  std::vector<TaskSet> in; ///< per value of liveAt at the first cut: tasks that access the cell's
                           ///< buffer of it
  std::vector<Made> produced;  ///< values made here that are live at the last cut
  std::vector<TaskSet> gradIn; ///< per value of gradsAt at the last cut
  std::vector<Made> gradOut;   ///< gradients that begin here and are sent through the first cut
  std::vector<std::pair<uint32_t, TaskSet>> inputs; ///< graph inputs
  std::vector<Made> losses; ///< loss rows, from F to their sum; the terms of a unit in its order
  struct GroupUse {
    uint32_t group;
    TaskSet parameters, gradients;
  };
  std::vector<GroupUse> groups;            ///< state that the cell's tasks access
  std::vector<uint8_t> usesIn, usesGradIn; ///< per value at the first and last cut: a unit reads
                                           ///< it; a unit reads or produces it
  std::vector<int32_t> out; ///< per value of liveAt at the last cut: index in `produced`, or -1 -
                            ///< index in `in`
  struct GradOut {
    int32_t from; ///< index in `gradOut`, or -1 - index in `gradIn`
    bool touched; ///< whether the cell adds to it; otherwise it passes through
  };
  std::vector<GradOut> gradsOut; ///< per value of gradsAt at the first cut
  /// For a cell with offload: data that is copied to the host after F and back for later tasks. For
  /// such data, the arrays above list only F as a task that accesses the original buffer.
  struct OffloadedBuffer {
    bool block; ///< a saved block, of unit `id`; otherwise the cell's rows of value `id`
    uint32_t id;
    uint32_t place; ///< place of its buffer, if it belongs to no port
    uint64_t bytes;
    TaskSet later;     ///< tasks among B and W that access the copy fetched from the host
    int32_t port = -1; ///< port of the value: index in `in` or, if produced here, `in.size()` +
                       ///< index in `produced`; -1: inside the cell
  };
  std::vector<OffloadedBuffer> offloaded;
  uint64_t workspace = 0;
  uint64_t residentBytes = 0;  ///< maximum bytes from the cell's first receive to its last task
  uint64_t deferred = 0;       ///< part of `residentBytes` that is allocated by B for W
  uint64_t transientBytes = 0; ///< maximum additional bytes while a task runs or its results are
                               ///< sent
};

/// The remaining data of a template, for programs: calls, and the buffers that only they access.
struct CellInside {
  struct Call {
    int32_t unit;
    UnitTask task;
    const UnitCall *call; ///< a call of the unit and the task
  };
  std::vector<Call> calls[3]; ///< calls of F, of B (first those that it recomputes) and of W
  struct Local {
    uint64_t bytes;
    uint32_t place;
    TaskSet tasks;
    bool crossesStep; ///< numbered among B's buffers
  };
  std::vector<Local> locals; ///< their bytes are counted in CellTemplate::inside
  /// Memory of a function with exchanges: of an exchange, or its workspace, which other tasks must
  /// not use between its segments.
  struct Exchanged {
    int32_t unit;
    UnitTask task;
    uint32_t number; ///< kWorkspace: the workspace
    uint64_t offset; ///< in the buffer that the functions of F share, or in that of B
    auto key() const { return std::tuple(unit, task, number); }
  };
  static constexpr uint32_t kWorkspace = UINT32_MAX;
  std::vector<Exchanged> exchanged[2]; ///< of F and B, by unit, task and number
  uint32_t exchangePlace[2] = {0, 0};  ///< of the shared buffers, among the buffers of F and B
  /// \param late  in B
  const Exchanged *findExchanged(bool late, int32_t unit, UnitTask task, uint32_t number) const {
    const Exchanged wanted{unit, task, number, 0};
    const auto found =
        std::lower_bound(exchanged[late].begin(), exchanged[late].end(), wanted,
                         [](const Exchanged &a, const Exchanged &b) { return a.key() < b.key(); });
    return found != exchanged[late].end() && found->key() == wanted.key() ? &*found : nullptr;
  }

  std::vector<CellTemplate::Made> values; ///< all values that units here produce, among F's buffers
  std::vector<CellTemplate::Made> remade; ///< those of them that B recomputes, among B's buffers
  std::vector<CellTemplate::Made> gradients; ///< all gradients that begin here, among B's buffers
  std::vector<int32_t> contributors; ///< per element of `gradients`: the unit whose contribution is
                                     ///< the first, so that it overwrites
  std::vector<CellTemplate::Made> lossesAgain; ///< among B's buffers: loss rows that are not read
  uint32_t savedAgain = 0; ///< first saved block among B's buffers, if B recomputes; F's buffers
                           ///< begin with them
  uint32_t deferred = 0;   ///< place of the first unit's block for W
};

/// The calls of every unit function of a model, in order.
class UnitCalls {
public:
  UnitCalls() = default;
  explicit UnitCalls(const LoweringTables &tables);
  /// Valid while this object exists.
  const std::vector<UnitCall> &of(int32_t unit, UnitTask task) const {
    return calls[static_cast<size_t>(unit) * kTasks + static_cast<size_t>(task)];
  }

private:
  static constexpr size_t kTasks = 5;
  std::vector<std::vector<UnitCall>> calls;
};

class CellTemplates {
public:
  /// \param split  whether backwards are split
  CellTemplates(const LoweringTables &tables, bool split) : tables(tables), split(split) {}
  /// Valid while this object exists.
  const CellTemplate &of(const Cell &cell);
  const CellInside &inside(const CellTemplate &shape);

private:
  struct Key {
    int32_t unitBegin, unitEnd;
    int64_t rows;
    Activations activations; ///< Recompute only if the cell has a B that recomputes
    bool operator==(const Key &o) const {
      return unitBegin == o.unitBegin && unitEnd == o.unitEnd && rows == o.rows &&
             activations == o.activations;
    }
  };
  struct Hash {
    size_t operator()(const Key &key) const {
      return (static_cast<uint64_t>(key.unitBegin) << 40 ^
              static_cast<uint64_t>(key.unitEnd) << 20 ^ static_cast<uint64_t>(key.rows) ^
              static_cast<uint64_t>(key.activations) << 60) *
                 0x9e3779b97f4a7c15ull >>
             16;
    }
  };

  const LoweringTables &tables;
  const bool split;
  std::deque<CellTemplate> templates;
  std::vector<std::unique_ptr<CellInside>> insides; ///< by template; null: not requested yet
  std::unordered_map<Key, const CellTemplate *, Hash> known;
  Key lastKey{-1, -1, -1, Activations::Keep};
  const CellTemplate *last = nullptr;
};

/// Returns bytes per device of state, gradients, gathered parameters and workspace, as if all were
/// allocated at the same time.
std::vector<uint64_t> fixedBytes(const PlanLowering &x);

} // namespace zorse::step
