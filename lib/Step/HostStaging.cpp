// Host staging: copies between a device and its host, for devices with transports that access only
// host memory.
//
//   task -> Copy to the host -> Send
//   Receive -> Copy to the device -> task
//   owner's shard -> Copy to the host -> AllGather -> Copy of the other elements to the device
//   accumulator -> Copy to the host -> ReduceScatter -> Copy to the device of its shard
//
// The halves of transfers and collectives of such a device use images in pinned memory. Copies are
// instructions on the queues between device and host, so they overlap with compute and with
// transfers of other values.

#include "PlanLowering.h"

#include <algorithm>
#include <map>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;

class HostStagingPass {
public:
  explicit HostStagingPass(PlanLowering &x)
      : x(x), transfers(static_cast<uint32_t>(x.ops.size())) {}

  void run() {
    before = lists(/*incoming=*/true);
    after = lists(/*incoming=*/false);
    for (uint32_t op = 0; op < transfers; ++op)
      if (x.ops[op].work != Work::Fixed && !x.ops[op].deviceToDevice)
        for (uint32_t h = x.ops[op].instructions.begin; h < x.ops[op].instructions.end; ++h)
          if (uint32_t d = deviceOf(h); x.plan.devices[d].hostStaged)
            stage(op, h, d);
    for (auto it = made.begin(); it != made.end();) {
      const uint32_t op = it->first.first;
      for (; it != made.end() && it->first.first == op; ++it)
        orderCopies(op, it->second);
      orderNeighbours(op);
    }
    moveTouches();
  }

private:
  struct Copies {
    std::vector<uint32_t> out, in; ///< ops
  };

  PlanLowering &x;
  const uint32_t transfers;                             ///< ops below may be transfers
  IndexLists before, after;                             ///< by op
  std::map<std::pair<uint32_t, uint32_t>, Copies> made; ///< by op and device
  struct StagingBuffer {
    uint32_t op, device, buffer;
  };
  std::vector<StagingBuffer> stagingBuffers;

  uint32_t deviceOf(uint32_t instructionIndex) const {
    return x.instructionQueues[instructionIndex] / kQueues;
  }

  IndexLists lists(bool incoming) const {
    IndexLists all;
    all.begins.assign(transfers + 1, 0);
    all.items.resize(x.edges.size());
    for (auto [from, to] : x.edges)
      ++all.begins[(incoming ? to : from) + 1];
    for (uint32_t op = 0; op < transfers; ++op)
      all.begins[op + 1] += all.begins[op];
    std::vector<uint32_t> next(all.begins.begin(), all.begins.end() - 1);
    for (auto [from, to] : x.edges)
      all.items[next[incoming ? to : from]++] = incoming ? from : to;
    return all;
  }

  // ---- Images and copies.

  uint32_t stagingBuffer(uint32_t op, uint32_t device, uint64_t bytes) {
    const uint32_t buffer =
        x.addBuffer(device, bytes, MemoryCategory::Staging, /*persistent=*/false, MemoryTier::Host);
    stagingBuffers.push_back({op, device, buffer});
    return buffer;
  }

  void copy(uint32_t op, uint32_t device, bool out, bundle::Phase phase, Region from, Region to,
            Value value, uint64_t bytes) {
    if (bytes == 0)
      return;
    const uint64_t priority = x.ops[op].priority;
    const uint32_t made = x.addOp(x.costs->load(device, bytes), 0, 0, 0);
    x.ops[made].priority = priority;
    x.addInstruction(device, out ? kReport : kLoad);
    x.describeCopy(from, to, value, phase);
    Copies &copies = this->made[{op, device}];
    (out ? copies.out : copies.in).push_back(made);
  }

  static Region inside(uint32_t buffer, uint64_t offset, uint64_t bytes) {
    return bytes ? region(buffer, offset, bytes) : Region{};
  }

  void stage(uint32_t op, uint32_t instructionIndex, uint32_t device) {
    switch (x.ops[op].work) {
    case Work::Transfer:
      return stageTransfer(op, instructionIndex, device);
    case Work::Gather:
      return stageGather(op, instructionIndex, device);
    case Work::Scatter:
      return stageReduction(op, instructionIndex, device);
    case Work::Sum:
      return stageSum(op, instructionIndex, device);
    default:
      return;
    }
  }

