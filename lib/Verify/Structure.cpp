// Checks indices, sizes and order of a program. All later checks depend on it and index without
// further checks.
#include "Device.h"

#include <cmath>

using namespace zorse;
using namespace zorse::verify;

bool Device::reportOutside(const bundle::Region &region, const bundle::Instruction *instruction,
                           const std::string &what) {
  int64_t id = instruction ? int64_t(instruction->id()) : -1;
  auto place = [&] { return (instruction ? where(*instruction) + ": " : std::string()) + what; };
  if (region.arena() >= uint32_t(program.arenas_size()))
    return report(Code::Malformed, id,
                  place() + ": arena " + std::to_string(region.arena()) + " of " +
                      std::to_string(program.arenas_size()));
  return report(Code::Bounds, id,
                place() + ": bytes " + std::to_string(region.offset()) + " + " +
                    std::to_string(region.bytes()) + " leave arena " +
                    std::to_string(region.arena()) + " of " +
                    std::to_string(program.arenas(int(region.arena())).bytes()));
}

bool Device::checkDevices(const google::protobuf::RepeatedField<uint32_t> &list,
                          int64_t instruction, const char *what) {
  std::vector<bool> seen(model.plan.devices.size());
  for (uint32_t device : list) {
    if (device >= seen.size() || seen[device])
      return report(Code::Malformed, instruction,
                    std::string(what) + ": device " + std::to_string(device) +
                        " does not exist or is listed twice");
    seen[device] = true;
  }
  return true;
}

/// Checks runs of a whole's elements: the runs of each device must ascend.
bool Device::checkExtents(const bundle::ShardRanges &extents, int64_t instruction,
                          const char *what) {
  if (extents.begin_size() != extents.members_size() ||
      extents.end_size() != extents.members_size())
    return report(Code::Malformed, instruction,
                  std::string(what) + ": " + std::to_string(extents.members_size()) + " members, " +
                      std::to_string(extents.begin_size()) + " begins, " +
                      std::to_string(extents.end_size()) + " ends");
  std::vector<int64_t> ends(model.plan.devices.size(), 0); // end of the device's previous run
  for (int i = 0; i < extents.members_size(); ++i) {
    const uint32_t device = extents.members(i);
    if (device >= ends.size())
      return report(Code::Malformed, instruction,
                    std::string(what) + ": device " + std::to_string(device) + " does not exist");
    auto run = [&] {
      return std::string(what) + " of " + deviceName(device) + ": elements " +
             std::to_string(extents.begin(i)) + "-" + std::to_string(extents.end(i));
    };
    if (extents.begin(i) < 0 || extents.begin(i) > extents.end(i) || extents.end(i) > kMaxSize)
      return report(Code::Malformed, instruction, run() + " are impossible");
    if (extents.begin(i) < ends[device])
      return report(Code::Malformed, instruction,
                    run() + " follow elements up to " + std::to_string(ends[device]) +
                        ", expects them to ascend");
    ends[device] = extents.end(i);
  }
  return true;
}

/// Checks the runs of readers or contributors. If any are named, every one of them must have runs.
/// This device must have each shard completely in one of its runs, or no part of it.
bool Device::checkRuns(const bundle::Collective &collective, int64_t instruction) {
  const bundle::ShardRanges &runs = collective.parts;
  const char *what = collective.gathers ? "reads" : "terms";
  if (!checkExtents(runs, instruction, what))
    return false;
  if (runs.members().empty())
    return true;
  std::vector<bool> named(model.plan.devices.size());
  for (uint32_t device : runs.members())
    named[device] = true;
  for (uint32_t device : collective.members) {
    if (!named[device])
      return report(Code::Malformed, instruction,
                    std::string(what) + ": missing " + deviceName(device) + ", which takes part");
    named[device] = false;
  }
  if (auto other = std::find(named.begin(), named.end(), true); other != named.end())
    return report(Code::Malformed, instruction,
                  std::string(what) + ": name " + deviceName(uint32_t(other - named.begin())) +
                      ", which takes no part");
  const Compact held = bundle::shardsOf(runs, program.device());
  for (const Shard &shard : bundle::shardsOf(collective.shards))
    if (held.cuts(shard))
      return report(Code::Malformed, instruction,
                    std::string(what) + " of " + deviceName(program.device()) +
                        ": have a part of the shard " + std::to_string(shard.begin) + "-" +
                        std::to_string(shard.end) + ", expects all of it or nothing");
  return true;
}

