#include "Edit.h"
#include "Mutations.h"

#include <algorithm>
#include <map>

using namespace zorse;
using namespace zorse::test;
using Instruction = bundle::Instruction;

bool test::keepsSizesAndOrder(const RealCase &original, const Programs &programs) {
  std::map<uint32_t, std::vector<std::pair<uint32_t, const Instruction *>>> halves;
  for (const auto &program : programs) {
    Programs copy{program};
    for (auto *region : regionsOf(copy[0]))
      if (region->arena() >= uint32_t(program.arenas_size()) ||
          region->offset() + region->bytes() > program.arenas(int(region->arena())).bytes())
        return false;
    std::map<uint32_t, std::vector<int>> queues;
    for (int e = 0; e < program.instructions_size(); ++e)
      queues[program.instructions(e).queue()].push_back(e);
    for (int e = 0; e < program.instructions_size(); ++e) {
      const auto &instruction = program.instructions(e);
      if (e && instruction.id() <= program.instructions(e - 1).id())
        return false;
      for (const auto &wait : instruction.waits())
        if (wait.position() >= queues[wait.queue()].size() ||
            (!wait.previous_step() && queues[wait.queue()][wait.position()] >= e))
          return false;
      for (const auto &call : instruction.compute().calls()) {
        const auto &function = original.model.functions.functions(int(call.function()));
        const bundle::ArgumentBindings bindings(program, call);
        if (function.arguments_size() != bindings.size())
          return false;
        for (int s = 0; s < bindings.size(); ++s)
          if (int64_t(bindings[s].region.bytes()) !=
              function.arguments(s).bytes().fixed() +
                  function.arguments(s).bytes().per_row() * call.rows())
            return false;
      }
      halves[instruction.id()].push_back({program.device(), &instruction});
    }
  }
  for (const auto &[id, list] : halves) {
    const Instruction &first = *list[0].second;
    if (first.has_send() || first.has_receive()) {
      if (list.size() != 2)
        return false;
      const Instruction &second = *list[1].second;
      const Instruction &send = first.has_send() ? first : second,
                        &receive = first.has_send() ? second : first;
      if (!send.has_send() || !receive.has_receive() ||
          send.send().region().bytes() != receive.receive().region().bytes() ||
          send.send().peer() != (first.has_send() ? list[1].first : list[0].first) ||
          receive.receive().peer() != (first.has_send() ? list[0].first : list[1].first))
        return false;
    } else if (isCollective(first)) {
      std::vector<uint32_t> members, present;
      auto addAll = [&](const auto &from) {
        members.insert(members.end(), from.begin(), from.end());
      };
      if (first.has_all_gather()) {
        addAll(first.all_gather().readers());
        addAll(first.all_gather().shards().members());
      } else if (first.has_reduce_scatter()) {
        addAll(first.reduce_scatter().contributors());
        addAll(first.reduce_scatter().shards().members());
      } else {
        addAll(first.all_reduce().members());
      }
      std::sort(members.begin(), members.end());
      members.erase(std::unique(members.begin(), members.end()), members.end());
      for (const auto &[device, instruction] : list)
        present.push_back(device);
      std::sort(present.begin(), present.end());
      if (present != members)
        return false;
    } else if (list.size() != 1) {
      return false;
    }
  }
  return true;
}
