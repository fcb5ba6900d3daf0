#include "GpuTimes.h"

#include "zorse/Base/Format.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace zorse;
using namespace zorse::planning;

namespace {

// Everything that is assumed of all GPUs alike. No figure was measured by this project: nothing has met hardware.

/// Of the vendor's memory bandwidth, what kernels reach that stream through memory. Assumed: published copies and triads of V100, A100, H100 and
/// RTX 4090 reach 0.83 to 0.93 of it.
constexpr double kMemoryShare = 0.85;
/// Seconds from the end of a kernel to full work in the next one of its stream. Assumed: 1 to 2 us between dependent kernels that wait in the queue,
/// and about as much until all multiprocessors are busy and until the last is done.
constexpr double kLaunchSeconds = 3e-6;
/// Elements of k that filling the pipeline of a tile, and writing its result, take. Assumed: two stages of 32.
constexpr double kFill = 64;

/// Tiles that a product may be cut into, and how fast one multiprocessor is with them, of what it is with the largest: a smaller tile reads more
/// bytes of operands for each multiplication. NVIDIA's guide "Matrix Multiplication Background" names these sizes and their order; the shares are
/// assumed.
struct Tile {
  double rows, columns, share;
};
constexpr Tile kTiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.93}, {128, 64, 0.8}, {64, 128, 0.8}, {64, 64, 0.6}};
/// k is cut into parts of at least this many elements; parts are added in f32.
constexpr double kLeastPart = 256;
constexpr int kMostParts = 32;

/// Attention on tensor cores, FLOP/s of its products (2 forward, 5 backward) over the vendor's dense figure. From the model of the kernels' loops
/// (tools/run-evidence.sh attention_share_of_peak prints it), never measured: of heads of 64 and of 128 the lesser share, which is always that
/// of 128. Kernels use mma.sync, which has reached 0.62 of what the figure of H100 counts; on B200 its rate is assumed to be the same, 0.31 of that
/// figure: the model's shares of mma.sync's peak, 0.54 and 0.44 on sm_90 and 0.53 and 0.43 on sm_100, are multiplied by it. Kernels for architectures
/// that are not listed have not been looked at: assumed as on sm_80.
struct AttentionShare {
  const char *arch;
  double forward, backward;
};
constexpr AttentionShare kAttention[] = {
    {"sm_80", 0.66, 0.51}, {"sm_86", 0.78, 0.58}, {"sm_89", 0.89, 0.66}, {"sm_90", 0.33, 0.27}, {"sm_100", 0.16, 0.13}, {"sm_120", 0.87, 0.63},
};

AttentionShare attentionShare(const std::string &arch) {
  for (const AttentionShare &share : kAttention)
    if (arch == share.arch)
      return share;
  return kAttention[0];
}

double at(const bundle::Extent &extent, double rows) { return static_cast<double>(extent.fixed()) + static_cast<double>(extent.per_row()) * rows; }

double ceilDiv(double a, double b) { return std::ceil(a / b); }

double sizeOf(bundle::ElementType type) { return std::max(1.0, static_cast<double>(elementBytes(type))); }

/// The vendor's dense figure for 16-bit products, scaled as the device's speed is; of devices that are not of a known type their speed.
double peakOf(const ClusterDevice &device, bundle::ElementType type, double speed) {
  const DeviceType *known = findDeviceType(device.type);
  const size_t index = speedIndex(type);
  return known && known->peak[index] > 0 && known->speed[index] > 0 ? known->peak[index] * speed / known->speed[index] : speed;
}

} // namespace

double planning::gpuBandwidth(const ClusterDevice &device) { return kMemoryShare * device.memoryBandwidth; }

GpuRates planning::gpuRates(const ClusterDevice &device, bundle::ElementType type, double speed) {
  GpuRates rates;
  rates.type = type;
  rates.products = speed;
  rates.productsF32 = isHalf(type) && device.speed[speedIndex(bundle::F32)] > 0 ? device.speed[speedIndex(bundle::F32)] : speed;
  const AttentionShare share = attentionShare(device.arch);
  const double peak = peakOf(device, type, speed);
  rates.attentionForward = share.forward * peak;
  rates.attentionBackward = share.backward * peak;
  rates.bandwidth = gpuBandwidth(device);
  rates.multiprocessors = device.multiprocessors;
  rates.call = device.launch;
  rates.launch = kLaunchSeconds;
  return rates;
}

double planning::productSeconds(const bundle::TaskWork::Product &product, int64_t rows, const GpuRates &rates) {
  const double r = static_cast<double>(rows);
  const double m = at(product.m(), r), n = at(product.n(), r), k = at(product.k(), r), batch = at(product.batch(), r);
  if (m <= 0 || n <= 0 || k <= 0 || batch <= 0)
    return 0;
  const double speed = isHalf(product.operands()) ? rates.products : rates.productsF32;
  const double ofOne = speed / rates.multiprocessors; // FLOP/s of a multiprocessor
  const double operands = batch * (m * k + k * n) * sizeOf(product.operands()), result = batch * m * n;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile &tile : kTiles)
    for (int parts = 1; parts <= kMostParts && (parts == 1 || k >= parts * kLeastPart); parts *= 2) {
      const double tiles = ceilDiv(m, tile.rows) * ceilDiv(n, tile.columns) * batch * parts;
      const double ofTile = 2 * tile.rows * tile.columns * (k / parts + kFill) / (ofOne * tile.share);
      double seconds = ceilDiv(tiles, rates.multiprocessors) * ofTile;
      if (rates.bandwidth > 0) {
        const double sums = parts > 1 ? result * 2 * parts * sizeOf(bundle::F32) : 0; // written and read again
        seconds = std::max(seconds, (operands + result * sizeOf(product.result())) / rates.bandwidth) + sums / rates.bandwidth;
      }
      best = std::min(best, seconds);
    }
  return best;
}

double planning::gpuSeconds(const bundle::TaskWork &work, bool backward, int64_t rows, const GpuRates &rates) {
  if (rows <= 0 || work.launches() == 0)
    return 0;
  double seconds = rates.call + work.launches() * rates.launch;
  for (const auto &product : work.products())
    seconds += product.count() * productSeconds(product, rows, rates);
  if (work.attention_flops_per_row() > 0)
    seconds += work.attention_flops_per_row() * static_cast<double>(rows) / (backward ? rates.attentionBackward : rates.attentionForward);
  if (rates.bandwidth > 0)
    seconds += at(work.bytes(), static_cast<double>(rows)) / rates.bandwidth;
  return seconds;
}

std::string planning::gpuAssumptions(const ClusterDevice &device, const GpuRates &rates, bool attention) {
  const double peak = peakOf(device, rates.type, rates.products);
  std::string out = format("products at most %.4g TFLOP/s", rates.products / 1e12);
  if (peak != rates.products)
    out += format(" (%.2f of the vendor's %.4g)", rates.products / peak, peak / 1e12);
  out += format(" in waves of tiles on %u multiprocessors", rates.multiprocessors);
  if (attention)
    out += format(", attention %.4g TFLOP/s forward and %.4g backward", rates.attentionForward / 1e12, rates.attentionBackward / 1e12);
  if (rates.bandwidth > 0)
    out += format(", other kernels %.2f of %.4g GB/s", kMemoryShare, device.memoryBandwidth / 1e9);
  return out + format(", %.2g us a launch", rates.launch * 1e6);
}