/// Whether the host computes the instruction. Updates run on the processor with their state in its
/// memory; all other compute runs on the device.
bool Device::isByHost(int index) const {
  const bundle::Compute &compute = program.instructions(index).compute();
  if (compute.task() != bundle::Compute::UPDATE_GROUP)
    return false;
  for (const bundle::Call &call : compute.calls()) {
    const bundle::ArgumentBindings bindings(program, call);
    for (int s = 0; s < bindings.size(); ++s)
      if (const bundle::Region &region = bindings[s].region; region.bytes())
        return region.arena() < uint32_t(program.arenas_size()) &&
               program.arenas(int(region.arena())).kind() != bundle::DEVICE;
  }
  return false;
}

bool Device::checkCall(const bundle::Instruction &instruction, const bundle::Call &call,
                       bool byHost) {
  int64_t id = instruction.id();
  if (call.function() >= uint32_t(model.functions.functions_size()))
    return report(Code::Malformed, id,
                  where(instruction) + ": function " + std::to_string(call.function()) +
                      " does not exist");
  const auto &function = model.functions.functions(int(call.function()));
  if (call.unit() < -1 || call.unit() >= model.summary.units_size())
    return report(Code::Malformed, id,
                  where(instruction) + ": unit " + std::to_string(call.unit()) + " does not exist");
  if (call.rows() < 1 || call.rows() > kMaxSize || call.sample_base() < 0 ||
      call.sample_base() > kMaxSize)
    return report(Code::Malformed, id,
                  where(instruction) + ": " + std::to_string(call.rows()) + " rows from " +
                      std::to_string(call.sample_base()) + " are impossible");
  if (call.segment() && !model.hasSegment(call.function(), call.segment()))
    return report(Code::Malformed, id,
                  where(instruction) + ": function '" + function.name() + "' has no segment " +
                      std::to_string(call.segment()));
  const bundle::ArgumentBindings bindings(program, call);
  if (bindings.size() != function.arguments_size())
    return report(Code::Malformed, id,
                  where(instruction) + ": function '" + function.name() + "' has " +
                      std::to_string(function.arguments_size()) + " arguments, the call binds " +
                      std::to_string(bindings.size()));
  if (!bindings.complete())
    return report(Code::Malformed, id,
                  where(instruction) + ": binds an argument of '" + function.name() +
                      "' to a region or a value that does not exist");
  for (int s = 0; s < bindings.size(); ++s) {
    const auto &argument = function.arguments(s);
    const bundle::ArgumentBinding binding = bindings[s];
    const bundle::Region &region = binding.region;
    auto what = [&] {
      return where(instruction) + ": argument '" + argument.name() + "' of '" + function.name() +
             "'";
    };
    if (!checkRegion(region, &instruction, argument.name(), /*mayBeAbsent=*/true))
      return false;
    int64_t expected = model.segmentHas(call.function(), call.segment(), s)
                           ? extentBytes(argument.bytes(), call.rows())
                           : 0;
    bool enough = argument.kind() == bundle::WORKSPACE ? int64_t(region.bytes()) >= expected
                                                       : int64_t(region.bytes()) == expected;
    if (expected < 0 || !enough)
      return report(Code::Size, id,
                    what() + " expects " + std::to_string(expected) + " bytes for " +
                        std::to_string(call.rows()) + " rows, found " +
                        std::to_string(region.bytes()));
    if (region.bytes() && region.offset() % 64)
      return report(Code::Alignment, id,
                    what() + " starts at byte " + std::to_string(region.offset()) +
                        ", expects a multiple of 64");
    if (binding.overwrite && argument.mode() != bundle::ACCUMULATE)
      return report(Code::Call, id, what() + " is not accumulated to, but bound with overwrite");
    if (region.bytes() && (program.arenas(int(region.arena())).kind() == bundle::DEVICE) == byHost)
      return report(Code::Reach, id,
                    what() + " is bound to memory of the " +
                        (byHost ? "device, expects the host's, where its first argument is"
                                : "host, expects the device's"));
    uint32_t &place = placeOfRegion[bindings.regionNumber(s)];
    if (region.bytes() && place == AddressIntervals::kAbsent)
      place = addresses.number(addressOf(region.arena(), region.offset()),
                               addressOf(region.arena(), region.offset() + region.bytes()));
    bound.push_back(place);
  }
  return true;
}

