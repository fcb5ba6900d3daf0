// Page-locked memory between a device and the host's inputs, scalars and report.
#pragma once

#include "DeviceProgram.h"

#include <memory>
#include <vector>

namespace zorse::runtime {

/// Of one device with memory of its own. A copy to or from pageable memory first waits for what is on its stream, in the thread that puts it there
/// (CUDA's notes on the synchronisation of memory copies): the host would not run ahead of the device. Each step under way has a part.
class HostStaging {
public:
  /// Inputs of more bytes than this, of all steps under way, stay where they are: so much page-locked memory is not ours to take.
  static constexpr size_t kMostBytes = size_t(256) << 20;

  /// Without memory for devices that share the host's. \param steps  under way at once
  static Result<HostStaging> create(const DeviceProgram &program, size_t steps);

  /// Before the step is enqueued, and after the one that had its part is over.
  void fill(uint64_t step, const StepRequest &request);

  /// Where an entry's bytes are in a step; `otherwise` where they are not here.
  const void *from(const PreparedEntry &entry, uint64_t step, const void *otherwise) const;
  void *to(const PreparedEntry &entry, uint64_t step, void *otherwise) const;

  /// To what a step reported, where a Report entry of this device put it here.
  void takeReport(uint64_t step, StepResult &result) const;

private:
  static constexpr size_t kElsewhere = SIZE_MAX;
  std::byte *part(uint64_t step) const { return memory_->base().onHost() + step % steps_ * bytes_; }

  std::unique_ptr<DeviceMemory> memory_;
  std::vector<size_t> places_; ///< by entry, in a step's part
  std::vector<const PreparedEntry *> filled_;
  size_t bytes_ = 0, steps_ = 0, report_ = kElsewhere;
};

/// Bytes of the batch that a LoadInput entry copies, from `offset` of its input.
struct InputBytes {
  size_t offset, bytes;
};
InputBytes inputBytes(const Bundle &bundle, const bundle::LoadInput &load);

} // namespace zorse::runtime
