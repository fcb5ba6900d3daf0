// How many warps of a kernel an SM can hold at a time.
#pragma once

#include <string>

namespace zorse::inspect {

/// What an SM has, by compute capability: the table "technical specifications per compute capability" of NVIDIA's CUDA C programming guide. Every SM
/// of these has 65,536 registers, which warps get in units of 256.
struct SmLimits {
  const char *arch;
  int warps, blocks;         ///< that it can hold
  int sharedBytes;           ///< that its blocks share
  int sharedUnit;            ///< in which a block gets them
  int reservedPerBlock;      ///< that CUDA takes of them for each block
  int partitions;            ///< among which registers are divided, and warps of a block are dealt
  int declaredSharedOfBlock; ///< that the code of a block may declare
  int sharedOfBlock;         ///< that a block may have if its launch gives it
};

/// nullptr if the architecture is not in the table.
const SmLimits *findSmLimits(const std::string &arch);

/// What limits a kernel.
struct Occupancy {
  double share = 0;  ///< of the warps that an SM can hold; 0: not even one block fits
  const char *limit; ///< "registers", "shared", "blocks" or "threads": what runs out first
};

/// \param threads         of a block; whole warps
/// \param declaredShared  bytes that the code declares
/// \param launchShared    bytes that the launch gives besides
Occupancy occupancyOf(const SmLimits &sm, int threads, int registers, int declaredShared, int launchShared = 0);

} // namespace zorse::inspect