bool Device::checkInstruction(int index) {
  const bundle::Instruction &instruction = program.instructions(index);
  int64_t id = instruction.id();
  auto place = [&] { return where(instruction); };
  const std::string at = "region";
  auto peer = [&](uint32_t device) {
    return (device < model.plan.devices.size() && device != program.device()) ||
           report(Code::Malformed, id,
                  place() + ": peer " + std::to_string(device) +
                      " is this device or does not exist");
  };
  const bool staged = program.device() < options.hostStaged.size() &&
                      options.hostStaged[program.device()];
  const bool direct = program.queues(int(instruction.queue())).kind() == bundle::DEVICE_TO_DEVICE;
  auto travels = [&](const bundle::Region &region) {
    if (!checkRegion(region, &instruction, at, /*mayBeAbsent=*/instruction.has_all_gather() ||
                                                   instruction.has_reduce_scatter()))
      return false;
    return !staged || direct || !region.bytes() ||
           program.arenas(int(region.arena())).kind() != bundle::DEVICE ||
           report(Code::Reach, id,
                  place() + ": works on memory of the device, expects the host's, which alone the "
                            "device's transports reach");
  };
  switch (instruction.what_case()) {
  case bundle::Instruction::kCompute:
    for (const bundle::Call &call : instruction.compute().calls())
      if (!checkCall(instruction, call, isByHost(index)))
        return false;
    return true;
  case bundle::Instruction::kCopy:
    if (instruction.copy().from().bytes() != instruction.copy().to().bytes())
      return report(Code::Size, id,
                    place() + ": copies " + std::to_string(instruction.copy().from().bytes()) +
                        " bytes to " + std::to_string(instruction.copy().to().bytes()));
    return checkRegion(instruction.copy().from(), &instruction, at) &&
           checkRegion(instruction.copy().to(), &instruction, at);
  case bundle::Instruction::kSend:
    return peer(instruction.send().peer()) && travels(instruction.send().region());
  case bundle::Instruction::kReceive:
    return peer(instruction.receive().peer()) && travels(instruction.receive().region());
  case bundle::Instruction::kLoadInput:
    return (instruction.load_input().input() < uint32_t(model.summary.inputs_size()) ||
            report(Code::Malformed, id,
                   place() + ": input " + std::to_string(instruction.load_input().input()) +
                       " does not exist")) &&
           checkRegion(instruction.load_input().region(), &instruction, at);
  case bundle::Instruction::kLoadScalars:
    return checkRegion(instruction.load_scalars().region(), &instruction, at);
  case bundle::Instruction::kAllGather:
  case bundle::Instruction::kReduceScatter: {
    const bundle::Collective c = *bundle::collectiveOf(instruction);
    return (elementSize(c.type) || report(Code::Malformed, id,
                                          place() + ": element type " +
                                              std::to_string(int(c.type)) + " does not exist")) &&
           checkExtents(c.shards, id, "shards") &&
           checkDevices(c.members, id, c.gathers ? "readers" : "contributors") &&
           checkRuns(c, id) && travels(c.full) && travels(c.shard);
  }
  case bundle::Instruction::kAllReduce:
    return checkDevices(instruction.all_reduce().members(), id, "members") &&
           travels(instruction.all_reduce().region());
  case bundle::Instruction::kReadMetrics:
    return checkRegion(instruction.read_metrics().region(), &instruction, at);
  default:
    return report(Code::Malformed, id, place() + ": an instruction without a kind");
  }
}

