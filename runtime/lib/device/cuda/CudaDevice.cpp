#include "CudaDevice.h"

#include "BlasLt.h"
#include "CudaApi.h"
#include "CudaFunctions.h"
#include "StreamQueues.h"

#include "bundle.pb.h"
#include "zorse/Bundle/DeviceKinds.h"

#include <array>
#include <map>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::cuda;

namespace {

/// The device name of the emulator in test/emulator, which accepts bitcode as code.
constexpr const char *kEmulator = "Zorse emulator";

Result<std::string> architectureOf(const CudaApi &cuda, CUdevice device) {
  char name[128] = "";
  if (Status status =
          cuda.check("cuDeviceGetName", cuda.cuDeviceGetName(name, sizeof name, device));
      status.failed())
    return status;
  if (std::string(name) == kEmulator)
    return std::string("emu");
  int major = 0, minor = 0;
  if (Status status =
          cuda.check("cuDeviceGetAttribute",
                     cuda.cuDeviceGetAttribute(&major, kComputeCapabilityMajor, device));
      status.failed())
    return status;
  if (Status status =
          cuda.check("cuDeviceGetAttribute",
                     cuda.cuDeviceGetAttribute(&minor, kComputeCapabilityMinor, device));
      status.failed())
    return status;
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

/// Ranges of pinned host memory, the memory that host transports can access.
class HostMemoryMap {
public:
  void add(const void *base, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    ends_[uint64_t(uintptr_t(base))] = uint64_t(uintptr_t(base)) + bytes;
  }
  void remove(const void *base) {
    std::lock_guard<std::mutex> lock(mutex_);
    ends_.erase(uint64_t(uintptr_t(base)));
  }
  bool has(DeviceAddress address) const {
    std::lock_guard<std::mutex> lock(mutex_);
    auto next = ends_.upper_bound(address.value);
    return next != ends_.begin() && address.value < std::prev(next)->second;
  }

private:
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> ends_; ///< end by base address
};

class CudaMemory final : public DeviceMemory {
public:
  /// \param host  null for device memory
  CudaMemory(const CudaApi &cuda, CUcontext context, DeviceAddress base, size_t bytes,
             HostMemoryMap *host)
      : cuda_(cuda), context_(context), base_(base), bytes_(bytes), host_(host) {}
  ~CudaMemory() override {
    cuda_.cuCtxSetCurrent(context_);
    if (host_)
      host_->remove(base_.onHost());
    host_ ? cuda_.cuMemFreeHost(base_.onHost()) : cuda_.cuMemFree_v2(base_.value);
  }
  DeviceAddress base() const override { return base_; }
  size_t bytes() const override { return bytes_; }

private:
  const CudaApi &cuda_;
  CUcontext context_;
  DeviceAddress base_;
  size_t bytes_;
  HostMemoryMap *host_;
};

class CudaDevice final : public QueuedDevice, public StreamTarget {
public:
  explicit CudaDevice(const CudaApi &cuda, std::string name)
      : cuda_(cuda), name_(std::move(name)) {}

  ~CudaDevice() override {
    if (!context_)
      return;
    queues_.reset();
    cuda_.cuCtxSetCurrent(context_);
    functions_.reset();
    cuda_.cuDevicePrimaryCtxRelease_v2(device_);
  }

  Status open(int ordinal) {
    int count = 0;
    if (Status status = call("cuDeviceGetCount", cuda_.cuDeviceGetCount(&count)); status.failed())
      return status;
    if (count == 0)
      return userError("device '" + name_ + "': this machine has no GPU that CUDA can use");
    if (ordinal < 0 || ordinal >= count)
      return internalError("device '" + name_ + "' is to be GPU " + std::to_string(ordinal) +
                           " of " + std::to_string(count));
    if (Status status = call("cuDeviceGet", cuda_.cuDeviceGet(&device_, ordinal)); status.failed())
      return status;
    char model[128] = "";
    cuda_.cuDeviceGetName(model, sizeof model, device_);
    Result<std::string> arch = architectureOf(cuda_, device_);
    if (arch.failed())
      return named(arch.error());
    if (Status status =
            call("cuDevicePrimaryCtxRetain", cuda_.cuDevicePrimaryCtxRetain(&context_, device_));
        status.failed())
      return status;
    if (Status status = enter(); status.failed())
      return status;
    Result<std::unique_ptr<CudaFunctions>> functions = CudaFunctions::create(cuda_, *arch);
    if (functions.failed())
      return named(functions.error());
    functions_ = std::move(*functions);
    description_ = name_ + " (cuda, " + model + ", " + functions_->matmuls() + ")";
    return Status::success();
  }

  std::string description() const override { return description_; }
  uint64_t ownMemory() const override {
    size_t bytes = 0;
    return cuda_.cuDeviceTotalMem_v2(&bytes, device_) == kSuccess ? bytes : 0;
  }

  Result<std::unique_ptr<DeviceMemory>> allocate(bundle::MemoryKind kind, size_t bytes,
                                                 const AllocationOptions &options) override {
    if (kind != bundle::DEVICE && kind != bundle::PINNED_HOST && kind != bundle::HOST)
      return userError("device '" + name_ + "' has no memory of kind " +
                       bundle::MemoryKind_Name(kind));
    if (Status status = enter(); status.failed())
      return status;
    const size_t size = std::max<size_t>(bytes, kMemoryAlignment);
    const bool onHost = kind != bundle::DEVICE;
    const char *what = onHost ? "cuMemHostAlloc" : "cuMemAlloc";
    const size_t whole = (size + 7) / 8 * 8; // words
    void *host = nullptr;
    CUdeviceptr there = 0;
    const CUresult result = onHost ? cuda_.cuMemHostAlloc(&host, whole, kHostAllocPortable)
                                   : cuda_.cuMemAlloc_v2(&there, whole);
    if (result != kSuccess)
      return userError("device '" + name_ + "' cannot have " + std::to_string(bytes) +
                       " bytes of " + (onHost ? "pinned host memory" : "memory") + ": " +
                       cuda_.describe(what, result) + (onHost ? "" : whatIsLeft(cuda_)));
    const DeviceAddress base = onHost ? DeviceAddress::ofHost(host) : DeviceAddress{there};
    if (onHost)
      host_.add(host, size);
    auto memory =
        std::make_unique<CudaMemory>(cuda_, context_, base, bytes, onHost ? &host_ : nullptr);
    const uint64_t word = options.poison ? kPoisonWord : 0;
    if (onHost)
      for (size_t i = 0; i < whole; i += 8)
        std::memcpy(base.onHost() + i, &word, 8);
    else if (Status status =
                 finish("cuMemsetD32", cuda_.cuMemsetD32_v2(base.value, uint32_t(word), whole / 4));
             status.failed())
      return status;
    return std::unique_ptr<DeviceMemory>(std::move(memory));
  }

  // These calls use a stream without work of a step, and wait for it.

  Status read(void *to, DeviceAddress from, size_t bytes) override {
    Status status = begin(bytes);
    return status.failed() || bytes == 0
               ? status
               : finish("cuMemcpyDtoH", cuda_.cuMemcpyDtoH_v2(to, from.value, bytes));
  }
  Status write(DeviceAddress to, const void *from, size_t bytes) override {
    Status status = begin(bytes);
    return status.failed() || bytes == 0
               ? status
               : finish("cuMemcpyHtoD", cuda_.cuMemcpyHtoD_v2(to.value, from, bytes));
  }
  Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) override {
    // Overlapping ranges are copied through host memory.
    if (to.value < from.value + bytes && from.value < to.value + bytes && to != from) {
      std::vector<std::byte> between(bytes);
      if (Status status = read(between.data(), from, bytes); status.failed())
        return status;
      return write(to, between.data(), bytes);
    }
    Status status = begin(bytes);
    return status.failed() || bytes == 0
               ? status
               : finish("cuMemcpy", cuda_.cuMemcpy(to.value, from.value, bytes));
  }
  Status fill(DeviceAddress to, std::byte value, size_t bytes) override {
    Status status = begin(bytes);
    return status.failed() || bytes == 0
               ? status
               : finish("cuMemsetD8", cuda_.cuMemsetD8_v2(to.value, uint8_t(value), bytes));
  }

  Result<void *> expose(DeviceAddress address, const std::string &transport) override {
    if (!findDeviceKind("cuda")->joins(transport))
      return userError("device '" + name_ + "' (cuda) cannot join transport '" + transport + "'");
    if (!host_.has(address))
      return userError("device '" + name_ +
                       "' (cuda): the program hands memory of the device to transport '" +
                       transport + "', which reaches host memory alone; compile the model again");
    return static_cast<void *>(address.onHost());
  }

  Status loadFunctions(const bundle::FunctionLibrary &library,
                       const KernelObjects &objects) override {
    if (Status status = enter(); status.failed())
      return status;
    Status status = functions_->load(library, objects);
    return status.failed() ? Status(named(status.error())) : status;
  }

  Status runFunction(uint32_t index, const FunctionArguments &arguments) override {
    if (Status status = enter(); status.failed())
      return status;
    if (Status status = functions_->launch(index, arguments, nullptr); status.failed())
      return named(status.error());
    return call("cuStreamSynchronize", cuda_.cuStreamSynchronize(nullptr));
  }

  uint64_t launches() const override { return functions_->launches(); }

  // ---- queues ----

  Status openQueues(const std::vector<uint32_t> &workers, QueueObserver &observer) override {
    if (queues_)
      return internalError("the queues of " + description() + " are opened twice");
    if (Status status = enter(); status.failed())
      return status;
    queues_ = std::make_unique<StreamQueues>(cuda_, *this, name_, observer);
    return queues_->open(workers);
  }
  Result<bool> warmUp(uint32_t queue, const FunctionCall *calls, size_t count) override {
    if (Status status = enter(); status.failed())
      return status;
    bool ran = false;
    for (const FunctionCall *call = calls; call != calls + count; ++call) {
      Result<bool> one =
          functions_->warmUp(call->function, call->arguments, queues_->stream(queue));
      if (one.failed())
        return named(one.error());
      ran |= *one;
    }
    if (ran)
      if (Status status =
              call("cuStreamSynchronize", cuda_.cuStreamSynchronize(queues_->stream(queue)));
          status.failed())
        return status;
    return ran;
  }
  Event enqueue(uint32_t queue, const Event *waits, size_t waitCount, const Work &work,
                uint64_t tag, bool notify) override {
    return queues_->enqueue(queue, waits, waitCount, work, tag, notify);
  }
  void flush() override { queues_->flush(); }
  bool isDone(Event event) const override { return queues_->isDone(event); }
  uint64_t done(uint32_t queue) const override { return queues_->done(queue); }
  Status wait(Event event) override { return queues_->wait(event); }
  Status onStream(StreamTask &task) override {
    CUstream stream = nullptr;
    if (Status status = enter(); status.failed())
      return status;
    if (Status status = call("cuStreamCreate", cuda_.cuStreamCreate(&stream, kStreamNonBlocking));
        status.failed())
      return status;
    TargetStream target(cuda_, *this, stream);
    Status status = task.put(0, target);
    if (status.succeeded())
      status = call("cuStreamSynchronize", cuda_.cuStreamSynchronize(stream));
    cuda_.cuStreamDestroy_v2(stream);
    return status;
  }
  void abort(const Error &why) override {
    if (queues_)
      queues_->abort(why);
  }
  void closeQueues() override {
    if (queues_)
      queues_->close();
  }

private:
  const CudaApi &cuda_;
  const std::string name_;
  std::string description_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  HostMemoryMap host_;
  std::unique_ptr<CudaFunctions> functions_;
  std::unique_ptr<StreamQueues> queues_;

  Error named(Error error) const {
    error.message = "device '" + name_ + "': " + error.message;
    return error;
  }
  Status call(const char *what, CUresult result) const {
    return result == kSuccess ? Status::success()
                              : Status(named(userError(cuda_.describe(what, result))));
  }

  Status enter() const override { return call("cuCtxSetCurrent", cuda_.cuCtxSetCurrent(context_)); }
  Status begin(size_t bytes) const { return bytes == 0 ? Status::success() : enter(); }
  Status finish(const char *what, CUresult result) const {
    if (Status status = call(what, result); status.failed())
      return status;
    return call("cuStreamSynchronize", cuda_.cuStreamSynchronize(nullptr));
  }

  Status launchFunction(const FunctionCall &function, CUstream stream) override {
    Status status = functions_->launch(function.function, function.arguments, stream);
    return status.failed() ? Status(named(status.error())) : status;
  }
};

} // namespace

