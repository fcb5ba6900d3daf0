// Stand-in for libcuda.so.1. GPU memory is host memory; kernels are bitcode and run on the
// emulator. Unordered accesses are detected (Streams.h) and printed, and the call fails.
//
// - ZORSE_EMULATOR_DRIVER=n: the CUDA version of the driver, default 13000
// - ZORSE_EMULATOR_CHECK=1: check every access of kernels
// - ZORSE_EMULATOR_DEVICES=n: the number of GPUs, default 1
// - ZORSE_EMULATOR_GPUS=list: these GPUs instead, as "MODEL,CAPABILITY,MIB,BUS;...", the fastest
//   first, as in CUDA's default order; for example "Tesla T4,75,15360,41". CUDA_DEVICE_ORDER sets
//   their order; CUDA_VISIBLE_DEVICES takes numbers and UUIDs. All models are replaced by the
//   emulator's architecture, "emu", unless the list ends with ";real"
// - ZORSE_EMULATOR_PACE=rate: work takes the time of its bytes of GPU memory at this rate
//   (bytes/s); streams have threads
// - ZORSE_EMULATOR_LINK=rate: at a pace, transfers between a GPU and the host, or between GPUs
//   (FakeNccl.cpp), take the time of their bytes at this rate; default: no additional time
// - ZORSE_EMULATOR_COMPUTE=0: at a pace, kernels and products only take their time and compute
//   nothing, so that times do not depend on the machine
// - ZORSE_EMULATOR_IDLE=1: skip the work that a run puts on its queues' streams, for measuring the
//   host's time
// - ZORSE_EMULATOR_DELAYS=seed: streams have threads that sleep at random, up to 2 ms; default:
//   work is done when it is put on a stream
#include "DriverHandles.h"
#include "EmulatedGpus.h"
#include "HostCode.h"
#include "StandIn.h"
#include "Streams.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

using namespace zorse::emulator;

// The driver's handles and addresses are numbers.
// NOLINTBEGIN(performance-no-int-to-ptr)

namespace {

/// Shared memory of a block: the default limit, and the maximum on request on sm_86 and later.
constexpr unsigned kSharedUnasked = 48 << 10, kMaxShared = 99 << 10;
constexpr int kInvalidValue = 1, kOutOfMemory = 2, kInvalidDevice = 101, kInvalidContext = 201,
              kInvalidHandle = 400, kNotFound = 500, kInvalidImage = 200, kLaunchFailed = 719;

std::mutex mutex;
bool isSet(const char *name) {
  const char *text = std::getenv(name);
  return text && std::strcmp(text, "0") != 0;
}

struct Kernel {
  const HostKernel *code;
  std::string name;
  const int64_t *needs; ///< runtime/abi/KernelAbi.h
  unsigned maxShared;   ///< maximum bytes that a launch may give a block
};
struct Module {
  size_t gpu = 0;
  std::unique_ptr<HostCode> code;
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

thread_local void *current = nullptr; ///< context: the GPU's number plus one

/// All allocations are in host memory. `pinned`: pinned host memory for the driver, which takes no
/// time of the GPU's memory.
struct Allocation {
  size_t bytes;
  bool pinned;
  size_t gpu;
};
std::map<uintptr_t, Allocation> allocations;
std::map<size_t, size_t> used; ///< bytes used of a GPU's own memory

DriverHandles handles;
DriverHandles untimed; ///< events that do not record times

size_t currentGpu() { return size_t(uintptr_t(current)) - 1; }

/// When the host's own time is measured, handles are not looked up, because that would count as
/// time of the runtime.
bool looksUp() {
  static const bool does = !isSet("ZORSE_EMULATOR_IDLE");
  return does;
}

/// The error of a call on a stream under the current context; 0: none. Null is the blocking stream
/// of the current context.
int refuses(const void *stream) {
  if (!current)
    return kInvalidContext;
  return stream && looksUp() && handles.gpu(stream) != currentGpu() ? kInvalidHandle : 0;
}
int refuses(const void *event, const void *stream) {
  if (int refused = refuses(stream))
    return refused;
  return !looksUp() || handles.gpu(event) == currentGpu() ? 0 : kInvalidHandle;
}
bool exists(const void *handle) {
  return !looksUp() || handles.gpu(handle) != DriverHandles::kNone;
}

size_t memoryOf(size_t gpu) { return size_t(gpus()[gpu].mebibytes) << 20; }

int allocate(void **address, size_t bytes, bool pinned) {
  const size_t size = (bytes + 511) / 512 * 512;
  if (!current)
    return kInvalidContext;
  const size_t gpu = currentGpu();
  if (!pinned) {
    std::lock_guard<std::mutex> lock(mutex);
    if (used[gpu] + size > memoryOf(gpu))
      return kOutOfMemory;
    used[gpu] += size;
  }
  *address = std::aligned_alloc(512, size);
  if (!*address)
    return kOutOfMemory;
  std::lock_guard<std::mutex> lock(mutex);
  allocations[uintptr_t(*address)] = {size, pinned, gpu};
  return 0;
}

std::atomic<uint64_t> findings{0}, loads{0}, connections{0};

int said(const std::string &finding) {
  findings += !finding.empty();
  if (!finding.empty())
    std::fprintf(stderr, "emulator: %s\n", finding.c_str());
  return finding.empty() ? 0 : kLaunchFailed;
}

int release(uintptr_t address) {
  size_t size = 0;
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = allocations.find(address);
    if (found == allocations.end())
      return kInvalidValue;
    size = found->second.bytes;
    if (!found->second.pinned)
      used[found->second.gpu] -= size;
    allocations.erase(found);
  }
  const int result = said(forget(address, address + size));
  std::free(reinterpret_cast<void *>(address));
  return result;
}

Stream *streamOf(void *handle) { return static_cast<Stream *>(handle); }
StreamEvent *eventOf(void *handle) { return static_cast<StreamEvent *>(handle); }

std::atomic<uint64_t> pageableCopies{0};

/// An asynchronous copy to or from pageable host memory first waits for its stream.
void mindPageable(const void *onHost, size_t bytes, void *stream) {
  if (leavesOut(streamOf(stream)) || bytes == 0)
    return;
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto next = allocations.upper_bound(uintptr_t(onHost));
    if (next != allocations.begin() &&
        std::prev(next)->first + std::prev(next)->second.bytes >= uintptr_t(onHost) + bytes)
      return;
  }
  ++pageableCopies;
  waitForStreams(streamOf(stream));
}

