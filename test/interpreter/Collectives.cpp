#include "Machine.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::interpret;

/// The fields that must be equal in all halves.
static std::string common(const bundle::Instruction &instruction) {
  bundle::Instruction out;
  if (instruction.has_all_gather()) {
    *out.mutable_all_gather() = instruction.all_gather();
    out.mutable_all_gather()->clear_full();
    out.mutable_all_gather()->clear_shard();
    out.mutable_all_gather()->clear_value();
  } else if (instruction.has_reduce_scatter()) {
    *out.mutable_reduce_scatter() = instruction.reduce_scatter();
    out.mutable_reduce_scatter()->clear_full();
    out.mutable_reduce_scatter()->clear_shard();
    out.mutable_reduce_scatter()->clear_receive_buffer();
    out.mutable_reduce_scatter()->clear_send_buffer();
    out.mutable_reduce_scatter()->clear_value();
  } else if (instruction.has_all_reduce()) {
    *out.mutable_all_reduce() = instruction.all_reduce();
    out.mutable_all_reduce()->mutable_region()->clear_offset();
    out.mutable_all_reduce()->clear_receive_buffer();
    out.mutable_all_reduce()->clear_from();
    out.mutable_all_reduce()->clear_to();
  }
  return out.SerializeAsString();
}

using Members = google::protobuf::RepeatedField<uint32_t>;

static bool isIn(const Members &list, uint32_t device) {
  return std::find(list.begin(), list.end(), device) != list.end();
}

namespace {

/// Elements [begin, end) with the first byte at offset `byte`.
struct Run {
  int64_t begin, end, byte;
};

/// The elements that a device has of a collective over a group of `size` elements.
struct Part {
  std::vector<Run> whole, shards;
  bool inside = false; ///< offsets of shards are relative to the whole

  Part(uint32_t device, const Members &members, const bundle::ShardRanges &runs,
       const bundle::ShardRanges &owned, int64_t size, const bundle::Region &full,
       const bundle::Region &shard) {
    whole = runs.members().empty() && isIn(members, device) ? std::vector<Run>{{0, size, 0}}
                                                            : runsOf(runs, device, size);
    shards = runsOf(owned, device, size);
    if ((!whole.empty() && bytes(whole) != int64_t(full.bytes())) ||
        (!shards.empty() && bytes(shards) != int64_t(shard.bytes())))
      throw Stop{Outcome::Invalid, "group or shard of the wrong size"};
    for (int i = 0; i < owned.members_size(); ++i) // a shard lies inside one run or outside of all
      if (inWhole(owned.begin(i), owned.end(i)) < 0)
        for (const Run &run : whole)
          if (std::max(run.begin, owned.begin(i)) < std::min(run.end, owned.end(i)))
            throw Stop{Outcome::Invalid, "a part of a shard"};
    const bool overlaps = !whole.empty() && !shards.empty() && full.arena() == shard.arena() &&
                          shard.offset() < full.offset() + full.bytes() &&
                          full.offset() < shard.offset() + shard.bytes();
    if (!overlaps)
      return;
    inside = true;
    for (Run &run : shards)
      if ((run.byte = inWhole(run.begin, run.end)) < 0)
        throw Stop{Outcome::Invalid, "a shard inside the whole that has no place there"};
    if (shard.offset() != full.offset() + uint64_t(shards[0].byte))
      throw Stop{Outcome::Invalid, "a shard inside the whole, out of place"};
  }

  /// Offset of elements in the whole, or -1.
  int64_t inWhole(int64_t begin, int64_t end) const {
    for (const Run &run : whole)
      if (run.begin <= begin && end <= run.end)
        return run.byte + (begin - run.begin) * 4;
    return -1;
  }

private:
  static int64_t bytes(const std::vector<Run> &runs) {
    int64_t sum = 0;
    for (const Run &run : runs)
      sum += (run.end - run.begin) * 4;
    return sum;
  }

  static std::vector<Run> runsOf(const bundle::ShardRanges &extents, uint32_t device,
                                 int64_t size) {
    if (extents.members_size() != extents.begin_size() ||
        extents.members_size() != extents.end_size())
      throw Stop{Outcome::Invalid, "ragged extents"};
    std::vector<Run> runs;
    for (int i = 0; i < extents.members_size(); ++i) {
      const int64_t begin = extents.begin(i), end = extents.end(i);
      if (extents.members(i) != device || begin == end)
        continue;
      if (begin < 0 || begin > end || end > size || (!runs.empty() && begin < runs.back().end))
        throw Stop{Outcome::Invalid, "runs that do not ascend"};
      runs.push_back({begin, end, bytes(runs)});
    }
    return runs;
  }
};

} // namespace

Span Machine::touch(Active &work, const Half &half, const bundle::Region &region, bool write) {
  return touch(work, half, region, 0, int64_t(region.bytes()), write);
}

Span Machine::touch(Active &work, const Half &half, const bundle::Region &region, int64_t from,
                    int64_t bytes, bool write) {
  Span where = span(half.program, region, from, from + bytes, write);
  work.spans.push_back(where);
  return where;
}

void Machine::startCollective(const std::vector<Half> &halves, Active &work) {
  const bundle::Instruction &first = *halves[0].instruction;
  for (const Half &half : halves)
    if (half.instruction->what_case() != first.what_case() ||
        common(*half.instruction) != common(first))
      invalid("members of a collective disagree");
  switch (first.what_case()) {
  case bundle::Instruction::kAllGather:
    return gather(halves, work);
  case bundle::Instruction::kReduceScatter:
    return reduce(halves, work);
  case bundle::Instruction::kAllReduce:
    return sum(halves, work);
  default:
    invalid("an unknown collective");
  }
}

