// The contents of the intervals of a device's arenas (AddressIntervals.h).
#pragma once

#include "AddressIntervals.h"

namespace zorse::verify {

/// An interval map. Adjacent intervals that were last written together form a piece. Regions have
/// few intervals, mostly one.
template <typename T> class IntervalMap {
public:
  IntervalMap() = default;
  IntervalMap(uint32_t intervals, const T &everywhere)
      : values(intervals, everywhere), writes(intervals) {}

  /// Calls f(Intervals, const T &) for each piece of the range, clipped to it.
  template <typename F> void forEach(Intervals range, F f) const {
    for (uint32_t at = range.begin, next; at < range.end; at = next) {
      next = pieceEnd(at, range.end);
      f(Intervals{at, next}, values[at]);
    }
  }

  /// Whether f(const T &) is true everywhere in the range.
  template <typename F> bool all(Intervals range, F f) const {
    for (const T *value = values.data() + range.begin, *end = values.data() + range.end;
         value < end; ++value)
      if (!f(*value))
        return false;
    return true;
  }

  void assign(Intervals range, const T &value) {
    ++last;
    for (uint32_t i = range.begin; i < range.end; ++i) {
      values[i] = value;
      writes[i] = last;
    }
  }

  /// Calls f(T &) for each piece of the range after splitting at both ends.
  template <typename F> void change(Intervals range, F f) {
    for (uint32_t at = range.begin, next; at < range.end; at = next) {
      next = pieceEnd(at, range.end);
      T value = values[at];
      f(value);
      assign({at, next}, value);
    }
  }

private:
  std::vector<T> values;
  std::vector<uint32_t> writes; ///< number of the write that set an interval's value
  uint32_t last = 0;

  uint32_t pieceEnd(uint32_t at, uint32_t end) const {
    uint32_t next = at + 1;
    while (next < end && writes[next] == writes[at])
      ++next;
    return next;
  }
};

} // namespace zorse::verify
