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
  int64_t samples = 0;        ///< of the pipeline
  uint32_t copies = 1;        ///< pipelines like this one that share its gradients
  size_t mostAtoms = SIZE_MAX; ///< in a stage
  bool mayLeaveOut = true;    ///< atoms without work
  bool split = false;
  double latency = 0;         ///< seconds between a sample's first and last task that memory is provided for, at least a cell's own; 0: only that
  double leastTime = 0, mostTime = 1e18; ///< known bounds of the result; above the second there is none
  uint32_t mostDevices = UINT32_MAX; ///< in a stage, but for one that takes all that are left
  size_t leastRows = 0, mostRows = SIZE_MAX; ///< indices of StageModel::rows()
};

struct CutStage {
  size_t atomBegin = 0, atomEnd = 0;
  int32_t unitBegin = 0, unitEnd = 0;
  size_t rows = 0;            ///< index of StageModel::rows()
};

struct Cut {
  double time = 0;            ///< estimated seconds of the step
  double latency = 0;         ///< estimated seconds of one sample's way there and back
  std::vector<CutStage> stages; ///< empty: none fits
};

/// Least time T so that every stage is done by T: the way of the first sample to it (F of the stages in front; their B too unless W can fill the time), its
/// busiest device, the sum of its gradients, with what its cards and memory allow.
///
///     reach[i][u] = least latency of stages made of atoms < i that hold units < u, each done by T
///
/// from front to back; T is bisected. Latency is the one label: the less a sample needs up to a stage, the more time and memory are left behind it.
class CutSolver {
public:
  explicit CutSolver(const StageModel &model) : model(model) {}
  Cut solve(const std::vector<Atom> &atoms, const CutOptions &options);

private:
  struct From {
    uint32_t atom;
    int32_t unit;
    uint32_t rows;            ///< kSkip: the atom has no work
  };
  struct Stage {              ///< what a choice of atoms brings, for all cuts
    uint32_t counts[kMostClasses];
    uint32_t classList[kMostClasses], classCount;
    double memory[kMostClasses];
    uint32_t devices, nodes;
    bool shared;              ///< gradients cross cards
    double card, wire, members, ring, cells, cellsEach;
  };
  bool reach(const std::vector<Atom> &atoms, const CutOptions &options, double time);
  double leastTime(const std::vector<Atom> &atoms, const CutOptions &options) const;
  bool fits(const Stage &stage, const CutOptions &options, size_t r, int32_t u, int32_t v, double way, bool firstAtom, bool lastAtom, double time) const;
  double passage(const Stage &stage, size_t r, int32_t u, int32_t v) const;

  const StageModel &model;
  std::vector<double> label;
  std::vector<From> from;
  std::vector<double> linkBandwidth, linkLatency; ///< into atom i from the one in front
  std::vector<double> suffixCounts;               ///< atoms + 1 x classes
};

/// The members of a stage with their samples; devices that get none are left out.
Stage makeStage(const StageModel &model, const std::vector<uint32_t> &devices, int32_t unitBegin, int32_t unitEnd, int64_t samples, size_t rows);

/// A pipeline of cut atoms.
Pipeline makePipeline(const StageModel &model, const std::vector<Atom> &atoms, const Cut &cut, int64_t samples);

} // namespace zorse::planning