Result<std::unique_ptr<QueuedDevice>> zorse::runtime::makeCudaDevice(const std::string &name,
                                                                     int ordinal) {
  Result<const CudaApi *> api = cudaApi();
  if (api.failed())
    return userError("device '" + name + "': " + api.message());
  auto device = std::make_unique<CudaDevice>(**api, name);
  if (Status status = device->open(ordinal); status.failed())
    return status;
  return std::unique_ptr<QueuedDevice>(std::move(device));
}

/// "GPU-5f1c..."; MIG slices have separate UUIDs. Empty if the driver does not report it.
static std::string uuidOf(const CudaApi &cuda, CUdevice device) {
  std::array<unsigned char, 16> bytes{};
  if (!cuda.cuDeviceGetUuid_v2 || cuda.cuDeviceGetUuid_v2(bytes.data(), device) != kSuccess)
    return {};
  std::string text = "GPU-";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10)
      text += '-';
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    text += digits;
  }
  return text;
}

std::vector<HardwareUnit> zorse::runtime::cudaUnits() {
  std::vector<HardwareUnit> units;
  Result<const CudaApi *> api = cudaApi();
  int count = 0;
  if (api.failed() || (*api)->cuDeviceGetCount(&count) != kSuccess)
    return units;
  const CudaApi &cuda = **api;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    HardwareUnit unit;
    unit.architecture = "none"; // a GPU that does not respond
    CUdevice device = 0;
    char model[128] = "", address[32] = "";
    size_t bytes = 0;
    if (cuda.cuDeviceGet(&device, ordinal) == kSuccess) {
      if (Result<std::string> arch = architectureOf(cuda, device); !arch.failed())
        unit.architecture = *arch;
      if (cuda.cuDeviceGetName(model, sizeof model, device) == kSuccess)
        unit.model = model;
      if (cuda.cuDeviceGetPCIBusId(address, int(sizeof address), device) == kSuccess)
        unit.address = address;
      if (cuda.cuDeviceTotalMem_v2(&bytes, device) == kSuccess)
        unit.memory = bytes;
      unit.id = uuidOf(cuda, device);
    }
    if (unit.id.empty())
      unit.id = unit.address.empty() ? "GPU " + std::to_string(ordinal) : unit.address;
    units.push_back(std::move(unit));
  }
  return units;
}

std::string zorse::runtime::cudaDriver() {
  Result<const CudaApi *> api = cudaApi();
  int version = 0;
  if (api.failed() || (*api)->cuDriverGetVersion(&version) != kSuccess)
    return {};
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Result<std::string> zorse::runtime::cudaNumerics() {
  Result<const CudaApi *> api = cudaApi();
  std::vector<BlasHost> hosts;
  int count = 0, driver = 0;
  if (api.failed() || (*api)->cuDeviceGetCount(&count) != kSuccess ||
      (*api)->cuDriverGetVersion(&driver) != kSuccess)
    return BlasLt::identity({}); // no GPU: no matmuls
  for (CUdevice device = 0; device < count; ++device) {
    int major = 0, minor = 0;
    (*api)->cuDeviceGetAttribute(&major, kComputeCapabilityMajor, device);
    (*api)->cuDeviceGetAttribute(&minor, kComputeCapabilityMinor, device);
    hosts.push_back({driver, 10 * major + minor});
  }
  return BlasLt::identity(hosts);
}
