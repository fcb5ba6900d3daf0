#include "DeviceProgram.h"

#include <algorithm>
#include <cstring>

using namespace zorse;
using namespace zorse::runtime;
using bundle::Entry;

namespace {

bool inEvaluation(bundle::Phase phase) {
  return phase == bundle::LOAD || phase == bundle::GATHER || phase == bundle::FORWARD || phase == bundle::REPORT;
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

std::vector<Shard> shardsOf(const bundle::Extents &extents) {
  std::vector<Shard> shards;
  for (int i = 0; i < extents.members_size(); ++i)
    shards.push_back({extents.members(i), extents.begin(i), extents.end(i)});
  return shards;
}

template <typename List> bool contains(const List &list, uint32_t device) { return std::find(list.begin(), list.end(), device) != list.end(); }

} // namespace

DeviceProgram::DeviceProgram(const Bundle &bundle, uint32_t index, Device &device)
    : bundle(bundle), index(index), device(device), program(bundle.programs[index]), progress(program.queues_size()), queueLength(program.queues_size()) {}

Result<std::unique_ptr<DeviceProgram>> DeviceProgram::create(const Bundle &bundle, uint32_t index, Device &device, bool poison) {
  std::unique_ptr<DeviceProgram> p(new DeviceProgram(bundle, index, device));
  for (const bundle::Arena &arena : p->program.arenas()) {
    if (arena.kind() != bundle::DEVICE && arena.kind() != bundle::HOST && arena.kind() != bundle::PINNED_HOST)
      return userError("device '" + p->program.device_name() + "': has no memory of kind " + bundle::MemoryKind_Name(arena.kind()));
    AllocationOptions options;
    options.poison = poison;
    Result<std::unique_ptr<DeviceMemory>> memory = device.allocate(arena.bytes(), options);
    if (memory.failed())
      return memory.error();
    p->arenas_.push_back(std::move(*memory));
  }
  p->entries.resize(p->program.entries_size());
  for (int i = 0; i < p->program.entries_size(); ++i) {
    PreparedEntry &prepared = p->entries[i];
    prepared.entry = &p->program.entries(i);
    prepared.index = i;
    p->prepare(prepared);
    ++p->queueLength[prepared.entry->queue()];
  }
  return p;
}

void DeviceProgram::prepare(PreparedEntry &prepared) {
  const Entry &entry = *prepared.entry;
  prepared.inEvaluation = inEvaluation(entry.phase());
  for (const bundle::Wait &wait : entry.waits())
    prepared.waits.push_back({wait.queue(), wait.position(), wait.previous_step()});

  switch (entry.what_case()) {
  case Entry::kCompute:
    for (const bundle::Call &call : entry.compute().calls()) {
      PreparedCall out{&call, {}, {}};
      for (const bundle::SlotBinding &slot : call.slots()) {
        out.slots.push_back(address(slot.region()));
        out.overwrite.push_back(slot.overwrite());
      }
      prepared.calls.push_back(std::move(out));
    }
    break;
  case Entry::kAllGather: {
    const bundle::AllGather &a = entry.all_gather();
    AllGatherArguments &out = prepared.gather;
    out.elementBytes = elementBytes(a.type());
    out.shards = shardsOf(a.shards());
    out.readers.assign(a.readers().begin(), a.readers().end());
    if (contains(a.readers(), index))
      out.full = address(a.full());
    if (contains(a.shards().members(), index))
      out.shard = address(a.shard());
    break;
  }
  case Entry::kReduceScatter: {
    const bundle::ReduceScatter &r = entry.reduce_scatter();
    ReduceScatterArguments &out = prepared.reduction;
    out.type = numberType(r.type());
    out.contributors.assign(r.contributors().begin(), r.contributors().end());
    out.shards = shardsOf(r.shards());
    if (contains(r.contributors(), index))
      out.full = address(r.full());
    if (contains(r.shards().members(), index))
      out.shard = address(r.shard());
    break;
  }
  case Entry::kAllReduce: {
    const bundle::AllReduce &a = entry.all_reduce();
    prepared.sum.type = numberType(a.type());
    prepared.sum.members.assign(a.members().begin(), a.members().end());
    prepared.sum.data = address(a.region());
    prepared.sum.count = int64_t(a.region().bytes() / bytesOf(prepared.sum.type));
    break;
  }
  case Entry::kBroadcast: {
    const bundle::Broadcast &b = entry.broadcast();
    prepared.broadcast.root = b.root();
    prepared.broadcast.members.assign(b.members().begin(), b.members().end());
    prepared.broadcast.data = address(b.region());
    prepared.broadcast.bytes = b.region().bytes();
    break;
  }
  default:
    break;
  }
}

Executor::MemoryUse DeviceProgram::memoryUse(bool poisoned) const {
  Executor::MemoryUse use;
  for (const std::unique_ptr<DeviceMemory> &arena : arenas_) {
    use.planned += arena->bytes();
    if (!poisoned)
      continue;
    constexpr size_t kLine = 64;
    unsigned char poison[kLine];
    for (size_t i = 0; i < kLine; i += sizeof kPoisonWord)
      std::memcpy(poison + i, &kPoisonWord, sizeof kPoisonWord);
    for (size_t i = 0; i < arena->bytes(); i += kLine) {
      size_t size = std::min(kLine, arena->bytes() - i);
      if (std::memcmp(arena->base() + i, poison, size) != 0)
        use.touched += size;
    }
  }
  return use;
}
