// The hardware that a rank finds on its host. All ranks publish it at startup and compare it with
// the hardware that the bundle was compiled for.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Drivers.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::runtime {

/// The hardware and software of one rank, as that rank sees them. Ranks with equal `host` share
/// memory and cores.
struct RankHardware {
  std::string host;    ///< name and boot id: two containers of one machine are one host
  int cores = 0;       ///< cores that this process may use
  uint64_t memory = 0; ///< bytes that this process may use: the machine's memory or the control
                       ///< group's limit
  std::vector<HardwareUnit> units; ///< hardware of the kind of its device (Driver.units)
  std::string visible;             ///< CUDA_VISIBLE_DEVICES; "": not set
  // Only for a rank whose device exchanges directly with others:
  std::string driver;     ///< driver version
  std::string nccl;       ///< NCCL version; "": no usable NCCL
  std::string noNccl;     ///< why NCCL is not usable
  bool throttled = false; ///< whether --throttle makes the device slower; it then has no streams
  std::string bundle;     ///< Bundle.hash
  std::string run; ///< options of the run, "steps=100 lr=0.001 ..."; must be equal on all ranks
  // Results of assignUnits. Every rank computes them for all ranks; they are not published.
  int ordinal = 0; ///< index of its device in `units`
  std::string cpu; ///< processor that the device runs on; "none" if there is none

  const HardwareUnit *unit() const {
    return size_t(ordinal) < units.size() ? &units[size_t(ordinal)] : nullptr;
  }
};

/// Facts of this process, except `bundle` and `run`. \param kind  kind of its device
RankHardware hardwareOfThisProcess(const std::string &kind = "cpu");

/// Assigns a GPU of its host to every rank's device (rank = device). The GPU runs the device's
/// code, has the memory that its program plans, and is the one that cluster.yaml names, if it names
/// one. Among several, the oldest and smallest is chosen, then the first. No GPU is assigned twice,
/// unless `share` allows it and the host has fewer GPUs than devices. Equal facts give equal
/// assignments on all ranks. Devices that are threads of the host are assigned its CPU.
///
/// Sets `ordinal` and `cpu`. Returns an error if a host has fewer GPUs than devices, or if
/// the named GPU is missing. If no hardware runs a device's code, `cpu` names the hardware
/// that was found; checkHardware reports all such ranks.
Status assignUnits(const Bundle &bundle, std::vector<RankHardware> &ranks, bool share);

/// Returns "a: Tesla T4 at 0000:41:00.0, 15360 MiB, sm_75; b: ...", for the first 16 GPUs; "" if
/// there are none. Call it after assignUnits.
std::string describeUnits(const Bundle &bundle, const std::vector<RankHardware> &ranks);

std::string encodeHardware(const RankHardware &hardware);
Result<RankHardware> decodeHardware(const std::string &text);

/// Adds the facts that ranks compare before GPUs exchange directly. Adds none if the device does
/// not exchange directly.
void addD2dHardware(RankHardware &hardware, const Bundle &bundle, uint32_t device);

/// Returns why the devices with these facts (by device of the bundle) cannot execute the direct
/// transfers of the bundle's programs: a rank without NCCL, different versions, or one GPU used
/// twice. "": they can. Equal facts give equal results on all ranks.
std::string whyNotDirect(const Bundle &bundle, const std::vector<RankHardware> &hardware);

/// Returns "a step is predicted to take 12 ms instead of 10 ms": the prediction of Bundle.staged
/// and of Bundle.programs.
std::string stagedCost(const Bundle &bundle);

/// Returns "4 GPUs exchange directly (a, b, c, d): NCCL 2.28.3, ...", with the NCCL settings of the
/// environment.
std::string describeDirect(const Bundle &bundle, const std::vector<RankHardware> &hardware);

/// Compares the facts of all ranks (rank = device) with the bundle. The error lists every mismatch:
/// another bundle, other options, a processor that cannot run the kernels, devices of one host or
/// of one GPU that together plan more memory than it has. Conditions that only reduce performance
/// (more threads than cores) are appended to `note`.
Status checkHardware(const Bundle &bundle, const std::vector<RankHardware> &ranks,
                     std::string *note);

} // namespace zorse::runtime
