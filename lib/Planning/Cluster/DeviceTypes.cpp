// Known values of device types, for cluster files that do not specify them.
#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/DeviceDefaults.h"

#include <cmath>
#include <string>

using namespace zorse::planning;

namespace {

constexpr double T = 1e12, G = 1e9;

/// One row of the table. Throughput is that of dense matrix products in TFLOP/s. Bandwidths are in
/// GB/s and memory in GB, with decimal prefixes as in data sheets.
struct Row {
  const char *name, *arch;
  double f32, f16; ///< the vendor's values; f32 without tensor cores, f16 with accumulation in f32
  double reached;  ///< measured throughput of large f16 products; 0: assumed to be 75 % of f16
  uint32_t multiprocessors;
  double bandwidth; ///< of the device memory
  unsigned memory;
  double port, pcie; ///< each direction; port: NVLink, or PCIe if there is no NVLink
  const char *source;
};

// A100 80 GB 271 and PCIe 253, H100 SXM 794, B200 1745 TFLOP/s are public measurements. f32 is
// assumed to reach 90 %.
//
// Sources:
// - "data sheet": the vendor's data sheet of that product.
// - GP100, GV100, TU102, GA100, GA102, AD102, GH100 and "RTX Blackwell": NVIDIA's architecture
//   white papers of these chips, whose tables list their products.
// - GeForce: NVIDIA's table of all GeForce products (cores, clocks and memory). Throughputs follow
//   as in the white paper of the chip: cores x clock x 2, and twice that in f16.
// - "CDNA 3": AMD's white paper and data sheet.
constexpr Row kBfloat[] = {
    {"A10", "sm_86", 31.2, 125, 0, 72, 600, 24, 24, 24, "data sheet"},
    {"A10G", "sm_86", 31, 70, 55, 80, 600, 24, 24, 24, "data sheet"},
    {"A30", "sm_80", 10.3, 165, 124, 56, 933, 24, 100, 24, "data sheet"},
    {"A40", "sm_86", 37.4, 149.7, 112, 84, 696, 48, 56, 24, "data sheet"},
    {"A6000", "sm_86", 38.7, 154.8, 116, 84, 768, 48, 56, 24, "data sheet"},
    {"RTX3060", "sm_86", 12.7, 25.5, 0, 28, 360, 12, 24, 24, "GeForce"},
    {"RTX3060Ti", "sm_86", 16.2, 32.4, 0, 38, 448, 8, 24, 24, "GeForce"},
    {"RTX3070", "sm_86", 20.3, 40.6, 0, 46, 448, 8, 24, 24, "GA102"},
    {"RTX3070Ti", "sm_86", 21.7, 43.5, 0, 48, 608, 8, 24, 24, "GeForce"},
    {"RTX3080", "sm_86", 29.8, 59.5, 0, 68, 760, 10, 24, 24, "GA102"},
    {"RTX3080Ti", "sm_86", 34.1, 68.2, 0, 80, 912, 12, 24, 24, "GeForce"},
    {"RTX3090", "sm_86", 35.6, 71, 55, 82, 936, 24, 56, 24, "GA102"},
    {"RTX3090Ti", "sm_86", 40, 80, 0, 84, 1008, 24, 56, 24, "GeForce"},
    {"RTX4060", "sm_89", 15.1, 30.2, 0, 24, 272, 8, 12, 12, "GeForce"},
    {"RTX4060Ti", "sm_89", 22.1, 44.1, 0, 34, 288, 8, 12, 12, "GeForce"},
    {"RTX4060Ti-16", "sm_89", 22.1, 44.1, 0, 34, 288, 16, 12, 12, "GeForce"},
    {"RTX4070", "sm_89", 29.1, 58.3, 0, 46, 504, 12, 24, 24, "GeForce"},
    {"RTX4070Super", "sm_89", 35.5, 71, 0, 56, 504, 12, 24, 24, "GeForce"},
    {"RTX4070Ti", "sm_89", 40.1, 80.2, 0, 60, 504, 12, 24, 24, "GeForce"},
    {"RTX4070TiSuper", "sm_89", 44.1, 88.2, 0, 66, 672, 16, 24, 24, "GeForce"},
    {"RTX4080", "sm_89", 48.7, 97.5, 0, 76, 717, 16, 24, 24, "AD102"},
    {"RTX4080Super", "sm_89", 52.2, 104.4, 0, 80, 736, 16, 24, 24, "GeForce"},
    {"RTX4090", "sm_89", 82.6, 165.2, 125, 128, 1008, 24, 24, 24, "AD102"},
    {"RTX6000Ada", "sm_89", 91.1, 364.2, 0, 142, 960, 48, 24, 24, "data sheet"},
    {"RTX5070", "sm_120", 30.9, 61.7, 0, 48, 672, 12, 48, 48, "RTX Blackwell"},
    {"RTX5070Ti", "sm_120", 43.9, 87.9, 0, 70, 896, 16, 48, 48, "RTX Blackwell"},
    {"RTX5080", "sm_120", 56.3, 112.6, 0, 84, 960, 16, 48, 48, "RTX Blackwell"},
    {"RTX5090", "sm_120", 105, 209.5, 157, 170, 1790, 32, 48, 48, "RTX Blackwell"},
    {"L4", "sm_89", 30.3, 121, 85, 58, 300, 24, 24, 24, "data sheet"},
    {"L20", "sm_89", 59.8, 119.5, 0, 92, 864, 48, 24, 24, "data sheet"},
    {"L40", "sm_89", 90.5, 181, 0, 142, 864, 48, 24, 24, "data sheet"},
    {"L40S", "sm_89", 91.6, 362, 250, 142, 864, 48, 24, 24, "data sheet"},
    {"A100-40", "sm_80", 19.5, 312, 253, 108, 1555, 40, 300, 24, "GA100"},
    {"A100-80", "sm_80", 19.5, 312, 271, 108, 2000, 80, 300, 24, "data sheet"},
    {"A800", "sm_80", 19.5, 312, 271, 108, 2039, 80, 200, 24, "data sheet"},
    {"H100-PCIe", "sm_90", 51, 756, 560, 114, 2000, 80, 300, 48, "GH100"},
    {"H100-SXM", "sm_90", 67, 989, 794, 132, 3350, 80, 450, 48, "GH100"},
    {"H800", "sm_90", 67, 989, 794, 132, 3350, 80, 200, 48, "data sheet"},
    {"H800-PCIe", "sm_90", 51, 756, 560, 114, 2000, 80, 200, 48, "data sheet"},
    {"H20", "sm_90", 44, 148, 0, 78, 4000, 96, 450, 48, "data sheet"},
    {"H200", "sm_90", 67, 989, 794, 132, 4800, 141, 450, 48, "data sheet"},
    // The host of a GH200 is connected by NVLink-C2C.
    {"GH200-96", "sm_90", 67, 990, 794, 132, 4000, 96, 450, 450, "data sheet"},
    {"GH200-144", "sm_90", 67, 990, 794, 132, 4900, 144, 450, 450, "data sheet"}, // the same
    {"B200", "sm_100", 80, 2250, 1745, 148, 8000, 180, 900, 48, "data sheet"},
};
constexpr Row kNoBfloat[] = {
    {"P100", "sm_60", 10.6, 21.2, 16, 56, 732, 16, 80, 12, "GP100"},
    {"V100-16", "sm_70", 15.7, 125, 90, 80, 900, 16, 150, 12, "GV100"},
    {"V100-32", "sm_70", 15.7, 125, 90, 80, 900, 32, 150, 12, "data sheet"},
    {"T4", "sm_75", 8.1, 65, 45, 40, 320, 16, 12, 12, "data sheet"},
    {"RTX2080Ti", "sm_75", 13.4, 53.8, 0, 68, 616, 11, 50, 12, "TU102"},
};
// Zorse generates no code for these and has no driver. They can be planned for and simulated.
constexpr Row kPlannedOnly[] = {
    {"MI300X", "", 163.4, 1307.4, 0, 0, 5300, 192, 448, 48, "CDNA 3"},
};

DeviceType typeOf(const Row &row, const char *kind, bool bfloat) {
  constexpr uint64_t GB = 1000000000ull;
  DeviceType type{};
  type.name = row.name;
  type.kind = kind;
  type.arch = row.arch;
  type.source = row.source;
  const double reached = (row.reached > 0 ? row.reached : 0.75 * row.f16) * T;
  const double peak[kSpeeds] = {row.f32 * T, row.f16 * T, bfloat ? row.f16 * T : 0},
               speed[kSpeeds] = {std::round(90 * row.f32) / 100 * T, reached, bfloat ? reached : 0};
  for (size_t t = 0; t < kSpeeds; ++t) {
    type.peak[t] = peak[t];
    type.flopsPerSecond[t] = speed[t];
  }
  type.multiprocessors = row.multiprocessors;
  type.memoryBandwidth = row.bandwidth * G;
  type.launchOverhead = kDeviceLaunch;
  type.memory = row.memory * GB;
  type.reservedMemory = 2 * GB;
  type.port = row.port * G;
  type.pcie = row.pcie * G;
  const std::string name = row.name, source = row.source;
  type.halfRateSums = name.rfind("RTX", 0) == 0 && source != "data sheet"; // workstation GPUs have
                                                                           // their own data sheets
  return type;
}

} // namespace

// lib/Planning/Costs/GpuTimes.h computes times from these values.
const std::vector<DeviceType> &zorse::planning::deviceTypes() {
  static const std::vector<DeviceType> types = [] {
    std::vector<DeviceType> all;
    all.push_back({"cpu-thread",
                   "cpu",
                   {0, 0, 0},
                   {0.05 * T, 0.05 * T, 0.05 * T},
                   0,
                   kThreadBandwidth,
                   kCpuLaunch,
                   0,
                   0,
                   10 * G,
                   0,
                   false,
                   "",
                   "assumed"});
    for (const Row &row : kNoBfloat)
      all.push_back(typeOf(row, "cuda", /*bfloat=*/false));
    for (const Row &row : kBfloat)
      all.push_back(typeOf(row, "cuda", /*bfloat=*/true));
    for (const Row &row : kPlannedOnly)
      all.push_back(typeOf(row, "sim", /*bfloat=*/true));
    return all;
  }();
  return types;
}