bool Device::checkOrder() {
  queueInstructions.assign(program.queues_size(), {});
  position.assign(program.instructions_size(), 0);
  int64_t last = -1;
  for (int e = 0; e < program.instructions_size(); ++e) {
    const auto &instruction = program.instructions(e);
    if (int64_t(instruction.id()) <= last)
      return report(Code::Order, instruction.id(),
                    where(instruction) + ": follows instruction " + std::to_string(last) +
                        " in the program, expects ascending ids");
    last = instruction.id();
    if (instruction.queue() >= uint32_t(program.queues_size()))
      return report(Code::Malformed, instruction.id(),
                    where(instruction) + ": queue " + std::to_string(instruction.queue()) + " of " +
                        std::to_string(program.queues_size()));
    if (!std::isfinite(instruction.planned_start()) || !std::isfinite(instruction.planned_end()))
      return report(Code::Malformed, instruction.id(),
                    where(instruction) + ": its planned time is not a number");
    if (instruction.phase() <= bundle::PHASE_UNSPECIFIED ||
        instruction.phase() > bundle::READ_METRICS)
      return report(Code::Malformed, instruction.id(),
                    where(instruction) + ": phase " + std::to_string(int(instruction.phase())) +
                        " does not exist");
    position[e] = uint32_t(queueInstructions[instruction.queue()].size());
    queueInstructions[instruction.queue()].push_back(uint32_t(e));
  }
  // An instruction may wait only for earlier instructions of the list, or for the previous step.
  // The earliest unfinished instruction can then always run.
  for (int e = 0; e < program.instructions_size(); ++e) {
    const auto &instruction = program.instructions(e);
    for (const auto &wait : instruction.waits()) {
      auto what = [&] {
        return where(instruction) + ": waits for position " + std::to_string(wait.position()) +
               " of queue " + std::to_string(wait.queue());
      };
      if (wait.queue() >= uint32_t(program.queues_size()) ||
          wait.position() >= queueInstructions[wait.queue()].size())
        return report(Code::Malformed, instruction.id(), what() + ", which does not exist");
      uint32_t target = queueInstructions[wait.queue()][wait.position()];
      if (!wait.previous_step() && target >= uint32_t(e))
        return report(Code::Order, instruction.id(),
                      what() + ", instruction " +
                          std::to_string(program.instructions(int(target)).id()) +
                          ", which is not earlier in the list: a deadlock");
    }
  }
  return true;
}

/// Checks queues and arenas, and the device memory that the arenas need.
bool Device::checkQueuesAndArenas() {
  if (program.device() >= model.plan.devices.size())
    return report(Code::Malformed, -1,
                  "program of device " + std::to_string(program.device()) + ": the plan has " +
                      std::to_string(model.plan.devices.size()));
  if (program.queues_size() > kMaxQueues || program.arenas_size() > kMaxQueues)
    return report(Code::Malformed, -1,
                  "expects at most " + std::to_string(kMaxQueues) + " queues and arenas, found " +
                      std::to_string(program.queues_size()) + " and " +
                      std::to_string(program.arenas_size()));
  for (const auto &queue : program.queues())
    if (queue.kind() <= bundle::QUEUE_UNSPECIFIED || queue.kind() > bundle::DEVICE_TO_DEVICE)
      return report(Code::Malformed, -1,
                    "queue of unknown kind " + std::to_string(int(queue.kind())));
  uint64_t onDevice = 0;
  for (const auto &arena : program.arenas()) {
    if (arena.kind() <= bundle::MEMORY_UNSPECIFIED || arena.kind() > bundle::NVME ||
        arena.bytes() > uint64_t(kMaxSize))
      return report(Code::Malformed, -1,
                    "arena of kind " + std::to_string(int(arena.kind())) + " with " +
                        std::to_string(arena.bytes()) + " bytes");
    if (arena.kind() == bundle::DEVICE)
      onDevice += arena.bytes();
    if (onDevice > uint64_t(kMaxSize))
      return report(Code::Malformed, -1, "arenas of impossible size");
  }
  int64_t limit = model.plan.devices[program.device()].memoryBytes;
  if (limit && onDevice > uint64_t(limit))
    report(Code::Limit, -1,
           "arenas need " + std::to_string(onDevice) + " bytes of " + deviceName(program.device()) +
               "'s " + std::to_string(limit));
  if (program.planned_bytes() != onDevice)
    report(Code::Limit, -1,
           "the planner counted " + std::to_string(program.planned_bytes()) +
               " bytes, arenas have " + std::to_string(onDevice));
  return true;
}

