// A program prepared for execution on its device, with addresses instead of regions and vectors
// instead of messages.
#pragma once

#include "zorse/runtime/Executor.h"

#include <vector>

namespace zorse::runtime {

class DeviceProgram;
struct PreparedInstruction;

struct PreparedWait {
  uint32_t queue;
  uint64_t position;
  bool previousStep;
};

/// Executes the host work of instructions.
class InstructionRunner {
public:
  virtual Status run(DeviceProgram &program, PreparedInstruction &instruction, uint64_t step,
                     size_t call) = 0;
  /// For an instruction on a queue of kind DEVICE_TO_DEVICE.
  virtual Status put(DeviceProgram &program, PreparedInstruction &instruction,
                     WorkStream &stream) = 0;

protected:
  ~InstructionRunner() = default;
};

struct PreparedInstruction final : HostTask, StreamTask {
  const bundle::Instruction *instruction;
  uint32_t index; ///< index in the program
  uint32_t place; ///< index among the instructions of its worker
  uint32_t placeInQueue;
  bool inEvaluation;
  bool changesState; ///< whether persistent state may change once it has begun
  bool firstOfQueue = false, lastOfQueue = false;
  uint64_t expectedStep = UINT64_MAX; ///< a receive: the last step in which it was pre-posted
  std::vector<PreparedWait> waits;
  std::vector<FunctionCall> calls; ///< calls of a compute instruction; they point into `addresses`
                                   ///< and `overwrite`
  std::vector<DeviceAddress> addresses;
  std::vector<uint8_t> overwrite;
  bool deviceToDevice = false; ///< whether it is on a queue of kind DEVICE_TO_DEVICE
  bool beside = false;         ///< whether the host's CPU runs its calls for the device
  void *data = nullptr;        ///< address for the transport, of a transfer
  AllGatherArguments gather;   ///< arguments, of an all-gather
  ReduceScatterArguments reduction;
  AllReduceArguments sum;
  DeviceAddress deviceData; ///< address, of a direct transfer
  DeviceAllGather deviceGather;
  DeviceReduction deviceReduction;
  DeviceSum deviceSum;
  DeviceProgram *program = nullptr;

  Status run(uint64_t step, size_t call) override;
  Status put(uint64_t step, WorkStream &stream) override;
};

class DeviceProgram {
public:
  /// \param transport       name of the transport
  /// \param threadPerQueue  use a separate thread for every queue that does not compute
  static Result<std::unique_ptr<DeviceProgram>> create(const Bundle &bundle, uint32_t index,
                                                       QueuedDevice &device,
                                                       const std::string &transport,
                                                       bool threadPerQueue, bool poison);

  DeviceAddress address(const bundle::Region &region) const {
    return region.bytes() == 0 ? DeviceAddress()
                               : arenas_[region.arena()]->base() + region.offset();
  }

  /// Returns the event that the instruction of a wait is complete, for a wait in `step`.
  Event event(const PreparedWait &wait, uint64_t step) const {
    return {wait.queue,
            (wait.previousStep ? step - 1 : step) * queueInstructions[wait.queue].size() +
                wait.position + 1};
  }

  /// Returns whether the waits of an instruction are satisfied.
  bool isReady(const PreparedInstruction &instruction, uint64_t step) const;

  const Bundle &bundle;
  uint32_t index;
  QueuedDevice &device;
  InstructionRunner *runner = nullptr;
  const bundle::Program &program;
  std::vector<PreparedInstruction> instructions;
  std::vector<std::vector<PreparedInstruction *>> queueInstructions; ///< by queue
  std::vector<uint32_t> workers; ///< by queue: its worker; 0 computes
  std::vector<uint32_t> threads; ///< by queue: its thread on the device
  std::vector<std::vector<PreparedInstruction *>> workerInstructions;
  std::vector<uint8_t> queueChangesState; ///< by queue: whether an instruction changes state
  size_t queuesInUse = 0, changingQueues = 0;

  Result<Executor::MemoryUse> memoryUse(bool poisoned) const;

  /// Warms up the device for its calls (QueuedDevice::warmUp). Afterwards the device memory has its
  /// initial content again.
  Status warmUp(bool poison);

private:
  DeviceProgram(const Bundle &bundle, uint32_t index, QueuedDevice &device);
  Status prepare(PreparedInstruction &prepared, const std::string &transport);
  void prepareDirect(PreparedInstruction &prepared);
  void prepareCalls(PreparedInstruction &prepared);

  std::vector<std::unique_ptr<DeviceMemory>> arenas_;
};

} // namespace zorse::runtime
