// A min-heap with four children per node.
//
// The smallest of four children is unpredictable, so a heap that branches on the comparison pays
// for a mispredicted branch each time. This one selects without branches. The items are followed by
// sentinels that are greater than all items, so that every node has four children. pop() moves the
// hole at the root down to a leaf and fills it with the last item, which nearly always stays there
// (R. W. Floyd, Treesort 3, 1964).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zorse::step {

__extension__ using HeapKey = unsigned __int128;

/// \param first  compared first
inline HeapKey heapKey(uint64_t first, uint64_t then) {
  return static_cast<HeapKey>(first) << 64 | then;
}
inline uint64_t firstOf(HeapKey key) { return static_cast<uint64_t>(key >> 64); }
inline uint64_t secondOf(HeapKey key) { return static_cast<uint64_t>(key); }

/// \tparam Item  its default value is greater than all others (std::numeric_limits is not used).
/// The order of equal items depends only on previous calls of push and pop.
template <typename Item> class MinHeap {
public:
  bool empty() const { return count == 0; }
  /// Returns the smallest item; Item() if the heap is empty.
  const Item &top() const { return items[0]; }

  void push(const Item &item) {
    items.push_back(Item());
    raise(count++, item);
  }

  /// \returns the removed item
  Item pop() {
    const Item top = items[0], last = items[--count];
    items[count] = Item();
    items.pop_back();
    if (count == 0)
      return top;
    size_t hole = 0;
    for (size_t child = 1; child < count; child = kChildren * hole + 1) {
      size_t min = child;
      for (size_t other = child + 1; other < child + kChildren; ++other)
        min = items[other] < items[min] ? other : min;
      items[hole] = items[min];
      hole = min;
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

  std::vector<Item> items = std::vector<Item>(kChildren); ///< `count` items, then kChildren
                                                          ///< sentinels
  size_t count = 0;
};

} // namespace zorse::step