/// A copy. Accesses to host memory that was not allocated here are not tracked.
int copy(const char *what, uintptr_t to, uintptr_t from, size_t bytes, void *stream) {
  if (int refused = refuses(stream))
    return refused;
  if (leavesOut(streamOf(stream)))
    return 0;
  return zorseStandInPut(
      streamOf(stream), what, {{from, from + bytes, false}, {to, to + bytes, true}}, [=] {
        std::memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes);
        return std::string();
      });
}
template <typename T> int set(const char *what, uintptr_t to, T value, size_t count, void *stream) {
  if (int refused = refuses(stream))
    return refused;
  return zorseStandInPut(streamOf(stream), what, {{to, to + count * sizeof(T), true}}, [=] {
    std::fill_n(reinterpret_cast<T *>(to), count, value);
    return std::string();
  });
}

} // namespace

void zorse::emulator::zorseStandInApart(Stream *stream) { runApart(stream); }
void zorse::emulator::zorseStandInConnects() { ++connections; }
void zorse::emulator::zorseStandInLoads() {
  ++loads;
  waitForStreams();
}
double zorse::emulator::zorseStandInBegan() { return workBegan(); }
void zorse::emulator::zorseStandInLasts(double until) { workLasts(until); }
bool zorse::emulator::zorseStandInComputes() {
  static const bool computes = !std::getenv("ZORSE_EMULATOR_COMPUTE") ||
                               isSet("ZORSE_EMULATOR_COMPUTE");
  return computes;
}
double zorse::emulator::zorseStandInLinkSeconds() {
  static const double seconds = [] {
    const char *rate = std::getenv("ZORSE_EMULATOR_LINK");
    return rate ? 1 / std::atof(rate) : 0;
  }();
  return seconds;
}
bool zorse::emulator::zorseStandInLeavesOut(const Stream *stream) { return leavesOut(stream); }
int zorse::emulator::zorseStandInCapability() {
  return current ? gpus()[uintptr_t(current) - 1].capability : 0;
}
int zorse::emulator::zorseStandInUnit() {
  return current ? gpus()[uintptr_t(current) - 1].bus : -1;
}

