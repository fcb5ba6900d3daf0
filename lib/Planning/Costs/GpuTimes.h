// How long tasks take on a GPU that nobody has measured, from what their bodies launch (TaskWork in bundle.proto).
#pragma once

#include "zorse/Planning/Cluster.h"

#include "bundle.pb.h"

#include <cstdint>
#include <string>

namespace zorse::planning {

/// What the model takes a GPU to do. Everything in it that is not in the cluster file or in the table of types is a constant of GpuTimes.cpp, with
/// its source or the word "assumed".
struct GpuRates {
  bundle::ElementType type = bundle::F32;             ///< that the model multiplies in
  double products = 0;                                ///< FLOP/s of large products in that type
  double productsF32 = 0;                             ///< of those whose operands are f32
  double attentionForward = 0, attentionBackward = 0; ///< FLOP/s inside attention kernels
  double bandwidth = 0;                               ///< bytes/s that kernels reach; 0: memory costs nothing
  uint32_t multiprocessors = 0;
  double call = 0;   ///< seconds of every call of a unit function
  double launch = 0; ///< seconds between two dependent launches
};

/// Precondition: device.multiprocessors > 0.
/// \param speed  FLOP/s of large products in `type`: the device's, or what a plan says
GpuRates gpuRates(const ClusterDevice &device, bundle::ElementType type, double speed);

/// Seconds of one launch of a product on `rows` samples, without the launch itself. cuBLASLt is taken to choose the best of a few tiles and numbers
/// of parts of k; tiles go to multiprocessors in waves, of which the last may be almost empty; and no product is faster than the memory that holds
/// its operands and its result once. More rows never take less time.
double productSeconds(const bundle::TaskWork::Product &product, int64_t rows, const GpuRates &rates);

/// Seconds of one call of a body.
double gpuSeconds(const bundle::TaskWork &work, bool backward, int64_t rows, const GpuRates &rates);

/// Bytes/s that memory-bound kernels reach: of updates, norms and copies as well.
double gpuBandwidth(const ClusterDevice &device);

/// What was assumed, for people: "products at most 253 TFLOP/s (0.81 of the vendor's 312) in waves of tiles on 108 multiprocessors, ...".
/// \param attention  whether any body has kernels of attention
std::string gpuAssumptions(const ClusterDevice &device, const GpuRates &rates, bool attention);

} // namespace zorse::planning
