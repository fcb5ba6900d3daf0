// Mutations of offsets (other bytes), sizes (too few or too many bytes) and live ranges (buffers
// that share bytes while both are live).
#include "Change.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::test;

namespace {

/// Moves a region onto another buffer of the arena, or by some blocks.
bool moveRegion(Change &m, bundle::Program &program, bundle::Region &region, bool onLive) {
  uint64_t size = program.arenas(int(region.arena())).bytes(), old = region.offset();
  if (onLive) {
    std::vector<uint64_t> offsets;
    for (auto *other : regionsOf(program))
      if (other->arena() == region.arena() && other->offset() != region.offset() &&
          other->offset() + region.bytes() <= size)
        offsets.push_back(other->offset());
    if (offsets.empty())
      return false;
    region.set_offset(offsets[m.draw(offsets.size())]);
  } else {
    uint64_t step = 64 * (1 + m.draw(uint64_t(2)));
    if (m.coin() && region.offset() >= step)
      region.set_offset(region.offset() - step);
    else if (region.offset() + region.bytes() + step <= size)
      region.set_offset(region.offset() + step);
    else
      return false;
  }
  m.what = "device " + std::to_string(program.device()) + ": bytes " + std::to_string(old) +
           " become " + std::to_string(region.offset());
  return region.offset() != old;
}

/// A region and the value that it is declared to contain.
struct Use {
  bundle::Region *region;
  bundle::Value value;
};

std::vector<Use> usesOf(bundle::Program &program) {
  std::vector<Use> uses;
  auto use = [&](bundle::Region *region, const bundle::Value &value) {
    if (region->bytes())
      uses.push_back({region, value});
  };
  for (auto &state : *program.mutable_state())
    use(state.mutable_region(), state.value());
  for (int e = 0; e < program.instructions_size(); ++e) {
    auto &instruction = *program.mutable_instructions(e);
    switch (instruction.what_case()) {
    case Instruction::kCompute:
      for (auto &call : *instruction.mutable_compute()->mutable_calls())
        for (EditedArgument argument : argumentsOf(program, call))
          use(argument.mutable_region(), argument.value());
      break;
    case Instruction::kCopy:
      use(instruction.mutable_copy()->mutable_from(), instruction.copy().value());
      use(instruction.mutable_copy()->mutable_to(), instruction.copy().value());
      break;
    case Instruction::kSend:
      use(instruction.mutable_send()->mutable_region(), instruction.send().value());
      break;
    case Instruction::kReceive:
      use(instruction.mutable_receive()->mutable_region(), instruction.receive().value());
      break;
    case Instruction::kLoadInput:
      use(instruction.mutable_load_input()->mutable_region(), instruction.load_input().value());
      break;
    case Instruction::kAllGather:
      use(instruction.mutable_all_gather()->mutable_full(), instruction.all_gather().value());
      use(instruction.mutable_all_gather()->mutable_shard(), instruction.all_gather().value());
      break;
    case Instruction::kReduceScatter:
      use(instruction.mutable_reduce_scatter()->mutable_full(),
          instruction.reduce_scatter().value());
      use(instruction.mutable_reduce_scatter()->mutable_shard(),
          instruction.reduce_scatter().value());
      break;
    default:
      break;
    }
  }
  return uses;
}

/// Moves the buffer of a random value, with all its uses on its device, onto another buffer or by
/// some blocks.
bool moveBuffer(Change &m, const std::function<bool(bundle::Value::Kind)> &wanted) {
  auto &program = m.drawProgram();
  std::vector<Use> uses = usesOf(program);
  std::vector<size_t> candidates;
  for (size_t i = 0; i < uses.size(); ++i)
    if (wanted(uses[i].value.kind()))
      candidates.push_back(i);
  if (candidates.empty())
    return false;
  const Use chosen = uses[candidates[m.draw(candidates.size())]];
  auto gradients = [](bundle::Value::Kind kind) {
    return kind == bundle::Value::REDUCED_GRADIENTS ? bundle::Value::GRADIENTS : kind;
  };
  auto same = [&](const Use &u) {
    return u.region->arena() == chosen.region->arena() &&
           gradients(u.value.kind()) == gradients(chosen.value.kind()) &&
           u.value.id() == chosen.value.id() &&
           (chosen.value.kind() != bundle::Value::MOMENTS || u.value.cut() == chosen.value.cut());
  };
  // The buffer: the chosen bytes, extended by all uses of the value that overlap or touch them.
  uint64_t begin = chosen.region->offset(), end = begin + chosen.region->bytes();
  for (bool grown = true; grown;) {
    grown = false;
    for (const Use &u : uses)
      if (same(u) && u.region->offset() < end && begin < u.region->offset() + u.region->bytes() &&
          (u.region->offset() < begin || u.region->offset() + u.region->bytes() > end)) {
        begin = std::min(begin, u.region->offset());
        end = std::max(end, u.region->offset() + u.region->bytes());
        grown = true;
      }
  }
  const uint64_t size = program.arenas(int(chosen.region->arena())).bytes();
  const Use &other = uses[m.draw(uses.size())];
  uint64_t to = m.draw(4) == 0 ? begin + 64 * (1 + m.draw(uint64_t(3)))
                               : other.region->offset() / 64 * 64;
  if (to == begin || to + (end - begin) > size || other.region->arena() != chosen.region->arena())
    return false;
  for (Use &u : uses)
    if (same(u) && u.region->offset() >= begin && u.region->offset() + u.region->bytes() <= end)
      u.region->set_offset(u.region->offset() - begin + to);
  m.what += ": bytes " + std::to_string(begin) + "-" + std::to_string(end) + " become " +
            std::to_string(to);
  return true;
}

bool moveSomeRegion(Change &m, bool onLive) {
  auto &program = m.drawProgram();
  auto regions = regionsOf(program);
  return !regions.empty() && moveRegion(m, program, *regions[m.draw(regions.size())], onLive);
}

bool shiftTransfer(Change &m) {
  auto &instruction = m.instruction();
  auto &region = !isCopy(instruction) ? regionOf(instruction)
                 : m.coin()           ? *instruction.mutable_copy()->mutable_from()
                                      : *instruction.mutable_copy()->mutable_to();
  return moveRegion(m, m.program(), region, false);
}

bool shiftCollective(Change &m) {
  auto &instruction = m.instruction();
  auto *region = instruction.has_all_reduce() ? instruction.mutable_all_reduce()->mutable_region()
                                              : nullptr;
  if (instruction.has_all_gather())
    region = m.coin() ? instruction.mutable_all_gather()->mutable_full()
                      : instruction.mutable_all_gather()->mutable_shard();
  if (instruction.has_reduce_scatter())
    region = m.coin() ? instruction.mutable_reduce_scatter()->mutable_full()
                      : instruction.mutable_reduce_scatter()->mutable_shard();
  return region->bytes() && moveRegion(m, m.program(), *region, m.coin());
}

bool moveState(Change &m) {
  auto &program = m.drawProgram();
  if (program.state_size() == 0)
    return false;
  auto &region = *program.mutable_state(m.draw(program.state_size()))->mutable_region();
  return moveRegion(m, program, region, m.coin());
}

bool moveScalars(Change &m) {
  auto &instruction = m.instruction();
  auto &region = instruction.has_read_metrics()
                     ? *instruction.mutable_read_metrics()->mutable_region()
                     : *instruction.mutable_load_scalars()->mutable_region();
  return moveRegion(m, m.program(), region, m.coin());
}

bool isNoWorkspace(const Instruction &, const bundle::FunctionArgument &argument) {
  return argument.kind() != bundle::WORKSPACE;
}

bool anotherArena(Change &m) {
  auto &program = m.program();
  auto *arena = program.add_arenas();
  arena->set_kind(bundle::HOST);
  arena->set_bytes(program.arenas(0).bytes());
  m.binding().mutable_region()->set_arena(uint32_t(program.arenas_size() - 1));
  return true;
}

bool changeSize(Change &m) {
  auto regions = regionsOf(m.drawProgram());
  if (regions.empty())
    return false;
  auto *region = regions[m.draw(regions.size())];
  region->set_bytes(m.coin() && region->bytes() > 64 ? region->bytes() - 64 : region->bytes() + 64);
  return true;
}

bool hasRows(const bundle::Value &value) { return value.end() - value.begin() > 1; }

/// Reduces the bytes and the declared samples of both halves.
bool sendFewerRows(Change &m) {
  const auto row =
      uint64_t(m.original.model.summary.values(int(valueOf(m.instruction()).id())).bytes_per_row());
  const bool last = m.coin();
  m.halves([&](bundle::Program &, Instruction &instruction) {
    auto &region = regionOf(instruction);
    auto &value = valueOf(instruction);
    region.set_bytes(region.bytes() - row);
    if (last) {
      value.set_end(value.end() - 1);
    } else {
      value.set_begin(value.begin() + 1);
      region.set_offset(region.offset() + row);
    }
  });
  return true;
}

/// Reduces the bytes of both halves equally.
bool sendFewerBytes(Change &m) {
  m.halves([](bundle::Program &, Instruction &instruction) {
    regionOf(instruction).set_bytes(regionOf(instruction).bytes() - 64);
  });
  return true;
}

bool copyFewerRows(Change &m) {
  auto &copy = *m.instruction().mutable_copy();
  const uint64_t row = copy.from().bytes() /
                       uint64_t(copy.value().end() - copy.value().begin()); // for state: bytes of
                                                                            // an element
  copy.mutable_from()->set_bytes(copy.from().bytes() - row);
  copy.mutable_to()->set_bytes(copy.to().bytes() - row);
  copy.mutable_value()->set_end(copy.value().end() - 1);
  return true;
}

bool loadFewerRows(Change &m) {
  auto &load = *m.instruction().mutable_load_input();
  load.set_rows(load.rows() - 1);
  load.mutable_value()->set_end(load.value().end() - 1);
  load.mutable_region()->set_bytes(
      load.region().bytes() -
      uint64_t(m.original.model.summary.inputs(int(load.input())).bytes_per_row()));
  return true;
}

bool shortenArena(Change &m) {
  auto &program = m.drawProgram();
  if (!program.arenas_size() || program.arenas(0).bytes() <= 64)
    return false;
  program.mutable_arenas(0)->set_bytes(program.arenas(0).bytes() - 64);
  program.set_planned_bytes(program.planned_bytes() - 64);
  return true;
}

bool reportPart(Change &m) {
  auto &report = *m.instruction().mutable_read_metrics();
  if (m.coin()) { // only the sums
    report.mutable_region()->set_offset(report.region().offset() + 256);
    report.mutable_region()->set_bytes(128);
    report.mutable_value()->set_kind(m.coin() ? bundle::Value::GLOBAL_METRICS
                                              : bundle::Value::LOCAL_METRICS);
  } else {
    report.mutable_region()->set_bytes(256);
  }
  return true;
}

/// The loaded input overwrites data that is still needed.
bool loadEarly(Change &m) {
  m.instruction().clear_waits();
  const uint32_t id = m.instruction().id();
  Place other = pickOther(m.programs, m.random, m.place,
                          [&](const Instruction &e) { return e.id() < id && e.id() > 0; });
  if (other)
    moveInstruction(m.programs, id, instructionAt(m.programs, other).id());
  return true;
}

Row sharing(const char *name, const std::vector<bundle::Value::Kind> &kinds) {
  auto wanted = [kinds](bundle::Value::Kind kind) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  return {name, nullptr, [wanted](Change &m) { return moveBuffer(m, wanted); }};
}

} // namespace

