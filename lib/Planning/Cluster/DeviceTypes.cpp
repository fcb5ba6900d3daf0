// What is known about types of devices when a cluster file does not say.
#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/DeviceDefaults.h"

using namespace zorse::planning;

// Dense throughput of matrix products, FLOP/s: 16 bit as far as products have been measured to reach it, else 75 % of the vendor's figure; f32
// without tensor cores. Where a type has no bfloat16, its speed is 0. Memory in vendors' gigabytes.
const std::vector<DeviceType> &zorse::planning::deviceTypes() {
  constexpr double T = 1e12, G = 1e9;
  constexpr uint64_t GB = 1000000000ull;
  static const std::vector<DeviceType> types = {
      // name, driver, {f32, f16, bf16}, rows at half speed, memory bytes/s, seconds per call, memory, reserve, port, PCIe, architecture
      {"cpu-thread", "cpu", {0.05 * T, 0.05 * T, 0.05 * T}, 0, kThreadBandwidth, kCpuLaunch, 0, 0, 10 * G, 0, ""},
      {"P100", "cuda", {9.54 * T, 16 * T, 0}, 80, 732 * G, 1e-5, 16 * GB, 2 * GB, 80 * G, 12 * G, "sm_60"},
      {"V100-16", "cuda", {14.13 * T, 90 * T, 0}, 80, 900 * G, 1e-5, 16 * GB, 2 * GB, 150 * G, 12 * G, "sm_70"},
      {"V100-32", "cuda", {14.13 * T, 90 * T, 0}, 80, 900 * G, 1e-5, 32 * GB, 2 * GB, 150 * G, 12 * G, "sm_70"},
      {"T4", "cuda", {7.29 * T, 45 * T, 0}, 50, 320 * G, 1e-5, 16 * GB, 2 * GB, 12 * G, 12 * G, "sm_75"},
      {"A10G", "cuda", {27.9 * T, 55 * T, 55 * T}, 60, 600 * G, 1e-5, 24 * GB, 2 * GB, 24 * G, 24 * G, "sm_86"},
      {"A30", "cuda", {9.27 * T, 124 * T, 124 * T}, 100, 933 * G, 1e-5, 24 * GB, 2 * GB, 100 * G, 24 * G, "sm_80"},
      {"A40", "cuda", {33.66 * T, 112 * T, 112 * T}, 90, 696 * G, 1e-5, 48 * GB, 2 * GB, 56 * G, 24 * G, "sm_86"},
      {"A6000", "cuda", {34.83 * T, 116 * T, 116 * T}, 90, 768 * G, 1e-5, 48 * GB, 2 * GB, 56 * G, 24 * G, "sm_86"},
      {"RTX3090", "cuda", {32.04 * T, 55 * T, 55 * T}, 80, 936 * G, 1e-5, 24 * GB, 2 * GB, 56 * G, 24 * G, "sm_86"},
      {"RTX4090", "cuda", {74.34 * T, 125 * T, 125 * T}, 120, 1008 * G, 1e-5, 24 * GB, 2 * GB, 24 * G, 24 * G, "sm_89"},
      {"RTX5090", "cuda", {94.5 * T, 157 * T, 157 * T}, 150, 1790 * G, 1e-5, 32 * GB, 2 * GB, 48 * G, 48 * G, "sm_120"},
      {"L4", "cuda", {27.27 * T, 85 * T, 85 * T}, 60, 300 * G, 1e-5, 24 * GB, 2 * GB, 24 * G, 24 * G, "sm_89"},
      {"L40S", "cuda", {82.44 * T, 250 * T, 250 * T}, 140, 864 * G, 1e-5, 48 * GB, 2 * GB, 24 * G, 24 * G, "sm_89"},
      {"A100-40", "cuda", {17.55 * T, 253 * T, 253 * T}, 120, 1555 * G, 1e-5, 40 * GB, 2 * GB, 300 * G, 24 * G, "sm_80"},
      {"A100-80", "cuda", {17.55 * T, 271 * T, 271 * T}, 120, 2000 * G, 1e-5, 80 * GB, 2 * GB, 300 * G, 24 * G, "sm_80"},
      {"H100-PCIe", "cuda", {45.9 * T, 560 * T, 560 * T}, 180, 2000 * G, 1e-5, 80 * GB, 2 * GB, 300 * G, 48 * G, "sm_90"},
      {"H100-SXM", "cuda", {60.3 * T, 794 * T, 794 * T}, 200, 3350 * G, 1e-5, 80 * GB, 2 * GB, 450 * G, 48 * G, "sm_90"},
      {"H200", "cuda", {60.3 * T, 794 * T, 794 * T}, 200, 4800 * G, 1e-5, 141 * GB, 2 * GB, 450 * G, 48 * G, "sm_90"},
      {"B200", "cuda", {72 * T, 1745 * T, 1745 * T}, 300, 8000 * G, 1e-5, 180 * GB, 2 * GB, 900 * G, 48 * G, "sm_100"},
  };
  return types;
}

const DeviceType *zorse::planning::findDeviceType(const std::string &name) {
  for (const DeviceType &type : deviceTypes())
    if (name == type.name)
      return &type;
  return nullptr;
}