  void stageTransfer(uint32_t op, uint32_t instructionIndex, uint32_t device) {
    const bool sends = x.instructionQueues[instructionIndex] % kQueues == kSend;
    const auto bytes = static_cast<uint64_t>(x.ops[op].bytes);
    const uint32_t buffer = stagingBuffer(op, device, bytes);
    const Region host = inside(buffer, 0, bytes);
    const Instruction instruction = instructionOf(x, x.ops[op], instructionIndex);
    x.hostStaged[instructionIndex] = {host, {}};
    copy(op, device, sends, instruction.phase, sends ? instruction.region : host,
         sends ? host : instruction.region, instruction.value, bytes);
  }

  /// Participation of a device in a group's collective.
  struct Share {
    bool exchanged = false; ///< the devices of a group exchange it
    bool isMember = false;  ///< it reads or contributes
    Compact whole;          ///< elements that it reads or contributes
    Compact owned;
    bool inside = false; ///< `whole` contains those that it owns
    uint64_t size = 0;   ///< bytes of an element
    uint32_t group = 0;
    uint64_t bytes(int64_t count) const { return static_cast<uint64_t>(count) * size; }
    /// Returns the position of an owned run in the image.
    int64_t place(const Compact::Run &run) const {
      return inside ? whole.place(run.begin, run.end) : whole.elements() + run.place;
    }
    /// Returns the region of a run in device memory. \param shards  region of all runs \param
    /// place, first  positions of the run and of the first run there
    Region at(Region shards, const Compact::Run &run, int64_t place, int64_t first) const {
      return region(shards.arena, shards.offset + bytes(place - first), bytes(run.size()));
    }
  };
  Share shareOf(uint32_t op, uint32_t device) const {
    const Collective &collective = x.graph.collectives[x.ops[op].from];
    Share part;
    part.exchanged = collective.value.kind == bundle::Value::EXCHANGED;
    part.group = collective.value.id;
    part.size = elementBytes(collective.type);
    part.isMember = std::find(collective.members.begin(), collective.members.end(), device) !=
                    collective.members.end();
    part.whole = Compact(collective.parts, device);
    if (part.isMember && collective.parts.empty())
      part.whole.add(0, part.exchanged ? collective.shards.back().end : collective.value.end);
    part.owned = Compact(collective.shards, device);
    const Compact::Runs owned = part.owned.runs();
    part.inside = part.isMember && std::all_of(owned.begin(), owned.end(), [&](const auto &run) {
                    return part.whole.place(run.begin, run.end) >= 0;
                  });
    return part;
  }

  /// Adds an image of what a device reads or contributes, and of its shards, for
  /// `instructionIndex`. \returns a function from (position, number of elements) to a region
  auto imageOf(uint32_t op, const Share &part, uint32_t instructionIndex, uint32_t device) {
    const int64_t owned = part.owned.elements(), whole = part.whole.elements();
    const uint32_t buffer =
        stagingBuffer(op, device, part.bytes(whole + (part.inside ? 0 : owned)));
    auto at = [buffer, size = part.size](int64_t place, int64_t elements) {
      return elements ? elementRegion(buffer, place, elements, size) : Region{};
    };
    x.hostStaged[instructionIndex] = {at(0, whole),
                                      at(owned ? part.place(part.owned.runs()[0]) : 0, owned)};
    return at;
  }

  /// Stages what devices of a group exchange: out goes what the device has, all of it or its part,
  /// and in comes what the collective adds.
  void stageExchange(uint32_t op, const Share &part, uint32_t instructionIndex, uint32_t device) {
    const Instruction instruction = instructionOf(x, x.ops[op], instructionIndex);
    const bool gathers = x.ops[op].work == Work::Gather;
    const auto at = imageOf(op, part, instructionIndex, device);
    const Compact::Run own = part.owned.runs()[0];
    const Region all = at(0, part.whole.elements()), mine = at(own.begin, own.size());
    const auto block = static_cast<uint32_t>(part.bytes(own.begin) / kRegionAlignment);
    const Value result = instruction.value.next();
    Value before = result;
    before.version = gathers && isSum(op);
    if (gathers)
      copy(op, device, true, instruction.phase, instruction.to, mine, before.exchangePart(block),
           mine.bytes);
    else
      copy(op, device, true, instruction.phase, instruction.region, all, before, all.bytes);
    if (gathers)
      copy(op, device, false, instruction.phase, all, instruction.region, result, all.bytes);
    else
      copy(op, device, false, instruction.phase, mine, instruction.to, result.exchangePart(block),
           mine.bytes);
  }

