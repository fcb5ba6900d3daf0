// Writes one file durably: it exists either completely or not at all.
#pragma once

#include "Fence.h"
#include "Layout.h"

namespace zorse::runtime {

struct DeviceFileSums {
  uint64_t header = 0;
  std::vector<uint64_t> slices;
};

/// \param copy  the device's state in the layout of `layout`
std::optional<CheckpointError> writeDeviceFile(const Fence &fence, const std::string &directory,
                                               const DeviceLayout &layout, const std::byte *copy,
                                               double optimizerStep, DeviceFileSums &sums);

std::optional<CheckpointError> writeIndexFile(const Fence &fence, const std::string &directory,
                                              const std::string &text);

} // namespace zorse::runtime
