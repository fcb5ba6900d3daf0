#include "Tasks.h"

#include "zorse/runtime/Workers.h"

#include <algorithm>
#include <numeric>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::simulation;
using bundle::Instruction;

namespace {

bool inEvaluation(bundle::Phase phase) {
  return phase == bundle::LOAD || phase == bundle::GATHER || phase == bundle::FORWARD ||
         phase == bundle::READ_METRICS;
}

Activity activityOf(const Instruction &instruction) {
  switch (instruction.what_case()) {
  case Instruction::kCompute:
    switch (instruction.compute().task()) {
    case bundle::Compute::F:
      return Activity::Forward;
    case bundle::Compute::B:
      return Activity::Backward;
    case bundle::Compute::W:
      return Activity::WeightGradients;
    case bundle::Compute::R:
      return Activity::Recompute;
    case bundle::Compute::SUM_LOSS:
      return Activity::Loss;
    default:
      return Activity::Update;
    }
  case Instruction::kCopy:
    return Activity::Copy;
  case Instruction::kSend:
  case Instruction::kReceive:
    return Activity::Transfer;
  case Instruction::kLoadInput:
  case Instruction::kLoadScalars:
    return Activity::Load;
  case Instruction::kAllGather:
    return Activity::Gather;
  case Instruction::kReduceScatter:
    return Activity::Reduction;
  case Instruction::kAllReduce:
    return Activity::Sum;
  default:
    return Activity::Report;
  }
}

} // namespace

Tasks::Tasks(const Bundle &bundle, const SimulationOptions &options) : bundle(bundle) {
  size_t total = 0;
  for (const bundle::Program &program : bundle.programs)
    total += size_t(program.instructions_size());
  instructions.reserve(total + 1);
  for (uint32_t d = 0; d < bundle.programs.size(); ++d) {
    const bundle::Program &program = bundle.programs[d];
    uint32_t firstQueue = uint32_t(queues.size()), firstInstruction = uint32_t(instructions.size());
    serversOf.push_back(uint32_t(servers.size()));

    std::vector<bool> used(program.queues_size());
    for (const Instruction &instruction : program.instructions())
      used[instruction.queue()] = true;
    const std::vector<uint32_t> workers =
        workersOf(program, deviceKindOf(bundle.devices[d].kind), options.oneThreadPerQueue);
    std::vector<uint32_t> serverOf(workers.size()), serverOfWorker(workers.size() + 2, UINT32_MAX);
    for (size_t q = 0; q < workers.size(); ++q) {
      queues.push_back({0, 0});
      if (!used[q])
        continue;
      uint32_t &server = serverOfWorker[workers[q]];
      if (server == UINT32_MAX) {
        server = uint32_t(servers.size());
        servers.push_back({d, workers[q] == 0, {}});
      }
      serverOf[q] = server;
    }
    for (int i = 0; i < program.instructions_size(); ++i) {
      const Instruction &instruction = program.instructions(i);
      FlatInstruction flat = {0,
                              firstQueue + instruction.queue(),
                              serverOf[instruction.queue()],
                              uint32_t(waits.size()),
                              uint32_t(i),
                              inEvaluation(instruction.phase())};
      for (const bundle::Wait &wait : instruction.waits())
        waits.push_back(
            {firstQueue + wait.queue(), wait.position() & 0x7fffffffu, wait.previous_step()});
      servers[flat.server].instructions.push_back(uint32_t(instructions.size()));
      ++queues[flat.queue].length;
      instructions.push_back(flat);
    }
    uint32_t next = firstInstruction;
    for (uint32_t q = firstQueue; q < queues.size(); ++q) {
      queues[q].firstInstruction = next;
      next += queues[q].length;
    }
    queueInstructions.resize(next);
    std::vector<uint32_t> fill(queues.size() - firstQueue, 0);
    for (uint32_t e = firstInstruction; e < instructions.size(); ++e)
      queueInstructions[queues[instructions[e].queue].firstInstruction +
                        fill[instructions[e].queue - firstQueue]++] = e;
  }
  serversOf.push_back(uint32_t(servers.size()));
  instructions.push_back({0, 0, 0, uint32_t(waits.size()), 0, 0});

  taskInstructions.resize(total);
  std::iota(taskInstructions.begin(), taskInstructions.end(), 0u);
  std::vector<uint32_t> ids(total);
  for (uint32_t e = 0; e < total; ++e)
    ids[e] = source(e).id();
  std::sort(taskInstructions.begin(), taskInstructions.end(),
            [&](uint32_t a, uint32_t b) { return ids[a] != ids[b] ? ids[a] < ids[b] : a < b; });
  for (uint32_t h = 0; h < total; ++h) {
    const Instruction &instruction = source(taskInstructions[h]);
    if (h == 0 || ids[taskInstructions[h]] != ids[taskInstructions[h - 1]])
      tasks.push_back({instruction.id(), device(instructions[taskInstructions[h]]), h, 0,
                       &instruction, 0, activityOf(instruction)});
    Task &task = tasks.back();
    ++task.numInstructions;
    task.seconds = std::max(task.seconds, instruction.planned_end() - instruction.planned_start());
    if (instruction.has_send()) {
      task.instruction = &instruction;
      task.device = device(instructions[taskInstructions[h]]);
    }
    instructions[taskInstructions[h]].task = uint32_t(tasks.size() - 1);
  }
}
