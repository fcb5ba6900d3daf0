// Conflicting accesses of a device must be ordered by its own queues and waits: the order of other devices is theirs to change.
//
// Every entry of two steps has a clock: for each queue, how many of its entries have certainly finished when this one starts. Bytes remember
// their last write and, per queue, their last read, as places in those queues; an access compares them with its entry's clock, and looks only at
// these, because all earlier ones are ordered before them.
#include "Device.h"

using namespace zorse;
using namespace zorse::verify;

namespace {

struct Access {
  int64_t begin, end;
  uint32_t arena;
  bool write;
  Intervals intervals;
};

void add(std::vector<Access> &list, const bundle::Region &region, bool write, int64_t from = 0, int64_t to = kMaxSize) {
  if (!region.bytes()) // absent: its offset means nothing
    return;
  int64_t begin = int64_t(region.offset()) + from, end = int64_t(region.offset()) + std::min(int64_t(region.bytes()), to);
  if (begin < end)
    list.push_back({begin, end, region.arena(), write, {}});
}

/// What a slot touches. Scalars and sums share a block: each user touches only its part of it.
void addSlot(std::vector<Access> &list, const bundle::ModelSummary &summary, const bundle::Call &call, const bundle::Slot &slot, const bundle::Region &region) {
  bool write = slot.mode() != bundle::READ || slot.kind() == bundle::WORKSPACE;
  if (slot.kind() == bundle::SCALARS) {
    add(list, region, false, 0, Block::decidedBegin);
    if (write || call.unit() < 0)
      add(list, region, write, Block::decidedBegin, Block::decidedEnd);
    add(list, region, false, Block::decidedEnd, Block::scalarsEnd);
  } else if (slot.kind() == bundle::SUMS_SLOT && write) {
    if (call.body() != summary.sum_loss_body())
      add(list, region, true, 0, Block::normBytes);
    if (call.body() != summary.norm_body())
      add(list, region, true, Block::normBytes, Block::sumsBytes);
  } else {
    add(list, region, write);
  }
}

void addTransfer(std::vector<Access> &list, const bundle::Entry &entry, uint32_t device) {
  switch (entry.what_case()) {
  case bundle::Entry::kCopy:
    add(list, entry.copy().from(), false);
    add(list, entry.copy().to(), true);
    break;
  case bundle::Entry::kSend: add(list, entry.send().region(), false); break;
  case bundle::Entry::kReceive: add(list, entry.receive().region(), true); break;
  case bundle::Entry::kLoadInput: add(list, entry.load_input().region(), true); break;
  case bundle::Entry::kLoadScalars: add(list, entry.load_scalars().region(), true); break;
  case bundle::Entry::kAllGather: {
    // In place: an owner's own shard inside `full` is read, the rest written.
    const auto &full = entry.all_gather().full(), &shard = entry.all_gather().shard();
    add(list, shard, false);
    bool inside = full.bytes() && shard.bytes() && full.arena() == shard.arena() && full.offset() <= shard.offset() && shard.offset() + shard.bytes() <= full.offset() + full.bytes();
    if (inside) {
      add(list, full, true, 0, int64_t(shard.offset() - full.offset()));
      add(list, full, true, int64_t(shard.offset() + shard.bytes() - full.offset()));
    } else {
      add(list, full, true);
    }
    break;
  }
  case bundle::Entry::kReduceScatter:
    add(list, entry.reduce_scatter().full(), false);
    add(list, entry.reduce_scatter().shard(), true);
    break;
  case bundle::Entry::kAllReduce: add(list, entry.all_reduce().region(), true); break;
  case bundle::Entry::kBroadcast: add(list, entry.broadcast().region(), entry.broadcast().root() != device); break;
  case bundle::Entry::kReport: add(list, entry.report().region(), false); break;
  default: break;
  }
}

/// What has touched a piece of an arena: the last write, and per queue the last read since. Places count from 1 through both steps; 0: nothing.
template <unsigned Queues> struct Touches {
  uint32_t writerQueue = 0, writer = 0;
  uint32_t readers[Queues] = {};
};

class RaceCheck {
public:
  RaceCheck(Device &device, const std::vector<std::vector<uint32_t>> &queueEntries, const std::vector<uint32_t> &position)
      : device(device), model(device.getModel()), program(device.getProgram()), queueEntries(queueEntries), position(position), queues(uint32_t(program.queues_size())),
        entries(uint32_t(program.entries_size())) {}

