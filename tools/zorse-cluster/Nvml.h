// NVIDIA GPUs, through the driver's library where it is found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::cluster {

struct Gpu {
  std::string name;    ///< "NVIDIA A100-SXM4-40GB"
  std::string uuid;    ///< "GPU-5f1c..."; "": not told
  bool sliced = false; ///< programs see its slices (MIG) alone
  uint64_t memory = 0;
  int capability = 0; ///< 10 times the major and the minor number of what its code can be for: 86; 0: not known
  unsigned pcieGeneration = 0, pcieWidth = 0;
  unsigned nvlinks = 0; ///< active
  unsigned nvlinkVersion = 0;
};

/// \param library  path; empty: libnvidia-ml.so.1
/// \param note     why there are none, if the library is there and fails
std::vector<Gpu> findGpus(const std::string &library, std::string &note);

/// Those of `gpus`, in their order on the bus, that a program sees for which CUDA_VISIBLE_DEVICES is `visible`: numbers and beginnings of UUIDs, up
/// to the first that is none.
std::vector<Gpu> visibleGpus(const std::vector<Gpu> &gpus, const std::string &visible);

/// The architecture of code for it: the newest known one that is not newer than the GPU, whose code later ones of the vendor run too; "" where none
/// is.
std::string archOfGpu(const Gpu &gpu);
/// bytes/s of matrix of links, each direction; 0: not known.
double pcieBandwidth(const Gpu &gpu);
double nvlinkBandwidth(const Gpu &gpu);

} // namespace zorse::cluster