  /// Whether a gather of an exchange follows the reduction of its sum: its parts are then results.
  bool isSum(uint32_t op) const {
    if (op == 0)
      return false;
    const ScheduledOp &before = x.ops[op - 1];
    return before.work == Work::Scatter &&
           x.graph.collectives[before.from].value.kind == bundle::Value::EXCHANGED;
  }

  void stageGather(uint32_t op, uint32_t instructionIndex, uint32_t device) {
    const Share part = shareOf(op, device);
    if (part.exchanged)
      return stageExchange(op, part, instructionIndex, device);
    const Instruction instruction = instructionOf(x, x.ops[op], instructionIndex);
    const Region whole = instruction.region, shard = instruction.to;
    const auto at = imageOf(op, part, instructionIndex, device);
    Value value = instruction.value;
    const bundle::Phase phase = instruction.phase;
    auto extent = [&](int64_t begin, int64_t end) {
      value.begin = begin;
      value.end = end;
      return value;
    };
    for (const Compact::Run &run : part.owned.runs())
      copy(op, device, true, phase,
           part.at(shard, run, part.place(run), part.place(part.owned.runs()[0])),
           at(part.place(run), run.size()), extent(run.begin, run.end), part.bytes(run.size()));
    for (const Compact::Run &run : part.whole.runs()) {
      auto comesIn = [&](int64_t begin, int64_t end) {
        const int64_t place = run.place + begin - run.begin;
        Region to = whole;
        to.offset += part.bytes(place);
        to.bytes = part.bytes(end - begin);
        copy(op, device, false, phase, at(place, end - begin), to, extent(begin, end), to.bytes);
      };
      int64_t end = run.begin;
      if (part.inside)
        for (const Compact::Run &own : part.owned.runs())
          if (run.begin <= own.begin && own.end <= run.end) {
            comesIn(end, own.begin);
            end = own.end;
          }
      comesIn(end, run.end);
    }
  }

  void stageReduction(uint32_t op, uint32_t instructionIndex, uint32_t device) {
    const Share part = shareOf(op, device);
    if (part.exchanged)
      return stageExchange(op, part, instructionIndex, device);
    const Instruction instruction = instructionOf(x, x.ops[op], instructionIndex);
    const Region whole = instruction.region, shard = instruction.to;
    const auto at = imageOf(op, part, instructionIndex, device);
    const bundle::Phase phase = instruction.phase;
    Value sum = instruction.value;
    const Value &term =
        x.parts[x.ops[op].subject + instructionIndex - x.ops[op].instructions.begin].term;
    for (const Compact::Run &run : part.whole.runs()) {
      Value mine = isLevel(op) ? term : Value::gradients(part.group, {});
      mine.begin = run.begin;
      mine.end = run.end;
      copy(op, device, true, phase, part.at(whole, run, run.place, 0), at(run.place, run.size()),
           mine, part.bytes(run.size()));
    }
    const GroupState &h = *x.findGroupState(device, part.group);
    const Compact::Run first = part.owned.empty() ? Compact::Run() : part.owned.runs()[0];
    auto placeOf = [&](const Compact::Run &run) {
      return isLevel(op) ? run.begin - first.begin : h.reducedPosition(run); // contiguous
    };
    sum.kind = bundle::Value::REDUCED_GRADIENTS;
    for (const Compact::Run &run : part.owned.runs()) {
      sum.begin = run.begin;
      sum.end = run.end;
      copy(op, device, false, phase, at(part.place(run), run.size()),
           part.at(shard, run, placeOf(run), placeOf(first)), sum, part.bytes(run.size()));
    }
  }

  /// Whether a reduction is a level of a tree, and not one exchange of all contributors.
  bool isLevel(uint32_t op) const {
    return x.graph.collectives[x.ops[op].from].value.kind == bundle::Value::REDUCED_GRADIENTS;
  }

