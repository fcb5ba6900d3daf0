// The verification of one device's program: its findings, the descriptions of instructions and
// values in messages, and the checks, one per file.
#pragma once

#include "AddressIntervals.h"
#include "ArgumentBindings.h"
#include "Collectives.h"
#include "Model.h"

#include <algorithm>
#include <memory>

namespace zorse::verify {

/// Maximum number of queues, and of arenas, of a device.
inline constexpr int kMaxQueues = 64;

/// Parts of the scalars block (runtime/abi/StepScalars.h), in bytes from its start.
struct Block {
  static constexpr int64_t decidedBegin = 64, decidedEnd = 128; ///< written by CLIP_AND_CHECK
  static constexpr int64_t seedsBegin = 128; ///< [128, 256): seeds, which SCALE_LOSS_GRADIENT
                                             ///< multiplies, followed by the known numbers
  static constexpr int64_t scalarsEnd = 768; ///< [0, 768): written by LoadScalars
  static constexpr int64_t sumsEnd = 896;    ///< [768, 896): LOCAL_METRICS
  static constexpr int64_t sumsBytes = 128;
  static constexpr int64_t normBytes = 16; ///< part of LOCAL_METRICS: squared norm and count; the
                                           ///< rest are loss numerators
  static constexpr int64_t bytes = 1024;
};

/// Summary of one half of a transfer or collective. It is kept until all devices have been read,
/// and therefore small.
struct ParticipantRecord {
  int64_t id = 0;
  uint32_t device = 0;
  bundle::Phase phase = bundle::PHASE_UNSPECIFIED;
  /// WHAT_NOT_SET: a local instruction, whose id must be unique.
  bundle::Instruction::WhatCase what = bundle::Instruction::WHAT_NOT_SET;
  uint32_t peer = 0;
  int64_t bytes = 0;   ///< send, receive, all-reduce: bytes of the region
  uint64_t digest = 0; ///< digest of everything the halves must agree on: value, type, members,
                       ///< extents, order
  std::shared_ptr<const bundle::Instruction> whole; ///< null for transfers; collectives: on the
                                                    ///< lowest participant only
  struct {
    bundle::Value::Kind kind;
    uint32_t id, cut;
    int64_t begin, end;
  } value{}; ///< for messages
};

/// Data of a device for the checks over all devices.
struct DeviceResult {
  std::vector<Finding> findings;
  std::vector<ParticipantRecord> records;
  bool present = false;
  int32_t device = -1;
  struct Owned {
    uint32_t group;
    int64_t begin, end;
  };
  std::vector<int64_t> launches; ///< ids of the instructions on a queue of kind DEVICE_TO_DEVICE,
                                 ///< in program order
  std::vector<Owned> owned;      ///< extents of trainable groups in its persistent state
  std::vector<std::pair<uint32_t, bundle::Compute::Task>> tasks; ///< (cell; F, B or W), in program
                                                                 ///< order
  std::vector<int64_t> reports;                                  ///< instructions that read metrics
  bool reportsTraining = false,
       reportsEvaluation = false; ///< whether sums and decision are copied to the host
  bool readsOwnNormAsGlobal = false, readsOwnLossAsGlobal = false;
};

std::string describeValue(const Model &model, const bundle::Value &value);

class Device {
public:
  Device(const Model &model, const bundle::Program &program, const VerifyOptions &options,
         DeviceResult &result)
      : model(model), program(program), options(options), result(result) {}

  /// Runs all checks in order. A check runs only if the previous checks found no problem on which
  /// it depends.
  void run();

private:
  const Model &model;
  const bundle::Program &program;
  const VerifyOptions &options;
  DeviceResult &result;
  std::vector<std::vector<uint32_t>> queueInstructions; ///< per queue, indices of its instructions
                                                        ///< in order
  std::vector<uint32_t> position;      ///< position of each instruction in its queue
  AddressIntervals addresses;          ///< finished by checkRaces, which knows all writes
  std::vector<uint32_t> placeOfRegion; ///< by number of an argument's region, for the arguments
                                       ///< checked so far
  std::vector<uint32_t> bound; ///< numbers of the places to which the arguments of all calls are
                               ///< bound, in order

