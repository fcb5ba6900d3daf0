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
  return phase == bundle::LOAD || phase == bundle::GATHER || phase == bundle::FORWARD || phase == bundle::READ_METRICS;
}

Activity activityOf(const Instruction &entry) {
  switch (entry.what_case()) {
  case Instruction::kCompute:
    switch (entry.compute().task()) {
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
  entries.reserve(total + 1);
  for (uint32_t d = 0; d < bundle.programs.size(); ++d) {
    const bundle::Program &program = bundle.programs[d];
    uint32_t firstQueue = uint32_t(queues.size()), firstEntry = uint32_t(entries.size());
    serversOf.push_back(uint32_t(servers.size()));

    std::vector<bool> used(program.queues_size());
    for (const Instruction &entry : program.instructions())
      used[entry.queue()] = true;
    const std::vector<uint32_t> workers = workersOf(program, deviceKindOf(bundle.devices[d].kind), options.oneThreadPerQueue);
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
      const Instruction &entry = program.instructions(i);
      FlatEntry flat = {0, firstQueue + entry.queue(), serverOf[entry.queue()], uint32_t(waits.size()), uint32_t(i), inEvaluation(entry.phase())};
      for (const bundle::Wait &wait : entry.waits())
        waits.push_back({firstQueue + wait.queue(), wait.position() & 0x7fffffffu, wait.previous_step()});
      servers[flat.server].entries.push_back(uint32_t(entries.size()));
      ++queues[flat.queue].length;
      entries.push_back(flat);
    }
    uint32_t next = firstEntry;
    for (uint32_t q = firstQueue; q < queues.size(); ++q) {
      queues[q].firstEntry = next;
      next += queues[q].length;
    }
    queueEntries.resize(next);
    std::vector<uint32_t> fill(queues.size() - firstQueue, 0);
    for (uint32_t e = firstEntry; e < entries.size(); ++e)
      queueEntries[queues[entries[e].queue].firstEntry + fill[entries[e].queue - firstQueue]++] = e;
  }
  serversOf.push_back(uint32_t(servers.size()));
  entries.push_back({0, 0, 0, uint32_t(waits.size()), 0, 0});

  instructions.resize(total);
  std::iota(instructions.begin(), instructions.end(), 0u);
  std::vector<uint32_t> ids(total);
  for (uint32_t e = 0; e < total; ++e)
    ids[e] = source(e).id();
  std::sort(instructions.begin(), instructions.end(), [&](uint32_t a, uint32_t b) { return ids[a] != ids[b] ? ids[a] < ids[b] : a < b; });
  for (uint32_t h = 0; h < total; ++h) {
    const Instruction &entry = source(instructions[h]);
    if (h == 0 || ids[instructions[h]] != ids[instructions[h - 1]])
      tasks.push_back({entry.id(), device(entries[instructions[h]]), h, 0, &entry, 0, activityOf(entry)});
    Task &task = tasks.back();
    ++task.instructions;
    task.seconds = std::max(task.seconds, entry.planned_end() - entry.planned_start());
    if (entry.has_send()) {
      task.entry = &entry;
      task.device = device(entries[instructions[h]]);
    }
    entries[instructions[h]].task = uint32_t(tasks.size() - 1);
  }
}
