// The part of CUDA's driver API that this runtime uses, declared here: the build needs no toolkit,
// and the program starts without a driver. Names and values are those of cuda.h (CUDA 11 to 13).
#pragma once

#include "zorse/runtime/Status.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace zorse::runtime::cuda {

using CUresult = int;
using CUdevice = int;
using CUcontext = void *;
using CUstream = void *;
using CUevent = void *;
using CUmodule = void *;
using CUfunction = void *;
using CUdeviceptr = unsigned long long;

inline constexpr CUresult kSuccess = 0, kOutOfMemory = 2;
inline constexpr unsigned kStreamNonBlocking = 1, kHostAllocPortable = 1, kEventBlockingSync = 1,
                          kEventDisableTiming = 2;
inline constexpr int kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76;
inline constexpr int kMaxDynamicSharedSizeBytes = 8; ///< function attribute
inline constexpr int kJitErrorLogBuffer = 5, kJitErrorLogBytes = 6;

// name in the library, parameters
#define ZORSE_CUDA_FUNCTIONS(F)                                                                    \
  F(cuInit, (unsigned flags))                                                                      \
  F(cuDriverGetVersion, (int *version))                                                            \
  F(cuGetErrorName, (CUresult error, const char **text))                                           \
  F(cuGetErrorString, (CUresult error, const char **text))                                         \
  F(cuDeviceGetCount, (int *count))                                                                \
  F(cuDeviceGet, (CUdevice * device, int ordinal))                                                 \
  F(cuDeviceGetName, (char *name, int length, CUdevice device))                                    \
  F(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                            \
  F(cuDeviceGetPCIBusId, (char *id, int length, CUdevice device))                                  \
  F(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device))                                         \
  F(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                              \
  F(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                               \
  F(cuCtxSetCurrent, (CUcontext context))                                                          \
  F(cuCtxGetDevice, (CUdevice * device))                                                           \
  F(cuMemGetInfo_v2, (size_t *left, size_t *all))                                                  \
  F(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                                          \
  F(cuMemFree_v2, (CUdeviceptr address))                                                           \
  F(cuMemHostAlloc, (void **address, size_t bytes, unsigned flags))                                \
  F(cuMemFreeHost, (void *address))                                                                \
  F(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))       \
  F(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))             \
  F(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes))                             \
  F(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                                   \
  F(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                                    \
  F(cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t bytes))                            \
  F(cuMemsetD32_v2, (CUdeviceptr to, unsigned value, size_t words))                                \
  F(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))              \
  F(cuStreamCreate, (CUstream * stream, unsigned flags))                                           \
  F(cuStreamSynchronize, (CUstream stream))                                                        \
  F(cuStreamDestroy_v2, (CUstream stream))                                                         \
  F(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                           \
  F(cuEventCreate, (CUevent * event, unsigned flags))                                              \
  F(cuEventDestroy_v2, (CUevent event))                                                            \
  F(cuEventRecord, (CUevent event, CUstream stream))                                               \
  F(cuEventSynchronize, (CUevent event))                                                           \
  F(cuEventElapsedTime, (float *milliseconds, CUevent from, CUevent to))                           \
  F(cuModuleLoadDataEx,                                                                            \
    (CUmodule * module, const void *image, unsigned count, int *options, void **values))           \
  F(cuModuleUnload, (CUmodule module))                                                             \
  F(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))               \
  F(cuModuleGetGlobal_v2,                                                                          \
    (CUdeviceptr * address, size_t *bytes, CUmodule module, const char *name))                     \
  F(cuFuncSetAttribute, (CUfunction function, int attribute, int value))                           \
  F(cuLaunchKernel, (CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ,          \
                     unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,      \
                     CUstream stream, void **parameters, void **extra))

// Functions of newer drivers; null if the driver does not have them.
#define ZORSE_NEWER_CUDA_FUNCTIONS(F) F(cuDeviceGetUuid_v2, (unsigned char *uuid, CUdevice device))

struct CudaApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration
#define ZORSE_MEMBER(name, parameters) CUresult(*name) parameters = nullptr;
  ZORSE_CUDA_FUNCTIONS(ZORSE_MEMBER)
  ZORSE_NEWER_CUDA_FUNCTIONS(ZORSE_MEMBER)
#undef ZORSE_MEMBER

  /// "cuLaunchKernel: CUDA_ERROR_..., ...".
  std::string describe(const char *call, CUresult result) const;
  Status check(const char *call, CUresult result) const;
};

/// Text for messages about the GPU of the current context if it is out of memory: free bytes, used
/// bytes, and the recommended `reserve` in the cluster file. \param more  bytes that were requested
/// outside of the program's arena
std::string whatIsLeft(const CudaApi &cuda, size_t more = 0);

/// libcuda.so.1, loaded and initialized once per process. An error if there is no library or it has
/// no function that is needed.
Result<const CudaApi *> cudaApi();

} // namespace zorse::runtime::cuda
