// Estimates task times on a GPU without measurements from the kernels that its compiled functions
// launch (FunctionCost in bundle.proto).
#pragma once

#include "zorse/Planning/Cluster.h"

#include "bundle.pb.h"

#include <cstdint>
#include <string>

namespace zorse::planning {

/// Rates that the model assumes for a GPU. Values that are neither in the cluster file nor in the
/// table of types are constants of GpuTimes.cpp, with a source or the word "assumed".
struct GpuRates {
  bundle::ElementType type = bundle::F32; ///< type in which the model multiplies
  double products = 0;                    ///< FLOP/s of large products in that type
  double productsF32 = 0;                 ///< FLOP/s of large products with f32 operands
  double attentionForward = 0, attentionBackward = 0; ///< FLOP/s inside attention kernels
  double bandwidth = 0; ///< bytes/s that kernels reach; 0: memory costs nothing
  uint32_t multiprocessors = 0;
  double call = 0;           ///< seconds of overhead per call of a unit function
  double launchOverhead = 0; ///< seconds between two dependent launches
};

/// Precondition: device.multiprocessors > 0.
/// \param speed  FLOP/s of large products in `type`: the device's, or that in the plan
GpuRates gpuRates(const ClusterDevice &device, bundle::ElementType type, double speed);

/// Returns the seconds of one product on `rows` samples, without launch overhead. Assumes that
/// cuBLASLt chooses the best of a few tiles and splits of k. Tiles are executed on multiprocessors
/// in waves, and the last wave may be almost empty. A product takes at least the time to read its
/// operands and write its result once. The time never decreases with rows.
double productSeconds(const bundle::FunctionCost::Matmul &product, int64_t rows,
                      const GpuRates &rates);

/// Returns the seconds of one call of a compiled function.
double gpuSeconds(const bundle::FunctionCost &work, bool backward, int64_t rows,
                  const GpuRates &rates);

/// Returns the bytes/s of memory-bound kernels, including updates, norms and copies.
double gpuBandwidth(const ClusterDevice &device);

/// Returns the human-readable assumptions: "products at most 253 TFLOP/s (0.81 of the vendor's 312)
/// in waves of tiles on 108 multiprocessors, ...".
/// \param attention  whether any compiled function has attention kernels
std::string gpuAssumptions(const ClusterDevice &device, const GpuRates &rates, bool attention);

} // namespace zorse::planning