  void run() {
    collectAccesses();
    collectPlaces();
    computeClocks();
    queues <= 8 ? replay<8>() : replay<kMaxQueues>();
  }

private:
  Device &device;
  const Model &model;
  const bundle::Program &program;
  const std::vector<std::vector<uint32_t>> &queueEntries;
  const std::vector<uint32_t> &position;
  const uint32_t queues, entries;
  std::vector<Access> accesses;        ///< of all entries; neighbours of one call are joined
  std::vector<uint32_t> firstAccess;   ///< per entry, and the end
  std::vector<uint32_t> clocks;        ///< per entry of both steps and queue
  size_t firstCallEnd = 0;             ///< of the accesses of the first call of the entry being collected
  uint32_t reportedFor = ~0u;          ///< whose conflicts `reported` has: (queue, place) of the earlier entries
  std::vector<std::pair<uint32_t, uint32_t>> reported;

  const bundle::Entry &entryAt(uint32_t event) const { return program.entries(int(event < entries ? event : event - entries)); }

  /// What each entry touches; two slots of one call must not overlap where one is written.
  void collectAccesses() {
    firstAccess.reserve(entries + 1);
    for (const auto &entry : program.entries()) {
      firstAccess.push_back(uint32_t(accesses.size()));
      if (entry.what_case() == bundle::Entry::kCompute) {
        for (const auto &call : entry.compute().calls())
          collectCall(entry, call, firstAccess.back());
        continue;
      }
      size_t start = accesses.size();
      addTransfer(accesses, entry, program.device());
      const Access *a = accesses.data() + start;
      if (entry.what_case() == bundle::Entry::kCopy && accesses.size() == start + 2 && a[0].arena == a[1].arena && a[0].begin < a[1].end && a[1].begin < a[0].end)
        device.report(Code::Alias, entry.id(), device.where(entry) + ": source and target overlap");
    }
    firstAccess.push_back(uint32_t(accesses.size()));
  }

  void collectCall(const bundle::Entry &entry, const bundle::Call &call, size_t entryStart) {
    const size_t start = accesses.size();
    const auto &body = model.bodies.bodies(int(call.body()));
    for (int s = 0; s < call.slots_size(); ++s)
      addSlot(accesses, model.summary, call, body.slots(s), call.slots(s).region());
    auto earlier = [](const Access &a, const Access &b) { return a.arena != b.arena ? a.arena < b.arena : a.begin < b.begin; };
    if (!std::is_sorted(accesses.begin() + start, accesses.end(), earlier))
      std::sort(accesses.begin() + start, accesses.end(), earlier);
    int64_t end = 0, writtenEnd = 0;
    size_t kept = start;
    for (size_t i = start; i < accesses.size(); ++i) {
      const Access access = accesses[i];
      addPlaces(access);
      if (i == start || access.arena != accesses[kept - 1].arena)
        end = writtenEnd = 0;
      if (access.begin < (access.write ? end : writtenEnd))
        device.report(Code::Alias, entry.id(), device.where(entry) + ": two slots of '" + body.name() + "' overlap at byte " + std::to_string(access.begin) + " of arena " +
                                                   std::to_string(access.arena) + " and one is written");
      end = std::max(end, access.end);
      if (access.write)
        writtenEnd = std::max(writtenEnd, access.end);
      Access &last = accesses[kept - (kept > start)];
      if (kept > start && last.arena == access.arena && last.write == access.write && access.begin <= last.end)
        last.end = std::max(last.end, access.end);
      else
        accesses[kept++] = access;
    }
    accesses.resize(kept);
    if (start == entryStart) {
      firstCallEnd = kept;
      return;
    }
    // Calls of an entry share scalars and workspace: what the first one touches in the same way need not be looked at again.
    auto sameBytes = [](const Access &a, const Access &b) { return a.arena == b.arena && a.begin == b.begin && a.end == b.end && a.write == b.write; };
    auto before = [](const Access &a, const Access &b) { return a.arena != b.arena ? a.arena < b.arena : a.begin < b.begin; };
    size_t fresh = start;
    for (size_t i = start, first = entryStart; i < kept; ++i) {
      while (first < firstCallEnd && before(accesses[first], accesses[i]))
        ++first;
      if (first == firstCallEnd || !sameBytes(accesses[first], accesses[i]))
        accesses[fresh++] = accesses[i];
    }
    accesses.resize(fresh);
  }

  void addPlaces(const Access &access) {
    if (access.write)
      device.getPlaces().add(access.arena, access.begin, access.end);
  }

