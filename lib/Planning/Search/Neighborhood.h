// All small changes of a strategy, by kind. Descents try them. Internal to Planning.
#pragma once

#include "Candidates.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace zorse::planning {

class Neighborhood {
public:
  /// Kinds of neighbors, in the order in which a descent tries them: schedules and owners (Orders);
  /// samples moved between devices and pipelines (Shares); micro-batch sizes (Rows); stage
  /// boundaries (Units); a device moved to every other stage (Devices); devices or stages swapped
  /// (Exchanges); stages merged, split and repeated (Structure); other or no memory optimizations
  /// for classes, stages and devices (Relief); and, for small problems, samples on different paths
  /// through the same devices (Tiles).
  enum Kind : uint8_t {
    Orders,
    Shares,
    Rows,
    Units,
    Devices,
    Swaps,
    Structure,
    MemoryOptimizations,
    Tilings
  };
  size_t kinds() const { return context.effort().everyTile ? Tilings + 1 : Tilings; }

  /// \param offer  receives a neighbor; returns false if no more are wanted
  Neighborhood(SearchContext &context, const std::vector<step::Schedule> &schedules,
               std::function<bool(Candidate &&)> offer)
      : context(context), schedules(schedules), take(std::move(offer)) {}

  /// Offers the neighbors of one kind. Neighbors of a strategy with stages that share units also
  /// share units.
  void visit(Kind kind, size_t worker, const Candidate &candidate);

private:
  struct StagePosition {
    uint32_t device;
    size_t pipeline, stage;
  };
  static constexpr size_t kNowhere = SIZE_MAX;
  using Groups = std::vector<std::vector<DeviceSet>>; ///< devices per pipeline and stage

  void orders();
  void shares();
  void rows();
  void units();
  void devices();
  void swaps();
  void structure();
  void memoryOptimizations();
  void tilings();

  void offer(Candidate candidate);
  void offer(const Strategy &strategy) { offer(Candidate{strategy, now->inFlight}); }
  std::vector<StagePosition> positions() const;
  Groups allGroups() const;
  bool alike(const StagePosition &a, const StagePosition &b) const;
  /// Offers the strategy with other groups in its pipelines: with the current stage boundaries if
  /// the number of stages is unchanged, and partitioned again.
  void regroup(const Groups &groups);
  bool refill(Pipeline &pipeline, const std::vector<DeviceSet> &groups) const;
  void recut(size_t p, const std::vector<DeviceSet> &groups);
  void dissolve(size_t gone, uint32_t device);
  void alone(const Groups &without, uint32_t device);
  void join(size_t p, size_t s, const std::vector<DeviceSet> &groups);
  void divide(size_t p, size_t s, const std::vector<DeviceSet> &groups);
  void repeat(size_t p, const std::vector<DeviceSet> &groups, size_t times, bool wave);
  std::vector<Pipeline> variants(const Pipeline &from) const;

  SearchContext &context;
  const std::vector<step::Schedule> &schedules;
  std::function<bool(Candidate &&)> take;
  // State of a visit.
  const Candidate *now = nullptr;
  const StageModel *model = nullptr;
  StagePartitioner *partitioner = nullptr;
  bool enough = false;
};

} // namespace zorse::planning
