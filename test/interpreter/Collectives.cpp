#include "Machine.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::interpret;

/// What all halves must agree on.
static std::string common(const bundle::Entry &entry) {
  bundle::Entry out;
  if (entry.has_all_gather()) {
    *out.mutable_all_gather() = entry.all_gather();
    out.mutable_all_gather()->clear_full();
    out.mutable_all_gather()->clear_shard();
    out.mutable_all_gather()->clear_value();
  } else if (entry.has_reduce_scatter()) {
    *out.mutable_reduce_scatter() = entry.reduce_scatter();
    out.mutable_reduce_scatter()->clear_full();
    out.mutable_reduce_scatter()->clear_shard();
    out.mutable_reduce_scatter()->clear_parts();
    out.mutable_reduce_scatter()->clear_value();
  } else if (entry.has_all_reduce()) {
    *out.mutable_all_reduce() = entry.all_reduce();
    out.mutable_all_reduce()->mutable_region()->clear_offset();
    out.mutable_all_reduce()->clear_parts();
    out.mutable_all_reduce()->clear_from();
    out.mutable_all_reduce()->clear_to();
  }
  return out.SerializeAsString();
}

static int indexOf(const google::protobuf::RepeatedField<uint32_t> &list, uint32_t device) {
  for (int i = 0; i < list.size(); ++i)
    if (list.Get(i) == device)
      return i;
  return -1;
}

static void checkExtents(const bundle::Extents &extents) {
  if (extents.members_size() != extents.begin_size() || extents.members_size() != extents.end_size())
    throw Stop{Outcome::Invalid, "ragged extents"};
}

Span Machine::touch(Active &work, const Half &half, const bundle::Region &region, bool write) {
  Span where = span(half.program, region, 0, int64_t(region.bytes()), write);
  work.spans.push_back(where);
  return where;
}

void Machine::startCollective(const std::vector<Half> &halves, Active &work) {
  const bundle::Entry &first = *halves[0].entry;
  for (const Half &half : halves)
    if (half.entry->what_case() != first.what_case() || common(*half.entry) != common(first))
      invalid("members of a collective disagree");
  switch (first.what_case()) {
  case bundle::Entry::kAllGather:
    return gather(halves, work);
  case bundle::Entry::kReduceScatter:
    return reduce(halves, work);
  case bundle::Entry::kAllReduce:
    return sum(halves, work);
  default:
    invalid("an unknown collective");
  }
}

void Machine::gather(const std::vector<Half> &halves, Active &work) {
  const bundle::Entry &first = *halves[0].entry;
  const auto &gather = first.all_gather();
  checkExtents(gather.shards());
  if (gather.group() >= uint32_t(summary.groups_size()))
    invalid("no such group");
  size_t size = size_t(summary.groups(int(gather.group())).elements());
  Words whole(size);
  for (uint64_t &word : whole)
    word = poison();
  for (const Half &half : halves) {
    const auto &mine = half.entry->all_gather();
    int i = indexOf(mine.shards().members(), programs[half.program].device());
    if (i < 0 || mine.shards().begin(i) >= mine.shards().end(i))
      continue;
    int64_t begin = mine.shards().begin(i), end = mine.shards().end(i);
    if (begin < 0 || end > int64_t(size) || mine.shard().bytes() != uint64_t(end - begin) * 4)
      invalid("shard of the wrong size");
    Words words = fetch(touch(work, half, mine.shard(), false));
    std::copy(words.begin(), words.end(), whole.begin() + begin);
  }
  for (const Half &half : halves) {
    const auto &mine = half.entry->all_gather();
    if (indexOf(mine.readers(), programs[half.program].device()) < 0)
      continue;
    if (mine.full().bytes() != size * 4)
      invalid("group of the wrong size");
    Span where = span(half.program, mine.full(), 0, int64_t(size) * 4, true);
    // In place: the own shard stays where it is.
    int i = indexOf(mine.shards().members(), programs[half.program].device());
    if (i >= 0 && mine.shards().begin(i) < mine.shards().end(i)) {
      if (mine.shard().arena() != mine.full().arena() || mine.shard().offset() != mine.full().offset() + uint64_t(mine.shards().begin(i)) * 4)
        invalid("an owner's shard is not in place");
      Span before = where, after = where;
      before.end = where.begin + mine.shards().begin(i) * 4;
      after.begin = where.begin + mine.shards().end(i) * 4;
      for (const Span &part : {before, after})
        if (part.begin < part.end) {
          work.spans.push_back(part);
          work.writes.push_back({part, Words(whole.begin() + (part.begin - where.begin) / 4, whole.begin() + (part.end - where.begin) / 4)});
        }
    } else {
      work.spans.push_back(where);
      work.writes.push_back({where, whole});
    }
  }
}

