// The part of plan.json that the verifier reads: its canonical, numeric part. It shares no code
// with lib/Step, which writes that part.
#pragma once

#include "zorse/Base/Status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zorse::verify {

/// A tiling of units x samples and the owners of state, as in `plan.json` with all shorthands
/// expanded. Ranges are half-open.
struct PlanView {
  struct Device {
    std::string name;
    int64_t memoryBytes = 0;          ///< memory of kind DEVICE; 0: not specified
    std::string node = {}, site = {}; ///< names; they determine the order of additions of
                                      ///< reductions
  };
  struct Cell {
    int64_t firstUnit, endUnit;
    int64_t firstSample, endSample;
    uint32_t device;
    bool recompute = false; ///< B begins with the calls of F, if it has work
    int32_t group = -1;     ///< index in `groups`: devices that divide the cell; -1: none
    uint32_t member = 0;    ///< position of the device in the group
  };
  /// Devices that divide cells. Each of them has a cell with the same rectangle.
  struct Group {
    std::string name;
    std::vector<uint32_t> devices;
  };
  /// Elements [begin, end) of a trainable state group are stored on and updated by `device`. begin
  /// is -1 if a share determines the range.
  struct Shard {
    uint32_t group;
    uint32_t device;
    int64_t begin, end;
  };

  /// The memory in which devices keep their parts of groups, and the processor that updates them,
  /// in the order of Kind. State without a rule stays on the device. The last matching rule
  /// applies.
  enum Kind : uint8_t { Parameters, Moments, Gradients, Update, kKinds };
  enum class Tier : uint8_t { NotNamed, Device, Host };
  struct Offload {
    std::vector<uint32_t> devices, groups; ///< empty: all
    Tier tiers[kKinds] = {};
  };

  int64_t batch = 0;         ///< in rows, like the cells' samples
  int64_t samplesPerRow = 1; ///< samples of the file per row
  std::vector<Device> devices;
  std::vector<Group> groups;
  std::vector<Cell> cells;
  bool splitBackward = false; ///< every cell has tasks F, B and W, if its units have work for them
  std::vector<Shard> owners;  ///< owners of the groups that the plan names; the others follow its
                              ///< default
  std::vector<Offload> offload;
  /// Sums whose terms are rounded to bf16: none, those between nodes, those between sites.
  enum class RoundedSums : uint8_t { None, BetweenNodes, BetweenSites };
  RoundedSums roundedSums = RoundedSums::None;
  bool commitsByGroup = false; ///< a group's update follows its own gradients; the decision
                               ///< precedes all sums

  bool keepsOnHost(uint32_t device, uint32_t group, Kind kind) const;
};

/// Reads the canonical `global_batch_size`, `devices`, `cells`, `split_backward`, `gradient_wire`,
/// `state` and `offload` of a plan. Checks only their form; verifyPrograms checks the tiling. The
/// error is the first problem.
Result<PlanView> readPlanView(std::string_view json);

} // namespace zorse::verify
