#include "BlasLibraries.h"

#include "LibraryFunctions.h"

#include <algorithm>
#include <deque>

using namespace zorse::runtime;
using namespace zorse::runtime::cuda;

namespace {

constexpr const char *kInstall =
    "install CUDA's libraries, or the Python package nvidia-cublas (of CUDA 12: "
    "nvidia-cublas-cu12) and put its folder into LD_LIBRARY_PATH";

struct Installed {
  std::deque<BlasLibrary> libraries; ///< newest first
  std::string problems;              ///< why other libraries cannot be loaded
};

/// Every library has its own handle, so that several versions can be loaded.
void open(const char *name, size_t major, Installed &all) {
  void *handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    all.problems += (all.problems.empty() ? "" : "; ") + std::string(::dlerror());
    return;
  }
  BlasLibrary library;
  library.name = name;
  std::string missing;
#define ZORSE_LOAD(function, parameters)                                                           \
  findFunction(handle, #function, library.api.function, missing);
  ZORSE_BLAS_FUNCTIONS(ZORSE_LOAD)
#undef ZORSE_LOAD
  if (!missing.empty()) {
    all.problems += (all.problems.empty() ? "" : "; ") + std::string(name) + " has no " + missing;
    return;
  }
  library.api.cublasLtGetVersion =
      reinterpret_cast<size_t (*)()>(::dlsym(handle, "cublasLtGetVersion"));
  library.version = library.api.cublasLtGetVersion ? library.api.cublasLtGetVersion() : 0;
  if (library.version == 0)
    library.version = major * 10000;
  all.libraries.push_back(library);
}

const Installed &installed() {
  static const Installed all = [] {
    Installed found;
    open("libcublasLt.so.13", 13, found);
    open("libcublasLt.so.12", 12, found);
    open("libcublasLt.so.11", 11, found);
    return found;
  }();
  return all;
}

} // namespace

Result<BlasHost> zorse::runtime::cuda::blasHostHere(const CudaApi &cuda) {
  BlasHost host;
  CUdevice device = 0;
  int major = 0, minor = 0;
  if (Status status = cuda.check("cuDriverGetVersion", cuda.cuDriverGetVersion(&host.driver));
      status.failed())
    return status;
  if (Status status = cuda.check("cuCtxGetDevice", cuda.cuCtxGetDevice(&device)); status.failed())
    return status;
  for (auto [attribute, value] :
       {std::pair(kComputeCapabilityMajor, &major), {kComputeCapabilityMinor, &minor}})
    if (Status status =
            cuda.check("cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(value, attribute, device));
        status.failed())
      return status;
  host.capability = 10 * major + minor;
  return host;
}

std::string zorse::runtime::cuda::versionText(size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string zorse::runtime::cuda::whyNotServing(size_t version, const BlasHost &host) {
  // The first release that supports GPUs from a capability, and the first release that dropped GPUs
  // below one.
  struct Since {
    int capability;
    size_t version;
  };
  static constexpr Since kSince[] = {
      {103, 120900}, {100, 120800}, {89, 111100}, {86, 110200}, {80, 110000}};
  static constexpr Since kDropped[] = {{75, 130000}, {50, 120000}};
  const int major = int(version / 10000);
  if (host.driver < major * 1000)
    return "it needs a driver for CUDA " + std::to_string(major) + ".0, there is one for " +
           std::to_string(host.driver / 1000) + "." + std::to_string(host.driver % 1000 / 10);
  const std::string gpu = "GPUs of capability " + std::to_string(host.capability / 10) + "." +
                          std::to_string(host.capability % 10);
  for (const Since &dropped : kDropped)
    if (version >= dropped.version && host.capability < dropped.capability)
      return "it has dropped " + gpu;
  for (const Since &since : kSince)
    if (host.capability >= since.capability && version < since.version)
      return "it is older than " + gpu + ", which " + versionText(since.version) +
             " and later know";
  return {};
}

Result<std::vector<const BlasLibrary *>> zorse::runtime::cuda::blasLibraries(const BlasHost &host) {
  const Installed &all = installed();
  std::vector<const BlasLibrary *> serving;
  std::string why;
  for (const BlasLibrary &library : all.libraries) {
    const std::string problem = whyNotServing(library.version, host);
    if (problem.empty())
      serving.push_back(&library);
    else
      why += (why.empty() ? "" : "; ") + library.name + " (" + versionText(library.version) +
             "): " + problem;
  }
  if (!serving.empty())
    return serving;
  if (all.libraries.empty())
    return userError("CUDA devices need cuBLASLt (13, 12 or 11): " + all.problems + "; " +
                     kInstall);
  return userError("no installed cuBLASLt supports this GPU: " + why + "; " + kInstall);
}