  void stageSum(uint32_t op, uint32_t instructionIndex, uint32_t device) {
    const auto bytes = static_cast<uint64_t>(x.ops[op].bytes);
    const Region host = inside(stagingBuffer(op, device, bytes), 0, bytes);
    const Instruction instruction = instructionOf(x, x.ops[op], instructionIndex);
    const Region there = instruction.region;
    x.hostStaged[instructionIndex] = {host, {}};
    copy(op, device, true, instruction.phase, there, host, Value::sums(), bytes);
    copy(op, device, false, instruction.phase, host, there, Value::globalSum(), bytes);
  }

  // ---- Order.

  using Barriers = std::map<uint32_t, std::vector<uint32_t>>;
  Barriers devicesBefore, devicesAfter; ///< of ops without halves: devices of the ops that they
                                        ///< represent, on either side

  /// Visits the devices of an op. For a barrier, visits those of the ops behind it: barriers are
  /// between tasks of one device and collectives, or represent tasks without work.
  template <typename Visit>
  void eachDevice(uint32_t op, const IndexLists &beyond, Barriers &known, const Visit &visit) {
    const Span instructions = x.ops[op].instructions;
    for (uint32_t h = instructions.begin; h < instructions.end; ++h)
      visit(deviceOf(h));
    if (instructions.size() == 0)
      for (uint32_t device : ofBarrier(op, beyond, known))
        visit(device);
  }

  const std::vector<uint32_t> &ofBarrier(uint32_t op, const IndexLists &beyond, Barriers &known) {
    if (auto found = known.find(op); found != known.end())
      return found->second;
    std::vector<uint32_t> all;
    for (uint32_t other : beyond[op])
      eachDevice(other, beyond, known, [&](uint32_t device) { all.push_back(device); });
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return known[op] = std::move(all);
  }

  void orderCopies(uint32_t op, const Copies &copies) {
    for (uint32_t out : copies.out)
      x.addEdge(out, op);
    for (uint32_t in : copies.in)
      x.addEdge(op, in);
  }

  /// A device's predecessors of the transfer precede its copies to the host; its successors follow
  /// its copies from the host.
  void orderNeighbours(uint32_t op) {
    for (uint32_t earlier : before[op])
      eachDevice(earlier, before, devicesBefore, [&](uint32_t device) {
        const auto here = made.find({op, device});
        if (here == made.end() || here->second.out.empty())
          return;
        const auto staged = made.find({earlier, device});
        for (uint32_t out : here->second.out)
          if (staged == made.end() || staged->second.in.empty())
            x.addEdge(earlier, out);
          else
            for (uint32_t in : staged->second.in)
              x.addEdge(in, out);
      });
    for (uint32_t later : after[op])
      eachDevice(later, after, devicesAfter, [&](uint32_t device) {
        if (const auto here = made.find({op, device}); here != made.end())
          for (uint32_t in : here->second.in)
            x.addEdge(in, later);
      });
  }

  /// Copies replace the transfer as accesses of device memory. The transfer and the copies access
  /// the image.
  void moveTouches() {
    const size_t count = x.accesses.size();
    for (size_t i = 0; i < count; ++i) {
      const auto [op, buffer, side] = x.accesses[i];
      auto staged = made.find({op, x.buffers[buffer].device});
      if (staged == made.end())
        continue;
      std::vector<uint32_t> all;
      if (side != PlanLowering::AccessSide::After)
        all = staged->second.out;
      if (side != PlanLowering::AccessSide::Before)
        all.insert(all.end(), staged->second.in.begin(), staged->second.in.end());
      x.accesses[i].op = all.front();
      for (size_t k = 1; k < all.size(); ++k)
        x.accesses.push_back({all[k], buffer, side});
    }
    for (const StagingBuffer &stagingBuffer : stagingBuffers) {
      x.addAccess(stagingBuffer.op, stagingBuffer.buffer);
      const Copies &copies = made[{stagingBuffer.op, stagingBuffer.device}];
      for (const auto *list : {&copies.out, &copies.in})
        for (uint32_t copy : *list)
          x.addAccess(copy, stagingBuffer.buffer);
    }
  }
};

} // namespace

void zorse::step::insertHostStaging(PlanLowering &x) {
  if (std::any_of(x.plan.devices.begin(), x.plan.devices.end(),
                  [](const PlanDevice &device) { return device.hostStaged; }))
    HostStagingPass(x).run();
}
