#include "DeviceProgram.h"

#include "ArgumentBindings.h"
#include "Collectives.h"
#include "zorse/runtime/HostCpu.h"
#include "zorse/runtime/Workers.h"

#include <algorithm>
#include <cstring>

using namespace zorse;
using namespace zorse::runtime;
using bundle::Instruction;

namespace {

bool inEvaluation(bundle::Phase phase) {
  return phase == bundle::LOAD || phase == bundle::GATHER || phase == bundle::FORWARD ||
         phase == bundle::READ_METRICS;
}

NumberType numberType(bundle::ElementType type) {
  switch (type) {
  case bundle::F64:
    return NumberType::F64;
  case bundle::BF16:
    return NumberType::BF16;
  case bundle::F16:
    return NumberType::F16;
  default:
    return NumberType::F32;
  }
}

/// Whether persistent state is no longer what the step before left once an instruction has begun.
bool changesState(const bundle::Program &program, const Instruction &instruction) {
  if (instruction.has_compute())
    return instruction.compute().task() == bundle::Compute::UPDATE_GROUP ||
           instruction.compute().task() == bundle::Compute::CLIP_AND_CHECK;
  if (!instruction.has_copy())
    return false;
  const bundle::Region &to = instruction.copy().to();
  return std::any_of(
      program.state().begin(), program.state().end(), [&](const bundle::PersistentState &state) {
        const bundle::Region &home = state.region();
        return home.arena() == to.arena() && home.offset() < to.offset() + to.bytes() &&
               to.offset() < home.offset() + home.bytes();
      });
}

} // namespace

Status PreparedInstruction::run(uint64_t step, size_t call) {
  return program->runner->run(*program, *this, step, call);
}
Status PreparedInstruction::put(uint64_t, WorkStream &stream) {
  return program->runner->put(*program, *this, stream);
}

DeviceProgram::DeviceProgram(const Bundle &bundle, uint32_t index, QueuedDevice &device)
    : bundle(bundle), index(index), device(device), program(bundle.programs[index]),
      queueInstructions(program.queues_size()) {}

Result<std::unique_ptr<DeviceProgram>> DeviceProgram::create(const Bundle &bundle, uint32_t index,
                                                             QueuedDevice &device,
                                                             const std::string &transport,
                                                             bool threadPerQueue, bool poison) {
  std::unique_ptr<DeviceProgram> p(new DeviceProgram(bundle, index, device));
  for (const bundle::Arena &arena : p->program.arenas()) {
    AllocationOptions options;
    options.poison = poison;
    Result<std::unique_ptr<DeviceMemory>> memory =
        device.allocate(arena.kind(), arena.bytes(), options);
    if (memory.failed())
      return memory.error();
    p->arenas_.push_back(std::move(*memory));
  }
  const DeviceKind &kind = deviceKindOf(bundle.devices[index].kind);
  p->workers = workersOf(p->program, kind, threadPerQueue);
  p->threads = threadsOf(p->program, kind, p->workers, threadPerQueue);
  p->workerInstructions.resize(
      p->workers.empty() ? 0 : *std::max_element(p->workers.begin(), p->workers.end()) + 1);
  p->instructions = std::vector<PreparedInstruction>(p->program.instructions_size());
  for (int i = 0; i < p->program.instructions_size(); ++i) {
    PreparedInstruction &prepared = p->instructions[i];
    prepared.instruction = &p->program.instructions(i);
    prepared.index = i;
    prepared.program = p.get();
    if (Status status = p->prepare(prepared, transport); status.failed())
      return status;
    prepared.placeInQueue = uint32_t(p->queueInstructions[prepared.instruction->queue()].size());
    p->queueInstructions[prepared.instruction->queue()].push_back(&prepared);
    std::vector<PreparedInstruction *> &together =
        p->workerInstructions[p->workers[prepared.instruction->queue()]];
    prepared.place = uint32_t(together.size());
    together.push_back(&prepared);
  }
  p->queueChangesState.resize(p->queueInstructions.size());
  for (size_t queue = 0; queue < p->queueInstructions.size(); ++queue) {
    if (p->queueInstructions[queue].empty())
      continue;
    p->queueInstructions[queue].front()->firstOfQueue = true;
    p->queueInstructions[queue].back()->lastOfQueue = true;
    ++p->queuesInUse;
    const std::vector<PreparedInstruction *> &instructions = p->queueInstructions[queue];
    p->queueChangesState[queue] = std::any_of(
        instructions.begin(), instructions.end(),
        [](const PreparedInstruction *instruction) { return instruction->changesState; });
    p->changingQueues += p->queueChangesState[queue];
  }
  return p;
}

