// The memory of a launch, and what is known of every byte: whether its value is defined, and who touched it last.
#pragma once

#include "Order.h"

#include <memory>
#include <string>

namespace zorse::emulator::ptx {

/// Who touched a few bytes last, in this launch.
struct Touched {
  Moment writer, reader;
  bool isAtomic = false;      ///< the write was
  bool severalLanes = false;  ///< of the reader's warp have read, since its last barrier
  bool severalWarps = false;  ///< of the reader's block have read, since its last barrier
  bool severalBlocks = false; ///< have read
  bool isPending = false;     ///< a copy is on its way there
  bool isConstant = false;    ///< read as memory that does not change in the launch (ld.global.nc)
};

/// Bytes that lie together: an operand, a variable.
struct Region {
  uint64_t begin = 0, end = 0; ///< addresses as kernels use them
  uint8_t *bytes = nullptr;    ///< on the host
  bool isWritable = false;
  std::string name;
  std::vector<uint8_t> defined; ///< by byte
  std::vector<Touched> touched; ///< by granule
};

enum class AccessKind { Load, ConstantLoad, Store, Atomic };

struct Access {
  uint64_t address = 0;
  uint32_t bytes = 0;
  AccessKind kind = AccessKind::Load;
  uint32_t alignment = 0; ///< 0: the number of bytes
};

/// Regions of one state space.
class Memory {
public:
  /// \param granule  bytes that are watched as one: the size of the smallest access
  void begin(uint32_t granule);
  void add(Region region) { regions.push_back(std::move(region)); }
  void clear() { regions.clear(); }
  std::vector<Region> &all() { return regions; }

  /// Null: the bytes are nobody's, or may not be written; `problem` says so.
  Region *find(const Access &access, std::string &problem);

  /// Notes the access. \returns what is wrong with its place in time; empty: nothing
  std::string touch(Region &region, const Access &access, const Moment &now, const Order &order);
  /// A copy has landed: the thread that waited for it has written these bytes.
  void land(Region &region, const Access &access, const Moment &now);
  void setPending(Region &region, const Access &access);

private:
  std::vector<Region> regions;
  size_t last = 0; ///< the region that was found last
  uint32_t granule = 4;

  template <typename Function> void forGranules(Region &region, const Access &access, Function function) {
    const uint64_t first = (access.address - region.begin) / granule, end = (access.address + access.bytes - 1 - region.begin) / granule;
    for (uint64_t i = first; i <= end; ++i)
      function(region.touched[i]);
  }
  static const char *conflict(const Touched &t, const Access &access, const Moment &now, const Order &order);
  static void record(Touched &t, const Access &access, const Moment &now, const Order &order);
};

} // namespace zorse::emulator::ptx
