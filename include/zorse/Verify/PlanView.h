// What the verifier reads of plan.json: its canonical part, in numbers. It shares no code with lib/Step, which writes that part.
#pragma once

#include "zorse/Base/Status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zorse::verify {

/// A tiling of units x samples and the owners of state, as `plan.json` says after all shorthands are expanded. Ranges are half-open.
struct PlanView {
  struct Device {
    std::string name;
    int64_t memoryBytes = 0; ///< of kind DEVICE; 0: not stated.
  };
  struct Cell {
    int64_t firstUnit, endUnit;
    int64_t firstSample, endSample;
    uint32_t device;
    bool recompute = false; ///< B, where it has work, begins with the calls of F
  };
  /// Elements [begin, end) of a trainable state group live on, and are updated by, `device`; begin is -1 where a share decides which.
  struct Shard {
    uint32_t group;
    uint32_t device;
    int64_t begin, end;
  };

  /// Where devices keep their parts of groups, and update them, in the order of a Kind; what no rule names stays on the device, and the last rule
  /// counts.
  enum Kind : uint8_t { Parameters, Moments, Gradients, Update, kKinds };
  enum class Tier : uint8_t { NotNamed, Device, Host };
  struct Residency {
    std::vector<uint32_t> devices, groups; ///< empty: all
    Tier tiers[kKinds] = {};
  };

  int64_t batch = 0;         ///< rows, as cells' samples are
  int64_t samplesPerRow = 1; ///< of the file, which counts samples
  std::vector<Device> devices;
  std::vector<Cell> cells;
  bool splitBackward = false; ///< every cell has a task W besides F and B, as far as its units have work for them
  std::vector<Shard> owners;  ///< of the groups the plan names; the others follow its default
  std::vector<Residency> residency;
  bool commitsByGroup = false; ///< updates follow their own group's gradients; the decision comes before all sums

  bool keepsOnHost(uint32_t device, uint32_t group, Kind kind) const;
};

/// Reads the canonical `batch`, `devices`, `cells`, `split_backward`, `state` and `residency` of a plan. Only their form is checked here;
/// verifyPrograms checks the tiling. The error is the first problem.
Result<PlanView> readPlanView(std::string_view json);

} // namespace zorse::verify