bool DeviceProgram::isReady(const PreparedInstruction &instruction, uint64_t step) const {
  return std::all_of(instruction.waits.begin(), instruction.waits.end(),
                     [&](const PreparedWait &wait) {
                       return (wait.previousStep && step == 0) || device.isDone(event(wait, step));
                     });
}

void DeviceProgram::prepareCalls(PreparedInstruction &prepared) {
  for (const bundle::Call &call : prepared.instruction->compute().calls()) {
    const bundle::ArgumentBindings bindings(program, call);
    for (int s = 0; s < bindings.size(); ++s) {
      prepared.addresses.push_back(address(bindings[s].region));
      prepared.overwrite.push_back(bindings[s].overwrite);
    }
  }
  size_t first = 0;
  for (const bundle::Call &call : prepared.instruction->compute().calls()) {
    prepared.calls.push_back({call.function(),
                              {{call.rows(), call.sample_base(), call.rng_id_base()},
                               prepared.addresses.data() + first,
                               prepared.overwrite.data() + first,
                               call.segment()}});
    first += size_t(bundle::ArgumentBindings(program, call).size());
  }
}

Status DeviceProgram::prepare(PreparedInstruction &prepared, const std::string &transport) {
  const Instruction &instruction = *prepared.instruction;
  prepared.inEvaluation = inEvaluation(instruction.phase());
  prepared.changesState = changesState(program, instruction);
  for (const bundle::Wait &wait : instruction.waits())
    prepared.waits.push_back({wait.queue(), wait.position(), wait.previous_step()});
  prepared.beside = runsBeside(bundle, index, instruction);
  prepared.deviceToDevice = program.queues(int(instruction.queue())).kind() ==
                            bundle::DEVICE_TO_DEVICE;
  if (prepared.deviceToDevice) {
    prepareDirect(prepared);
    return Status::success();
  }
  Status problem;
  auto exposed = [&](const bundle::Region &region) -> void * {
    if (region.bytes() == 0)
      return nullptr;
    Result<void *> pointer = device.expose(address(region), transport);
    if (pointer.failed())
      problem = pointer.error();
    return pointer.failed() ? nullptr : *pointer;
  };
  auto share = [&](auto &out, std::vector<Shard> &runs) {
    const bundle::Collective collective = *bundle::collectiveOf(instruction);
    runs = collective.runs();
    out.shards = bundle::shardsOf(collective.shards);
    if (collective.isMember(index))
      out.full = exposed(collective.full);
    if (collective.owns(index))
      out.shard = exposed(collective.shard);
  };

  switch (instruction.what_case()) {
  case Instruction::kCompute:
    prepareCalls(prepared);
    break;
  case Instruction::kSend:
    prepared.data = exposed(instruction.send().region());
    break;
  case Instruction::kReceive:
    prepared.data = exposed(instruction.receive().region());
    break;
  case Instruction::kAllGather:
    prepared.gather.elementBytes = elementBytes(instruction.all_gather().type());
    share(prepared.gather, prepared.gather.reads);
    break;
  case Instruction::kReduceScatter:
    prepared.reduction.type = numberType(instruction.reduce_scatter().type());
    prepared.reduction.bf16Terms = instruction.reduce_scatter().term_type() == bundle::BF16;
    share(prepared.reduction, prepared.reduction.terms);
    break;
  case Instruction::kAllReduce: {
    const bundle::AllReduce &a = instruction.all_reduce();
    prepared.sum.type = numberType(a.type());
    prepared.sum.members.assign(a.members().begin(), a.members().end());
    prepared.sum.data = exposed(a.region());
    prepared.sum.count = int64_t(a.region().bytes() / bytesOf(prepared.sum.type));
    break;
  }
  default:
    break;
  }
  return problem;
}

