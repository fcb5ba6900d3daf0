// The versions of cuBLASLt that are installed, and which of them serves a GPU.
#pragma once

#include "BlasLtApi.h"
#include "CudaApi.h"

#include <string>
#include <vector>

namespace zorse::runtime::cuda {

struct BlasLibrary {
  std::string name;   ///< "libcublasLt.so.13"
  size_t version = 0; ///< 130100 of 13.1.0
  BlasLtApi api;
};

/// What decides which library serves.
struct BlasHost {
  int driver = 0;     ///< CUDA version of the driver: 13000
  int capability = 0; ///< of the GPU, 10 times the major and the minor number
};

/// Of the GPU whose context is current.
Result<BlasHost> blasHostHere(const CudaApi &cuda);

/// Why a version cannot serve there, by NVIDIA's notes of its releases: "it needs a driver for CUDA 13.0, there is 12.4"; "": it can.
std::string whyNotServing(size_t version, const BlasHost &host);

/// "13.1.0"
std::string versionText(size_t version);

/// Those that can serve there, the newest first. The pointers stay good. An error where none does: it names what was found and why it does not serve.
Result<std::vector<const BlasLibrary *>> blasLibraries(const BlasHost &host);

} // namespace zorse::runtime::cuda
