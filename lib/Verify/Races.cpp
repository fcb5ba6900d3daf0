// Conflicting accesses of a device must be ordered by its own queues and waits: the order of other devices is theirs to change.
//
// Every entry of two steps has a clock: for each queue, how many of its entries have certainly finished when this one starts. Bytes remember
// their last write and, per queue, their last read; an access looks only at these, because all earlier ones are ordered before them.
#include "Device.h"
#include "IntervalMap.h"

using namespace zorse;
using namespace zorse::verify;

namespace {

struct Access {
  uint32_t arena;
  int64_t begin, end;
  bool write;
};

void add(std::vector<Access> &list, const bundle::Region &region, bool write, int64_t from = 0, int64_t to = kMaxSize) {
  if (!region.bytes()) // absent: its offset means nothing
    return;
  int64_t begin = int64_t(region.offset()) + from, end = int64_t(region.offset()) + std::min(int64_t(region.bytes()), to);
  if (begin < end)
    list.push_back({region.arena(), begin, end, write});
}

/// What a slot touches. Scalars and sums share a block: each user touches only its part of it.
void addSlot(std::vector<Access> &list, const bundle::ModelSummary &summary, const bundle::Call &call, const bundle::Slot &slot, const bundle::Region &region) {
  bool write = slot.mode() != bundle::READ || slot.kind() == bundle::WORKSPACE;
  if (slot.kind() == bundle::SCALARS) {
    add(list, region, false, 0, Block::decidedBegin);
    if (write || call.unit() < 0)
      add(list, region, write, Block::decidedBegin, Block::decidedEnd);
    add(list, region, false, Block::decidedEnd, Block::scalarsEnd);
  } else if (slot.kind() == bundle::SUMS_SLOT && call.body() == summary.norm_body() && write) {
    add(list, region, true, 0, Block::normBytes);
  } else if (slot.kind() == bundle::SUMS_SLOT && call.body() == summary.sum_loss_body() && write) {
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

} // namespace

void Device::checkRaces() {
  const uint32_t queues = uint32_t(program.queues_size()), entries = uint32_t(program.entries_size());
  std::vector<uint32_t> clocks(size_t(2) * entries * queues);
  auto queueOf = [&](uint32_t event) { return program.entries(int(event % entries)).queue(); };
  auto place = [&](uint32_t event) { return uint32_t(event / entries * queueEntries[queueOf(event)].size() + position[event % entries]); };
  auto ordered = [&](uint32_t earlier, uint32_t event) { return clocks[size_t(event) * queues + queueOf(earlier)] > place(earlier); };

  std::vector<IntervalMap<uint32_t>> writes(program.arenas_size());
  std::vector<std::vector<IntervalMap<uint32_t>>> reads(program.arenas_size(), std::vector<IntervalMap<uint32_t>>(queues));
  std::vector<Access> accesses;

  for (uint32_t event = 0; event < 2 * entries; ++event) {
    const auto &entry = program.entries(int(event % entries));
    uint32_t step = event / entries, queue = entry.queue(), *clock = &clocks[size_t(event) * queues];
    auto join = [&](uint32_t other) {
      for (uint32_t q = 0; q < queues; ++q)
        clock[q] = std::max(clock[q], clocks[size_t(other) * queues + q]);
    };
    if (uint32_t p = position[event % entries])
      join(step * entries + queueEntries[queue][p - 1]);
    else if (step)
      join(queueEntries[queue].back());
    for (const auto &wait : entry.waits())
      if (!wait.previous_step() || step)
        join((wait.previous_step() ? step - 1 : step) * entries + queueEntries[wait.queue()][wait.position()]);
    clock[queue] = place(event) + 1;

    auto conflict = [&](uint32_t earlier, const Access &access, bool earlierWrites) {
      if (ordered(earlier, event))
        return;
      const auto &other = program.entries(int(earlier % entries));
      report(Code::Race, entry.id(),
             where(entry) + (access.write ? " writes" : " reads") + " bytes " + std::to_string(access.begin) + "-" + std::to_string(access.end) + " of arena " +
                 std::to_string(access.arena) + " while entry " + std::to_string(other.id()) + ", " + describe(other) + (earlierWrites ? ", may still write them" : ", may still read them") +
                 (earlier / entries != step ? " in the step before" : "") + ": expects a wait, or the same queue");
    };

    accesses.clear();
    if (entry.what_case() == bundle::Entry::kCompute) {
      for (const auto &call : entry.compute().calls()) {
        size_t start = accesses.size();
        const auto &body = model.bodies.bodies(int(call.body()));
        for (int s = 0; s < call.slots_size(); ++s)
          addSlot(accesses, model.summary, call, body.slots(s), call.slots(s).region());
        if (step) // an aliased call is one in every step
          continue;
        std::vector<Access> sorted(accesses.begin() + start, accesses.end());
        std::sort(sorted.begin(), sorted.end(), [](const Access &a, const Access &b) { return a.arena != b.arena ? a.arena < b.arena : a.begin < b.begin; });
        int64_t end = 0, writtenEnd = 0;
        for (size_t i = 0; i < sorted.size(); ++i) {
          if (i == 0 || sorted[i].arena != sorted[i - 1].arena)
            end = writtenEnd = 0;
          if (sorted[i].begin < (sorted[i].write ? end : writtenEnd))
            report(Code::Alias, entry.id(), where(entry) + ": two slots of '" + body.name() + "' overlap at byte " + std::to_string(sorted[i].begin) + " of arena " +
                                                std::to_string(sorted[i].arena) + " and one is written");
          end = std::max(end, sorted[i].end);
          if (sorted[i].write)
            writtenEnd = std::max(writtenEnd, sorted[i].end);
        }
      }
    } else {
      addTransfer(accesses, entry, program.device());
      if (entry.what_case() == bundle::Entry::kCopy && accesses.size() == 2 && accesses[0].arena == accesses[1].arena && accesses[0].begin < accesses[1].end &&
          accesses[1].begin < accesses[0].end)
        report(Code::Alias, entry.id(), where(entry) + ": source and target overlap");
    }

    for (const Access &access : accesses) {
      writes[access.arena].forEach(access.begin, access.end, [&](int64_t, int64_t, const uint32_t *earlier) {
        if (earlier)
          conflict(*earlier, access, true);
      });
      if (access.write)
        for (uint32_t q = 0; q < queues; ++q) {
          reads[access.arena][q].forEach(access.begin, access.end, [&](int64_t, int64_t, const uint32_t *earlier) {
            if (earlier)
              conflict(*earlier, access, false);
          });
        }
      if (full())
        return;
    }
    for (const Access &access : accesses) {
      if (access.write) {
        writes[access.arena].assign(access.begin, access.end, event);
        for (uint32_t q = 0; q < queues; ++q)
          reads[access.arena][q].erase(access.begin, access.end);
      } else {
        reads[access.arena][queue].assign(access.begin, access.end, event);
      }
    }
  }
}
