#include "CudaApi.h"

#include "LibraryFunctions.h"

#include <cstdlib>

using namespace zorse::runtime;
using namespace zorse::runtime::cuda;

std::string CudaApi::describe(const char *call, CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName)
    cuGetErrorName(result, &name);
  if (cuGetErrorString)
    cuGetErrorString(result, &text);
  return std::string(call) + ": " + (name ? name : "error " + std::to_string(result)) +
         (text ? std::string(", ") + text : "");
}

Status CudaApi::check(const char *call, CUresult result) const {
  return result == kSuccess ? Status::success() : Status(userError(describe(call, result)));
}

std::string zorse::runtime::cuda::whatIsLeft(const CudaApi &cuda, size_t more) {
  size_t left = 0, all = 0;
  if (cuda.cuMemGetInfo_v2(&left, &all) != kSuccess || all == 0)
    return {};
  const std::string known = "; " + std::to_string(left >> 20) + " of its " +
                            std::to_string(all >> 20) + " MiB are free";
  if (more)
    return known + "; the program's memory is allocated, and " + std::to_string(more >> 20) +
           " MiB outside of it are requested: compile with 'reserved_memory' of this device "
           "increased by that number in the cluster file";
  const size_t taken = (all - left) >> 20;
  return known + ", " + std::to_string(taken) +
         " MiB hold the driver's context, libraries and other programs (nvidia-smi shows them): "
         "end these, or compile with at least "
         "'reserved_memory: " +
         std::to_string(taken + 64) + " MiB' of this device in the cluster file";
}

static Result<CudaApi> load() {
  void *library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    return userError(std::string("CUDA devices need NVIDIA's driver: ") + ::dlerror());
  CudaApi api;
  std::string missing;
#define ZORSE_LOAD(name, parameters) findFunction(library, #name, api.name, missing);
  ZORSE_CUDA_FUNCTIONS(ZORSE_LOAD)
#undef ZORSE_LOAD
  std::string older;
#define ZORSE_LOAD(name, parameters) findFunction(library, #name, api.name, older);
  ZORSE_NEWER_CUDA_FUNCTIONS(ZORSE_LOAD)
#undef ZORSE_LOAD
  if (!missing.empty())
    return userError("libcuda.so.1 has no " + missing +
                     ": install a newer driver of NVIDIA (11.0 or later)");
  // The order of nvidia-smi, zorse-cluster and CUDA_VISIBLE_DEVICES. CUDA's default order is
  // fastest first.
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID",
           /*overwrite=*/0); // NOLINT(concurrency-mt-unsafe): before threads use the environment
  if (CUresult result = api.cuInit(0); result != kSuccess)
    return userError("CUDA devices cannot be used here: " + api.describe("cuInit", result));
  return api;
}

Result<const CudaApi *> zorse::runtime::cuda::cudaApi() {
  static const Result<CudaApi> api = load();
  if (api.failed())
    return api.error();
  return &*api;
}
