#include "zorse/runtime/CpuDevice.h"

#include "../HostMemory.h"
#include "CpuFunction.h"
#include "HalfGemm.h"
#include "Processor.h"
#include "ThreadPool.h"
#include "bundle.pb.h"
#include "zorse/Bundle/DeviceKinds.h"

#include <mutex>
#include <vector>

#include <dlfcn.h>

using namespace zorse;
using namespace zorse::runtime;

struct CpuDevice::Impl {
  CpuDeviceOptions options;
  const Gemm *gemm = nullptr;
  std::unique_ptr<ThreadPool> pool;
  std::vector<void *> objects;                          ///< handles of dlopen
  std::vector<std::shared_ptr<const MemoryFile>> files; ///< files of the objects
  std::vector<CpuFunction> functions;
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

  Result<CpuFunction> prepare(const bundle::CompiledFunction &function) const {
    return CpuFunction::create(function,
                               [this](const std::string &symbol) { return find(symbol); });
  }
};

CpuDevice::CpuDevice(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CpuDevice::~CpuDevice() = default;

Result<std::unique_ptr<CpuDevice>> CpuDevice::create(const CpuDeviceOptions &options) {
  if (options.threads < 1 || options.threads > 1024)
    return userError("device '" + options.name + "': expects 1 to 1024 threads, got " +
                     std::to_string(options.threads));
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
  return impl_->options.name + " (cpu, " + std::to_string(threads) +
         (threads == 1 ? " thread)" : " threads)");
}

Result<std::string> CpuDevice::matrixLibrary(bool halfPrecision) {
  Result<const Gemm *> gemm = chooseGemm({});
  if (gemm.failed())
    return gemm.error();
  return (*gemm)->identity() +
         (halfPrecision ? std::string(", half precision by ") + halfGemmIdentity() : "");
}

Status CpuDevice::loadObject(const std::string &path) {
  std::string absolute = path.find('/') == std::string::npos ? "./" + path : path;
  void *object = ::dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!object)
    return userError("kernel object '" + path + "' cannot be loaded: " + ::dlerror());
  impl_->objects.push_back(object);
  return Status::success();
}

Status CpuDevice::loadFunctions(const bundle::FunctionLibrary &library,
                                const KernelObjects &objects) {
  if (!findDeviceKind("cpu")->runs(cpuHere(), library.arch()))
    return userError("device '" + impl_->options.name + "': the bundle's kernels are for " +
                     library.arch() +
                     ", which this processor does not run; compile for this machine");
  for (const std::string &object : library.objects()) {
    Result<std::shared_ptr<const MemoryFile>> file = objects.find(library.arch(), object);
    if (file.failed())
      return file.error();
    if (Status status = loadObject((*file)->path()); status.failed())
      return userError((*file)->name() + ": " + status.message());
    impl_->files.push_back(std::move(*file));
  }
  for (const bundle::CompiledFunction &function : library.functions())
    if (Status status = addFunction(function); status.failed())
      return status;
  return Status::success();
}

Status CpuDevice::addFunction(const bundle::CompiledFunction &function) {
  Result<CpuFunction> prepared = impl_->prepare(function);
  if (prepared.failed())
    return prepared.error();
  impl_->functions.push_back(std::move(*prepared));
  return Status::success();
}

Status CpuDevice::runFunction(uint32_t index, const FunctionArguments &arguments) {
  if (index >= impl_->functions.size())
    return internalError("function " + std::to_string(index) + " of " +
                         std::to_string(impl_->functions.size()) + " is called");
  std::lock_guard<std::mutex> lock(impl_->running);
  impl_->functions[index].run(arguments, *impl_->pool, *impl_->gemm, impl_->launches);
  return Status::success();
}

Status CpuDevice::runFunction(const bundle::CompiledFunction &function,
                              const FunctionArguments &arguments) {
  Result<CpuFunction> prepared = impl_->prepare(function);
  if (prepared.failed())
    return prepared.error();
  std::lock_guard<std::mutex> lock(impl_->running);
  prepared->run(arguments, *impl_->pool, *impl_->gemm, impl_->launches);
  return Status::success();
}

uint64_t CpuDevice::launches() const { return impl_->launches.load(std::memory_order_relaxed); }

Result<std::unique_ptr<DeviceMemory>> CpuDevice::allocate(bundle::MemoryKind kind, size_t bytes,
                                                          const AllocationOptions &options) {
  return allocateOnHost(impl_->options.name, kind, bytes, options);
}
Status CpuDevice::read(void *to, DeviceAddress from, size_t bytes) {
  return moveOnHost(to, from.onHost(), bytes);
}
Status CpuDevice::write(DeviceAddress to, const void *from, size_t bytes) {
  return moveOnHost(to.onHost(), from, bytes);
}
Status CpuDevice::copy(DeviceAddress to, DeviceAddress from, size_t bytes) {
  return moveOnHost(to.onHost(), from.onHost(), bytes);
}
Status CpuDevice::fill(DeviceAddress to, std::byte value, size_t bytes) {
  return fillOnHost(to, value, bytes);
}
Result<void *> CpuDevice::expose(DeviceAddress address, const std::string &transport) {
  return exposeOnHost(impl_->options.name, "cpu", address, transport);
}