int zorse::emulator::zorseStandInPut(Stream *stream, const std::string &what,
                                     std::vector<Access> accesses,
                                     std::function<std::string()> run) {
  uint64_t ofHost = 0; // bytes
  {
    std::lock_guard<std::mutex> lock(mutex);
    accesses.erase(std::remove_if(accesses.begin(), accesses.end(),
                                  [&](Access &access) {
                                    auto next = allocations.upper_bound(access.begin);
                                    const bool known = next != allocations.begin() &&
                                                       std::prev(next)->first +
                                                               std::prev(next)->second.bytes >=
                                                           access.end;
                                    if (known && !std::prev(next)->second.pinned)
                                      return false;
                                    ofHost += access.takesTime ? access.end - access.begin : 0;
                                    access.takesTime = false;
                                    return !known;
                                  }),
                   accesses.end());
  }
  return said(
      put(stream, what, accesses, std::move(run), double(ofHost) * zorseStandInLinkSeconds()));
}

extern "C" {

int cuInit(unsigned) {
  if (const char *seed = std::getenv("ZORSE_EMULATOR_DELAYS"))
    runAtRandom(uint64_t(std::atoll(seed)), 2e-3);
  if (const char *rate = std::getenv("ZORSE_EMULATOR_PACE"))
    runAtPace(std::atof(rate));
  if (isSet("ZORSE_EMULATOR_IDLE"))
    leaveWorkOut();
  return 0;
}
int cuDriverGetVersion(int *version) {
  const char *text = std::getenv("ZORSE_EMULATOR_DRIVER");
  return *version = text ? std::atoi(text) : 13000, 0;
}
int cuGetErrorName(int error, const char **text) {
  *text = error == kOutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == kNotFound       ? "CUDA_ERROR_NOT_FOUND"
          : error == kLaunchFailed   ? "CUDA_ERROR_LAUNCH_FAILED"
          : error == kInvalidContext ? "CUDA_ERROR_INVALID_CONTEXT"
          : error == kInvalidHandle  ? "CUDA_ERROR_INVALID_HANDLE"
                                     : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}
int cuGetErrorString(int, const char **text) { return *text = "error of the emulator", 0; }
int cuDeviceGetCount(int *count) { return *count = int(gpus().size()), 0; }
int cuDeviceGet(int *device, int ordinal) {
  if (ordinal < 0 || size_t(ordinal) >= gpus().size())
    return kInvalidDevice;
  return *device = ordinal, 0;
}
int cuDeviceGetName(char *name, int length, int device) {
  return std::snprintf(name, size_t(length), "%s", gpus()[size_t(device)].model.c_str()), 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  const int capability = gpus()[size_t(device)].capability;
  *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 1;
  return 0;
}
int cuDeviceGetPCIBusId(char *id, int length, int device) {
  return std::snprintf(id, size_t(length), "0000:%02x:00.0", gpus()[size_t(device)].bus), 0;
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  std::memset(uuid, 0, 16);
  return uuid[15] = static_cast<unsigned char>(gpus()[size_t(device)].bus), 0;
}
int cuMemGetInfo_v2(size_t *left, size_t *all) {
  if (!current)
    return kInvalidContext;
  const size_t gpu = currentGpu();
  std::lock_guard<std::mutex> lock(mutex);
  *all = memoryOf(gpu);
  return *left = *all - used[gpu], 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  return *bytes = size_t(gpus()[size_t(device)].mebibytes) << 20, 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  return *context = reinterpret_cast<void *>(uintptr_t(device + 1)), 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void *context) { return current = context, 0; }
int cuCtxGetDevice(int *device) {
  if (!current)
    return kInvalidContext;
  return *device = int(uintptr_t(current)) - 1, 0;
}

int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
  return allocate(reinterpret_cast<void **>(address), bytes, false);
}
int cuMemFree_v2(unsigned long long address) { return release(address); }
int cuMemHostAlloc(void **address, size_t bytes, unsigned) {
  return allocate(address, bytes, true);
}
int cuMemFreeHost(void *address) { return release(uintptr_t(address)); }
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes) {
  return copy("a write", to, uintptr_t(from), bytes, nullptr);
}
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes) {
  return copy("a read", uintptr_t(to), from, bytes, nullptr);
}
int cuMemcpy(unsigned long long to, unsigned long long from, size_t bytes) {
  return copy("a copy", to, from, bytes, nullptr);
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *stream) {
  mindPageable(from, bytes, stream);
  return copy("a write", to, uintptr_t(from), bytes, stream);
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *stream) {
  mindPageable(to, bytes, stream);
  return copy("a read", uintptr_t(to), from, bytes, stream);
}
int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes, void *stream) {
  return copy("a copy", to, from, bytes, stream);
}
int cuMemsetD8_v2(unsigned long long to, unsigned char value, size_t bytes) {
  return set("a fill", to, value, bytes, nullptr);
}
int cuMemsetD32_v2(unsigned long long to, unsigned value, size_t words) {
  return set("a fill", to, value, words, nullptr);
}

