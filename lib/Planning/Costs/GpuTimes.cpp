#include "GpuTimes.h"

#include "zorse/Base/Format.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace zorse;
using namespace zorse::planning;

namespace {

// Assumptions about all GPUs. This project measured none of these values: no hardware was
// available.

/// Share of the vendor's memory bandwidth that streaming kernels reach. Assumed: published copies
/// and triads of V100, A100, H100 and RTX 4090 reach 0.83 to 0.93 of it.
constexpr double kMemoryShare = 0.85;
/// Seconds from the end of a kernel to full utilization by the next one in its stream. Assumed: 1
/// to 2 us between dependent kernels that wait in the queue, and about the same until all
/// multiprocessors are busy and until the last one finishes.
constexpr double kLaunchSeconds = 3e-6;
/// Time to fill the pipeline of a tile and to write its result, in elements of k. Assumed: two
/// stages of 32.
constexpr double kFill = 64;

/// Tile sizes of a product, and the speed of one multiprocessor with each, relative to the largest
/// tile. A smaller tile reads more operand bytes per multiplication. NVIDIA's guide "Matrix
/// Multiplication Background" lists these sizes and their order; the ratios are assumed.
struct Tile {
  double rows, columns, share;
};
constexpr Tile kTiles[] = {{256, 128, 1},  {128, 256, 1},  {128, 128, 0.93},
                           {128, 64, 0.8}, {64, 128, 0.8}, {64, 64, 0.6}};
/// Minimum elements per part if k is split; parts are added in f32.
constexpr double kMinPart = 256;
constexpr int kMaxParts = 32;

/// Attention on tensor cores: FLOP/s of its products (2 forward, 5 backward) as a share of the
/// vendor's dense value. The shares come from the model of the kernels' loops
/// (tools/run-evidence.sh attention_share_of_peak prints it) and were never measured. Each is the
/// smaller share of heads of 64 and of 128, which is always that of 128.
///
/// Kernels use mma.sync, which has reached 0.62 of H100's dense value. On B200 its rate is assumed
/// to be the same, which is 0.31 of B200's value. The model's shares of mma.sync's peak (0.54 and
/// 0.44 on sm_90, 0.53 and 0.43 on sm_100) are multiplied by these. Architectures that are not
/// listed have not been modeled and are assumed to equal sm_80.
struct AttentionShare {
  const char *arch;
  double forward, backward;
};
constexpr AttentionShare kAttention[] = {
    {"sm_80", 0.66, 0.51}, {"sm_86", 0.78, 0.58},  {"sm_89", 0.89, 0.66},
    {"sm_90", 0.33, 0.27}, {"sm_100", 0.16, 0.13}, {"sm_120", 0.87, 0.63},
};

AttentionShare attentionShare(const std::string &arch) {
  for (const AttentionShare &share : kAttention)
    if (arch == share.arch)
      return share;
  return kAttention[0];
}

double at(const bundle::AffineSize &extent, double rows) {
  return static_cast<double>(extent.fixed()) + static_cast<double>(extent.per_row()) * rows;
}

double ceilDiv(double a, double b) { return std::ceil(a / b); }

double sizeOf(bundle::ElementType type) {
  return std::max(1.0, static_cast<double>(elementBytes(type)));
}

/// Returns the vendor's dense value for 16-bit products, scaled like the device's speed; for
/// devices of unknown type their speed.
double peakOf(const ClusterDevice &device, bundle::ElementType type, double speed) {
  const DeviceType *known = findDeviceType(device.type);
  const size_t index = speedIndex(type);
  return known && known->peak[index] > 0 && known->flopsPerSecond[index] > 0
             ? known->peak[index] * speed / known->flopsPerSecond[index]
             : speed;
}

} // namespace

double planning::gpuBandwidth(const ClusterDevice &device) {
  return kMemoryShare * device.memoryBandwidth;
}

