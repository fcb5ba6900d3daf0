// Detects races with vector clocks. The device's own queues and waits must order conflicting
// accesses; the order on other devices may change.
//
// Every instruction of two steps has a clock: for each queue, the number of its instructions that
// have certainly finished when this instruction starts. For every interval of bytes, the check
// stores the last write and, per queue, the last read, as positions in the queues. An access
// compares these positions with its instruction's clock. Earlier accesses need no comparison,
// because they are ordered before the stored ones.
#include "Device.h"

using namespace zorse;
using namespace zorse::verify;

namespace {

/// Bytes that an instruction accesses, by the number of their place.
struct Touch {
  int64_t begin; ///< address, the sort key
  uint32_t place;
  bool write;
};

/// The accesses of all instructions, in program order.
class Touches {
public:
  explicit Touches(Device &device)
      : model(device.getModel()), summary(model.summary), device(device.getProgram().device()),
        addresses(device.getAddresses()) {}
  std::vector<Touch> list;

  void addArgument(const bundle::Call &call, const bundle::FunctionArgument &argument,
                   uint32_t place) {
    if (place == AddressIntervals::kAbsent)
      return;
    const bool write = argument.mode() != bundle::READ || argument.kind() == bundle::WORKSPACE;
    if (argument.kind() == bundle::SCALARS || argument.kind() == bundle::LOCAL_METRICS)
      addBlock(call, argument, place, write);
    else
      list.push_back({addresses[place].begin, place, write});
  }

  void addTransfer(const bundle::Instruction &instruction) {
    switch (instruction.what_case()) {
    case bundle::Instruction::kCopy:
      add(instruction.copy().from(), false);
      add(instruction.copy().to(), true);
      break;
    case bundle::Instruction::kSend:
      add(instruction.send().region(), false);
      break;
    case bundle::Instruction::kReceive:
      add(instruction.receive().region(), true);
      break;
    case bundle::Instruction::kLoadInput:
      add(instruction.load_input().region(), true);
      break;
    case bundle::Instruction::kLoadScalars:
      add(instruction.load_scalars().region(), true);
      break;
    case bundle::Instruction::kAllGather: {
      // In place: an owner's own shards inside `full` are read, the rest written.
      int64_t end = 0;
      addShards(*bundle::collectiveOf(instruction), false, [&](int64_t from, int64_t to) {
        add(instruction.all_gather().full(), true, end, from);
        end = to;
      });
      add(instruction.all_gather().full(), true, end);
      break;
    }
    case bundle::Instruction::kReduceScatter:
      add(instruction.reduce_scatter().full(), false);
      addShards(*bundle::collectiveOf(instruction), true, [](int64_t, int64_t) {});
      add(instruction.reduce_scatter().receive_buffer(), true);
      add(instruction.reduce_scatter().send_buffer(), true);
      break;
    case bundle::Instruction::kAllReduce:
      add(instruction.all_reduce().region(), true);
      add(instruction.all_reduce().receive_buffer(), true);
      break;
    case bundle::Instruction::kReadMetrics:
      add(instruction.read_metrics().region(), false);
      break;
    default:
      break;
    }
  }

  /// Adds this device's shards of a gather or reduction. Calls f(from, to) with the bytes of each
  /// shard inside `full`.
  template <typename F> void addShards(const bundle::Collective &collective, bool write, F f) {
    const Held held = heldBy(device, collective);
    const int64_t size = elementSize(collective.type),
                  first = held.inside
                              ? int64_t(collective.shard.offset() - collective.full.offset())
                              : 0;
    for (const Compact::Run &run : held.shards.runs()) {
      const int64_t from = first + run.place * size, to = from + (run.end - run.begin) * size;
      add(held.inside ? collective.full : collective.shard, write, from, to);
      if (held.inside)
        f(from, to);
    }
  }

