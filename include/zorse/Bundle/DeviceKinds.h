// The kinds of devices that clusters, bundles and drivers name, and what follows from a kind: the one table that compiler, planner and runtime look
// in, so that nobody compares names. A kind's driver is in the runtime (zorse/runtime/Drivers.h).
#pragma once

#include <string>
#include <vector>

namespace zorse {

struct DeviceKind {
  const char *name;
  bool driven;           ///< there are code and a driver for it. Other kinds can be planned for and simulated.
  bool computes;         ///< its bodies compute; false: results mean nothing, and it is never taken unless a cluster asks for it.
  bool hostProcessors;   ///< it is threads of the host's processors: speeds are per thread, and messages take time from its computing.
  bool sharesHostMemory; ///< its memory is the host's: copies from and to the host are copies like others and need no queue of their own.
  bool asynchronous;     ///< it serves each of its queues by itself; false: threads of the host do, one for computing and one for all communication.
  bool direct;           ///< devices of this kind on different GPUs exchange from memory to memory, by a library that puts transfers on their queues.
  std::vector<std::string> transports; ///< that it joins: "local", "gloo"
  /// Instruction sets that its code may be for, each running what those before it run, as LLVM names them; empty: not told apart. GPUs of NVIDIA may
  /// have others in between ("sm_61"): their numbers say what they run.
  std::vector<std::string> architectures;

  bool joins(const std::string &transport) const;

  /// Transports reach the memory of the host alone: its programs copy what it sends there, and what it receives from there.
  bool stages() const { return !sharesHostMemory && !transports.empty(); }

  /// Whether a device that offers `offered` runs code for `code`. Of names that the table does not list nothing is known: they run each other.
  bool runs(const std::string &offered, const std::string &code) const;

  /// The newest of `architectures` whose code a device that offers `offered` runs: "sm_60" for "sm_61". "": there is none.
  std::string codeFor(const std::string &offered) const;

  /// Whether there are devices that offer it: one of `architectures`, a GPU of NVIDIA that lies between two of them, or one that is newer than all.
  bool exists(const std::string &offered) const;

  /// Whether code for `code` computes in bf16: GPUs of NVIDIA do from sm_80 on.
  static bool hasBf16(const std::string &code);
  /// Whether GPUs for `code` multiply in TF32: those of NVIDIA from sm_80 on.
  static bool hasTf32(const std::string &code);
};

const std::vector<DeviceKind> &deviceKinds();

/// nullptr if there is none of that name.
const DeviceKind *findDeviceKind(const std::string &name);

/// What a bundle's device is taken for: its kind; one that the table lacks can be simulated, as a device with memory and queues of its own.
const DeviceKind &deviceKindOf(const std::string &name);

/// "cpu, null": for messages. \param driven  only those with code and a driver
std::string deviceKindNames(bool driven);

} // namespace zorse
