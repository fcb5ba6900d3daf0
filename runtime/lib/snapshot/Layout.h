// What a device's file holds, derived from the bundle alone: every rank knows the layout of every file.
#pragma once

#include "zorse/runtime/SnapshotFiles.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::runtime {

/// A slice and where its bytes are on the device.
struct LaidSlice {
  SnapshotSlice slice; ///< without its hash
  bundle::Region region;
  uint64_t place = 0; ///< in the copy of the device's state: slices in the order of the file
};

struct DeviceLayout {
  uint32_t device = 0;
  std::string name;   ///< of the file
  std::string header; ///< of safetensors, with its length; with the optimizer's step whole blocks of kDirectAlignment
  std::vector<LaidSlice> slices;
  uint64_t stateBytes = 0;                     ///< of all slices
  std::optional<bundle::Region> optimizerStep; ///< abi::OptimizerStep; its updates are behind the header
  uint64_t fileBytes = 0;

  uint64_t headBytes() const { return header.size() + (optimizerStep ? 8 : 0); }
};

/// A device that owns nothing has no slices, and no file. Pieces of slices are at most max(16 MiB, 1/512 of the state).
DeviceLayout layoutOf(const Bundle &bundle, uint32_t device);

/// Parameters in the order of the bundle; hashes of frozen ones are left 0.
std::vector<SnapshotParameter> snapshotParameters(const Bundle &bundle);

/// A frozen parameter as a device holds it.
struct FrozenParameter {
  uint32_t parameter = 0;
  uint32_t device = 0;
  bundle::Region region;
};

/// Each of those that some of the devices hold, once.
std::vector<FrozenParameter> frozenParameters(const Bundle &bundle, const std::vector<uint32_t> &devices);

} // namespace zorse::runtime
