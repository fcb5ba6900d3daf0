// A heap of four children, the least on top.
//
// Which child is least is as good as random, so a heap that branches on it pays for a mispredicted branch at every comparison; this one selects
// instead. Behind the last item there are always some that are greater than all, so that no node has fewer than four children. What is removed from
// the top is replaced from the bottom, where the last item nearly always stays (R. W. Floyd, Treesort 3, 1964).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zorse::step {

__extension__ using HeapKey = unsigned __int128;

/// \param first  compared first
inline HeapKey heapKey(uint64_t first, uint64_t then) { return static_cast<HeapKey>(first) << 64 | then; }
inline uint64_t firstOf(HeapKey key) { return static_cast<uint64_t>(key >> 64); }
inline uint64_t secondOf(HeapKey key) { return static_cast<uint64_t>(key); }

/// \tparam Item  std::numeric_limits is not asked: a default Item() is to be greater than all others. What is equal comes in an order that depends on
/// nothing but what was pushed and popped before.
template <typename Item> class MinHeap {
public:
  bool empty() const { return count == 0; }
  /// Of an empty heap: Item().
  const Item &top() const { return items[0]; }

  void push(const Item &item) {
    items.push_back(Item());
    raise(count++, item);
  }

  /// \returns what was on top.
  Item pop() {
    const Item top = items[0], last = items[--count];
    items[count] = Item();
    items.pop_back();
    if (count == 0)
      return top;
    size_t hole = 0;
    for (size_t child = 1; child < count; child = kChildren * hole + 1) {
      size_t least = child;
      for (size_t other = child + 1; other < child + kChildren; ++other)
        least = items[other] < items[least] ? other : least;
      items[hole] = items[least];
      hole = least;
    }
    raise(hole, last);
    return top;
  }

private:
  static constexpr size_t kChildren = 4;

  void raise(size_t hole, const Item &item) {
    for (; hole > 0; hole = (hole - 1) / kChildren) {
      const size_t up = (hole - 1) / kChildren;
      if (!(item < items[up]))
        break;
      items[hole] = items[up];
    }
    items[hole] = item;
  }

  std::vector<Item> items = std::vector<Item>(kChildren); ///< `count` of them, and kChildren that are greater
  size_t count = 0;
};

} // namespace zorse::step
