#include "HostStaging.h"

#include <cstring>

using namespace zorse;
using namespace zorse::runtime;

InputBytes zorse::runtime::inputBytes(const Bundle &bundle, const bundle::LoadInput &load) {
  const size_t row = bundle.summary.inputs(int(load.input())).bytes_per_row();
  return {load.sample_base() * row, load.rows() * row};
}

Result<HostStaging> HostStaging::create(const DeviceProgram &program, size_t steps) {
  HostStaging made;
  if (program.device.ownMemory() == 0)
    return made;
  size_t inputs = 0;
  for (const PreparedInstruction &instruction : program.instructions)
    if (instruction.instruction->has_load_input())
      inputs += inputBytes(program.bundle, instruction.instruction->load_input()).bytes;
  made.steps_ = steps;
  made.places_.assign(program.instructions.size(), kElsewhere);
  auto place = [&](const PreparedInstruction &instruction, size_t bytes) {
    made.places_[instruction.index] = made.bytes_;
    made.bytes_ += (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
  };
  for (const PreparedInstruction &instruction : program.instructions) {
    if (instruction.instruction->has_load_input() && inputs * steps <= kMaxBytes)
      place(instruction, inputBytes(program.bundle, instruction.instruction->load_input()).bytes);
    else if (instruction.instruction->has_load_scalars() ||
             instruction.instruction->has_read_metrics())
      place(instruction, sizeof(abi::StepScalars));
    if (instruction.instruction->has_read_metrics())
      made.report_ = made.places_[instruction.index];
    else if (made.places_[instruction.index] != kElsewhere)
      made.filled_.push_back(&instruction);
  }
  if (made.bytes_ == 0)
    return made;
  Result<std::unique_ptr<DeviceMemory>> memory =
      program.device.allocate(bundle::PINNED_HOST, made.bytes_ * steps, {});
  if (memory.failed())
    return memory.error();
  made.memory_ = std::move(*memory);
  return made;
}

void HostStaging::fill(uint64_t step, const StepRequest &request) {
  for (const PreparedInstruction *instruction : filled_) {
    std::byte *to = part(step) + places_[instruction->index];
    if (instruction->instruction->has_load_scalars()) {
      std::memcpy(to, &request.scalars, sizeof request.scalars);
      continue;
    }
    const bundle::LoadInput &load = instruction->instruction->load_input();
    const InputBytes bytes = inputBytes(instruction->program->bundle, load);
    std::memcpy(to, request.batch->inputs[load.input()].data() + bytes.offset, bytes.bytes);
  }
}

void *HostStaging::to(const PreparedInstruction &instruction, uint64_t step,
                      void *otherwise) const {
  return memory_ && places_[instruction.index] != kElsewhere
             ? part(step) + places_[instruction.index]
             : otherwise;
}
const void *HostStaging::from(const PreparedInstruction &instruction, uint64_t step,
                              const void *otherwise) const {
  return memory_ && places_[instruction.index] != kElsewhere
             ? part(step) + places_[instruction.index]
             : otherwise;
}

void HostStaging::takeReport(uint64_t step, StepResult &result) const {
  if (memory_ && report_ != kElsewhere && result.reported)
    std::memcpy(&result.report, part(step) + report_, sizeof result.report);
}
