// Finds NVIDIA GPUs through the driver's management library (NVML), if it is installed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::cluster {

struct Gpu {
  std::string name;    ///< "NVIDIA A100-SXM4-40GB"
  std::string uuid;    ///< "GPU-5f1c..."; empty: unknown
  bool sliced = false; ///< MIG mode: programs see only slices of the GPU
  uint64_t memory = 0; ///< bytes
  int capability = 0;  ///< 10 times major plus minor compute capability, such as 86; 0: unknown
  unsigned pcieGeneration = 0, pcieWidth = 0;
  unsigned nvlinks = 0; ///< active links
  unsigned nvlinkVersion = 0;
};

/// \param library  path; empty: libnvidia-ml.so.1
/// \param note     receives the reason if the library is installed and fails
std::vector<Gpu> findGpus(const std::string &library, std::string &note);

/// Returns the GPUs, in bus order, that a process with CUDA_VISIBLE_DEVICES=`visible` sees. Entries
/// are indices or prefixes of UUIDs; the first invalid entry ends the list.
std::vector<Gpu> visibleGpus(const std::vector<Gpu> &gpus, const std::string &visible);

/// Returns the architecture to generate code for: the newest known one that is not newer than the
/// GPU and whose code later GPUs also run. Empty if there is none.
std::string archOfGpu(const Gpu &gpu);
/// Bytes/s of all links together, in each direction; 0: unknown.
double pcieBandwidth(const Gpu &gpu);
double nvlinkBandwidth(const Gpu &gpu);

} // namespace zorse::cluster
