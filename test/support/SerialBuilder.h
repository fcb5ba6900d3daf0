// Builds the programs of serialPrograms().
#pragma once

#include "ArgumentBindings.h"
#include "SerialPrograms.h"

#include "zorse/Base/Runs.h"

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace zorse::test {

inline bundle::Value value(bundle::Value::Kind kind, uint32_t id, uint32_t cut, int64_t begin,
                           int64_t end) {
  bundle::Value v;
  v.set_kind(kind);
  v.set_id(id);
  v.set_cut(cut);
  v.set_begin(begin);
  v.set_end(end);
  return v;
}

class SerialBuilder {
public:
  SerialBuilder(const SyntheticModel &model, const SerialPlan &plan)
      : summary(model.summary), functions(model.functions), plan(plan), programs(plan.devices),
        binders(programs.begin(), programs.end()), last(plan.devices, -1) {}

  std::vector<bundle::Program> build();

private:
  const bundle::ModelSummary &summary;
  const bundle::FunctionLibrary &functions;
  const SerialPlan &plan;
  std::vector<bundle::Program> programs;
  std::vector<bundle::ArgumentBinder> binders; ///< per program
  std::vector<int> last;                       ///< per device: index of its latest instruction
  std::vector<SerialShard> owners;
  std::map<uint32_t, uint64_t> used;
  std::map<std::pair<uint32_t, std::string>, bundle::Region> regions;
  std::set<std::tuple<uint32_t, uint32_t>> startedGroups; ///< (device, group) pairs with a
                                                          ///< contribution in their accumulator
  uint32_t next = 0;                                      ///< next id

  bundle::Region region(uint32_t device, const std::string &key, int64_t bytes);
  static bundle::Region part(bundle::Region whole, int64_t offset, int64_t bytes);

  void waitFor(int d, bundle::Instruction *instruction, int target, bool previous);

  /// Adds an instruction with the current id that waits for all earlier instructions of its device.
  bundle::Instruction *add(int d, uint32_t queue, bundle::Phase phase);

  std::set<uint32_t> devicesOf(uint32_t group) const;
  /// The shards that are communicated: all but padding that stays with its owner.
  std::vector<SerialShard> ownersOf(uint32_t group) const;

  /// The elements of a group that every device that uses the group stores. Arguments begin at
  /// multiples of 64 bytes.
  Compact wholeOf(uint32_t group) const;
  Compact ownOf(uint32_t group, uint32_t device) const;
  bool isPadding(const SerialShard &shard) const {
    return wholeOf(shard.group).place(shard.begin, shard.end) < 0;
  }
  void cutAtPadding();

  std::string parametersKey(uint32_t g) const { return "parameters" + std::to_string(g); }
  std::string momentsKey(uint32_t m, const SerialShard &shard) const;

  /// The region of a shard: inside the whole group on a device that uses the group, else among the
  /// device's own shards.
  bundle::Region shardRegion(const SerialShard &shard, const std::string &whole,
                             const std::string &alone);
  bundle::Region shardRegion(const SerialShard &shard);
  bundle::Region sumRegion(const SerialShard &shard);

  /// The region of a collective: all bytes of a device's shards, from the first one.
  bundle::Region shardsFrom(bundle::Region first, uint32_t group, uint32_t device) const;
  void addRuns(uint32_t group, const std::set<uint32_t> &devices, bundle::ShardRanges *runs) const;
  static void add(uint32_t device, int64_t begin, int64_t end, bundle::ShardRanges *extents);

  void state(uint32_t device, const bundle::Region &where, const bundle::Value &what,
             bundle::ElementType type);

  void states();

  std::string cellKey(int c, const char *what, uint32_t id) const {
    return std::string(what) + std::to_string(id) + "@" + std::to_string(c);
  }
  bool live(uint32_t v, int cut) const {
    return int(summary.values(int(v)).producer()) < cut &&
           int(*summary.values(int(v)).users().rbegin()) >= cut;
  }

  /// Moves the rows of a value or its gradient that two adjacent cells share.
  void move(int from, int to, const char *what, const bundle::Value &declared, int64_t bytesPerRow,
            bundle::Phase phase);

  void bind(int c, int u, bundle::Compute *compute);

  void forwardCell(int c);

  void backwardCell(int c);

  uint32_t functionOf(const bundle::UnitInfo &unit, bundle::UnitFunction::Task task) const;

  /// The function that a task calls for a unit, or -1.
  int functionOf(int u, bundle::Compute::Task task) const;

  /// Ranges of elements without padding and with the same decay.
  std::vector<std::tuple<int64_t, int64_t, uint32_t>> runs(const SerialShard &shard) const;

  void commit();
};

} // namespace zorse::test