int cuStreamCreate(void **stream, unsigned) {
  if (!current)
    return kInvalidContext;
  *stream = makeStream();
  return handles.add(*stream, currentGpu()), 0;
}
int cuStreamSynchronize(void *stream) {
  if (stream ? !exists(stream) : !current)
    return stream ? kInvalidHandle : kInvalidContext;
  return said(synchronize(streamOf(stream)));
}
int cuStreamDestroy_v2(void *stream) {
  if (!handles.remove(stream))
    return kInvalidHandle;
  return destroyStream(streamOf(stream)), 0;
}
int cuStreamWaitEvent(void *stream, void *event, unsigned) {
  if (int refused = refuses(stream)) // the event may belong to another GPU
    return refused;
  return exists(event) ? said(wait(streamOf(stream), eventOf(event))) : kInvalidHandle;
}
int cuEventCreate(void **event, unsigned flags) {
  if (!current)
    return kInvalidContext;
  *event = makeEvent();
  if (flags & 2) // CU_EVENT_DISABLE_TIMING
    untimed.add(*event, currentGpu());
  return handles.add(*event, currentGpu()), 0;
}
int cuEventDestroy_v2(void *event) {
  if (!handles.remove(event))
    return kInvalidHandle;
  untimed.remove(event);
  return destroyEvent(eventOf(event)), 0;
}
int cuEventRecord(void *event, void *stream) {
  if (int refused = refuses(event, stream))
    return refused;
  return said(record(eventOf(event), streamOf(stream)));
}
int cuEventSynchronize(void *event) {
  return exists(event) ? said(synchronize(eventOf(event))) : kInvalidHandle;
}
int cuEventElapsedTime(float *milliseconds, void *from, void *to) {
  if (!exists(from) || handles.gpu(from) != handles.gpu(to) ||
      untimed.gpu(from) != DriverHandles::kNone || untimed.gpu(to) != DriverHandles::kNone)
    return kInvalidHandle;
  const double begin = secondsOf(eventOf(from)), end = secondsOf(eventOf(to));
  *milliseconds = float((end - begin) * 1e3);
  return said(begin > 0 && end > 0 ? ""
                                   : "the time of an event is asked for that was never recorded");
}