bool Device::checkState(const bundle::PersistentState &state) {
  const auto &value = state.value();
  if (!checkRegion(state.region(), nullptr, "persistent state"))
    return false;
  if (value.kind() == bundle::Value::PARAMETERS || value.kind() == bundle::Value::MOMENTS) {
    if (value.id() >= uint32_t(model.summary.groups_size()) || value.begin() < 0 ||
        value.begin() >= value.end() || value.version() != 0 ||
        (value.kind() == bundle::Value::MOMENTS && value.cut() >= model.statesOf(value.id())) ||
        value.end() > model.countOf(value.kind(), value.id(), value.cut()))
      return report(Code::Malformed, -1,
                    "persistent state: " + describe(value) + " does not exist");
    if (int64_t(state.region().bytes()) !=
        (value.end() - value.begin()) *
            elementSize(model.typeOf(value.kind(), value.id(), value.cut())))
      return report(Code::Size, -1,
                    "persistent state: " + describe(value) + " has " +
                        std::to_string(state.region().bytes()) + " bytes");
    if (state.type() != model.typeOf(value.kind(), value.id(), value.cut())) // exported weights
                                                                             // have this type
      return report(Code::Mismatched, -1,
                    "persistent state: " + describe(value) + ": element type " +
                        std::to_string(int(state.type())) + " is not the group's");
    const bool moments = value.kind() == bundle::Value::MOMENTS;
    const bool host = model.plan.keepsOnHost(program.device(), value.id(),
                                             moments ? PlanView::Moments : PlanView::Parameters);
    if (const auto kind = program.arenas(int(state.region().arena())).kind();
        kind != (host ? bundle::PINNED_HOST : bundle::DEVICE))
      report(Code::Residence, -1,
             "persistent state: " + describe(value) + " is kept in memory of kind " +
                 bundle::MemoryKind_Name(kind) + ", the plan keeps it on the " +
                 (host ? "host" : "device"));
  } else if (value.kind() != bundle::Value::OPTIMIZER_STEP ||
             int64_t(state.region().bytes()) != model.optimizerStepBytes() ||
             value.version() != 0) {
    return report(Code::Malformed, -1,
                  "persistent state: " + describe(value) + " is not state, or of the wrong size");
  }
  return true;
}

bool Device::checkStructure() {
  if (!checkQueuesAndArenas())
    return false;
  for (const auto &state : program.state())
    if (!checkState(state))
      return false;
  if (!checkOrder())
    return false;
  placeOfRegion.assign(size_t(program.regions_size()), AddressIntervals::kAbsent);
  for (int e = 0; e < program.instructions_size(); ++e)
    if (!checkInstruction(e) ||
        (program.queues(int(program.instructions(e).queue())).kind() == bundle::DEVICE_TO_DEVICE
             ? !checkDirect(e)
             : !checkNoParts(program.instructions(e))))
      return false;
  if (std::count_if(program.queues().begin(), program.queues().end(),
                    [](const auto &queue) { return queue.kind() == bundle::DEVICE_TO_DEVICE; }) > 1)
    return report(Code::Launch, -1,
                  "has two queues of kind DEVICE_TO_DEVICE: their launches are not ordered");
  return true;
}
