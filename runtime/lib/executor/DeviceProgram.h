// A program made ready to run on its device: addresses instead of regions, lists instead of messages.
#pragma once

#include "Progress.h"
#include "zorse/runtime/Executor.h"

#include <vector>

namespace zorse::runtime {

struct PreparedWait {
  uint32_t queue;
  uint64_t position;
  bool previousStep;
};

struct PreparedCall {
  const bundle::Call *call;
  std::vector<void *> slots;
  std::vector<uint8_t> overwrite;
};

struct PreparedEntry {
  const bundle::Entry *entry;
  uint32_t index; ///< in the program
  bool inEvaluation;
  uint64_t expectedStep = UINT64_MAX;       ///< a receive: the last step in which it was announced
  std::vector<PreparedWait> waits;
  std::vector<PreparedCall> calls;          ///< of a compute entry
  AllGatherArguments gather;                ///< of that collective
  ReduceScatterArguments reduction;
  AllReduceArguments sum;
  BroadcastArguments broadcast;
};

class DeviceProgram {
public:
  static Result<std::unique_ptr<DeviceProgram>> create(const Bundle &bundle, uint32_t index, Device &device, bool poison);

  std::byte *address(const bundle::Region &region) const { return region.bytes() == 0 ? nullptr : arenas_[region.arena()]->base() + region.offset(); }

  const Bundle &bundle;
  uint32_t index;
  Device &device;
  const bundle::Program &program;
  Progress progress;
  std::vector<uint64_t> queueLength;
  std::vector<PreparedEntry> entries;

  Executor::MemoryUse memoryUse(bool poisoned) const;

private:
  DeviceProgram(const Bundle &bundle, uint32_t index, Device &device);
  void prepare(PreparedEntry &prepared);

  std::vector<std::unique_ptr<DeviceMemory>> arenas_;
};

} // namespace zorse::runtime