void Machine::reduce(const std::vector<Half> &halves, Active &work) {
  const bundle::Entry &first = *halves[0].entry;
  const auto &reduce = first.reduce_scatter();
  checkExtents(reduce.shards());
  if (reduce.group() >= uint32_t(summary.groups_size()))
    invalid("no such group");
  size_t size = size_t(summary.groups(int(reduce.group())).elements());
  Words total(size, 0);
  for (const Half &half : halves) {
    const auto &mine = half.entry->reduce_scatter();
    if (indexOf(mine.contributors(), programs[half.program].device()) < 0)
      continue;
    if (mine.full().bytes() != size * 4)
      invalid("group of the wrong size");
    Words words = fetch(touch(work, half, mine.full(), false));
    for (size_t w = 0; w < size; ++w)
      total[w] += words[w];
  }
  for (const Half &half : halves) {
    const auto &mine = half.entry->reduce_scatter();
    int i = indexOf(mine.shards().members(), programs[half.program].device());
    if (i < 0 || mine.shards().begin(i) >= mine.shards().end(i))
      continue;
    int64_t begin = mine.shards().begin(i), end = mine.shards().end(i);
    if (begin < 0 || end > int64_t(size) || mine.shard().bytes() != uint64_t(end - begin) * 4)
      invalid("shard of the wrong size");
    bool overlaps = mine.full().bytes() && mine.full().arena() == mine.shard().arena() &&
                    mine.shard().offset() < mine.full().offset() + mine.full().bytes() &&
                    mine.full().offset() < mine.shard().offset() + mine.shard().bytes();
    if (overlaps && mine.shard().offset() != mine.full().offset() + uint64_t(begin) * 4)
      invalid("a shard inside the accumulator, out of place");
    work.writes.push_back({touch(work, half, mine.shard(), true), Words(total.begin() + begin, total.begin() + end)});
    arriving(work, half, mine.parts());
  }
}

void Machine::sum(const std::vector<Half> &halves, Active &work) {
  const bundle::Entry &first = *halves[0].entry;
  Words total(first.all_reduce().region().bytes() / 4, 0);
  std::vector<Span> places;
  for (const Half &half : halves) {
    if (half.entry->all_reduce().region().bytes() != first.all_reduce().region().bytes())
      invalid("sums of unequal sizes");
    places.push_back(touch(work, half, half.entry->all_reduce().region(), true));
    Words words = fetch(places.back());
    for (size_t w = 0; w < total.size(); ++w)
      total[w] += words[w];
  }
  for (const Span &where : places)
    work.writes.push_back({where, total});
  for (const Half &half : halves)
    arriving(work, half, half.entry->all_reduce().parts());
}

/// Where terms of a direct sum arrive: they are nothing to anybody else.
void Machine::arriving(Active &work, const Half &half, const bundle::Region &parts) {
  if (parts.bytes() == 0)
    return;
  Words nothing(parts.bytes() / 4);
  for (uint64_t &word : nothing)
    word = poison();
  work.writes.push_back({touch(work, half, parts, true), std::move(nothing)});
}