/// Uses device addresses, which are not exposed to a transport.
void DeviceProgram::prepareDirect(PreparedInstruction &prepared) {
  const Instruction &instruction = *prepared.instruction;
  switch (instruction.what_case()) {
  case Instruction::kSend:
    prepared.deviceData = address(instruction.send().region());
    break;
  case Instruction::kReceive:
    prepared.deviceData = address(instruction.receive().region());
    break;
  case Instruction::kAllGather: {
    const bundle::AllGather &a = instruction.all_gather();
    prepared.deviceGather = {elementBytes(a.type()), bundle::shardsOf(a.shards()),
                             bundle::collectiveOf(instruction)->runs(), address(a.full()),
                             address(a.shard())};
    break;
  }
  case Instruction::kReduceScatter: {
    const bundle::ReduceScatter &r = instruction.reduce_scatter();
    prepared.deviceReduction = {numberType(r.type()),
                                bundle::collectiveOf(instruction)->runs(),
                                bundle::shardsOf(r.shards()),
                                address(r.full()),
                                address(r.shard()),
                                address(r.receive_buffer()),
                                std::max<int64_t>(r.chunk(), 1),
                                r.term_type() == bundle::BF16,
                                address(r.send_buffer())};
    break;
  }
  case Instruction::kAllReduce: {
    const bundle::AllReduce &a = instruction.all_reduce();
    prepared.deviceSum = {{a.members().begin(), a.members().end()},
                          address(a.region()),
                          address(a.receive_buffer()),
                          int64_t(a.region().bytes() / sizeof(double))};
    break;
  }
  default:
    break;
  }
}

Status DeviceProgram::warmUp(bool poison) {
  bool ran = false;
  for (const PreparedInstruction &instruction : instructions) {
    if (instruction.calls.empty() || instruction.beside)
      continue;
    Result<bool> one = device.warmUp(instruction.instruction->queue(), instruction.calls.data(),
                                     instruction.calls.size());
    if (one.failed())
      return one.error();
    ran |= *one;
  }
  if (!ran)
    return Status::success();
  const std::vector<uint64_t> poisoned(poison ? size_t(1) << 17 : 0, kPoisonWord);
  for (int i = 0; i < program.arenas_size(); ++i) {
    if (program.arenas(i).kind() != bundle::DEVICE)
      continue;
    const DeviceMemory &arena = *arenas_[size_t(i)];
    Status status = poison ? Status::success()
                           : device.fill(arena.base(), std::byte(0), arena.bytes());
    for (size_t from = 0; poison && status.succeeded() && from < arena.bytes();
         from += poisoned.size() * sizeof kPoisonWord)
      status = device.write(arena.base() + from, poisoned.data(),
                            std::min(arena.bytes() - from, poisoned.size() * sizeof kPoisonWord));
    if (status.failed())
      return status;
  }
  return Status::success();
}

Result<Executor::MemoryUse> DeviceProgram::memoryUse(bool poisoned) const {
  Executor::MemoryUse use;
  constexpr size_t kLine = 64;
  unsigned char poison[kLine];
  for (size_t i = 0; i < kLine; i += sizeof kPoisonWord)
    std::memcpy(poison + i, &kPoisonWord, sizeof kPoisonWord);
  std::vector<std::byte> part;
  for (const std::unique_ptr<DeviceMemory> &arena : arenas_) {
    use.planned += arena->bytes();
    for (size_t from = 0; poisoned && from < arena->bytes(); from += part.size()) {
      part.resize(std::min<size_t>(arena->bytes() - from, 1 << 20));
      if (Status status = device.read(part.data(), arena->base() + from, part.size());
          status.failed())
        return status;
      for (size_t i = 0; i < part.size(); i += kLine) {
        size_t size = std::min(kLine, part.size() - i);
        if (std::memcmp(part.data() + i, poison, size) != 0)
          use.touched += size;
      }
    }
  }
  return use;
}
