#include "Communication.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::runtime;
using bundle::Instruction;

Status zorse::runtime::communicate(Transport &transport, PreparedEntry &prepared, Operation operation) {
  const Instruction &entry = *prepared.entry;
  switch (entry.what_case()) {
  case Instruction::kSend:
    return transport.send(operation, entry.send().peer(), prepared.data, entry.send().region().bytes());
  case Instruction::kReceive:
    return transport.receive(operation, entry.receive().peer(), prepared.data, entry.receive().region().bytes());
  case Instruction::kAllGather:
    return transport.allGather(operation, prepared.gather);
  case Instruction::kReduceScatter:
    return transport.reduceScatter(operation, prepared.reduction);
  case Instruction::kAllReduce:
    return transport.allReduce(operation, prepared.sum);
  default:
    return internalError("an entry of an unknown kind");
  }
}

Status zorse::runtime::communicate(DeviceTransport &transport, PreparedEntry &prepared, WorkStream &stream) {
  const Instruction &entry = *prepared.entry;
  switch (entry.what_case()) {
  case Instruction::kSend:
    return transport.send(entry.send().peer(), prepared.deviceData, entry.send().region().bytes(), stream);
  case Instruction::kReceive:
    return transport.receive(entry.receive().peer(), prepared.deviceData, entry.receive().region().bytes(), stream);
  case Instruction::kAllGather:
    return transport.allGather(prepared.deviceGather, stream);
  case Instruction::kReduceScatter:
    return transport.reduceScatter(prepared.deviceReduction, stream);
  case Instruction::kAllReduce:
    return transport.allReduce(prepared.deviceSum, stream);
  default:
    return internalError("an entry of an unknown kind is on a direct queue");
  }
}

void zorse::runtime::expectAhead(Transport &transport, const PreparedEntry &here, size_t first, uint64_t step, bool evaluation) {
  constexpr size_t kAhead = 16;
  const DeviceProgram &program = *here.program;
  const std::vector<PreparedEntry *> &entries = program.workerEntries[program.workers[here.entry->queue()]];
  size_t end = std::min(entries.size(), first + kAhead);
  for (size_t i = std::max<size_t>(first, here.place + 1); i < end; ++i) {
    PreparedEntry &entry = *entries[i];
    if (!entry.entry->has_receive() || entry.expectedStep == step || (evaluation && !entry.inEvaluation) || !program.isReady(entry, step))
      continue;
    const bundle::Region &region = entry.entry->receive().region();
    bool isFree = true;
    for (size_t j = first; j < i && isFree; ++j) {
      const PreparedEntry &before = *entries[j];
      if (before.entry->queue() != entry.entry->queue())
        continue;
      const bundle::Region &other = before.entry->receive().region();
      isFree = before.entry->has_receive() && program.isReady(before, step) &&
               (other.arena() != region.arena() || other.offset() + other.bytes() <= region.offset() ||
                region.offset() + region.bytes() <= other.offset());
    }
    if (!isFree)
      continue;
    entry.expectedStep = step;
    transport.postReceive({entry.entry->id(), step}, entry.entry->receive().peer(), entry.data, region.bytes());
  }
}