  /// Adds bytes [from, to) of a region, clipped to its size.
  void add(const bundle::Region &region, bool write, int64_t from = 0, int64_t to = kMaxSize) {
    if (!region.bytes()) // absent: its offset is undefined
      return;
    const int64_t begin = addressOf(region.arena(), region.offset());
    to = std::min(int64_t(region.bytes()), to);
    if (from < to)
      list.push_back({begin + from, addresses.number(begin + from, begin + to), write});
  }

private:
  const Model &model;
  const bundle::ModelSummary &summary;
  const uint32_t device;
  AddressIntervals &addresses;
  uint32_t lastBlock = AddressIntervals::kAbsent; ///< block of the parts in `scalars`; a device has
                                                  ///< one block
  Touch scalars[3];

  /// Scalars and sums share a block: each call accesses only its part of it.
  void addBlock(const bundle::Call &call, const bundle::FunctionArgument &argument, uint32_t place,
                bool write) {
    auto part = [&](int64_t from, int64_t to) {
      const int64_t begin = addresses[place].begin,
                    end = std::min(begin + to, addresses[place].end);
      return Touch{begin + from,
                   begin + from < end ? addresses.number(begin + from, end)
                                      : AddressIntervals::kAbsent,
                   false};
    };
    auto touch = [&](Touch part, bool writes) {
      part.write = writes;
      if (part.place != AddressIntervals::kAbsent)
        list.push_back(part);
    };
    if (argument.kind() == bundle::LOCAL_METRICS) {
      if (!write)
        return list.push_back({addresses[place].begin, place, false});
      if (call.function() != summary.sum_loss_function())
        touch(part(0, Block::normBytes), true);
      if (call.function() != summary.norm_function())
        touch(part(Block::normBytes, Block::sumsBytes), true);
      return;
    }
    if (place != lastBlock) {
      scalars[0] = part(0, Block::decidedBegin);
      scalars[1] = part(Block::decidedBegin, Block::decidedEnd);
      scalars[2] = part(Block::seedsBegin, Block::scalarsEnd);
      lastBlock = place;
    }
    touch(scalars[0], false);
    const bool scales = model.isScaling(call.unit(), call.function());
    if ((write || call.unit() < 0) && !scales)
      touch(scalars[1], write);
    touch(scalars[2], scales);
  }
};

/// Bytes that an instruction accesses. Adjacent bytes that one call accesses in the same way are
/// joined.
struct Access {
  int64_t begin, end; ///< addresses
  Intervals intervals;
  bool write;
};

/// The last write of an interval and the last read since, per queue. Positions count from 1 through
/// both steps; 0: none.
template <unsigned Queues> struct LastAccess {
  uint32_t writerQueue = 0, writer = 0;
  uint32_t readers[Queues] = {};
};

class RaceCheck {
public:
  RaceCheck(Device &device, const std::vector<std::vector<uint32_t>> &queueInstructions,
            const std::vector<uint32_t> &position)
      : device(device), model(device.getModel()), program(device.getProgram()),
        queueInstructions(queueInstructions), position(position),
        queues(uint32_t(program.queues_size())),
        instructions(uint32_t(program.instructions_size())), bound(device.getBound()),
        touches(device) {}

  void run() {
    collectTouches();
    collectPlaces();
    collectAccesses();
    computeClocks();
    queues <= 8 ? replay<8>() : replay<kMaxQueues>();
  }

private:
  Device &device;
  const Model &model;
  const bundle::Program &program;
  const std::vector<std::vector<uint32_t>> &queueInstructions;
  const std::vector<uint32_t> &position;
  const uint32_t queues, instructions;
  const std::vector<uint32_t> &bound;
  Touches touches;
  std::vector<uint32_t> ends;         ///< end indices in `touches`, by call and by instruction
  std::unique_ptr<Access[]> accesses; ///< accesses of all instructions
  std::vector<uint32_t> firstAccess;  ///< by instruction, with an end element
  std::vector<uint32_t> clocks;       ///< by instruction of both steps and queue
  uint32_t reportedFor = ~0u; ///< the instruction of the conflicts in `reported`, which are (queue,
                              ///< position) of earlier instructions
  std::vector<std::pair<uint32_t, uint32_t>> reported;

