// Stages as intervals of an order of devices and intervals of units, cut by dynamic programme. Internal to Planning.
#pragma once

#include "StageModel.h"

#include <cstdint>
#include <vector>

namespace zorse::planning {

/// Devices that stay together: a stage holds whole atoms.
struct Atom {
  std::vector<uint32_t> devices;
};

struct CutOptions {
  int64_t samples = 0;         ///< of the pipeline
  uint32_t copies = 1;         ///< pipelines like this one that share its gradients
  size_t mostAtoms = SIZE_MAX; ///< in a stage
  bool mayLeaveOut = true;     ///< atoms without work
  bool split = false;
  bool waits = true;                         ///< stages wait for the first sample: times are nearer, and cuts less even
  bool rough = false;                        ///< within a hundredth, and without that wait: to compare
  double lateStart = 0.01;                   ///< part of the time for which the first stages may wait for their parameters
  double inFlight = 1;                       ///< samples that memory is provided for, as a multiple of those under way when nothing waits
  double leastTime = 0, mostTime = 1e18;     ///< known bounds of the result; above the second there is none
  uint32_t mostDevices = UINT32_MAX;         ///< in a stage, but for one that takes all that are left
  size_t leastRows = 0, mostRows = SIZE_MAX; ///< indices of StageModel::rows()
};

struct CutStage {
  size_t atomBegin = 0, atomEnd = 0;
  int32_t unitBegin = 0, unitEnd = 0;
  size_t rows = 0; ///< index of StageModel::rows()
};

struct Cut {
  double time = 0;              ///< estimated seconds of the step
  double latency = 0;           ///< estimated seconds of one sample's way there and back
  std::vector<CutStage> stages; ///< empty: none fits
};

/// Least time T so that every stage is done by T: the way of the first sample to it, its busiest device, the sum of its gradients, with what its
/// cards and memory allow.
///
///     reach[i][u] = least latency of stages made of atoms >= i that hold units >= u, each done by T
///
/// from back to front; T is bisected. Latency, of a sample's way from a stage to the end and back, is the one label: it says how many samples the
/// stage holds, and against the latency of the whole (of the cut found before) how long it waits for the first of them.
class CutSolver {
public:
  explicit CutSolver(const StageModel &model) : model(model) {}
  Cut solve(const std::vector<Atom> &atoms, const CutOptions &options);

private:
  struct From {
    uint32_t atom;
    int32_t unit;
    uint32_t rows; ///< kSkip: the atom has no work
  };
  struct StageChoice { ///< what a choice of atoms brings, for all cuts
    uint32_t counts[kMostClasses];
    uint32_t classList[kMostClasses], classCount;
    double memory[kMostClasses];
    uint32_t devices, nodes;
    uint32_t devicesHere, fewestBefore; ///< of its last node, and the least of those before
    bool shared;                        ///< gradients cross cards
    double card, cardHere, flow, oneFlow, port, wire, cardWire, crossFront, crossBehind, members, ring, cells, cellsEach;
  };
  struct CellMemory { ///< of a cell, in bytes; hold < 0: not known yet
    double hold = -1, passing = 0;
  };
  struct Goal { ///< of reach, in seconds but for `fill`
    const CutOptions &options;
    double time, latency;
    double fill;   ///< part of a sample's way there and back that a stage waits
    double period; ///< of one sample
    double late;   ///< for which the first stages may wait
  };
  bool reach(const std::vector<Atom> &atoms, const CutOptions &options, double time, double latency);
  /// Atom i without work.
  void leaveOut(size_t i);
  /// The most units that the atoms in front of i can do at all.
  int32_t mostInFront(const Goal &goal, size_t i) const;
  /// Stages of atoms [i, j) with cells of rows()[r] rows, in front of whatever is reached from j.
  void extend(const Goal &goal, const StageChoice &stage, size_t i, size_t j, size_t r, int32_t mostFront);
  bool bisect(const std::vector<Atom> &atoms, const CutOptions &options, double latency, double &time);
  void read(const std::vector<Atom> &atoms, const CutOptions &options, Cut &cut) const;
  double leastTime(const std::vector<Atom> &atoms, const CutOptions &options) const;
  /// Seconds that a stage needs by itself, without the way of the first sample; infinite if memory or cards do not allow it within `time`.
  /// \param way  latency of what is behind the stage
  /// \param gather  seconds before it can begin, for its parameters
  double needs(const StageChoice &stage, const CutOptions &options, size_t r, int32_t u, int32_t v, double way, double passage, double time,
               double &gather) const;
  double passage(const StageChoice &stage, size_t r, int32_t u, int32_t v) const;
  void addDevices(StageChoice &stage, const Atom &atom, uint32_t &lastNode) const;
  void close(StageChoice &stage, const CutOptions &options, size_t begin, size_t end) const;
  void setCells(StageChoice &stage, const CutOptions &options, size_t r) const;
  double hop(size_t atom, int32_t cut, size_t rows) const;
  const CellMemory &cellMemory(size_t r, int32_t u, int32_t v, bool split) const;

  const StageModel &model;
  std::vector<double> label;
  std::vector<From> from;
  std::vector<double> linkBandwidth, linkLatency; ///< into atom i from the one in front
  std::vector<uint32_t> nodeOf;                   ///< of atom i's first device
  std::vector<double> frontIn, behindIn;          ///< devices of that node in atoms in front of i, in i and behind it
  std::vector<double> prefixCounts;               ///< atoms + 1 x classes
  std::vector<double> leastSeconds;               ///< classes x units + 1: per sample, at the best of the rows that are allowed
  mutable std::vector<CellMemory> memories[2];    ///< whole and split backwards: rows x unitBegin x unitEnd
};

} // namespace zorse::planning
