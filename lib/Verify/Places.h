// Where the bytes of a device's arenas can change hands, and what the pieces in between hold.
//
// All writes of a program are known before it is replayed. Their ends cut each arena into intervals, numbered from 0, whose bytes always hold one thing; a
// range of bytes becomes a range of intervals once, and a replay then neither compares addresses nor moves pieces.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace zorse::verify {

/// Intervals [begin, end) of an arena.
struct Intervals {
  uint32_t begin = 0, end = 0;
};

class Places {
public:
  explicit Places(size_t arenas) : ends(arenas), table(1024) {}

  /// A write may touch bytes [begin, end) and no others. Only before `finish`.
  void add(uint32_t arena, int64_t begin, int64_t end) {
    Known &known = find(arena, begin, end);
    if (known.arena != kNowhere)
      return;
    ends[arena].push_back(begin);
    ends[arena].push_back(end);
    insert(known, arena, begin, end);
  }
  void finish() {
    for (auto &list : ends) {
      list.push_back(0);
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
    for (Known &known : table)
      if (known.arena != kNowhere)
        known.intervals = search(known);
  }

  uint32_t count(uint32_t arena) const { return uint32_t(ends[arena].size()); }
  int64_t address(uint32_t arena, uint32_t interval) const { return ends[arena][interval]; }

  /// The intervals that bytes [begin, end) touch, begin < end: exactly these bytes if both were added, as for every write. One hash in most cases, as
  /// regions return.
  Intervals of(uint32_t arena, int64_t begin, int64_t end) {
    Known &known = find(arena, begin, end);
    if (known.arena != kNowhere)
      return known.intervals;
    Intervals found = search({arena, begin, end, {}});
    known.intervals = found;
    insert(known, arena, begin, end);
    return found;
  }

private:
  static constexpr uint32_t kNowhere = ~0u;
  struct Known {
    uint32_t arena = kNowhere;
    int64_t begin = 0, end = 0;
    Intervals intervals;
  };
  std::vector<std::vector<int64_t>> ends; ///< per arena, ascending
  std::vector<Known> table;               ///< open addressing; a power of two
  size_t used = 0;

  Intervals search(const Known &bytes) const {
    const auto &list = ends[bytes.arena];
    Intervals found;
    found.begin = uint32_t(std::upper_bound(list.begin(), list.end(), bytes.begin) - list.begin() - 1);
    found.end = uint32_t(std::lower_bound(list.begin() + found.begin, list.end(), bytes.end) - list.begin());
    return found;
  }
  /// Where these bytes are, or would be.
  Known &find(uint32_t arena, int64_t begin, int64_t end) {
    uint64_t x = (uint64_t(begin) * 0x9E3779B97F4A7C15ull) ^ (uint64_t(end) + arena) * 0xD6E8FEB86659FD93ull;
    for (size_t i = size_t(x ^ x >> 32);; ++i) {
      Known &known = table[i & (table.size() - 1)];
      if (known.arena == kNowhere || (known.arena == arena && known.begin == begin && known.end == end))
        return known;
    }
  }
  void insert(Known &known, uint32_t arena, int64_t begin, int64_t end) {
    known.arena = arena;
    known.begin = begin;
    known.end = end;
    if (++used * 2 <= table.size())
      return;
    std::vector<Known> old(table.size() * 2);
    old.swap(table);
    for (const Known &other : old)
      if (other.arena != kNowhere)
        find(other.arena, other.begin, other.end) = other;
  }
};

/// A value for every interval of an arena, kept once per piece of neighbours that were written together.
template <typename T> class Pieces {
public:
  Pieces() = default;
  Pieces(uint32_t intervals, const T &everywhere) : values(intervals + 1, everywhere), starts(intervals / 64 + 2) { set(0); }

  /// Calls f(Intervals, const T &) on each piece of the range, clipped.
  template <typename F> void forEach(Intervals range, F f) const {
    for (uint32_t start = startBefore(range.begin), at = range.begin; at < range.end;) {
      uint32_t next = std::min(startAfter(start, range.end), range.end);
      f(Intervals{at, next}, values[start]);
      start = at = next;
    }
  }

  /// The range holds `value`; calls f(const T &) on each piece that is replaced, in whole or in part.
  template <typename F> void replace(Intervals range, const T &value, F f) {
    uint32_t start = startBefore(range.begin);
    while (true) {
      f(values[start]);
      uint32_t next = startAfter(start, range.end);
      if (next >= range.end) {
        if (!get(range.end)) { // the last piece goes on behind the range
          values[range.end] = values[start];
          set(range.end);
        }
        break;
      }
      start = next;
    }
    clear(range.begin + 1, range.end);
    set(range.begin);
    values[range.begin] = value;
  }
  void assign(Intervals range, const T &value) {
    replace(range, value, [](const T &) {});
  }

  /// Calls f(T &) on each piece of the range after splitting at both ends.
  template <typename F> void change(Intervals range, F f) {
    split(range.end);
    split(range.begin);
    for (uint32_t at = range.begin; at < range.end; at = startAfter(at, range.end))
      f(values[at]);
  }

private:
  std::vector<T> values;        ///< of a piece: at the interval where it starts. One more than intervals, so that a split at the end needs no case
  std::vector<uint64_t> starts; ///< a bit per interval: a piece starts here

  void set(uint32_t i) { starts[i / 64] |= uint64_t(1) << i % 64; }
  bool get(uint32_t i) const { return starts[i / 64] >> i % 64 & 1; }
  void clear(uint32_t begin, uint32_t end) {
    for (uint32_t word = begin / 64; begin < end; begin = ++word * 64) {
      uint64_t mask = ~uint64_t(0) << begin % 64;
      if (end < (word + 1) * 64)
        mask &= (uint64_t(1) << end % 64) - 1;
      starts[word] &= ~mask;
    }
  }
  uint32_t startBefore(uint32_t i) const {
    uint32_t word = i / 64;
    uint64_t bits = starts[word] & (~uint64_t(0) >> (63 - i % 64));
    while (!bits)
      bits = starts[--word];
    return word * 64 + 63 - uint32_t(__builtin_clzll(bits));
  }
  /// The first start behind i; from `limit` on, anything that is not before it.
  uint32_t startAfter(uint32_t i, uint32_t limit) const {
    uint32_t word = ++i / 64;
    uint64_t bits = starts[word] & (~uint64_t(0) << i % 64);
    while (!bits) {
      if (++word * 64 >= limit)
        return limit;
      bits = starts[word];
    }
    return word * 64 + uint32_t(__builtin_ctzll(bits));
  }
  void split(uint32_t i) {
    if (get(i))
      return;
    values[i] = values[startBefore(i)];
    set(i);
  }
};

} // namespace zorse::verify