  const bundle::Instruction &instructionAt(uint32_t event) const {
    return program.instructions(int(event < instructions ? event : event - instructions));
  }

  /// Collects the bytes that the program accesses.
  void collectTouches() {
    size_t argument = 0;
    touches.list.reserve(bound.size() * 2);
    for (int e = 0; e < program.instructions_size(); ++e) {
      const auto &instruction = program.instructions(e);
      for (const bundle::Call &call : instruction.compute().calls()) {
        const auto &arguments = model.functions.functions(int(call.function())).arguments();
        for (const auto &of : arguments)
          touches.addArgument(call, of, bound[argument++]);
        ends.push_back(uint32_t(touches.list.size()));
      }
      touches.addTransfer(instruction);
      ends.push_back(uint32_t(touches.list.size()));
    }
  }

  /// Registers all bytes that are written, by the device or by the replay of values.
  void collectPlaces() {
    Touches others(device);
    for (const auto &instruction : program.instructions())
      if (instruction.has_load_scalars()) { // its parts are written separately
        const auto &region = instruction.load_scalars().region();
        others.add(region, true, 0, Block::scalarsEnd);
        others.add(region, true, Block::scalarsEnd, Block::scalarsEnd + Block::normBytes);
        others.add(region, true, Block::scalarsEnd + Block::normBytes, Block::sumsEnd);
        others.add(region, true, Block::sumsEnd, Block::bytes);
      } else if (instruction.has_all_gather()) { // writes the bytes outside its own shards;
                                                 // replayed run by run
        const Held held = heldBy(program.device(), *bundle::collectiveOf(instruction));
        const int64_t size = elementSize(instruction.all_gather().type());
        for (const Compact::Run &run : held.whole.runs())
          others.add(instruction.all_gather().full(), true, run.place * size,
                     (run.place + run.end - run.begin) * size);
      } else if (instruction.has_copy()) { // accumulators are replayed in parts with separate
                                           // contributions
        const auto &copy = instruction.copy();
        if (copy.value().kind() == bundle::Value::GRADIENTS &&
            copy.value().id() < uint32_t(model.summary.groups_size())) {
          const int64_t size = model.groupElementSize(copy.value().id()),
                        first = copy.value().begin();
          model.forPieces(copy.value().id(), first, copy.value().end(),
                          [&](int64_t begin, int64_t end, uint32_t) {
                            others.add(copy.to(), true, (begin - first) * size,
                                       (end - first) * size);
                          });
        } else if (copy.value().kind() == bundle::Value::LOCAL_METRICS) {
          others.add(copy.to(), true, 0, Block::normBytes);
          others.add(copy.to(), true, Block::normBytes, Block::sumsBytes);
        } else if (copy.value().kind() == bundle::Value::STEP_SCALARS) {
          others.add(copy.to(), true, 0, Block::decidedBegin);
          others.add(copy.to(), true, Block::decidedBegin, Block::decidedEnd);
          others.add(copy.to(), true, Block::seedsBegin, Block::scalarsEnd);
        }
      }
    if (model.hasParts())
      collectPartialGradients(others);
    for (const auto &state : program.state())
      others.add(state.region(), true);
    AddressIntervals &addresses = device.getAddresses();
    for (const auto *list : {&touches.list, &others.list})
      for (const Touch &touch : *list)
        if (touch.write)
          addresses.addWrite(touch.place);
    addresses.finish(uint32_t(program.arenas_size()));
  }

  /// Adds the runs of gradients of which a device has a part: they are replayed separately.
  void collectPartialGradients(Touches &others) const {
    for (const auto &instruction : program.instructions())
      for (const bundle::Call &call : instruction.compute().calls()) {
        if (call.unit() < 0)
          continue;
        const auto &unit = model.unitOf(program.device(), uint32_t(call.unit()));
        const auto &function = model.functions.functions(int(call.function()));
        const bundle::ArgumentBindings bindings(program, call);
        for (int s = 0; s < function.arguments_size() && !unit.parts().empty(); ++s)
          if (const auto &argument = function.arguments(s);
              argument.kind() == bundle::PARAMETER_GRADIENT &&
              bundle::partOf(unit, argument.index())) {
            const Compact elements = bundle::parameterRuns(model.summary, unit, argument.index());
            const int64_t size = elementSize(argument.type());
            for (const Compact::Run &run : elements.runs())
              others.add(bindings[s].region, true, run.place * size,
                         (run.place + run.size()) * size);
          }
      }
  }

