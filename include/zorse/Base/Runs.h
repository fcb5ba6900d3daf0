// Runs of elements, the devices that own them, and their positions in memory that contains several
// runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace zorse {

/// Elements [begin, end) of a whole, on `device`. A list may contain several runs of a device,
/// which ascend and do not overlap.
struct Shard {
  uint32_t device = 0;
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  bool has(const Shard &piece) const { return begin <= piece.begin && piece.end <= end; }
  bool operator==(const Shard &o) const {
    return std::tie(begin, end, device) == std::tie(o.begin, o.end, o.device);
  }
  bool operator<(const Shard &o) const {
    return std::tie(begin, end, device) < std::tie(o.begin, o.end, o.device);
  }
};

/// Returns the devices with a run that contains all of `piece`, in the order of the list.
inline std::vector<uint32_t> holdersOf(const std::vector<Shard> &list, const Shard &piece) {
  std::vector<uint32_t> holders;
  for (const Shard &run : list)
    if (run.has(piece))
      holders.push_back(run.device);
  return holders;
}

/// Positions of elements in memory in which the runs of one device are concatenated. Most devices
/// have one run, which needs one subtraction and no allocation.
class Compact {
public:
  struct Run {
    int64_t begin = 0, end = 0;
    int64_t place = 0; ///< position of its first element

    int64_t size() const { return end - begin; }
  };
  /// Valid until the next `add`.
  class Runs {
  public:
    Runs(const Run *first, size_t count) : first_(first), count_(count) {}
    const Run *begin() const { return first_; }
    const Run *end() const { return first_ + count_; }
    size_t size() const { return count_; }
    const Run &operator[](size_t i) const { return first_[i]; }

  private:
    const Run *first_;
    size_t count_;
  };

  Compact() = default;
  Compact(const std::vector<Shard> &list, uint32_t device) {
    for (const Shard &run : list)
      if (run.device == device)
        add(run.begin, run.end);
  }
  /// Appends a run.
  void add(int64_t begin, int64_t end) {
    if (begin < end)
      add({begin, end, empty() ? 0 : last().place + last().size()});
  }

  Runs runs() const && = delete;
  Runs runs() const & {
    return {several_.empty() ? &one_ : several_.data(),
            several_.empty() ? size_t(!empty()) : several_.size()};
  }
  bool empty() const { return one_.begin == one_.end; }
  /// Returns the number of elements of all runs.
  int64_t elements() const {
    int64_t sum = 0;
    for (const Run &run : runs())
      sum += run.size();
    return sum;
  }
  /// Returns the position of elements [begin, end). Negative if no run contains all of them.
  int64_t place(int64_t begin, int64_t end) const {
    const Runs list = runs();
    const Run *run =
        std::upper_bound(list.begin(), list.end(), begin,
                         [](int64_t element, const Run &next) { return element < next.begin; });
    return run != list.begin() && end <= (--run)->end ? run->place + begin - run->begin : -1;
  }
  int64_t place(const Shard &piece) const { return place(piece.begin, piece.end); }
  bool has(const Shard &piece) const { return place(piece) >= 0; }
  /// Whether runs contain some of its elements, but no run contains all.
  bool cuts(const Shard &piece) const {
    const Runs list = runs();
    const Run *run =
        std::upper_bound(list.begin(), list.end(), piece.begin,
                         [](int64_t element, const Run &next) { return element < next.end; });
    return run != list.end() && std::max(run->begin, piece.begin) < std::min(run->end, piece.end) &&
           !has(piece);
  }

  /// Returns the same runs with their positions in `whole`, relative to the first. Empty if one of
  /// them is not in `whole`.
  Compact inside(const Compact &whole) const {
    Compact moved;
    const int64_t first = whole.place(one_.begin, one_.end);
    for (const Run &run : runs()) {
      const int64_t place = whole.place(run.begin, run.end);
      if (place < 0)
        return {};
      moved.add({run.begin, run.end, place - first});
    }
    return moved;
  }

private:
  const Run &last() const { return several_.empty() ? one_ : several_.back(); }
  void add(const Run &run) {
    if (empty()) {
      one_ = run;
      return;
    }
    if (several_.empty())
      several_.push_back(one_);
    several_.push_back(run);
  }

  Run one_;                  ///< the first
  std::vector<Run> several_; ///< all, ascending, if there is more than one
};

/// Elements of one device in a gather or a reduction.
struct Held {
  Compact whole;  ///< elements that it reads or contributes
  Compact shards; ///< elements that it owns; positions are relative to the first
  bool inside;    ///< each shard is at its position in the whole; otherwise the shards are separate
                  ///< and concatenated

  /// Sets `inside` if the whole contains all shards and the first one is at its position there.
  /// \param distance  bytes from the whole to the first shard
  Held(Compact whole, Compact shards, uint64_t distance, size_t elementBytes)
      : whole(std::move(whole)), shards(std::move(shards)) {
    const Compact &all = this->whole, &own = this->shards;
    const bool first = !own.empty() &&
                       distance == uint64_t(all.place(own.runs()[0].begin, own.runs()[0].end)) *
                                       elementBytes;
    Compact there = first ? own.inside(all) : Compact();
    inside = !there.empty();
    if (inside)
      this->shards = std::move(there);
  }
};

} // namespace zorse