/// Writes `text` to CU_JIT_ERROR_LOG_BUFFER, truncated to CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES. The
/// image is the output of code generation for "emu": bitcode modules, each preceded by its length,
/// and a length of 0 at the end.
static void writeErrorLog(const std::string &text, unsigned count, const int *options,
                          void **values) {
  char *log = nullptr;
  size_t bytes = 0;
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == 5)
      log = static_cast<char *>(values[i]);
    else if (options[i] == 6)
      bytes = reinterpret_cast<size_t>(values[i]);
  if (log && bytes)
    std::snprintf(log, bytes, "%s", text.c_str());
}
int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options,
                       void **values) {
  if (!current)
    return kInvalidContext;
  const auto *bytes = static_cast<const char *>(image);
  size_t end = 0;
  for (uint64_t length; std::memcpy(&length, bytes + end, 8), length != 0;) {
    if (length > (uint64_t(1) << 30))
      return kInvalidImage;
    end += 8 + length;
  }
  std::string error;
  auto made = std::make_unique<Module>();
  made->code = HostCode::compile(std::string(bytes, end), error, isSet("ZORSE_EMULATOR_CHECK"));
  if (!made->code) {
    writeErrorLog(error, count, options, values);
    return kInvalidImage;
  }
  made->gpu = currentGpu();
  *module = made.release();
  return 0;
}
int cuModuleUnload(void *module) {
  for (const auto &[name, kernel] : static_cast<Module *>(module)->kernels)
    handles.remove(kernel.get());
  return delete static_cast<Module *>(module), 0;
}
int cuModuleGetFunction(void **function, void *handle, const char *name) {
  auto &module = *static_cast<Module *>(handle);
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Kernel> &kernel = module.kernels[name];
  if (!kernel) {
    const HostKernel *code = module.code->find(name);
    const Range needs = module.code->table(std::string(name) + "_needs");
    if (!code || !needs.begin)
      return kNotFound;
    kernel = std::make_unique<Kernel>(
        Kernel{code, name, reinterpret_cast<const int64_t *>(needs.begin), kSharedUnasked});
    handles.add(kernel.get(), module.gpu);
  }
  *function = kernel.get();
  return 0;
}
int cuModuleGetGlobal_v2(unsigned long long *address, size_t *bytes, void *module,
                         const char *name) {
  const Range table = static_cast<Module *>(module)->code->table(name);
  if (!table.begin)
    return kNotFound;
  *address = table.begin;
  *bytes = table.end - table.begin;
  return 0;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  if (attribute != 8 || value < 0 || unsigned(value) > kMaxShared)
    return kInvalidValue;
  static_cast<Kernel *>(function)->maxShared = unsigned(value);
  return 0;
}
int cuLaunchKernel(void *function, unsigned gridX, unsigned, unsigned, unsigned blockX, unsigned,
                   unsigned, unsigned sharedBytes, void *stream, void **parameters, void **) {
  if (int refused = refuses(function, stream))
    return refused;
  const Kernel &kernel = *static_cast<Kernel *>(function);
  if (kernel.code->blockThreads && blockX != kernel.code->blockThreads) {
    std::fprintf(
        stderr,
        "emulator: kernel %s: a launch has blocks of %u threads, its code is for %u (reqntid)\n",
        kernel.name.c_str(), blockX, kernel.code->blockThreads);
    return kInvalidValue;
  }
  if (sharedBytes > kernel.maxShared) {
    std::fprintf(
        stderr,
        "emulator: kernel %s: a launch gives %u bytes of shared memory, %u were asked for\n",
        kernel.name.c_str(), sharedBytes, kernel.maxShared);
    return kInvalidValue;
  }
  if (leavesOut(streamOf(stream)))
    return 0;
  GridLaunch launch;
  launch.sharedBytes = sharedBytes;
  launch.blocks = gridX;
  launch.threads = blockX;
  const int64_t operands = kernel.needs[0];
  if (4 + operands != int64_t(kernel.code->parameters)) {
    std::fprintf(stderr, "emulator: kernel %s: %s parameters are launched, its code has %u\n",
                 kernel.name.c_str(), std::to_string(4 + operands).c_str(),
                 kernel.code->parameters);
    return kInvalidValue;
  }
  for (int64_t i = 0; i < 4 + operands; ++i)
    launch.parameters.push_back(*static_cast<uint64_t *>(parameters[i]));
  const auto rows = int64_t(launch.parameters[0]);
  std::vector<Access> accesses;
  for (int64_t i = 0; i < operands; ++i) {
    const int64_t *reach = kernel.needs + 3 + 4 * i;
    const uint64_t begin = launch.parameters[size_t(4 + i)];
    launch.operands.push_back({begin, begin + uint64_t(reach[0] + reach[1] * rows), reach[3] != 0});
    accesses.push_back({launch.operands.back().begin, launch.operands.back().end, reach[3] != 0});
  }
  return zorseStandInPut(streamOf(stream), "kernel " + kernel.name, accesses, [&kernel, launch] {
    std::string all;
    if (!zorseStandInComputes())
      return all;
    for (const std::string &finding : runGrid(*kernel.code, launch))
      all += (all.empty() ? "kernel " : "\nemulator: kernel ") + kernel.name + ": " + finding;
    return all;
  });
}

// Functions for tests.
void zorseStandInHostAccess(const void *from, size_t bytes, int write) {
  (void)said(accessByHost({uintptr_t(from), uintptr_t(from) + bytes, write != 0}));
}
void zorseStandInStreamAccess(void *stream, uint64_t from, size_t bytes, int write) {
  (void)said(accessByStream(streamOf(stream), write ? "a reduction" : "a gather",
                            {from, from + bytes, write != 0}));
}
void zorseStandInMutate(int mutation, uint64_t index) { mutate(Mutation(mutation), index); }
uint64_t zorseStandInCalls(int mutation) { return calls(Mutation(mutation)); }
uint64_t zorseStandInFindings() { return findings; }
uint64_t zorseStandInLoadCount() { return loads; }
uint64_t zorseStandInConnectionCount() { return connections; }
uint64_t zorseStandInPageableCopies() { return pageableCopies; }
void zorseStandInDelays(uint64_t seed, double max) { runAtRandom(seed, max); }

} // extern "C"
// NOLINTEND(performance-no-int-to-ptr)
