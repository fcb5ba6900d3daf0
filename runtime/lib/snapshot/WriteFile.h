// Writes one file so that it is there whole and lasting, or not at all.
#pragma once

#include "Fence.h"
#include "Layout.h"

namespace zorse::runtime {

struct DeviceFileSums {
  uint64_t head = 0;
  std::vector<uint64_t> slices;
};

/// \param copy  the device's state as `layout` places it
std::optional<SnapshotTrouble> writeDeviceFile(const Fence &fence, const std::string &folder, const DeviceLayout &layout, const std::byte *copy,
                                               double optimizerStep, DeviceFileSums &sums);

std::optional<SnapshotTrouble> writeIndexFile(const Fence &fence, const std::string &folder, const std::string &text);

} // namespace zorse::runtime
