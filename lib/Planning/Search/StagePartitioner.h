// Partitions an order of devices and the units into stages (intervals of both) by a dynamic
// program. Internal to Planning.
#pragma once

#include "../Layout/Memo.h"
#include "StageModel.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace zorse::planning {

/// Devices that stay together: a stage contains whole atoms.
struct DeviceSet {
  std::vector<uint32_t> devices;
};

struct PartitionOptions {
  int64_t samples = 0;             ///< samples of the pipeline
  uint32_t replicas = 1;           ///< number of equal pipelines that share its gradients
  uint32_t replicasOnNode = 1;     ///< number of these with devices of the same nodes
  size_t maxDeviceSets = SIZE_MAX; ///< maximum number of atoms of a stage
  bool mayLeaveOut = true;         ///< whether atoms may have no work
  bool split = false;
  bool waits = true;       ///< stages wait for the first sample: times are more accurate, and stage
                           ///< boundaries less even
  bool evenly = false;     ///< of partitions within a tenth of the shortest time, the one whose
                           ///< busiest device computes least; rough, and without that wait
  bool rough = false;      ///< within 1 % and without that wait, for comparisons
  double lateStart = 0.01; ///< share of the time that the first stages may wait for their
                           ///< parameters
  double inFlight = 1; ///< samples for which memory is reserved, as a multiple of those in flight
                       ///< without waiting
  double minTime = 0,
         maxTime = 1e18; ///< known bounds of the result; there is no result above maxTime
  uint32_t maxDevices = UINT32_MAX; ///< maximum devices of a stage, except for a stage that uses
                                    ///< all remaining devices
  size_t minRows = 0, maxRows = SIZE_MAX; ///< indices of StageModel::rows()
};

struct PartitionStage {
  size_t deviceSetBegin = 0, deviceSetEnd = 0;
  int32_t unitBegin = 0, unitEnd = 0;
  size_t rows = 0; ///< index of StageModel::rows()
};

struct Partition {
  double time = 0;         ///< estimated seconds of the step if memory is unlimited
  double timeInMemory = 0; ///< the same if memory limits the samples in flight
  double latency = 0;      ///< estimated seconds of one sample's path through the stages and back
  std::vector<PartitionStage> stages; ///< empty: no partition fits
};

