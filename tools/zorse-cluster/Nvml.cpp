#include "Nvml.h"

#include "zorse/Bundle/DeviceKinds.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <sstream>
#include <utility>

using namespace zorse::cluster;

namespace {

// Subset of the NVML interface used here. It has not changed since driver 418.
using Handle = void *;
struct Memory {
  unsigned long long total, free, used;
};
constexpr unsigned kMaxLinks = 18, kMaxGpus = 1024;

struct Library {
  void *handle = nullptr;
  ~Library() {
    if (handle)
      dlclose(handle);
  }
  template <typename F> bool find(F &function, const char *name) {
    function = reinterpret_cast<F>(dlsym(handle, name));
    return function != nullptr;
  }
};

} // namespace

std::vector<Gpu> zorse::cluster::findGpus(const std::string &path, std::string &note) {
  std::vector<Gpu> gpus;
  Library library;
  library.handle = dlopen(path.empty() ? "libnvidia-ml.so.1" : path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library.handle) {
    if (!path.empty())
      note = path + ": cannot be loaded: " + dlerror();
    return gpus;
  }
  int (*init)() = nullptr, (*shutdown)() = nullptr, (*count)(unsigned *) = nullptr,
      (*handleOf)(unsigned, Handle *) = nullptr, (*nameOf)(Handle, char *, unsigned) = nullptr,
      (*memoryOf)(Handle, void *) = nullptr /* a Memory */,
      (*generation)(Handle, unsigned *) = nullptr, (*width)(Handle, unsigned *) = nullptr,
      (*linkState)(Handle, unsigned, unsigned *) = nullptr,
      (*linkVersion)(Handle, unsigned, unsigned *) = nullptr,
      (*capability)(Handle, int *, int *) = nullptr, (*uuidOf)(Handle, char *, unsigned) = nullptr,
      (*migMode)(Handle, unsigned *, unsigned *) = nullptr;
  if (!library.find(init, "nvmlInit_v2") || !library.find(shutdown, "nvmlShutdown") ||
      !library.find(count, "nvmlDeviceGetCount_v2") ||
      !library.find(handleOf, "nvmlDeviceGetHandleByIndex_v2") ||
      !library.find(nameOf, "nvmlDeviceGetName") ||
      !library.find(memoryOf, "nvmlDeviceGetMemoryInfo")) {
    note =
        "the NVML library does not provide all required functions; is the driver older than 418?";
    return gpus;
  }
  library.find(capability, "nvmlDeviceGetCudaComputeCapability");
  library.find(uuidOf, "nvmlDeviceGetUUID");
  library.find(migMode, "nvmlDeviceGetMigMode");
  library.find(generation, "nvmlDeviceGetMaxPcieLinkGeneration");
  library.find(width, "nvmlDeviceGetMaxPcieLinkWidth");
  library.find(linkState, "nvmlDeviceGetNvLinkState");
  library.find(linkVersion, "nvmlDeviceGetNvLinkVersion");
  if (int code = init(); code != 0) {
    note = "NVML initialization failed (error " + std::to_string(code) + "); is the driver loaded?";
    return gpus;
  }
  unsigned found = 0;
  if (int code = count(&found); code != 0)
    note = "NVML does not return the number of GPUs (error " + std::to_string(code) + ")";
  for (unsigned i = 0; i < std::min(found, kMaxGpus); ++i) {
    Handle handle = nullptr;
    char name[128] = "";
    Memory memory = {};
    if (handleOf(i, &handle) != 0 || nameOf(handle, name, sizeof name - 1) != 0 ||
        memoryOf(handle, &memory) != 0) {
      note = "NVML does not return the properties of GPU " + std::to_string(i) + "; it is omitted";
      continue;
    }
    Gpu gpu;
    gpu.name = name;
    gpu.memory = memory.total;
    char uuid[96] = "";
    if (uuidOf && uuidOf(handle, uuid, sizeof uuid - 1) == 0)
      gpu.uuid = uuid;
    unsigned mode = 0, next = 0;
    gpu.sliced = migMode && migMode(handle, &mode, &next) == 0 && mode == 1;
    int major = 0, minor = 0;
    if (capability && capability(handle, &major, &minor) == 0)
      gpu.capability = major * 10 + minor;
    if (generation)
      generation(handle, &gpu.pcieGeneration);
    if (width)
      width(handle, &gpu.pcieWidth);
    for (unsigned link = 0; linkState && link < kMaxLinks; ++link) {
      unsigned active = 0;
      if (linkState(handle, link, &active) != 0 || !active)
        continue;
      ++gpu.nvlinks;
      if (linkVersion)
        linkVersion(handle, link, &gpu.nvlinkVersion);
    }
    gpus.push_back(gpu);
  }
  shutdown();
  return gpus;
}

std::vector<Gpu> zorse::cluster::visibleGpus(const std::vector<Gpu> &gpus,
                                             const std::string &visible) {
  std::vector<Gpu> seen;
  std::istringstream names(visible);
  for (std::string name; std::getline(names, name, ',');) {
    const bool number =
        !name.empty() && name.size() < 6 &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    auto found = gpus.end();
    if (number && std::stoul(name) < gpus.size())
      found = gpus.begin() + std::stol(name);
    else if (name.rfind("GPU-", 0) == 0)
      found = std::find_if(gpus.begin(), gpus.end(),
                           [&](const Gpu &gpu) { return gpu.uuid.rfind(name, 0) == 0; });
    if (found == gpus.end())
      break;
    seen.push_back(*found);
  }
  return seen;
}

std::string zorse::cluster::archOfGpu(const Gpu &gpu) {
  return gpu.capability > 0 ? deviceKindOf("cuda").codeFor("sm_" + std::to_string(gpu.capability))
                            : "";
}

double zorse::cluster::pcieBandwidth(const Gpu &gpu) {
  constexpr double lane[] = {0, 0.25e9, 0.5e9, 0.985e9, 1.97e9, 3.94e9, 7.56e9};
  // Protocol overhead leaves about 80 % of the bandwidth.
  return gpu.pcieGeneration < 7 ? 0.8 * lane[gpu.pcieGeneration] * gpu.pcieWidth : 0;
}

double zorse::cluster::nvlinkBandwidth(const Gpu &gpu) {
  constexpr double link[] = {0, 20e9, 25e9, 25e9, 25e9, 50e9};
  return gpu.nvlinks *
         (gpu.nvlinkVersion < 6 && gpu.nvlinkVersion > 0 ? link[gpu.nvlinkVersion] : 25e9);
}