  bool checkStructure(); // Structure.cpp: indices, regions, order
  bool checkQueuesAndArenas();
  bool checkState(const bundle::PersistentState &state);
  bool checkInstruction(int index);
  bool isByHost(int index) const;
  bool checkCall(const bundle::Instruction &instruction, const bundle::Call &call, bool byHost);
  bool checkRegion(const bundle::Region &region, const bundle::Instruction *instruction,
                   const std::string &what, bool mayBeAbsent = false) {
    return (mayBeAbsent && !region.bytes()) || isInside(region) ||
           reportOutside(region, instruction, what);
  }
  bool isInside(const bundle::Region &region) const {
    if (region.arena() >= uint32_t(program.arenas_size()))
      return false;
    const uint64_t size = program.arenas(int(region.arena())).bytes();
    return region.offset() <= size && region.bytes() <= size - region.offset();
  }
  bool reportOutside(const bundle::Region &region, const bundle::Instruction *instruction,
                     const std::string &what);
  bool checkExtents(const bundle::ShardRanges &extents, int64_t instruction, const char *what);
  bool checkRuns(const bundle::Collective &collective, int64_t instruction);
  bool checkDevices(const google::protobuf::RepeatedField<uint32_t> &list, int64_t instruction,
                    const char *what);
  bool checkOrder();
  bool checkDirect(int index); // Direct.cpp: transfers between GPUs
  bool checkDirectMembers(const bundle::Instruction &instruction);
  bool checkDirectReduceScatter(const bundle::Instruction &instruction);
  bool checkDirectAllReduce(const bundle::Instruction &instruction);
  bool checkOnDevice(const bundle::Instruction &instruction, const bundle::Region &region);
  bool checkSumAlignment(const bundle::Instruction &instruction, uint64_t offset);
  bool checkNoParts(const bundle::Instruction &instruction) {
    return (!instruction.reduce_scatter().receive_buffer().bytes() &&
            !instruction.reduce_scatter().send_buffer().bytes() &&
            !instruction.reduce_scatter().chunk() &&
            !instruction.all_reduce().receive_buffer().bytes()) ||
           report(
               Code::Mismatched, int64_t(instruction.id()),
               where(instruction) +
                   ": has memory or rounds for terms, and is on no queue of kind DEVICE_TO_DEVICE");
  }
  bool checkSends(const bundle::Instruction &instruction);
  bool checkRoundedParts(const bundle::Instruction &instruction, int64_t terms);
  bool checkParts(const bundle::Instruction &instruction, const bundle::Region &parts,
                  bundle::ElementType type, int64_t terms, int64_t stride);
  void collectLaunches(); // LaunchOrder.cpp
  void collectHalves();   // Matching.cpp
  void checkRaces();      // Races.cpp
  void checkTasks();      // Tasks.cpp: cells, calls, arguments against plan and summary

public:
  // Messages.cpp
  bool full() const { return result.findings.size() >= options.findingsPerDevice; }
  bool report(Code code, int64_t instruction, const std::string &message) {
    if (!full())
      result.findings.push_back({code, int32_t(program.device()), instruction, message});
    return false;
  }
  std::string deviceName(uint32_t device) const;
  std::string describe(const bundle::Value &value) const { return describeValue(model, value); }
  std::string describe(const bundle::Instruction &instruction) const;
  /// "instruction 42, F(units 0-6, samples 8-16) on a100:1"
  std::string where(const bundle::Instruction &instruction) const;

  const Model &getModel() const { return model; }
  const bundle::Program &getProgram() const { return program; }
  DeviceResult &getResult() { return result; }
  AddressIntervals &getAddresses() { return addresses; }
  const std::vector<uint32_t> &getBound() const { return bound; }
};

/// Returns the runs and shards of a gather or reduction that a device has.
inline Held heldBy(uint32_t device, const bundle::Collective &collective) {
  return collective.heldBy(device, size_t(elementSize(collective.type)));
}

/// Replays a training step and an evaluation of a device's program on the contents of its arenas
/// (SymbolicExecution.h). The program must have passed the other checks.
void replayValues(Device &device);

/// Checks that devices launch their direct transfers in compatible orders (LaunchOrder.cpp). The
/// programs may be invalid.
void checkLaunches(const Model &model, const std::vector<DeviceResult> &results,
                   std::vector<Finding> &findings);

/// Checks over all devices: halves, owners, tasks, reports (Matching.cpp).
void checkMatching(const Model &model, std::vector<DeviceResult> &results,
                   std::vector<Finding> &findings);

} // namespace zorse::verify