  /// Besides those of calls, which are added before neighbours are joined.
  void collectPlaces() {
    Places &places = device.getPlaces();
    for (uint32_t e = 0; e < entries; ++e)
      if (!program.entries(int(e)).has_compute())
        for (uint32_t a = firstAccess[e]; a < firstAccess[e + 1]; ++a)
          addPlaces(accesses[a]);
    auto part = [&](const bundle::Region &region, int64_t begin, int64_t end) {
      if (begin < end)
        places.add(region.arena(), int64_t(region.offset()) + begin, int64_t(region.offset()) + end);
    };
    for (const auto &state : program.state())
      part(state.region(), 0, int64_t(state.region().bytes()));
    for (const auto &entry : program.entries())
      if (entry.has_load_scalars()) { // its parts are written apart
        part(entry.load_scalars().region(), 0, Block::scalarsEnd);
        part(entry.load_scalars().region(), Block::scalarsEnd, Block::scalarsEnd + Block::normBytes);
        part(entry.load_scalars().region(), Block::scalarsEnd + Block::normBytes, Block::sumsEnd);
        part(entry.load_scalars().region(), Block::sumsEnd, Block::bytes);
      } else if (entry.has_all_gather()) { // written around the own shard, replayed as a whole
        part(entry.all_gather().full(), 0, int64_t(entry.all_gather().full().bytes()));
      }
    places.finish();
    for (Access &access : accesses)
      access.intervals = places.of(access.arena, access.begin, access.end);
  }

  void computeClocks() {
    clocks.resize(size_t(2) * entries * queues);
    for (uint32_t event = 0; event < 2 * entries; ++event) {
      const auto &entry = entryAt(event);
      const uint32_t step = event >= entries, queue = entry.queue();
      uint32_t *clock = &clocks[size_t(event) * queues];
      auto join = [&](uint32_t other) {
        const uint32_t *known = &clocks[size_t(other) * queues];
        for (uint32_t q = 0; q < queues; ++q)
          clock[q] = std::max(clock[q], known[q]);
      };
      const uint32_t place = position[event - step * entries];
      if (place)
        join(step * entries + queueEntries[queue][place - 1]);
      else if (step)
        join(queueEntries[queue].back());
      for (const auto &wait : entry.waits())
        if (!wait.previous_step() || step)
          join((wait.previous_step() ? step - 1 : step) * entries + queueEntries[wait.queue()][wait.position()]);
      clock[queue] = step * uint32_t(queueEntries[queue].size()) + place + 1;
    }
  }

  void conflict(uint32_t event, const Access &access, uint32_t earlierQueue, uint32_t earlierPlace, bool earlierWrites) {
    // One finding for two entries, however many bytes they share.
    if (event != reportedFor)
      reported.clear();
    reportedFor = event;
    if (std::find(reported.begin(), reported.end(), std::make_pair(earlierQueue, earlierPlace)) != reported.end())
      return;
    reported.push_back({earlierQueue, earlierPlace});
    const auto &entry = entryAt(event);
    const auto &list = queueEntries[earlierQueue];
    const uint32_t earlierStep = (earlierPlace - 1) / uint32_t(list.size());
    const auto &other = program.entries(int(list[(earlierPlace - 1) % list.size()]));
    device.report(Code::Race, entry.id(),
                  device.where(entry) + (access.write ? " writes" : " reads") + " bytes " + std::to_string(access.begin) + "-" + std::to_string(access.end) + " of arena " +
                      std::to_string(access.arena) + " while entry " + std::to_string(other.id()) + ", " + device.describe(other) +
                      (earlierWrites ? ", may still write them" : ", may still read them") + (earlierStep != (event >= entries) ? " in the step before" : "") +
                      ": expects a wait, or the same queue");
  }

  /// Entries of one step that race do so in every step: only the second is compared, with itself and with the first. An entry never conflicts with
  /// itself, its clock includes it.
  template <unsigned Queues> void replay() {
    std::vector<Pieces<Touches<Queues>>> touches;
    for (int a = 0; a < program.arenas_size(); ++a)
      touches.emplace_back(device.getPlaces().count(uint32_t(a)), Touches<Queues>());
    for (uint32_t event = 0; event < 2 * entries && !device.full(); ++event) {
      const uint32_t index = event < entries ? event : event - entries, queue = program.entries(int(index)).queue();
      const bool compares = event >= entries;
      const uint32_t *clock = &clocks[size_t(event) * queues], own = clock[queue];
      Touches<Queues> mine;
      mine.writerQueue = queue;
      mine.writer = own;
      for (uint32_t a = firstAccess[index]; a < firstAccess[index + 1]; ++a) {
        const Access &access = accesses[a];
        auto follow = [&](const Touches<Queues> &found) {
          if (found.writer > clock[found.writerQueue])
            conflict(event, access, found.writerQueue, found.writer, true);
          for (uint32_t q = 0; access.write && q < queues; ++q)
            if (found.readers[q] > clock[q])
              conflict(event, access, q, found.readers[q], false);
        };
        if (access.write)
          touches[access.arena].replace(access.intervals, mine, [&](const Touches<Queues> &found) {
            if (compares)
              follow(found);
          });
        else
          touches[access.arena].change(access.intervals, [&](Touches<Queues> &found) {
            if (compares)
              follow(found);
            found.readers[queue] = own;
          });
      }
    }
  }
};

} // namespace

void Device::checkRaces() { RaceCheck(*this, queueEntries, position).run(); }