/// Finds the minimum time T such that every stage finishes by T. The time of a stage contains the
/// path of the first sample to it, its busiest device, and the reduction of its gradients. Cards
/// and memory limit the choices.
///
///     reach[i][u] = least latency of stages made of atoms >= i that hold units >= u, each done
///                   by T
///
/// It is computed from back to front, and T is bisected. The only label is the latency of a
/// sample's path from a stage to the end and back. It determines how many samples the stage holds.
/// The difference to the latency of the whole pipeline (of the previous result) determines how long
/// the stage waits for its first sample.
class StagePartitioner {
public:
  explicit StagePartitioner(const StageModel &model) : model(model) {}
  /// Partitions, unless the same problem was solved before, on these devices or equal ones.
  Partition solve(const std::vector<DeviceSet> &deviceSets, const PartitionOptions &options);

private:
  struct Predecessor {
    uint32_t deviceSet;
    int32_t unit;
    uint32_t rows; ///< kSkip: the atom has no work
  };
  struct StageChoice { ///< properties of a choice of atoms, for all partitions
    uint32_t counts[kMaxDeviceTypes];
    uint32_t typeList[kMaxDeviceTypes], typeCount;
    double memory[kMaxDeviceTypes];
    uint32_t devices, nodes;
    uint32_t devicesHere,
        fewestBefore; ///< number of devices on its last node, and the minimum over the nodes before
    bool shared;      ///< whether gradients cross cards
    double nic, nicHere, flow, oneFlow, port, nicWire, crossFront, crossBehind, members, ring,
        secondsPerByte,    ///< of what is gathered or reduced
        nicSecondsPerByte, ///< of a sample's bytes over the stage's cards, for all samples
        cells, cellsEach;
  };
  struct CellMemory { ///< memory of a cell in bytes; hold < 0: not computed yet
    double residentBytes = -1, transientBytes = 0;
  };
  struct Goal { ///< goal of reach, in seconds except `fill`
    const PartitionOptions &options;
    double time, latency;
    double fill;   ///< share of a sample's path that a stage waits
    double period; ///< seconds per sample
    double late;   ///< seconds that the first stages may wait
  };
  struct CutBehind { ///< a cut at which later stages can begin
    int32_t unit;
    double latency; ///< of these stages, and of the transfer to them
  };
  /// Computes the properties of the atoms: links between them, nodes and classes.
  void describe(const std::vector<DeviceSet> &deviceSets);
  /// Fills `minSeconds`.
  void findMinSeconds(const PartitionOptions &options);
  /// Writes all that a partition depends on to `key`. Precondition: describe().
  void addProblem(const std::vector<DeviceSet> &deviceSets, const PartitionOptions &options);
  Partition partition(const std::vector<DeviceSet> &deviceSets, const PartitionOptions &options);
  bool reach(const std::vector<DeviceSet> &deviceSets, const PartitionOptions &options, double time,
             double latency);
  /// Extends labels by atom i without work.
  void leaveOut(size_t i);
  /// Returns the number of units that the stages in front of atom i need: one each.
  int32_t minInFront(const Goal &goal, size_t i) const;
  /// Returns the maximum number of units that the atoms in front of i can execute.
  int32_t maxInFront(const Goal &goal, size_t i) const;
  void findCutsBehind(const Goal &goal, size_t j, size_t maxRows);
  /// Adds stages of atoms [i, j) with cells of rows()[r] rows in front of all labels at j.
  void extend(const Goal &goal, const StageChoice &stage, size_t i, size_t j, size_t r,
              int32_t maxFront);
  bool bisect(const std::vector<DeviceSet> &deviceSets, const PartitionOptions &options,
              double latency, double &time);
  /// Returns the partition within a tenth of `time` whose busiest device computes least.
  Partition even(const std::vector<DeviceSet> &deviceSets, const PartitionOptions &options,
                 double time);
  void read(const std::vector<DeviceSet> &deviceSets, const PartitionOptions &options,
            Partition &partition) const;
  double minTime(const std::vector<DeviceSet> &deviceSets, const PartitionOptions &options) const;
  /// Returns the seconds that a stage needs without the path of the first sample; infinite if
  /// memory or cards do not allow it within `time`.
  /// \param latencyBehind  latency of the stages behind
  /// \param gather         receives the seconds until its parameters are available
  double needs(const StageChoice &stage, const PartitionOptions &options, size_t r, int32_t u,
               int32_t v, double latencyBehind, double passage, double time, double &gather) const;
  /// Returns the seconds that a stage needs if memory limits its cells in flight, by Little's law.
  /// \param latencyBehind  latency of the stages behind
  double memoryTime(const StageChoice &stage, const PartitionOptions &options, size_t r, int32_t u,
                    int32_t v, double latencyBehind) const;
  /// Returns the bytes of a stage's device without cells that wait for their backward.
  double heldBytes(const StageChoice &stage, const CellMemory &cell, int32_t u, int32_t v) const;
  double passage(const StageChoice &stage, size_t r, int32_t u, int32_t v) const;
  void addDevices(StageChoice &stage, const DeviceSet &deviceSet, uint32_t &lastNode) const;
  void close(StageChoice &stage, const PartitionOptions &options, size_t begin, size_t end) const;
  void setCells(StageChoice &stage, const PartitionOptions &options, size_t r) const;
  double hop(size_t deviceSet, int32_t cut, size_t rows) const;
  const CellMemory &cellMemory(size_t r, int32_t u, int32_t v, bool split) const;

  const StageModel &model;
  double maxBusy = std::numeric_limits<double>::infinity(); ///< limit of a stage's computing
  std::vector<double> label;
  std::vector<Predecessor> predecessors;
  struct {
    std::vector<double> label;
    std::vector<Predecessor> predecessors;
  } found;                                        ///< of the shortest time that suffices so far
  std::vector<std::vector<CutBehind>> cutsBehind; ///< atoms + 1 x rows; cuts descend
  std::vector<double> linkBandwidth, linkLatency; ///< into atom i from the previous one
  std::vector<uint32_t> nodeOf;                   ///< node of atom i's first device
  std::vector<double> frontIn,
      behindIn; ///< devices of that node in atoms in front of i, and in i and behind it
  std::vector<double> prefixCounts; ///< atoms + 1 x classes
  std::vector<double> minSeconds;   ///< classes x units + 1: per sample, at the best allowed row
                                    ///< count, summed
  mutable std::vector<CellMemory> memories[2]; ///< whole and split backwards: rows x unitBegin x
                                               ///< unitEnd
  Memo<Partition> solved;
  MemoKey key;                      ///< of the current problem
  std::vector<uint32_t> nodesOfKey; ///< in the order of their first devices
};

} // namespace zorse::planning
