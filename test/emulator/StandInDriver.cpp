// Stands in for libcuda.so.1: memory is the host's, and kernels, which come as bitcode, run on the emulator when they are launched.
//
//   ZORSE_EMULATOR_CHECK=1     watch every access; what is found is printed and fails the launch
//   ZORSE_EMULATOR_DEVICES=n   so many GPUs, default 1
#include "HostCode.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

using namespace zorse::emulator;

// Handles and addresses of the driver are numbers.
// NOLINTBEGIN(performance-no-int-to-ptr)

namespace {

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotFound = 500, kInvalidImage = 200, kLaunchFailed = 719;

std::mutex mutex;
bool checks() {
  const char *text = std::getenv("ZORSE_EMULATOR_CHECK");
  return text && std::strcmp(text, "0") != 0;
}

struct Kernel {
  const HostKernel *code;
  std::string name;
  const int64_t *needs; ///< runtime/abi/KernelAbi.h
};
struct Module {
  std::unique_ptr<HostCode> code;
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

} // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuGetErrorName(int error, const char **text) {
  *text = error == kOutOfMemory    ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == kNotFound     ? "CUDA_ERROR_NOT_FOUND"
          : error == kLaunchFailed ? "CUDA_ERROR_LAUNCH_FAILED"
                                   : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}
int cuGetErrorString(int, const char **text) { return *text = "said by the emulator", 0; }
int cuDeviceGetCount(int *count) {
  const char *text = std::getenv("ZORSE_EMULATOR_DEVICES");
  *count = text ? std::atoi(text) : 1;
  return 0;
}
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char *name, int length, int) { return std::snprintf(name, size_t(length), "Zorse emulator"), 0; }
int cuDeviceGetAttribute(int *value, int attribute, int) {
  *value = attribute == 75 ? 8 : attribute == 76 ? 0 : 1;
  return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int) { return *bytes = size_t(8) << 30, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = reinterpret_cast<void *>(uintptr_t(device + 1)), 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void *) { return 0; }

static int allocate(void **address, size_t bytes) {
  *address = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  return *address ? 0 : kOutOfMemory;
}
int cuMemAllocManaged(unsigned long long *address, size_t bytes, unsigned) { return allocate(reinterpret_cast<void **>(address), bytes); }
int cuMemFree_v2(unsigned long long address) { return std::free(reinterpret_cast<void *>(address)), 0; }
int cuMemHostAlloc(void **address, size_t bytes, unsigned) { return allocate(address, bytes); }
int cuMemFreeHost(void *address) { return std::free(address), 0; }
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *) {
  return std::memcpy(reinterpret_cast<void *>(to), from, bytes), 0;
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *) {
  return std::memcpy(to, reinterpret_cast<void *>(from), bytes), 0;
}
int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes, void *) {
  return std::memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes), 0;
}
int cuMemsetD8Async(unsigned long long to, unsigned char value, size_t bytes, void *) {
  return std::memset(reinterpret_cast<void *>(to), value, bytes), 0;
}
int cuMemsetD32Async(unsigned long long to, unsigned value, size_t words, void *) {
  return std::fill_n(reinterpret_cast<unsigned *>(to), words, value), 0;
}
int cuStreamCreate(void **stream, unsigned) { return *stream = reinterpret_cast<void *>(uintptr_t(1)), 0; }
int cuStreamSynchronize(void *) { return 0; }
int cuStreamDestroy_v2(void *) { return 0; }

/// The image is what code generation writes for "emu": modules of bitcode, each behind its length, and a length of 0 at the end.
int cuModuleLoadDataEx(void **module, const void *image, unsigned, int *, void **) {
  const auto *bytes = static_cast<const char *>(image);
  size_t end = 0;
  for (uint64_t length; std::memcpy(&length, bytes + end, 8), length != 0;) {
    if (length > (uint64_t(1) << 30))
      return kInvalidImage;
    end += 8 + length;
  }
  std::string error;
  auto made = std::make_unique<Module>();
  made->code = HostCode::compile(std::string(bytes, end), error, checks());
  if (!made->code) {
    std::fprintf(stderr, "emulator: %s\n", error.c_str());
    return kInvalidImage;
  }
  *module = made.release();
  return 0;
}
int cuModuleUnload(void *module) { return delete static_cast<Module *>(module), 0; }
int cuModuleGetFunction(void **function, void *handle, const char *name) {
  auto &module = *static_cast<Module *>(handle);
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Kernel> &kernel = module.kernels[name];
  if (!kernel) {
    const HostKernel *code = module.code->find(name);
    const Range needs = module.code->table(std::string(name) + "_needs");
    if (!code || !needs.begin)
      return kNotFound;
    kernel = std::make_unique<Kernel>(Kernel{code, name, reinterpret_cast<const int64_t *>(needs.begin)});
  }
  *function = kernel.get();
  return 0;
}
int cuModuleGetGlobal_v2(unsigned long long *address, size_t *bytes, void *module, const char *name) {
  const Range table = static_cast<Module *>(module)->code->table(name);
  if (!table.begin)
    return kNotFound;
  *address = table.begin;
  *bytes = table.end - table.begin;
  return 0;
}
int cuLaunchKernel(void *function, unsigned gridX, unsigned, unsigned, unsigned blockX, unsigned, unsigned, unsigned, void *, void **parameters,
                   void **) {
  const Kernel &kernel = *static_cast<Kernel *>(function);
  GridLaunch launch;
  launch.blocks = gridX;
  launch.threads = blockX;
  const int64_t operands = kernel.needs[0];
  for (int64_t i = 0; i < 4 + operands; ++i)
    launch.parameters.push_back(*static_cast<uint64_t *>(parameters[i]));
  const auto rows = int64_t(launch.parameters[0]);
  for (int64_t i = 0; i < operands; ++i) {
    const int64_t *reach = kernel.needs + 3 + 4 * i;
    const uint64_t begin = launch.parameters[size_t(4 + i)];
    launch.operands.push_back({begin, begin + uint64_t(reach[0] + reach[1] * rows), reach[3] != 0});
  }
  std::vector<std::string> findings = runGrid(*kernel.code, launch);
  for (const std::string &finding : findings)
    std::fprintf(stderr, "emulator: kernel %s: %s\n", kernel.name.c_str(), finding.c_str());
  return findings.empty() ? 0 : kLaunchFailed;
}

} // extern "C"
// NOLINTEND(performance-no-int-to-ptr)
