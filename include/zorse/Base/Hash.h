// A hash of a sequence of numbers, for tables in memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zorse {

/// FNV-1a with steps of 64 bits (Fowler, Noll, Vo). Not for files, and not where a collision would
/// be wrong.
class SequenceHash {
public:
  SequenceHash &add(uint64_t number) {
    value = (value ^ number) * 1099511628211u;
    return *this;
  }
  size_t get() const { return static_cast<size_t>(value ^ (value >> 32)); }

private:
  uint64_t value = 14695981039346656037u;
};

} // namespace zorse
