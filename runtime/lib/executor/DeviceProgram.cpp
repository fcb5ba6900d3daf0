#include "DeviceProgram.h"

#include "Collectives.h"
#include "SlotBindings.h"
#include "zorse/runtime/HostCpu.h"
#include "zorse/runtime/Workers.h"

#include <algorithm>
#include <cstring>

using namespace zorse;
using namespace zorse::runtime;
using bundle::Instruction;

namespace {

bool inEvaluation(bundle::Phase phase) {
  return phase == bundle::LOAD || phase == bundle::GATHER || phase == bundle::FORWARD || phase == bundle::READ_METRICS;
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

/// Whether persistent state is no longer what the step before left once an entry has begun.
bool changesState(const bundle::Program &program, const Instruction &entry) {
  if (entry.has_compute())
    return entry.compute().task() == bundle::Compute::UPDATE_GROUP || entry.compute().task() == bundle::Compute::CLIP_AND_CHECK;
  if (!entry.has_copy())
    return false;
  const bundle::Region &to = entry.copy().to();
  return std::any_of(program.state().begin(), program.state().end(), [&](const bundle::PersistentState &state) {
    const bundle::Region &home = state.region();
    return home.arena() == to.arena() && home.offset() < to.offset() + to.bytes() && to.offset() < home.offset() + home.bytes();
  });
}

} // namespace

Status PreparedEntry::run(uint64_t step, size_t call) { return program->runner->run(*program, *this, step, call); }
Status PreparedEntry::put(uint64_t, WorkStream &stream) { return program->runner->put(*program, *this, stream); }

DeviceProgram::DeviceProgram(const Bundle &bundle, uint32_t index, QueuedDevice &device)
    : bundle(bundle), index(index), device(device), program(bundle.programs[index]), queueEntries(program.queues_size()) {}

Result<std::unique_ptr<DeviceProgram>> DeviceProgram::create(const Bundle &bundle, uint32_t index, QueuedDevice &device, const std::string &transport,
                                                             bool threadPerQueue, bool poison) {
  std::unique_ptr<DeviceProgram> p(new DeviceProgram(bundle, index, device));
  for (const bundle::Arena &arena : p->program.arenas()) {
    AllocationOptions options;
    options.poison = poison;
    Result<std::unique_ptr<DeviceMemory>> memory = device.allocate(arena.kind(), arena.bytes(), options);
    if (memory.failed())
      return memory.error();
    p->arenas_.push_back(std::move(*memory));
  }
  const DeviceKind &kind = deviceKindOf(bundle.devices[index].kind);
  p->workers = workersOf(p->program, kind, threadPerQueue);
  p->threads = threadsOf(p->program, kind, p->workers, threadPerQueue);
  p->workerEntries.resize(p->workers.empty() ? 0 : *std::max_element(p->workers.begin(), p->workers.end()) + 1);
  p->entries = std::vector<PreparedEntry>(p->program.instructions_size());
  for (int i = 0; i < p->program.instructions_size(); ++i) {
    PreparedEntry &prepared = p->entries[i];
    prepared.entry = &p->program.instructions(i);
    prepared.index = i;
    prepared.program = p.get();
    if (Status status = p->prepare(prepared, transport); status.failed())
      return status;
    prepared.placeInQueue = uint32_t(p->queueEntries[prepared.entry->queue()].size());
    p->queueEntries[prepared.entry->queue()].push_back(&prepared);
    std::vector<PreparedEntry *> &together = p->workerEntries[p->workers[prepared.entry->queue()]];
    prepared.place = uint32_t(together.size());
    together.push_back(&prepared);
  }
  p->queueChangesState.resize(p->queueEntries.size());
  for (size_t queue = 0; queue < p->queueEntries.size(); ++queue) {
    if (p->queueEntries[queue].empty())
      continue;
    p->queueEntries[queue].front()->firstOfQueue = true;
    p->queueEntries[queue].back()->lastOfQueue = true;
    ++p->queuesInUse;
    const std::vector<PreparedEntry *> &entries = p->queueEntries[queue];
    p->queueChangesState[queue] = std::any_of(entries.begin(), entries.end(), [](const PreparedEntry *entry) { return entry->changesState; });
    p->changingQueues += p->queueChangesState[queue];
  }
  return p;
}

bool DeviceProgram::isReady(const PreparedEntry &entry, uint64_t step) const {
  return std::all_of(entry.waits.begin(), entry.waits.end(),
                     [&](const PreparedWait &wait) { return (wait.previousStep && step == 0) || device.isDone(event(wait, step)); });
}

void DeviceProgram::prepareCalls(PreparedEntry &prepared) {
  for (const bundle::Call &call : prepared.entry->compute().calls()) {
    const bundle::SlotBindings bindings(program, call);
    for (int s = 0; s < bindings.size(); ++s) {
      prepared.slots.push_back(address(bindings[s].region));
      prepared.overwrite.push_back(bindings[s].overwrite);
    }
  }
  size_t first = 0;
  for (const bundle::Call &call : prepared.entry->compute().calls()) {
    prepared.calls.push_back(
        {call.function(), {{call.rows(), call.sample_base(), call.rng_id_base()}, prepared.slots.data() + first, prepared.overwrite.data() + first}});
    first += size_t(bundle::SlotBindings(program, call).size());
  }
}

Status DeviceProgram::prepare(PreparedEntry &prepared, const std::string &transport) {
  const Instruction &entry = *prepared.entry;
  prepared.inEvaluation = inEvaluation(entry.phase());
  prepared.changesState = changesState(program, entry);
  for (const bundle::Wait &wait : entry.waits())
    prepared.waits.push_back({wait.queue(), wait.position(), wait.previous_step()});
  prepared.beside = runsBeside(bundle, index, entry);
  prepared.deviceToDevice = program.queues(int(entry.queue())).kind() == bundle::DEVICE_TO_DEVICE;
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
    const bundle::Collective collective = *bundle::collectiveOf(entry);
    runs = collective.runs();
    out.shards = bundle::shardsOf(collective.shards);
    if (collective.isMember(index))
      out.full = exposed(collective.full);
    if (collective.owns(index))
      out.shard = exposed(collective.shard);
  };

