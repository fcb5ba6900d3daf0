// What a rank finds where it runs, published to all ranks at the start and compared with what the bundle was compiled for.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Drivers.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::runtime {

/// One rank's own view. Equal `host` means the same memory and the same cores.
struct RankFacts {
  std::string host;                ///< name and boot id: two containers of one machine count as one host
  int cores = 0;                   ///< that this process may use
  uint64_t memory = 0;             ///< bytes that this process may have: of the machine, or of its control group where that is less
  std::vector<HardwareUnit> units; ///< of its device's kind (Driver.units)
  std::string visible;             ///< CUDA_VISIBLE_DEVICES there; "": not set
  // Of a rank whose device exchanges directly with others:
  std::string driver;     ///< its version
  std::string nccl;       ///< its version; "": none that serves
  std::string noNccl;     ///< why not
  bool throttled = false; ///< it is to be slower than it is (--throttle): then it has no streams
  std::string bundle;     ///< Bundle.hash
  std::string run;        ///< what the run was told, "steps=100 lr=0.001 ...": must be equal everywhere
  // What assignUnits finds, which every rank does for all; not published.
  int ordinal = 0;       ///< which of `units` its device is
  std::string processor; ///< what that runs; "none" where there is nothing

  const HardwareUnit *unit() const { return size_t(ordinal) < units.size() ? &units[size_t(ordinal)] : nullptr; }
};

/// Facts of this process, without `bundle` and `run`. \param kind  of its device
RankFacts factsOfThisProcess(const std::string &kind = "cpu");

/// Gives every rank's device (by rank = device) a GPU of its host: one that runs its code, has the memory that its program plans, and is the one that
/// cluster.yaml names, if it names one; of several, the oldest and smallest, then the first. No GPU is given twice, unless `share` allows it where
/// there are fewer than devices. All ranks find the same from the same facts. Devices that are threads of the host get its processors.
///
/// Sets `ordinal` and `processor`. An error where a host has fewer GPUs than devices, or not the one that is named. Where nothing runs a device's
/// code, `processor` says what there is: checkHardware tells of all such ranks.
Status assignUnits(const Bundle &bundle, std::vector<RankFacts> &ranks, bool share);

/// "a: Tesla T4 at 0000:41:00.0, 15360 MiB, sm_75; b: ...", the first 16 of them, for what a run prints; "" without GPUs. After assignUnits.
std::string describeUnits(const Bundle &bundle, const std::vector<RankFacts> &ranks);

std::string encodeFacts(const RankFacts &facts);
Result<RankFacts> decodeFacts(const std::string &text);

/// What ranks compare before GPUs exchange directly: nothing of a device that does not.
void addDirectFacts(RankFacts &facts, const Bundle &bundle, uint32_t device);

/// Why the devices of these facts (by device of the bundle) cannot do what the bundle's programs do directly: a rank without NCCL, versions that
/// differ, one GPU twice. The same on every rank that has the same facts. "": they can.
std::string whyNotDirect(const Bundle &bundle, const std::vector<RankFacts> &facts);

/// "a step is predicted to take 12 ms instead of 10 ms": of Bundle.staged against Bundle.programs.
std::string stagedCost(const Bundle &bundle);

/// "4 GPUs exchange directly (a, b, c, d): NCCL 2.28.3, ...", with what the environment tells NCCL.
std::string describeDirect(const Bundle &bundle, const std::vector<RankFacts> &facts);

/// Compares everyone's facts (by rank = device) with the bundle. An error lists every mismatch: another bundle, other options, a processor that
/// cannot run the kernels, devices of one host, or of one GPU, that together plan more memory than it has. What is merely unwise (more threads than
/// cores) goes to `note`.
Status checkHardware(const Bundle &bundle, const std::vector<RankFacts> &ranks, std::string *note);

} // namespace zorse::runtime
