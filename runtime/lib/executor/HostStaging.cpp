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
  for (const PreparedEntry &entry : program.entries)
    if (entry.entry->has_load_input())
      inputs += inputBytes(program.bundle, entry.entry->load_input()).bytes;
  made.steps_ = steps;
  made.places_.assign(program.entries.size(), kElsewhere);
  auto place = [&](const PreparedEntry &entry, size_t bytes) {
    made.places_[entry.index] = made.bytes_;
    made.bytes_ += (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
  };
  for (const PreparedEntry &entry : program.entries) {
    if (entry.entry->has_load_input() && inputs * steps <= kMaxBytes)
      place(entry, inputBytes(program.bundle, entry.entry->load_input()).bytes);
    else if (entry.entry->has_load_scalars() || entry.entry->has_read_metrics())
      place(entry, sizeof(abi::StepScalars));
    if (entry.entry->has_read_metrics())
      made.report_ = made.places_[entry.index];
    else if (made.places_[entry.index] != kElsewhere)
      made.filled_.push_back(&entry);
  }
  if (made.bytes_ == 0)
    return made;
  Result<std::unique_ptr<DeviceMemory>> memory = program.device.allocate(bundle::PINNED_HOST, made.bytes_ * steps, {});
  if (memory.failed())
    return memory.error();
  made.memory_ = std::move(*memory);
  return made;
}

void HostStaging::fill(uint64_t step, const StepRequest &request) {
  for (const PreparedEntry *entry : filled_) {
    std::byte *to = part(step) + places_[entry->index];
    if (entry->entry->has_load_scalars()) {
      std::memcpy(to, &request.scalars, sizeof request.scalars);
      continue;
    }
    const bundle::LoadInput &load = entry->entry->load_input();
    const InputBytes bytes = inputBytes(entry->program->bundle, load);
    std::memcpy(to, request.batch->inputs[load.input()].data() + bytes.offset, bytes.bytes);
  }
}

void *HostStaging::to(const PreparedEntry &entry, uint64_t step, void *otherwise) const {
  return memory_ && places_[entry.index] != kElsewhere ? part(step) + places_[entry.index] : otherwise;
}
const void *HostStaging::from(const PreparedEntry &entry, uint64_t step, const void *otherwise) const {
  return memory_ && places_[entry.index] != kElsewhere ? part(step) + places_[entry.index] : otherwise;
}

void HostStaging::takeReport(uint64_t step, StepResult &result) const {
  if (memory_ && report_ != kElsewhere && result.reported)
    std::memcpy(&result.report, part(step) + report_, sizeof result.report);
}
