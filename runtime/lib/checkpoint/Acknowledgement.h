// A rank's acknowledgement: its files of a checkpoint are complete, or why they are not.
#pragma once

#include "Fence.h"
#include "Layout.h"
#include "WriteFile.h"

#include <map>
#include <string>
#include <vector>

namespace zorse::runtime {

struct Acknowledgement {
  struct File {
    uint32_t device = 0;
    std::optional<abi::OptimizerStep> optimizerStep;
    DeviceFileSums sums; ///< empty for a device without slices, which has no file
  };
  std::optional<CheckpointError> error;
  std::vector<File> files;
  std::map<uint32_t, uint64_t> frozen; ///< hashes by parameter; sent only once
};

std::string writeAcknowledgement(const Acknowledgement &acknowledgement);

/// Returns an acknowledgement with trouble if the text is invalid.
Acknowledgement parseAcknowledgement(const std::string &text, uint32_t rank);

} // namespace zorse::runtime
