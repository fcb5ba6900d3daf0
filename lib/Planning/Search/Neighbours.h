// All small changes of a layout, kind by kind: what descents try. Internal to Planning.
#pragma once

#include "Candidates.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace zorse::planning {

class Neighbours {
public:
  /// Schedules and owners; samples between devices and pipelines; rows; cuts; a device to every other place; devices and stages exchanged; stages
  /// joined, divided and repeated; classes, stages and devices with other memory techniques, or without; and, of few enough pieces, samples
  /// that go their own way through the same devices.
  enum Kind : uint8_t { Orders, Shares, Rows, Units, Devices, Exchanges, Structure, Relief, Tiles };
  size_t kinds() const { return context.effort().everyTile ? Tiles + 1 : Tiles; }

  /// \param offer   takes a neighbour; false: no more are wanted
  Neighbours(SearchContext &context, const std::vector<step::Schedule> &schedules, std::function<bool(Candidate &&)> offer)
      : context(context), schedules(schedules), take(std::move(offer)) {}

  /// Offers the neighbours of one kind. Those of layouts whose stages share out units do so as well.
  void visit(Kind kind, size_t worker, const Candidate &candidate);

private:
  struct Seat {
    uint32_t device;
    size_t pipeline, stage;
  };
  static constexpr size_t kNowhere = SIZE_MAX;
  using Groups = std::vector<std::vector<Atom>>; ///< devices by pipeline and stage

  void orders();
  void shares();
  void rows();
  void units();
  void devices();
  void exchanges();
  void structure();
  void relief();
  void tiles();

  void offer(Candidate candidate);
  void offer(const Layout &layout) { offer(Candidate{layout, now->inFlight}); }
  std::vector<Seat> seats() const;
  Groups allGroups() const;
  bool alike(const Seat &a, const Seat &b) const;
  /// The layout with other groups in its pipelines: with cuts as they are where the number of stages is the same, and cut again.
  void regroup(const Groups &groups);
  bool refill(Pipeline &pipeline, const std::vector<Atom> &groups) const;
  void recut(size_t p, const std::vector<Atom> &groups);
  void dissolve(size_t gone, uint32_t device);
  void alone(const Groups &without, uint32_t device);
  void join(size_t p, size_t s, const std::vector<Atom> &groups);
  void divide(size_t p, size_t s, const std::vector<Atom> &groups);
  void repeat(size_t p, const std::vector<Atom> &groups, size_t times, bool folded);
  std::vector<Pipeline> variants(const Pipeline &from) const;

  SearchContext &context;
  const std::vector<step::Schedule> &schedules;
  std::function<bool(Candidate &&)> take;
  // Of a visit.
  const Candidate *now = nullptr;
  const StageModel *model = nullptr;
  CutSolver *solver = nullptr;
  bool enough = false;
};

} // namespace zorse::planning
