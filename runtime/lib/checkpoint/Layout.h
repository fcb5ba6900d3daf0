// The content of a device's file. It is derived from the bundle alone, so every rank knows the
// layout of every file.
#pragma once

#include "zorse/runtime/CheckpointFiles.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::runtime {

/// A slice and the location of its bytes on the device.
struct ShardLayout {
  CheckpointShard slice; ///< without its hash
  bundle::Region region;
  uint64_t fileOffset = 0; ///< byte offset in the copy of the device's state, where slices have the
                           ///< order of the file
};

struct DeviceLayout {
  uint32_t device = 0;
  std::string name;   ///< file name
  std::string header; ///< safetensors header with its length; padded with the optimizer's step to
                      ///< whole blocks of kDirectAlignment
  std::vector<ShardLayout> slices;
  uint64_t stateBytes = 0;                     ///< bytes of all slices
  std::optional<bundle::Region> optimizerStep; ///< abi::OptimizerStep; its update count follows the
                                               ///< header
  uint64_t fileBytes = 0;

  uint64_t headerBytes() const { return header.size() + (optimizerStep ? 8 : 0); }
};

/// The layout of a device's file. A device that owns no state has no slices and no file. A slice
/// has at most max(16 MiB, 1/512 of the state).
DeviceLayout layoutOf(const Bundle &bundle, uint32_t device);

/// The parameters in the order of the bundle. The hashes of frozen ones are 0.
std::vector<CheckpointParameter> checkpointParameters(const Bundle &bundle);

/// The index of the bundle's checkpoints without step, generation and checksums. \param allDevices
/// devices without state have an empty file
CheckpointIndex indexOf(const Bundle &bundle, const RunConfig &runConfig, bool allDevices = false);

/// A device's copy of a frozen parameter.
struct FrozenParameter {
  uint32_t parameter = 0;
  uint32_t device = 0;
  bundle::Region region;
};

/// Every frozen parameter that at least one of the devices has, once.
std::vector<FrozenParameter> frozenParameters(const Bundle &bundle,
                                              const std::vector<uint32_t> &devices);

} // namespace zorse::runtime
