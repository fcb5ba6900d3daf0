// What a rank says when its files of a snapshot are complete, or why they are not.
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
    DeviceFileSums sums; ///< of a device without slices: none, and there is no file
  };
  std::optional<SnapshotTrouble> trouble;
  std::vector<File> files;
  std::map<uint32_t, uint64_t> frozen; ///< hashes by parameter; said once
};

std::string writeAcknowledgement(const Acknowledgement &acknowledgement);

/// Trouble when it is none of ours.
Acknowledgement parseAcknowledgement(const std::string &text, uint32_t rank);

} // namespace zorse::runtime
