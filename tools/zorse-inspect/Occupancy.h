// Computes how many warps of a kernel are resident on an SM.
#pragma once

#include <string>

namespace zorse::inspect {

/// Limits of an SM by compute capability, from the table "Technical Specifications per Compute
/// Capability" in NVIDIA's CUDA C++ Programming Guide. Every SM listed has 65,536 registers,
/// allocated to warps in units of 256.
struct SmLimits {
  const char *arch;
  int warps, blocks;         ///< maximum resident warps and blocks
  int sharedBytes;           ///< bytes of shared memory
  int sharedUnit;            ///< allocation unit of shared memory, bytes
  int reservedPerBlock;      ///< bytes of shared memory that CUDA reserves per block
  int partitions;            ///< partitions that divide the registers and the warps of a block
  int declaredSharedOfBlock; ///< maximum static shared memory of a block, bytes
  int sharedOfBlock;         ///< maximum static and dynamic shared memory of a block, bytes
};

/// Returns nullptr if the architecture is not in the table.
const SmLimits *findSmLimits(const std::string &arch);

/// Occupancy of a kernel and its limiting resource.
struct Occupancy {
  double share = 0;  ///< fraction of the maximum resident warps; 0: not even one block fits
  const char *limit; ///< "registers", "shared", "blocks" or "threads"
};

/// \param threads         threads per block; whole warps
/// \param declaredShared  bytes of static shared memory
/// \param launchShared    bytes of dynamic shared memory
Occupancy occupancyOf(const SmLimits &sm, int threads, int registers, int declaredShared,
                      int launchShared = 0);

} // namespace zorse::inspect
