// Page-locked memory between a device and the host's inputs, scalars and report.
#pragma once

#include "DeviceProgram.h"

#include <memory>
#include <vector>

namespace zorse::runtime {

/// Staging memory of one device that has its own memory. A copy to or from pageable memory first
/// waits for the work on its stream, in the thread that enqueues it (CUDA documentation on
/// synchronization of memory copies), so the host could not run ahead of the device. Every step in
/// progress has a separate part of the staging memory.
class HostStaging {
public:
  /// Maximum bytes of the inputs of all steps in progress. Larger inputs are not staged, to limit
  /// page-locked memory.
  static constexpr size_t kMaxBytes = size_t(256) << 20;

  /// Allocates no memory for devices that share the host's memory. \param steps  maximum number of
  /// steps in progress
  static Result<HostStaging> create(const DeviceProgram &program, size_t steps);

  /// Copies the inputs of a step. Call it before the step is enqueued, and after the step that used
  /// the same part is complete.
  void fill(uint64_t step, const StepRequest &request);

  /// Returns the address of an instruction's bytes in a step; `otherwise` if they are not staged.
  const void *from(const PreparedInstruction &instruction, uint64_t step,
                   const void *otherwise) const;
  void *to(const PreparedInstruction &instruction, uint64_t step, void *otherwise) const;

  /// Copies the report of a step to `result` if a ReadMetrics instruction of this device staged it.
  void takeReport(uint64_t step, StepResult &result) const;

private:
  static constexpr size_t kElsewhere = SIZE_MAX;
  std::byte *part(uint64_t step) const { return memory_->base().onHost() + step % steps_ * bytes_; }

  std::unique_ptr<DeviceMemory> memory_;
  std::vector<size_t> places_; ///< by instruction: offset in the part of a step
  std::vector<const PreparedInstruction *> filled_;
  size_t bytes_ = 0, steps_ = 0, report_ = kElsewhere;
};

/// Range of the bytes of its input's batch that a LoadInput instruction copies.
struct InputBytes {
  size_t offset, bytes;
};
InputBytes inputBytes(const Bundle &bundle, const bundle::LoadInput &load);

} // namespace zorse::runtime
