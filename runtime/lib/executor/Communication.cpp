#include "Communication.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::runtime;
using bundle::Instruction;

Status zorse::runtime::communicate(Transport &transport, PreparedInstruction &prepared,
                                   Operation operation) {
  const Instruction &instruction = *prepared.instruction;
  switch (instruction.what_case()) {
  case Instruction::kSend:
    return transport.send(operation, instruction.send().peer(), prepared.data,
                          instruction.send().region().bytes());
  case Instruction::kReceive:
    return transport.receive(operation, instruction.receive().peer(), prepared.data,
                             instruction.receive().region().bytes());
  case Instruction::kAllGather:
    return transport.allGather(operation, prepared.gather);
  case Instruction::kReduceScatter:
    return transport.reduceScatter(operation, prepared.reduction);
  case Instruction::kAllReduce:
    return transport.allReduce(operation, prepared.sum);
  default:
    return internalError("an instruction of an unknown kind");
  }
}

Status zorse::runtime::communicate(DeviceTransport &transport, PreparedInstruction &prepared,
                                   WorkStream &stream) {
  const Instruction &instruction = *prepared.instruction;
  switch (instruction.what_case()) {
  case Instruction::kSend:
    return transport.send(instruction.send().peer(), prepared.deviceData,
                          instruction.send().region().bytes(), stream);
  case Instruction::kReceive:
    return transport.receive(instruction.receive().peer(), prepared.deviceData,
                             instruction.receive().region().bytes(), stream);
  case Instruction::kAllGather:
    return transport.allGather(prepared.deviceGather, stream);
  case Instruction::kReduceScatter:
    return transport.reduceScatter(prepared.deviceReduction, stream);
  case Instruction::kAllReduce:
    return transport.allReduce(prepared.deviceSum, stream);
  default:
    return internalError("an instruction of an unknown kind is on a direct queue");
  }
}

void zorse::runtime::expectAhead(Transport &transport, const PreparedInstruction &here,
                                 size_t first, uint64_t step, bool evaluation) {
  constexpr size_t kAhead = 16;
  const DeviceProgram &program = *here.program;
  const std::vector<PreparedInstruction *> &instructions =
      program.workerInstructions[program.workers[here.instruction->queue()]];
  size_t end = std::min(instructions.size(), first + kAhead);
  for (size_t i = std::max<size_t>(first, here.place + 1); i < end; ++i) {
    PreparedInstruction &instruction = *instructions[i];
    if (!instruction.instruction->has_receive() || instruction.expectedStep == step ||
        (evaluation && !instruction.inEvaluation) || !program.isReady(instruction, step))
      continue;
    const bundle::Region &region = instruction.instruction->receive().region();
    bool isFree = true;
    for (size_t j = first; j < i && isFree; ++j) {
      const PreparedInstruction &before = *instructions[j];
      if (before.instruction->queue() != instruction.instruction->queue())
        continue;
      const bundle::Region &other = before.instruction->receive().region();
      isFree = before.instruction->has_receive() && program.isReady(before, step) &&
               (other.arena() != region.arena() ||
                other.offset() + other.bytes() <= region.offset() ||
                region.offset() + region.bytes() <= other.offset());
    }
    if (!isFree)
      continue;
    instruction.expectedStep = step;
    transport.postReceive({instruction.instruction->id(), step},
                          instruction.instruction->receive().peer(), instruction.data,
                          region.bytes());
  }
}
