// Divides the bytes of a device's arenas into elementary intervals.
//
// All writes of a program are known before it is replayed. Their ends divide the arenas into
// intervals, numbered from 0; the bytes of an interval always have one content. A range of bytes is
// converted to a range of intervals once; the replay then neither compares addresses nor moves
// pieces. The same regions occur in every cell: each is looked up once and then identified by its
// number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace zorse::verify {

/// The address of a byte of a device: arena and offset in one number. The ranges of all arenas are
/// totally ordered. Ranges of different arenas neither overlap nor touch, because an arena has
/// at most 2^50 bytes (kMaxSize).
inline constexpr int kOffsetBits = 51;
inline int64_t addressOf(uint32_t arena, uint64_t offset) {
  return int64_t(uint64_t(arena) << kOffsetBits | offset);
}
inline uint32_t arenaOf(int64_t address) { return uint32_t(address >> kOffsetBits); }
inline int64_t offsetOf(int64_t address) { return address & ((int64_t(1) << kOffsetBits) - 1); }

/// Intervals [begin, end).
struct Intervals {
  uint32_t begin, end;
};

/// Bytes [begin, end). If they are written, `intervals` contains exactly these bytes; otherwise all
/// intervals that they touch.
struct IntervalRange {
  int64_t begin = 0, end = 0; ///< addresses
  Intervals intervals{};
  bool written = false;
};

class AddressIntervals {
public:
  static constexpr uint32_t kAbsent = ~0u; ///< the number of an empty range

  /// The number of bytes [begin, end), begin < end. Costs one hash in most cases, because regions
  /// recur.
  uint32_t number(int64_t begin, int64_t end) {
    uint32_t &known = find(begin, end);
    return known != kAbsent ? known : insert(known, begin, end);
  }
  /// Valid until the next call of `number` or `of`.
  const IntervalRange &operator[](uint32_t number) const { return ranges[number]; }
  IntervalRange of(int64_t begin, int64_t end) {
    return begin < end ? ranges[number(begin, end)] : IntervalRange{begin, end, {}, false};
  }

  /// Marks bytes that a write may touch exactly. Only before `finish`.
  void addWrite(uint32_t number) {
    IntervalRange &range = ranges[number];
    if (range.written)
      return;
    range.written = true;
    // Most ends belong to two places; this leaves fewer to sort.
    for (int64_t end : {range.begin, range.end})
      if (int64_t &same = latest[uint64_t(end) * kMix >> (64 - 9)]; same != end)
        ends.push_back(same = end);
  }
  void finish(uint32_t arenas) {
    for (uint32_t arena = 0; arena < arenas; ++arena)
      ends.push_back(addressOf(arena, 0));
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    for (IntervalRange &range : ranges)
      range.intervals = search(range.begin, range.end);
    finished = true;
  }

  /// Number of intervals of all arenas.
  uint32_t count() const { return uint32_t(ends.size()); }
  /// Start of an interval; for the end interval, an address beyond all others.
  int64_t address(uint32_t interval) const {
    return interval < ends.size() ? ends[interval] : INT64_MAX;
  }

private:
  static constexpr uint64_t kMix = 0xD6E8FEB86659FD93ull;
  std::vector<IntervalRange> ranges;
  /// Numbers by hash, open addressing; at most half full.
  std::vector<uint32_t> table = std::vector<uint32_t>(size_t(1) << 11, kAbsent);
  int shift = 64 - 11;       ///< shift from a hash to an index of `table`
  std::vector<int64_t> ends; ///< starts of the intervals; ascending after `finish`
  std::vector<int64_t> latest = std::vector<int64_t>(size_t(1) << 9, -1); ///< some of `ends`, by
                                                                          ///< hash
  bool finished = false;

  Intervals search(int64_t begin, int64_t end) const {
    Intervals found;
    found.begin = uint32_t(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin() - 1);
    found.end =
        uint32_t(std::lower_bound(ends.begin() + found.begin, ends.end(), end) - ends.begin());
    return found;
  }
  /// The table entry of these bytes, which may be empty.
  uint32_t &find(int64_t begin, int64_t end) {
    const uint64_t hash = (uint64_t(begin) ^ uint64_t(end) * 0x9E3779B97F4A7C15ull) * kMix;
    for (size_t i = size_t(hash >> shift);; i = (i + 1) & (table.size() - 1))
      if (table[i] == kAbsent || (ranges[table[i]].begin == begin && ranges[table[i]].end == end))
        return table[i];
  }
  [[gnu::noinline]] uint32_t insert(uint32_t &instruction, int64_t begin, int64_t end) {
    const uint32_t fresh = instruction = uint32_t(ranges.size());
    ranges.push_back({begin, end, finished ? search(begin, end) : Intervals{}, false});
    if (ranges.size() * 2 > table.size())
      grow();
    return fresh;
  }
  void grow() {
    table.assign(table.size() * 2, kAbsent);
    --shift;
    for (uint32_t i = 0; i < ranges.size(); ++i)
      find(ranges[i].begin, ranges[i].end) = i;
  }
};

} // namespace zorse::verify
