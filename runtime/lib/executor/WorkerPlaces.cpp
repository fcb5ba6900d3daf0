#include "WorkerPlaces.h"

#include <tuple>

using namespace zorse;
using namespace zorse::runtime;

void zorse::runtime::locateWorkers(const std::vector<const DeviceProgram *> &programs,
                                   uint64_t submitted, Executor::Progress &progress) {
  // Finds the earliest position in the global order of the run that a worker has reached. If
  // several workers are at it, one that executes the instruction is preferred to one that waits
  // before it.
  using Place = std::tuple<uint64_t, uint32_t, bool>;
  constexpr Place kNowhere{UINT64_MAX, 0, false};
  Place earliest = kNowhere;
  for (const DeviceProgram *program : programs)
    for (uint32_t worker = 0; worker < program->workerInstructions.size(); ++worker) {
      const PreparedInstruction *instruction = nullptr;
      Place place = kNowhere;
      for (size_t queue = 0; queue < program->workers.size(); ++queue) {
        const std::vector<PreparedInstruction *> &instructions = program->queueInstructions[queue];
        if (program->workers[queue] != worker || instructions.empty())
          continue;
        const uint64_t done = program->device.done(uint32_t(queue)),
                       step = done / instructions.size();
        const PreparedInstruction *next = instructions[done % instructions.size()];
        if (Place here(step, next->instruction->id(), !program->isReady(*next, step));
            step < submitted && here < place)
          std::tie(place, instruction) = std::tuple(here, next);
      }
      if (!instruction)
        continue;
      std::string where =
          (std::get<2>(place) ? "waiting before instruction " : "instruction ") +
          std::to_string(instruction->instruction->id()) + " (" +
          describeInstruction(program->bundle, program->index, *instruction->instruction) + ")";
      progress.everywhere += (progress.everywhere.empty() ? "device " : "; device ") +
                             program->program.device_name() + ": " + where;
      if (place < earliest) {
        earliest = place;
        progress.where = where;
      }
    }
  if (earliest != kNowhere)
    std::tie(progress.step, progress.instruction, std::ignore) = earliest;
}
