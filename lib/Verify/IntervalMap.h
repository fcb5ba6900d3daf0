// Half-open byte ranges to values, as a sorted vector: arenas are in few pieces and are overwritten piece by piece.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace zorse::verify {

template <typename T> class IntervalMap {
public:
  struct Piece {
    int64_t begin, end;
    T value;
  };

  /// Calls f(begin, end, const T *) for each piece of [begin, end), clipped, and with a null pointer for each gap.
  template <typename F> void forEach(int64_t begin, int64_t end, F f) const {
    for (size_t i = first(begin); begin < end; ++i) {
      int64_t start = i < pieces.size() ? std::min(pieces[i].begin, end) : end;
      if (begin < start)
        f(begin, start, static_cast<const T *>(nullptr));
      if (start >= end)
        return;
      int64_t stop = std::min(pieces[i].end, end);
      f(std::max(begin, start), stop, &pieces[i].value);
      begin = stop;
    }
  }

  /// [begin, end) holds `value`; what was there is gone.
  void assign(int64_t begin, int64_t end, const T &value) { replace(begin, end, &value); }
  void erase(int64_t begin, int64_t end) { replace(begin, end, nullptr); }

  /// Calls f(T &, bytes) on each piece of [begin, end) after splitting at both ends; gaps are passed over.
  template <typename F> void change(int64_t begin, int64_t end, F f) {
    split(begin);
    split(end);
    for (size_t i = first(begin); i < pieces.size() && pieces[i].begin < end; ++i)
      f(pieces[i].value, pieces[i].end - pieces[i].begin);
  }

private:
  std::vector<Piece> pieces;

  size_t first(int64_t begin) const {
    return std::partition_point(pieces.begin(), pieces.end(), [&](const Piece &piece) { return piece.end <= begin; }) - pieces.begin();
  }

  void split(int64_t at) {
    size_t i = first(at);
    if (i == pieces.size() || pieces[i].begin >= at)
      return;
    Piece right{at, pieces[i].end, pieces[i].value};
    pieces[i].end = at;
    pieces.insert(pieces.begin() + i + 1, right);
  }

  void replace(int64_t begin, int64_t end, const T *value) {
    if (begin >= end)
      return;
    size_t lo = first(begin), hi = lo;
    while (hi < pieces.size() && pieces[hi].begin < end)
      ++hi;
    Piece fresh[3];
    size_t count = 0;
    if (lo < hi && pieces[lo].begin < begin)
      fresh[count++] = {pieces[lo].begin, begin, pieces[lo].value};
    if (value)
      fresh[count++] = {begin, end, *value};
    if (lo < hi && pieces[hi - 1].end > end)
      fresh[count++] = {end, pieces[hi - 1].end, pieces[hi - 1].value};
    size_t reuse = std::min(count, hi - lo);
    std::copy(fresh, fresh + reuse, pieces.begin() + lo);
    if (count > reuse)
      pieces.insert(pieces.begin() + lo + reuse, fresh + reuse, fresh + count);
    else
      pieces.erase(pieces.begin() + lo + reuse, pieces.begin() + hi);
  }
};

} // namespace zorse::verify
