// The kinds of devices that clusters, bundles and drivers use, and their properties. Compiler,
// planner and runtime use only this table, so that no other code compares names. The runtime has
// the driver of a kind (zorse/runtime/Drivers.h).
#pragma once

#include <string>
#include <vector>

namespace zorse {

struct DeviceKind {
  const char *name;
  bool driven;   ///< it has code and a driver. Other kinds can only be planned for and simulated.
  bool computes; ///< its functions compute; false: results are meaningless, and it is used only if
                 ///< a cluster requests it.
  bool hostCpus; ///< it is threads of the host's CPUs: speeds are per thread, and messages take
                 ///< time from its computation.
  bool sharesHostMemory; ///< its memory is host memory: copies from and to the host are ordinary
                         ///< copies and need no queue.
  bool asynchronous;   ///< it processes each of its queues itself; false: host threads do, one for
                       ///< computation and one for all communication.
  bool deviceToDevice; ///< devices of this kind on different GPUs exchange data between their
                       ///< memories, through a library that enqueues transfers on their queues.
  std::vector<std::string> transports; ///< transports that it can join: "local", "gloo"
  /// Instruction sets for which its code can be generated, as LLVM names them. Each one runs code
  /// for all previous ones. Empty: not distinguished. NVIDIA GPUs may have others between these
  /// ("sm_61"); compatibility then follows from the numbers.
  std::vector<std::string> architectures;

  bool joins(const std::string &transport) const;

  /// Transports can access only host memory: programs copy data to the host before sending, and
  /// from the host after receiving.
  bool usesHostStaging() const { return !sharesHostMemory && !transports.empty(); }

  /// Whether a device that offers `offered` runs code for `code`. Returns true for names that the
  /// table does not list.
  bool runs(const std::string &offered, const std::string &code) const;

  /// Returns the newest of `architectures` with code that a device that offers `offered` runs:
  /// "sm_60" for "sm_61"; "" if there is none.
  std::string codeFor(const std::string &offered) const;

  /// Whether a device can offer it: one of `architectures`, an NVIDIA GPU between two of them, or
  /// one newer than all.
  bool exists(const std::string &offered) const;

  /// Whether code for `code` can compute in bf16: NVIDIA GPUs from sm_80 on.
  static bool hasBf16(const std::string &code);
  /// Whether GPUs for `code` can multiply in TF32: NVIDIA GPUs from sm_80 on.
  static bool hasTf32(const std::string &code);
};

const std::vector<DeviceKind> &deviceKinds();

/// Returns the kind with this name; nullptr if there is none.
const DeviceKind *findDeviceKind(const std::string &name);

/// Returns the kind of a bundle's device. A kind that is not in the table can be simulated, as a
/// device with its own memory and queues.
const DeviceKind &deviceKindOf(const std::string &name);

/// Returns the names of all kinds, for messages: "cpu, null". \param driven  only kinds with code
/// and a driver
std::string deviceKindNames(bool driven);

} // namespace zorse