void Machine::gather(const std::vector<Half> &halves, Active &work) {
  const auto &gather = halves[0].instruction->all_gather();
  if (gather.group() >= uint32_t(summary.groups_size()))
    invalid("no such group");
  const int64_t size = summary.groups(int(gather.group())).elements();
  Words all(size);
  for (uint64_t &word : all)
    word = poison();
  std::vector<Part> parts;
  for (const Half &half : halves) {
    const auto &mine = half.instruction->all_gather();
    parts.emplace_back(programs[half.program].device(), mine.readers(), mine.reads(), mine.shards(),
                       size, mine.full(), mine.shard());
    for (const Run &run : parts.back().shards) {
      Words words = fetch(touch(work, half, parts.back().inside ? mine.full() : mine.shard(),
                                run.byte, (run.end - run.begin) * 4, false));
      std::copy(words.begin(), words.end(), all.begin() + run.begin);
    }
  }
  for (size_t h = 0; h < halves.size(); ++h) {
    const auto &mine = halves[h].instruction->all_gather();
    const Part &part = parts[h];
    if (!part.inside && !part.shards.empty() &&
        std::all_of(part.shards.begin(), part.shards.end(),
                    [&](const Run &run) { return part.inWhole(run.begin, run.end) >= 0; }))
      invalid("an owner's shard is not in place");
    for (const Run &run : part.whole) {
      // In place: the device's own shards are not written.
      int64_t next = run.begin;
      auto write = [&](int64_t end) {
        if (next < end)
          work.writes.push_back({touch(work, halves[h], mine.full(),
                                       run.byte + (next - run.begin) * 4, (end - next) * 4, true),
                                 Words(all.begin() + next, all.begin() + end)});
      };
      for (const Run &own : part.shards)
        if (part.inside && run.begin <= own.begin && own.end <= run.end) {
          write(own.begin);
          next = own.end;
        }
      write(run.end);
    }
  }
}

void Machine::reduce(const std::vector<Half> &halves, Active &work) {
  const auto &reduce = halves[0].instruction->reduce_scatter();
  if (reduce.group() >= uint32_t(summary.groups_size()))
    invalid("no such group");
  const int64_t size = summary.groups(int(reduce.group())).elements();
  std::vector<Part> parts;
  std::map<std::pair<uint32_t, int64_t>, Words> terms; // by device and first element
  for (const Half &half : halves) {
    const auto &mine = half.instruction->reduce_scatter();
    const uint32_t device = programs[half.program].device();
    parts.emplace_back(device, mine.contributors(), mine.terms(), mine.shards(), size, mine.full(),
                       mine.shard());
    for (const Run &run : parts.back().whole)
      terms[{device, run.begin}] =
          fetch(touch(work, half, mine.full(), run.byte, (run.end - run.begin) * 4, false));
  }
  Words total(size, 0);
  std::vector<bool> contributed(size);
  auto add = [&](uint32_t device, int64_t begin) {
    const auto term = terms.find({device, begin});
    for (size_t i = 0; term != terms.end() && i < term->second.size(); ++i) {
      uint64_t &sum = total[size_t(begin) + i];
      sum = contributed[size_t(begin) + i] ? plus(sum, term->second[i]) : term->second[i];
      contributed[size_t(begin) + i] = true;
    }
  };
  for (int i = 0; i < reduce.terms().members_size(); ++i)
    if (reduce.terms().begin(i) < reduce.terms().end(i))
      add(reduce.terms().members(i), reduce.terms().begin(i));
  if (reduce.terms().members().empty())
    for (uint32_t device : reduce.contributors())
      add(device, 0);
  for (size_t h = 0; h < halves.size(); ++h) {
    const auto &mine = halves[h].instruction->reduce_scatter();
    for (const Run &run : parts[h].shards) {
      if (!std::all_of(contributed.begin() + run.begin, contributed.begin() + run.end,
                       [](bool one) { return one; }))
        invalid("a shard without a contributor");
      const Span where = touch(work, halves[h], parts[h].inside ? mine.full() : mine.shard(),
                               run.byte, (run.end - run.begin) * 4, true);
      work.writes.push_back({where, Words(total.begin() + run.begin, total.begin() + run.end)});
    }
    if (!parts[h].shards.empty())
      arriving(work, halves[h], mine.receive_buffer());
    if (!parts[h].whole.empty())
      arriving(work, halves[h], mine.send_buffer());
  }
}

void Machine::sum(const std::vector<Half> &halves, Active &work) {
  const bundle::Instruction &first = *halves[0].instruction;
  std::vector<Span> places;
  std::map<uint32_t, Words> terms; // by device
  for (const Half &half : halves) {
    if (half.instruction->all_reduce().region().bytes() != first.all_reduce().region().bytes())
      invalid("sums of unequal sizes");
    places.push_back(touch(work, half, half.instruction->all_reduce().region(), true));
    terms[programs[half.program].device()] = fetch(places.back());
  }
  Words total;
  for (uint32_t device : first.all_reduce().members()) {
    const Words &words = terms[device];
    for (size_t w = 0; w < total.size() && w < words.size(); ++w)
      total[w] = plus(total[w], words[w]);
    if (total.empty())
      total = words;
  }
  for (const Span &where : places)
    work.writes.push_back({where, total});
  for (const Half &half : halves)
    arriving(work, half, half.instruction->all_reduce().receive_buffer());
}

/// Poisons the memory in which the terms of a direct sum arrive: no other instruction may read
/// them.
void Machine::arriving(Active &work, const Half &half, const bundle::Region &parts) {
  if (parts.bytes() == 0)
    return;
  Words nothing(parts.bytes() / 4);
  for (uint64_t &word : nothing)
    word = poison();
  work.writes.push_back({touch(work, half, parts, true), std::move(nothing)});
}