  /// Computes the accesses of each instruction. Two arguments of one call must not overlap if one
  /// is written.
  void collectAccesses() {
    const AddressIntervals &addresses = device.getAddresses();
    accesses.reset(new Access[touches.list.size()]);
    firstAccess.reserve(instructions + 1);
    Access *next = accesses.get();
    Touch *touch = touches.list.data();
    const uint32_t *end = ends.data();
    for (int e = 0; e < program.instructions_size(); ++e) {
      const auto &instruction = program.instructions(e);
      Access *const first = next, *firstCallEnd = nullptr;
      firstAccess.push_back(uint32_t(first - accesses.get()));
      for (const bundle::Call &call : instruction.compute().calls()) {
        Touch *const last = touches.list.data() + *end++;
        Access *const callEnd = collectCall(
            instruction, model.functions.functions(int(call.function())), touch, last, next);
        next = firstCallEnd ? withoutRepeated(first, firstCallEnd, next, callEnd) : callEnd;
        firstCallEnd = firstCallEnd ? firstCallEnd : callEnd;
        touch = last;
      }
      for (Touch *const last = touches.list.data() + *end++; touch < last; ++touch) {
        const IntervalRange &range = addresses[touch->place];
        *next++ = {range.begin, range.end, range.intervals, touch->write};
      }
      if (instruction.what_case() == bundle::Instruction::kCopy && next == first + 2 &&
          first[0].begin < first[1].end && first[1].begin < first[0].end)
        device.report(Code::Alias, instruction.id(),
                      device.where(instruction) + ": source and target overlap");
    }
    firstAccess.push_back(uint32_t(next - accesses.get()));
  }

  /// Writes a call's accesses to `next` in the order of addresses and returns their end.
  Access *collectCall(const bundle::Instruction &instruction,
                      const bundle::CompiledFunction &function, Touch *touch, Touch *const last,
                      Access *next) {
    const Access *const start = next;
    const AddressIntervals &addresses = device.getAddresses();
    std::sort(touch, last, [](const Touch &a, const Touch &b) { return a.begin < b.begin; });
    int64_t end = 0, writtenEnd = 0;
    for (; touch < last; ++touch) {
      const IntervalRange &range = addresses[touch->place];
      const bool write = touch->write;
      if (range.begin < (write ? end : writtenEnd))
        device.report(Code::Alias, instruction.id(),
                      device.where(instruction) + ": two arguments of '" + function.name() +
                          "' overlap at byte " + std::to_string(offsetOf(range.begin)) +
                          " of arena " + std::to_string(arenaOf(range.begin)) +
                          " and one is written");
      end = std::max(end, range.end);
      if (write)
        writtenEnd = std::max(writtenEnd, range.end);
      if (next > start && next[-1].write == write && range.begin <= next[-1].end) {
        next[-1].end = std::max(next[-1].end, range.end);
        next[-1].intervals.end = std::max(next[-1].intervals.end, range.intervals.end);
      } else {
        *next++ = {range.begin, range.end, range.intervals, write};
      }
    }
    return next;
  }

  /// Removes repeated accesses from [begin, end) of another call of the instruction, and returns
  /// the new end. Calls of an instruction share scalars and workspace; accesses that the first call
  /// makes in the same way need no second check.
  static Access *withoutRepeated(const Access *first, const Access *firstEnd, Access *begin,
                                 Access *end) {
    Access *kept = begin;
    for (const Access *access = begin; access < end; ++access) {
      while (first < firstEnd && first->begin < access->begin)
        ++first;
      if (first == firstEnd || first->begin != access->begin || first->end != access->end ||
          first->write != access->write)
        *kept++ = *access;
    }
    return kept;
  }

