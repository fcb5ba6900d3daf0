// The memory of a launch, and the state of every byte: whether its value is defined, and the last
// accesses to it.
#pragma once

#include "Order.h"

#include <memory>
#include <string>

namespace zorse::emulator::ptx {

/// The last accesses to a few bytes in this launch.
struct Touched {
  Moment writer, reader;
  bool isAtomic = false;      ///< whether the write was atomic
  bool severalLanes = false;  ///< several lanes of the reader's warp have read since its last
                              ///< barrier
  bool severalWarps = false;  ///< several warps of the reader's block have read since its last
                              ///< barrier
  bool severalBlocks = false; ///< several blocks have read
  bool isPending = false;     ///< a copy to it is in progress
  bool isConstant = false; ///< was read as memory that is constant during the launch (ld.global.nc)
};

/// Contiguous bytes: an operand or a variable.
struct Region {
  uint64_t begin = 0, end = 0; ///< as seen by kernels
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
  uint32_t alignment = 0; ///< 0: equal to `bytes`
};

/// Regions of one state space.
class Memory {
public:
  /// \param granule  number of bytes that are tracked together: the size of the smallest access
  void begin(uint32_t granule);
  void add(Region region) { regions.push_back(std::move(region)); }
  void clear() { regions.clear(); }
  std::vector<Region> &all() { return regions; }

  /// The region of an access. Null, with the reason in `problem`, if no region contains the bytes
  /// or they are read-only.
  Region *find(const Access &access, std::string &problem);

  /// Records the access. \returns the conflict with an earlier access; empty: none
  std::string touch(Region &region, const Access &access, const Moment &now, const Order &order);
  /// Completes a copy: the thread that waited for it has written these bytes.
  void land(Region &region, const Access &access, const Moment &now);
  void setPending(Region &region, const Access &access);

private:
  std::vector<Region> regions;
  size_t last = 0; ///< index of the region that was found last
  uint32_t granule = 4;

  template <typename Function>
  void forGranules(Region &region, const Access &access, Function function) {
    const uint64_t first = (access.address - region.begin) / granule,
                   end = (access.address + access.bytes - 1 - region.begin) / granule;
    for (uint64_t i = first; i <= end; ++i)
      function(region.touched[i]);
  }
  static const char *conflict(const Touched &t, const Access &access, const Moment &now,
                              const Order &order);
  static void record(Touched &t, const Access &access, const Moment &now, const Order &order);
};

} // namespace zorse::emulator::ptx