GpuRates planning::gpuRates(const ClusterDevice &device, bundle::ElementType type, double speed) {
  GpuRates rates;
  rates.type = type;
  rates.products = speed;
  rates.productsF32 = isHalf(type) && device.flopsPerSecond[speedIndex(bundle::F32)] > 0
                          ? device.flopsPerSecond[speedIndex(bundle::F32)]
                          : speed;
  const AttentionShare share = attentionShare(device.arch);
  const double peak = peakOf(device, type, speed);
  rates.attentionForward = share.forward * peak;
  rates.attentionBackward = share.backward * peak;
  rates.bandwidth = gpuBandwidth(device);
  rates.multiprocessors = device.multiprocessors;
  rates.call = device.launchOverhead;
  rates.launchOverhead = kLaunchSeconds;
  return rates;
}

double planning::productSeconds(const bundle::FunctionCost::Matmul &product, int64_t rows,
                                const GpuRates &rates) {
  const double r = static_cast<double>(rows);
  const double m = at(product.m(), r), n = at(product.n(), r), k = at(product.k(), r),
               batch = at(product.batch(), r);
  if (m <= 0 || n <= 0 || k <= 0 || batch <= 0)
    return 0;
  const double speed = isHalf(product.operands()) ? rates.products : rates.productsF32;
  const double ofOne = speed / rates.multiprocessors; // FLOP/s of one multiprocessor
  const double operands = batch * (m * k + k * n) * sizeOf(product.operands()),
               result = batch * m * n;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile &tile : kTiles)
    for (int parts = 1; parts <= kMaxParts && (parts == 1 || k >= parts * kMinPart); parts *= 2) {
      const double tiles = ceilDiv(m, tile.rows) * ceilDiv(n, tile.columns) * batch * parts;
      const double ofTile = 2 * tile.rows * tile.columns * (k / parts + kFill) /
                            (ofOne * tile.share);
      double seconds = ceilDiv(tiles, rates.multiprocessors) * ofTile;
      if (rates.bandwidth > 0) {
        const double sums = parts > 1 ? result * 2 * parts * sizeOf(bundle::F32) : 0; // written and
                                                                                      // read again
        seconds =
            std::max(seconds, (operands + result * sizeOf(product.result())) / rates.bandwidth) +
            sums / rates.bandwidth;
      }
      best = std::min(best, seconds);
    }
  return best;
}

double planning::gpuSeconds(const bundle::FunctionCost &work, bool backward, int64_t rows,
                            const GpuRates &rates) {
  if (rows <= 0 || work.launches() == 0)
    return 0;
  double seconds = rates.call + work.launches() * rates.launchOverhead;
  for (const auto &product : work.matmuls())
    seconds += product.count() * productSeconds(product, rows, rates);
  if (work.attention_flops_per_row() > 0)
    seconds += work.attention_flops_per_row() * static_cast<double>(rows) /
               (backward ? rates.attentionBackward : rates.attentionForward);
  if (rates.bandwidth > 0)
    seconds += at(work.bytes(), static_cast<double>(rows)) / rates.bandwidth;
  return seconds;
}

std::string planning::gpuAssumptions(const ClusterDevice &device, const GpuRates &rates,
                                     bool attention) {
  const double peak = peakOf(device, rates.type, rates.products);
  std::string out = format("products at most %.4g TFLOP/s", rates.products / 1e12);
  if (peak != rates.products)
    out += format(" (%.2f of the vendor's %.4g)", rates.products / peak, peak / 1e12);
  out += format(" in waves of tiles on %u multiprocessors", rates.multiprocessors);
  if (attention)
    out += format(", attention %.4g TFLOP/s forward and %.4g backward",
                  rates.attentionForward / 1e12, rates.attentionBackward / 1e12);
  if (rates.bandwidth > 0)
    out += format(", other kernels %.2f of %.4g GB/s", kMemoryShare, device.memoryBandwidth / 1e9);
  return out + format(", %.2g us a launch", rates.launchOverhead * 1e6);
}
