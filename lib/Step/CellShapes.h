// What cells of one shape (unit range, rows) touch in memory, found once per shape. Internal to lib/Step.
#pragma once

#include "zorse/Step/Plan.h"

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

namespace zorse::step {

struct Expansion;
struct ExpansionTables;

/// A set of F, B and W of one cell: bit 0 is F, bit 1 B, bit 2 W.
using TaskSet = uint8_t;
inline constexpr TaskSet kInF = 1, kInB = 2, kInW = 4;

struct CellShape {
  uint32_t index = 0; ///< counts the shapes of a model
  /// Bytes of buffers nobody else touches, by the first and the last task that does: saved and deferred blocks, values and gradients inside the cell.
  uint64_t inside[3][3] = {};
  std::vector<TaskSet> in;                            ///< per value of liveAt at the first cut: tasks that touch the buffer the cell has it in
  std::vector<std::pair<uint32_t, TaskSet>> produced; ///< values made here that are live at the last cut
  std::vector<TaskSet> gradIn;                        ///< per value of gradsAt at the last cut
  std::vector<std::pair<uint32_t, TaskSet>> gradOut;  ///< gradients that begin here and leave by the first cut
  std::vector<std::pair<uint32_t, TaskSet>> inputs;   ///< graph inputs
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
  /// Of a cell that offloads: what leaves after F and is back for later tasks. Arrays above count only F among those that touch its buffer.
  struct Leaving {
    bool block; ///< a saved block, of unit `id`; otherwise the cell's rows of value `id`
    uint32_t id;
    uint64_t bytes;
    TaskSet later;     ///< what touches the image: of B and W
    int32_t port = -1; ///< where the value comes in, index in `in`, or is made, `in.size()` + index in `produced`; -1: inside the cell
  };
  std::vector<Leaving> leaving;
  std::vector<GradOut> gradsOut; ///< per value of gradsAt at the first cut
  uint64_t workspace = 0;
  uint64_t lossBytes = 0; ///< loss rows, one buffer's worth per term: from F to their sum
  uint64_t hold = 0;      ///< bytes from the cell's first receive to its last task, at most
  uint64_t deferred = 0;  ///< of it, what begins with B (for W)
  uint64_t passing = 0;   ///< bytes it needs besides while a task runs or its results leave, at most
};

class CellShapes {
public:
  /// \param split  whether backwards are
  CellShapes(const ExpansionTables &tables, bool split) : tables(tables), split(split) {}
  /// Valid as long as this object.
  const CellShape &of(const Cell &cell);

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
  CellShape make(const Key &key) const;

  const ExpansionTables &tables;
  const bool split;
  std::deque<CellShape> shapes;
  std::unordered_map<Key, const CellShape *, Hash> known;
  Key lastKey{-1, -1, -1, Activations::Keep};
  const CellShape *last = nullptr;
};

/// Per device: bytes of state, gradients, gathered parameters and workspace, all at once.
std::vector<uint64_t> fixedBytes(const Expansion &x);

} // namespace zorse::step
