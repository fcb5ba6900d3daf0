// What is known about types of devices when a cluster file does not say.
#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/DeviceDefaults.h"

using namespace zorse::planning;

// Dense throughput of matrix products, FLOP/s: the vendor's figure, and what large products reach: in 16 bit as far as it was measured (A100 80 GB
// 271 and PCIe 253, H100 SXM 794, B200 1745 TFLOP/s: public tables), else assumed to be 75 % of the vendor's; in f32, without tensor cores, assumed
// to be 90 %. Where a type has no bfloat16, its speed is 0. Memory in vendors' gigabytes. How times follow from this: lib/Planning/Costs/GpuTimes.h.
const std::vector<DeviceType> &zorse::planning::deviceTypes() {
  constexpr double T = 1e12, G = 1e9;
  constexpr uint64_t GB = 1000000000ull;
  static const std::vector<DeviceType> types = {
      // name, driver, peak {f32, f16, bf16}, reached {f32, f16, bf16}, multiprocessors, memory bytes/s, seconds per call, memory, reserve, port,
      // PCIe, architecture
      {"cpu-thread", "cpu", {0, 0, 0}, {0.05 * T, 0.05 * T, 0.05 * T}, 0, kThreadBandwidth, kCpuLaunch, 0, 0, 10 * G, 0, ""},
      {"P100", "cuda", {10.6 * T, 21.2 * T, 0}, {9.54 * T, 16 * T, 0}, 56, 732 * G, 1e-5, 16 * GB, 2 * GB, 80 * G, 12 * G, "sm_60"},
      {"V100-16", "cuda", {15.7 * T, 125 * T, 0}, {14.13 * T, 90 * T, 0}, 80, 900 * G, 1e-5, 16 * GB, 2 * GB, 150 * G, 12 * G, "sm_70"},
      {"V100-32", "cuda", {15.7 * T, 125 * T, 0}, {14.13 * T, 90 * T, 0}, 80, 900 * G, 1e-5, 32 * GB, 2 * GB, 150 * G, 12 * G, "sm_70"},
      {"T4", "cuda", {8.1 * T, 65 * T, 0}, {7.29 * T, 45 * T, 0}, 40, 320 * G, 1e-5, 16 * GB, 2 * GB, 12 * G, 12 * G, "sm_75"},
      {"A10G", "cuda", {31 * T, 70 * T, 70 * T}, {27.9 * T, 55 * T, 55 * T}, 80, 600 * G, 1e-5, 24 * GB, 2 * GB, 24 * G, 24 * G, "sm_86"},
      {"A30", "cuda", {10.3 * T, 165 * T, 165 * T}, {9.27 * T, 124 * T, 124 * T}, 56, 933 * G, 1e-5, 24 * GB, 2 * GB, 100 * G, 24 * G, "sm_80"},
      {"A40", "cuda", {37.4 * T, 149.7 * T, 149.7 * T}, {33.66 * T, 112 * T, 112 * T}, 84, 696 * G, 1e-5, 48 * GB, 2 * GB, 56 * G, 24 * G, "sm_86"},
      {"A6000", "cuda", {38.7 * T, 154.8 * T, 154.8 * T}, {34.83 * T, 116 * T, 116 * T}, 84, 768 * G, 1e-5, 48 * GB, 2 * GB, 56 * G, 24 * G, "sm_86"},
      {"RTX3090", "cuda", {35.6 * T, 71 * T, 71 * T}, {32.04 * T, 55 * T, 55 * T}, 82, 936 * G, 1e-5, 24 * GB, 2 * GB, 56 * G, 24 * G, "sm_86"},
      {"RTX4090",
       "cuda",
       {82.6 * T, 165.2 * T, 165.2 * T},
       {74.34 * T, 125 * T, 125 * T},
       128,
       1008 * G,
       1e-5,
       24 * GB,
       2 * GB,
       24 * G,
       24 * G,
       "sm_89"},
      {"RTX5090",
       "cuda",
       {105 * T, 209.5 * T, 209.5 * T},
       {94.5 * T, 157 * T, 157 * T},
       170,
       1790 * G,
       1e-5,
       32 * GB,
       2 * GB,
       48 * G,
       48 * G,
       "sm_120"},
      {"L4", "cuda", {30.3 * T, 121 * T, 121 * T}, {27.27 * T, 85 * T, 85 * T}, 58, 300 * G, 1e-5, 24 * GB, 2 * GB, 24 * G, 24 * G, "sm_89"},
      {"L40S", "cuda", {91.6 * T, 362 * T, 362 * T}, {82.44 * T, 250 * T, 250 * T}, 142, 864 * G, 1e-5, 48 * GB, 2 * GB, 24 * G, 24 * G, "sm_89"},
      {"A100-40",
       "cuda",
       {19.5 * T, 312 * T, 312 * T},
       {17.55 * T, 253 * T, 253 * T},
       108,
       1555 * G,
       1e-5,
       40 * GB,
       2 * GB,
       300 * G,
       24 * G,
       "sm_80"},
      {"A100-80",
       "cuda",
       {19.5 * T, 312 * T, 312 * T},
       {17.55 * T, 271 * T, 271 * T},
       108,
       2000 * G,
       1e-5,
       80 * GB,
       2 * GB,
       300 * G,
       24 * G,
       "sm_80"},
      {"H100-PCIe", "cuda", {51 * T, 756 * T, 756 * T}, {45.9 * T, 560 * T, 560 * T}, 114, 2000 * G, 1e-5, 80 * GB, 2 * GB, 300 * G, 48 * G, "sm_90"},
      {"H100-SXM", "cuda", {67 * T, 989 * T, 989 * T}, {60.3 * T, 794 * T, 794 * T}, 132, 3350 * G, 1e-5, 80 * GB, 2 * GB, 450 * G, 48 * G, "sm_90"},
      {"H200", "cuda", {67 * T, 989 * T, 989 * T}, {60.3 * T, 794 * T, 794 * T}, 132, 4800 * G, 1e-5, 141 * GB, 2 * GB, 450 * G, 48 * G, "sm_90"},
      {"B200", "cuda", {80 * T, 2250 * T, 2250 * T}, {72 * T, 1745 * T, 1745 * T}, 148, 8000 * G, 1e-5, 180 * GB, 2 * GB, 900 * G, 48 * G, "sm_100"},
  };
  return types;
}

const DeviceType *zorse::planning::findDeviceType(const std::string &name) {
  for (const DeviceType &type : deviceTypes())
    if (name == type.name)
      return &type;
  return nullptr;
}
