#include "LastUse.h"

#include "ArgumentBindings.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::runtime;
using bundle::Instruction;

namespace {

/// Bytes that an instruction accesses.
struct Access {
  uint64_t begin, end;
  uint32_t instruction;
  bool overwrites; ///< writes without reading
};

class Finder {
public:
  Finder(const bundle::Program &program, const bundle::FunctionLibrary &functions)
      : program_(program), functions_(functions), accesses_(program.arenas_size()) {
    for (int e = 0; e < program.instructions_size(); ++e) {
      instruction_ = uint32_t(e);
      collect(program.instructions(e));
    }
  }

  std::vector<LastUse> run() {
    std::vector<LastUse> lastUses(size_t(program_.instructions_size()));
    for (uint32_t arena = 0; arena < accesses_.size(); ++arena)
      find(arena, lastUses);
    for (LastUse &lastUse : lastUses) {
      std::sort(lastUse.after.begin(), lastUse.after.end());
      lastUse.after.erase(std::unique(lastUse.after.begin(), lastUse.after.end()),
                          lastUse.after.end());
    }
    return lastUses;
  }

private:
  void add(const bundle::Region &region, bool overwrites) {
    if (region.bytes())
      accesses_[region.arena()].push_back(
          {region.offset(), region.offset() + region.bytes(), instruction_, overwrites});
  }

  void collect(const Instruction &instruction) {
    switch (instruction.what_case()) {
    case Instruction::kCompute:
      for (const bundle::Call &call : instruction.compute().calls()) {
        const bundle::ArgumentBindings bindings(program_, call);
        for (int s = 0; s < bindings.size(); ++s) {
          const bundle::FunctionArgument &argument =
              functions_.functions(int(call.function())).arguments(s);
          add(bindings[s].region, argument.kind() == bundle::WORKSPACE ||
                                      argument.mode() == bundle::WRITE || bindings[s].overwrite);
        }
      }
      return;
    case Instruction::kCopy:
      add(instruction.copy().from(), false);
      return add(instruction.copy().to(), true);
    case Instruction::kSend:
      return add(instruction.send().region(), false);
    case Instruction::kReceive:
      return add(instruction.receive().region(), true);
    case Instruction::kLoadInput:
      return add(instruction.load_input().region(), true);
    case Instruction::kLoadScalars:
      return add(instruction.load_scalars().region(), true);
    case Instruction::kAllGather: {
      add(instruction.all_gather().shard(), false);
      const auto &owners = instruction.all_gather().shards().members(); // several shards of one may
                                                                        // lie anywhere in `full`
      return add(instruction.all_gather().full(),
                 std::count(owners.begin(), owners.end(), program_.device()) < 2);
    }
    case Instruction::kReduceScatter:
      add(instruction.reduce_scatter().full(), false);
      add(instruction.reduce_scatter().receive_buffer(), true);
      add(instruction.reduce_scatter().send_buffer(), true);
      return add(instruction.reduce_scatter().shard(), true);
    case Instruction::kAllReduce:
      add(instruction.all_reduce().receive_buffer(), true);
      return add(instruction.all_reduce().region(), false);
    case Instruction::kReadMetrics:
      return add(instruction.read_metrics().region(), false);
    default:
      return;
    }
  }

  void find(uint32_t arena, std::vector<LastUse> &lastUses) {
    std::vector<uint64_t> ends;
    for (const Access &access : accesses_[arena])
      for (uint64_t end : {access.begin, access.end})
        ends.push_back(end);
    for (const bundle::PersistentState &state : program_.state())
      if (state.region().arena() == arena)
        for (uint64_t end :
             {state.region().offset(), state.region().offset() + state.region().bytes()})
          ends.push_back(end);
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    auto at = [&](uint64_t end) {
      return size_t(std::lower_bound(ends.begin(), ends.end(), end) - ends.begin());
    };
    std::vector<bool> lives(ends.size(), false); // by interval
    for (const bundle::PersistentState &state : program_.state())
      if (state.region().arena() == arena)
        std::fill(lives.begin() + long(at(state.region().offset())),
                  lives.begin() + long(at(state.region().offset() + state.region().bytes())), true);
    // (instruction, overwrites), by instruction.
    std::vector<std::vector<std::pair<uint32_t, bool>>> touched(ends.size());
    for (const Access &access : accesses_[arena])
      for (size_t i = at(access.begin); i < at(access.end); ++i) {
        if (lives[i])
          continue;
        if (touched[i].empty() || touched[i].back().first != access.instruction)
          touched[i].push_back({access.instruction, access.overwrites});
        // The instruction also reads.
        else
          touched[i].back().second = touched[i].back().second && access.overwrites;
      }
    for (size_t i = 0; i < touched.size(); ++i) {
      const auto &list = touched[i];
      size_t first = 0; // start of the current live range
      for (size_t k = 0; k < list.size(); ++k) {
        if (list[k].second)
          first = k;
        if (!list[(k + 1) % list.size()].second)
          continue;
        LastUse &lastUse = lastUses[list[k].first];
        for (size_t before = first; before < k; ++before)
          lastUse.after.push_back(list[before].first);
        bundle::Region *last = lastUse.regions.empty() ? nullptr : &lastUse.regions.back();
        if (last && last->arena() == arena && last->offset() + last->bytes() == ends[i]) {
          last->set_bytes(ends[i + 1] - last->offset());
          continue;
        }
        bundle::Region &region = lastUse.regions.emplace_back();
        region.set_arena(arena);
        region.set_offset(ends[i]);
        region.set_bytes(ends[i + 1] - ends[i]);
      }
    }
  }

  const bundle::Program &program_;
  const bundle::FunctionLibrary &functions_;
  std::vector<std::vector<Access>> accesses_; ///< by arena, ordered by instruction
  uint32_t instruction_ = 0;
};

} // namespace

std::vector<LastUse> zorse::runtime::lastUsesOf(const bundle::Program &program,
                                                const bundle::FunctionLibrary &functions) {
  return Finder(program, functions).run();
}
