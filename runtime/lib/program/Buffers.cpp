#include "zorse/runtime/Buffers.h"

#include "ArgumentBindings.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace zorse;
using namespace zorse::runtime;

namespace {

/// Visits every region that an instruction of a program accesses, with its value.
template <typename Visit>
void forEachTouch(const bundle::Program &program, const bundle::Instruction &e, Visit visit) {
  switch (e.what_case()) {
  case bundle::Instruction::kCompute:
    for (const auto &call : e.compute().calls()) {
      const bundle::ArgumentBindings bindings(program, call);
      for (int s = 0; s < bindings.size(); ++s)
        visit(bindings[s].region, bindings[s].value);
    }
    return;
  case bundle::Instruction::kCopy:
    visit(e.copy().from(), e.copy().value());
    visit(e.copy().to(), e.copy().value());
    return;
  case bundle::Instruction::kSend:
    return visit(e.send().region(), e.send().value());
  case bundle::Instruction::kReceive:
    return visit(e.receive().region(), e.receive().value());
  case bundle::Instruction::kLoadInput:
    return visit(e.load_input().region(), e.load_input().value());
  case bundle::Instruction::kLoadScalars:
    return visit(e.load_scalars().region(), e.load_scalars().value());
  case bundle::Instruction::kAllGather:
    return visit(e.all_gather().full(), e.all_gather().value());
  case bundle::Instruction::kReduceScatter: {
    visit(e.reduce_scatter().full(), e.reduce_scatter().value());
    bundle::Value reduced = e.reduce_scatter().value();
    if (reduced.kind() == bundle::Value::GRADIENTS)
      reduced.set_kind(bundle::Value::REDUCED_GRADIENTS);
    return visit(e.reduce_scatter().shard(), reduced);
  }
  case bundle::Instruction::kAllReduce:
    return visit(e.all_reduce().region(), e.all_reduce().to());
  case bundle::Instruction::kReadMetrics:
    return visit(e.read_metrics().region(), e.read_metrics().value());
  case bundle::Instruction::WHAT_NOT_SET:
    return;
  }
}

} // namespace

// The same bytes may hold different values one after another, so the key contains both. Uses of a
// part of a group (the argument of one parameter) extend the buffer of the group.
std::vector<Buffer> zorse::runtime::findBuffers(const bundle::Program &program) {
  using Key = std::tuple<uint32_t, uint64_t, uint64_t, int, uint32_t, uint32_t, int64_t, int64_t>;
  std::map<Key, Buffer> buffers;
  auto touch = [&](const bundle::Region &r, const bundle::Value &v, int first, int last) {
    if (r.bytes() == 0)
      return;
    bool perUse = v.kind() == bundle::Value::NONE; // workspace: one buffer per call
    Key key{r.arena(), r.offset(), r.bytes(), v.kind(), perUse ? first : v.id(),
            v.cut(),   v.begin(),  v.end()};
    auto [place, added] =
        buffers.try_emplace(key, Buffer{r.arena(), r.offset(), r.bytes(), v, first, last});
    if (!added) {
      place->second.first = std::min(place->second.first, first);
      place->second.last = std::max(place->second.last, last);
    }
  };
  for (const auto &state : program.state())
    touch(state.region(), state.value(), 0, program.instructions_size() - 1);
  for (int i = 0; i < program.instructions_size(); ++i)
    forEachTouch(program, program.instructions(i),
                 [&](const bundle::Region &r, const bundle::Value &v) { touch(r, v, i, i); });
  std::vector<Buffer> list;
  for (auto &[key, buffer] : buffers)
    list.push_back(buffer);
  return list;
}