  void computeClocks() {
    clocks.resize(size_t(2) * instructions * queues);
    for (uint32_t event = 0; event < 2 * instructions; ++event) {
      const auto &instruction = instructionAt(event);
      const uint32_t step = event >= instructions, queue = instruction.queue();
      uint32_t *clock = &clocks[size_t(event) * queues];
      auto join = [&](uint32_t other) {
        const uint32_t *known = &clocks[size_t(other) * queues];
        for (uint32_t q = 0; q < queues; ++q)
          clock[q] = std::max(clock[q], known[q]);
      };
      const uint32_t place = position[event - step * instructions];
      if (place)
        join(step * instructions + queueInstructions[queue][place - 1]);
      else if (step)
        join(queueInstructions[queue].back());
      for (const auto &wait : instruction.waits())
        if (!wait.previous_step() || step)
          join((wait.previous_step() ? step - 1 : step) * instructions +
               queueInstructions[wait.queue()][wait.position()]);
      clock[queue] = step * uint32_t(queueInstructions[queue].size()) + place + 1;
    }
  }

  void conflict(uint32_t event, const Access &access, uint32_t earlierQueue, uint32_t earlierPlace,
                bool earlierWrites) {
    // Two instructions have one finding, independent of the number of common bytes.
    if (event != reportedFor)
      reported.clear();
    reportedFor = event;
    if (std::find(reported.begin(), reported.end(), std::make_pair(earlierQueue, earlierPlace)) !=
        reported.end())
      return;
    reported.push_back({earlierQueue, earlierPlace});
    const auto &instruction = instructionAt(event);
    const auto &list = queueInstructions[earlierQueue];
    const uint32_t earlierStep = (earlierPlace - 1) / uint32_t(list.size());
    const auto &other = program.instructions(int(list[(earlierPlace - 1) % list.size()]));
    device.report(Code::Race, instruction.id(),
                  device.where(instruction) + (access.write ? " writes" : " reads") + " bytes " +
                      std::to_string(offsetOf(access.begin)) + "-" +
                      std::to_string(offsetOf(access.end)) + " of arena " +
                      std::to_string(arenaOf(access.begin)) + " while instruction " +
                      std::to_string(other.id()) + ", " + device.describe(other) +
                      (earlierWrites ? ", may still write them" : ", may still read them") +
                      (earlierStep != (event >= instructions) ? " in the step before" : "") +
                      ": expects a wait, or the same queue");
  }

  /// Instructions of one step that race do so in every step. Only the second step is therefore
  /// compared, with itself and with the first. An instruction never conflicts with itself, because
  /// its clock includes it.
  template <unsigned Queues> void replay() {
    std::vector<LastAccess<Queues>> memory(device.getAddresses().count());
    for (uint32_t event = 0; event < 2 * instructions && !device.full(); ++event) {
      const uint32_t index = event < instructions ? event : event - instructions,
                     queue = program.instructions(int(index)).queue();
      const bool compares = event >= instructions;
      const uint32_t *clock = &clocks[size_t(event) * queues], own = clock[queue];
      LastAccess<Queues> mine;
      mine.writerQueue = queue;
      mine.writer = own;
      for (const Access *it = accesses.get() + firstAccess[index],
                        *end = accesses.get() + firstAccess[index + 1];
           it < end; ++it) {
        const Access &access = *it;
        auto follow = [&](const LastAccess<Queues> &found) {
          if (found.writer > clock[found.writerQueue])
            conflict(event, access, found.writerQueue, found.writer, true);
          for (uint32_t q = 0; access.write && q < queues; ++q)
            if (found.readers[q] > clock[q])
              conflict(event, access, q, found.readers[q], false);
        };
        for (uint32_t i = access.intervals.begin; i < access.intervals.end; ++i) {
          if (compares)
            follow(memory[i]);
          if (access.write)
            memory[i] = mine;
          else
            memory[i].readers[queue] = own;
        }
      }
    }
  }
};

} // namespace

void Device::checkRaces() { RaceCheck(*this, queueInstructions, position).run(); }