void test::addPlaceMutations(MutationList &list) {
  addRows(
      list, "offsets",
      {
          {"offset on a live buffer", nullptr, [](Change &m) { return moveSomeRegion(m, true); }},
          {"offset shifted", nullptr, [](Change &m) { return moveSomeRegion(m, false); }},
          {"transfer's or copy's offset shifted by a row",
           [](const Instruction &e) { return isTransfer(e) || isCopy(e); }, shiftTransfer},
          {"collective's offset shifted", isCollective, shiftCollective},
          {"state moved", nullptr, moveState},
          {"scalars or report elsewhere",
           [](const Instruction &e) { return loadsScalars(e) || isReport(e); }, moveScalars},
          swapArguments("equal arguments swapped", isNoWorkspace),
          {"argument in another arena", argumentWhere(isNoWorkspace), anotherArena},
      });
  addRows(list, "sizes",
          {
              {"size changed", nullptr, changeSize},
              {"transfer a row shorter",
               [](const Instruction &e) { return isSend(e) && hasRows(e.send().value()); },
               sendFewerRows},
              {"transfer's bytes shorter",
               [](const Instruction &e) { return isSend(e) && e.send().region().bytes() > 64; },
               sendFewerBytes},
              {"copy a row shorter",
               [](const Instruction &e) { return isCopy(e) && hasRows(e.copy().value()); },
               copyFewerRows},
              {"load a row shorter",
               [](const Instruction &e) { return loadsInput(e) && e.load_input().rows() > 1; },
               loadFewerRows},
              {"arena shorter", nullptr, shortenArena},
              {"report of part of the block", isReport, reportPart},
          });
  using Value = bundle::Value;
  addRows(
      list, "lifetimes",
      {
          sharing(
              "activations share bytes too early",
              {Value::ACTIVATION, Value::ACTIVATION_GRADIENT, Value::INPUT_ROWS, Value::LOSS_ROWS}),
          sharing("saved block shares bytes too early", {Value::SAVED_BLOCK}),
          sharing("gradients share bytes too early", {Value::GRADIENTS, Value::REDUCED_GRADIENTS}),
          sharing("parameters share bytes", {Value::PARAMETERS}),
          sharing("optimizer state shares bytes", {Value::MOMENTS, Value::OPTIMIZER_STEP}),
          {"workspace on a live buffer", argumentOf({bundle::WORKSPACE}),
           [](Change &m) {
             return moveRegion(m, m.program(), *m.binding().mutable_region(), true);
           }},
          {"load before the last reader",
           [](const Instruction &e) { return (loadsInput(e) || isReceive(e)) && hasWaits(e); },
           loadEarly},
          {"load dropped", isLoad, dropInstruction},
          {"copy dropped", isCopy, dropInstruction},
      });
}