  switch (entry.what_case()) {
  case Instruction::kCompute:
    prepareCalls(prepared);
    break;
  case Instruction::kSend:
    prepared.data = exposed(entry.send().region());
    break;
  case Instruction::kReceive:
    prepared.data = exposed(entry.receive().region());
    break;
  case Instruction::kAllGather:
    prepared.gather.elementBytes = elementBytes(entry.all_gather().type());
    share(prepared.gather, prepared.gather.reads);
    break;
  case Instruction::kReduceScatter:
    prepared.reduction.type = numberType(entry.reduce_scatter().type());
    share(prepared.reduction, prepared.reduction.terms);
    break;
  case Instruction::kAllReduce: {
    const bundle::AllReduce &a = entry.all_reduce();
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
void DeviceProgram::prepareDirect(PreparedEntry &prepared) {
  const Instruction &entry = *prepared.entry;
  switch (entry.what_case()) {
  case Instruction::kSend:
    prepared.deviceData = address(entry.send().region());
    break;
  case Instruction::kReceive:
    prepared.deviceData = address(entry.receive().region());
    break;
  case Instruction::kAllGather: {
    const bundle::AllGather &a = entry.all_gather();
    prepared.deviceGather = {elementBytes(a.type()), bundle::shardsOf(a.shards()), bundle::collectiveOf(entry)->runs(), address(a.full()),
                             address(a.shard())};
    break;
  }
  case Instruction::kReduceScatter: {
    const bundle::ReduceScatter &r = entry.reduce_scatter();
    prepared.deviceReduction = {numberType(r.type()), bundle::collectiveOf(entry)->runs(), bundle::shardsOf(r.shards()),   address(r.full()),
                                address(r.shard()),   address(r.receive_buffer()),         std::max<int64_t>(r.chunk(), 1)};
    break;
  }
  case Instruction::kAllReduce: {
    const bundle::AllReduce &a = entry.all_reduce();
    prepared.deviceSum = {
        {a.members().begin(), a.members().end()}, address(a.region()), address(a.receive_buffer()), int64_t(a.region().bytes() / sizeof(double))};
    break;
  }
  default:
    break;
  }
}

Status DeviceProgram::warmUp(bool poison) {
  bool ran = false;
  for (const PreparedEntry &entry : entries) {
    if (entry.calls.empty() || entry.beside)
      continue;
    Result<bool> one = device.warmUp(entry.entry->queue(), entry.calls.data(), entry.calls.size());
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
    Status status = poison ? Status::success() : device.fill(arena.base(), std::byte(0), arena.bytes());
    for (size_t from = 0; poison && status.succeeded() && from < arena.bytes(); from += poisoned.size() * sizeof kPoisonWord)
      status = device.write(arena.base() + from, poisoned.data(), std::min(arena.bytes() - from, poisoned.size() * sizeof kPoisonWord));
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
      if (Status status = device.read(part.data(), arena->base() + from, part.size()); status.failed())
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
