#include "zorse/runtime/CpuDevice.h"

#include "CpuBody.h"
#include "ThreadPool.h"
#include "bundle.pb.h"

#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace zorse;
using namespace zorse::runtime;

namespace {

/// Anonymous pages, huge where the system gives them: first touch then costs a sixth.
class MappedMemory final : public DeviceMemory {
public:
  MappedMemory(std::byte *base, size_t bytes, size_t mapped) : base_(base), bytes_(bytes), mapped_(mapped) {}
  ~MappedMemory() override { ::munmap(base_, mapped_); }
  std::byte *base() const override { return base_; }
  size_t bytes() const override { return bytes_; }

private:
  std::byte *base_;
  size_t bytes_, mapped_;
};

/// The instruction sets a bundle may ask for, by the names of `-march`.
bool processorRuns(const std::string &arch) {
#if defined(__x86_64__)
  if (arch == "x86-64-v4")
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (arch == "x86-64-v3")
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (arch == "x86-64-v2")
    return __builtin_cpu_supports("sse4.2");
  return arch == "x86-64" || arch.empty();
#else
  return true;
#endif
}

} // namespace

struct CpuDevice::Impl {
  CpuDeviceOptions options;
  const Gemm *gemm = nullptr;
  std::unique_ptr<ThreadPool> pool;
  std::vector<void *> objects; ///< of dlopen
  std::vector<CpuBody> bodies;
  std::mutex running;
  std::atomic<uint64_t> launches{0};

  ~Impl() {
    for (void *object : objects)
      ::dlclose(object);
  }

  void *find(const std::string &symbol) const {
    for (void *object : objects)
      if (void *address = ::dlsym(object, symbol.c_str()))
        return address;
    return nullptr;
  }

  Result<CpuBody> prepare(const bundle::Body &body) const {
    return CpuBody::create(body, [this](const std::string &symbol) { return find(symbol); });
  }
};

CpuDevice::CpuDevice(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CpuDevice::~CpuDevice() = default;

Result<std::unique_ptr<CpuDevice>> CpuDevice::create(const CpuDeviceOptions &options) {
  if (options.threads < 1 || options.threads > 1024)
    return userError("device '" + options.name + "': expects 1 to 1024 threads, got " + std::to_string(options.threads));
  Result<const Gemm *> gemm = chooseGemm(options.gemm);
  if (gemm.failed())
    return gemm.error();
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->gemm = *gemm;
  impl->pool = std::make_unique<ThreadPool>(options.threads, options.spin);
  return std::unique_ptr<CpuDevice>(new CpuDevice(std::move(impl)));
}

std::string CpuDevice::description() const {
  int threads = impl_->options.threads;
  return impl_->options.name + " (cpu, " + std::to_string(threads) + (threads == 1 ? " thread)" : " threads)");
}

Result<std::string> CpuDevice::matrixLibrary() {
  Result<const Gemm *> gemm = chooseGemm({});
  return gemm.failed() ? Result<std::string>(gemm.error()) : Result<std::string>((*gemm)->identity());
}

std::string CpuDevice::gemmName() const { return impl_->gemm->name(); }

Result<std::unique_ptr<DeviceMemory>> CpuDevice::allocate(size_t bytes, const AllocationOptions &options) {
  constexpr size_t kHugePage = size_t(2) << 20;
  size_t mapped = std::max<size_t>((bytes + 4095) / 4096 * 4096, 4096);
  // Room to start on a huge page; the rest is given back.
  size_t reserved = mapped >= kHugePage ? mapped + kHugePage : mapped;
  void *address = ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    return userError("device '" + impl_->options.name + "': cannot reserve " + std::to_string(bytes) + " bytes of memory: " + std::strerror(errno));
  auto start = reinterpret_cast<uintptr_t>(address);
  if (reserved != mapped) {
    uintptr_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
    if (aligned != start)
      ::munmap(address, aligned - start);
    if (size_t behind = start + reserved - (aligned + mapped))
      ::munmap(reinterpret_cast<void *>(aligned + mapped), behind);
    start = aligned;
    ::madvise(reinterpret_cast<void *>(start), mapped, MADV_HUGEPAGE);
  }
  auto *base = reinterpret_cast<std::byte *>(start);
  if (options.poison)
    for (size_t i = 0; i + sizeof kPoisonWord <= mapped; i += sizeof kPoisonWord)
      std::memcpy(base + i, &kPoisonWord, sizeof kPoisonWord);
  return std::unique_ptr<DeviceMemory>(new MappedMemory(base, bytes, mapped));
}

Status CpuDevice::loadObject(const std::string &path) {
  std::string absolute = path.find('/') == std::string::npos ? "./" + path : path;
  void *object = ::dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!object)
    return userError("kernel object '" + path + "' cannot be loaded: " + ::dlerror());
  impl_->objects.push_back(object);
  return Status::success();
}

Status CpuDevice::loadBodies(const bundle::BodyLibrary &library, const std::string &kernelDirectory) {
  if (!processorRuns(library.arch()))
    return userError("device '" + impl_->options.name + "': the bundle's kernels are for " + library.arch() +
                     ", which this processor does not run; compile for this machine");
  for (const std::string &object : library.objects())
    if (Status status = loadObject(kernelDirectory + "/" + library.arch() + "/" + object); status.failed())
      return status;
  for (const bundle::Body &body : library.bodies())
    if (Status status = addBody(body); status.failed())
      return status;
  return Status::success();
}

Status CpuDevice::addBody(const bundle::Body &body) {
  Result<CpuBody> prepared = impl_->prepare(body);
  if (prepared.failed())
    return prepared.error();
  impl_->bodies.push_back(std::move(*prepared));
  return Status::success();
}

Status CpuDevice::runBody(uint32_t index, const BodyArguments &arguments) {
  if (index >= impl_->bodies.size())
    return internalError("body " + std::to_string(index) + " of " + std::to_string(impl_->bodies.size()) + " is called");
  std::lock_guard<std::mutex> lock(impl_->running);
  impl_->bodies[index].run(arguments, *impl_->pool, *impl_->gemm, impl_->launches);
  return Status::success();
}

Status CpuDevice::runBody(const bundle::Body &body, const BodyArguments &arguments) {
  Result<CpuBody> prepared = impl_->prepare(body);
  if (prepared.failed())
    return prepared.error();
  std::lock_guard<std::mutex> lock(impl_->running);
  prepared->run(arguments, *impl_->pool, *impl_->gemm, impl_->launches);
  return Status::success();
}

uint64_t CpuDevice::launches() const { return impl_->launches.load(std::memory_order_relaxed); }

Status CpuDevice::copy(void *to, const void *from, size_t bytes) {
  if (bytes > 0)
    std::memmove(to, from, bytes);
  return Status::success();
}
