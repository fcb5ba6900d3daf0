#include "Occupancy.h"

#include <algorithm>

namespace zorse::inspect {

namespace {

constexpr int kRegisters = 65536, kRegisterUnit = 256, kWarp = 32, kKiB = 1024;

int roundUp(int value, int unit) { return (value + unit - 1) / unit * unit; }

} // namespace

const SmLimits *findSmLimits(const std::string &arch) {
  static const SmLimits table[] = {
      // architecture, warps, blocks, shared memory of an SM, allocation unit, reserved per block,
      // partitions, maximum static shared memory of a block, maximum total (static and dynamic)
      {"sm_60", 64, 32, 64 * kKiB, 256, 0, 2, 48 * kKiB, 48 * kKiB},
      {"sm_70", 64, 32, 96 * kKiB, 256, 0, 4, 48 * kKiB, 96 * kKiB},
      {"sm_75", 32, 16, 64 * kKiB, 256, 0, 4, 48 * kKiB, 64 * kKiB},
      {"sm_80", 64, 32, 164 * kKiB, 128, kKiB, 4, 48 * kKiB, 163 * kKiB},
      {"sm_86", 48, 16, 100 * kKiB, 128, kKiB, 4, 48 * kKiB, 99 * kKiB},
      {"sm_89", 48, 24, 100 * kKiB, 128, kKiB, 4, 48 * kKiB, 99 * kKiB},
      {"sm_90", 64, 32, 228 * kKiB, 128, kKiB, 4, 48 * kKiB, 227 * kKiB},
      {"sm_100", 64, 32, 228 * kKiB, 128, kKiB, 4, 48 * kKiB, 227 * kKiB},
      {"sm_120", 48, 24, 100 * kKiB, 128, kKiB, 4, 48 * kKiB, 99 * kKiB},
  };
  for (const SmLimits &limits : table)
    if (arch == limits.arch)
      return &limits;
  return nullptr;
}

Occupancy occupancyOf(const SmLimits &sm, int threads, int registers, int declaredShared,
                      int launchShared) {
  const int sharedBytes = declaredShared + launchShared;
  const int warps = std::max(1, (threads + kWarp - 1) / kWarp);
  // Each partition allocates registers for whole warps. A block fits only if its warps, rounded up
  // to a multiple of four, fit.
  const int ofWarp = roundUp(std::max(1, registers) * kWarp, kRegisterUnit);
  const bool fits = ofWarp * roundUp(warps, 4) <= kRegisters;
  const int byRegisters = fits ? kRegisters / sm.partitions / ofWarp * sm.partitions / warps : 0;
  const int shared = roundUp(sharedBytes + sm.reservedPerBlock, sm.sharedUnit);
  const int byShared = declaredShared > sm.declaredSharedOfBlock || sharedBytes > sm.sharedOfBlock
                           ? 0
                       : shared > 0 ? sm.sharedBytes / shared
                                    : sm.blocks;
  const int byThreads = sm.warps / warps;
  const int blocks = std::min({sm.blocks, byThreads, byRegisters, byShared});
  // If two limits are equal, report the one that no change of the kernel's code would lift.
  const char *limit = blocks == byThreads     ? "threads"
                      : blocks == sm.blocks   ? "blocks"
                      : blocks == byRegisters ? "registers"
                                              : "shared";
  return {double(blocks) * warps / sm.warps, limit};
}

} // namespace zorse::inspect
