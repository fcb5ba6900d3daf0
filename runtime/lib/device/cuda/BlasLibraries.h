// Finds the installed versions of cuBLASLt and those that support a GPU.
#pragma once

#include "BlasLtApi.h"
#include "CudaApi.h"

#include <string>
#include <vector>

namespace zorse::runtime::cuda {

struct BlasLibrary {
  std::string name;   ///< "libcublasLt.so.13"
  size_t version = 0; ///< 130100 for 13.1.0
  BlasLtApi api;
};

/// Properties of a host and GPU that determine the supported libraries.
struct BlasHost {
  int driver = 0;     ///< CUDA version of the driver: 13000
  int capability = 0; ///< compute capability of the GPU: 10 * major + minor
};

/// For the GPU of the current context.
Result<BlasHost> blasHostHere(const CudaApi &cuda);

/// Why a version does not support the host, by NVIDIA's release notes: "it needs a driver for CUDA
/// 13.0, there is 12.4". Empty if it does.
std::string whyNotServing(size_t version, const BlasHost &host);

/// "13.1.0"
std::string versionText(size_t version);

/// The libraries that support the host, newest first. The pointers stay valid. If there is none,
/// the error names the libraries found and why they do not support it.
Result<std::vector<const BlasLibrary *>> blasLibraries(const BlasHost &host);

} // namespace zorse::runtime::cuda
