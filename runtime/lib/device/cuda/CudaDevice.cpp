#include "CudaDevice.h"

#include "BlasLt.h"
#include "CudaApi.h"

#include "bundle.pb.h"
#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/runtime/abi/CudaAbi.h"

#include <atomic>
#include <fstream>
#include <iterator>
#include <mutex>
#include <vector>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::cuda;

namespace {

/// Of the emulator of test/emulator, which takes bitcode for code.
constexpr const char *kEmulator = "Zorse emulator";

Result<std::string> architectureOf(const CudaApi &cuda, CUdevice device) {
  char name[128] = "";
  if (Status status = cuda.check("cuDeviceGetName", cuda.cuDeviceGetName(name, sizeof name, device)); status.failed())
    return status;
  if (std::string(name) == kEmulator)
    return std::string("emu");
  int major = 0, minor = 0;
  if (Status status = cuda.check("cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(&major, kComputeCapabilityMajor, device)); status.failed())
    return status;
  if (Status status = cuda.check("cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(&minor, kComputeCapabilityMinor, device)); status.failed())
    return status;
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

CUdeviceptr pointer(DeviceAddress address) { return address.value; }

class CudaMemory final : public DeviceMemory {
public:
  CudaMemory(const CudaApi &cuda, CUcontext context, DeviceAddress base, size_t bytes, bool onHost)
      : cuda_(cuda), context_(context), base_(base), bytes_(bytes), onHost_(onHost) {}
  ~CudaMemory() override {
    cuda_.cuCtxSetCurrent(context_);
    onHost_ ? cuda_.cuMemFreeHost(base_.onHost()) : cuda_.cuMemFree_v2(pointer(base_));
  }
  DeviceAddress base() const override { return base_; }
  size_t bytes() const override { return bytes_; }

private:
  const CudaApi &cuda_;
  CUcontext context_;
  DeviceAddress base_;
  size_t bytes_;
  bool onHost_;
};

struct Linear { ///< fixed + perRow * rows
  int64_t fixed = 0, perRow = 0;
  int64_t at(int64_t rows) const { return fixed + perRow * rows; }
  static Linear of(const bundle::Extent &extent) { return {extent.fixed(), extent.per_row()}; }
};
struct Place {
  uint32_t slot = 0;
  Linear offset;
  static Place of(const bundle::Pointer &pointer) { return {pointer.slot(), {pointer.fixed(), pointer.per_row()}}; }
};
struct Launch {
  // Of a kernel; null: a product.
  CUfunction function = nullptr;
  std::vector<Place> operands;
  uint64_t accumulates = 0; ///< by operand; of a product: bit 0
  Linear points;
  uint32_t threads = 0, perThread = 0;
  // Of a product.
  BlasProduct product;
  Linear m, n, k, batch;
  double alpha = 1;
};

class CudaDevice final : public Device {
public:
  explicit CudaDevice(const CudaApi &cuda, std::string name) : cuda_(cuda), name_(std::move(name)) {}

  ~CudaDevice() override {
    if (!context_)
      return;
    cuda_.cuCtxSetCurrent(context_);
    blas_.reset();
    for (CUmodule module : modules_)
      cuda_.cuModuleUnload(module);
    if (stream_)
      cuda_.cuStreamDestroy_v2(stream_);
    cuda_.cuDevicePrimaryCtxRelease_v2(device_);
  }

  Status open(int ordinal) {
    int count = 0;
    if (Status status = call("cuDeviceGetCount", cuda_.cuDeviceGetCount(&count)); status.failed())
      return status;
    if (count == 0)
      return userError("device '" + name_ + "': this machine has no GPU that CUDA can use");
    if (Status status = call("cuDeviceGet", cuda_.cuDeviceGet(&device_, ordinal % count)); status.failed())
      return status;
    char model[128] = "";
    cuda_.cuDeviceGetName(model, sizeof model, device_);
    Result<std::string> arch = architectureOf(cuda_, device_);
    if (arch.failed())
      return arch.error();
    arch_ = *arch;
    description_ = name_ + " (cuda, " + model + ")";
    int managed = 0, concurrent = 0;
    cuda_.cuDeviceGetAttribute(&managed, kManagedMemory, device_);
    cuda_.cuDeviceGetAttribute(&concurrent, kConcurrentManagedAccess, device_);
    if (!managed || !concurrent)
      return userError("device '" + name_ + "': " + model + " has no memory that the host reaches while it computes (concurrent managed access)");
    if (Status status = call("cuDevicePrimaryCtxRetain", cuda_.cuDevicePrimaryCtxRetain(&context_, device_)); status.failed())
      return status;
    if (Status status = enter(); status.failed())
      return status;
    if (Status status = call("cuStreamCreate", cuda_.cuStreamCreate(&stream_, kStreamNonBlocking)); status.failed())
      return status;
    Result<std::unique_ptr<BlasLt>> blas = BlasLt::create();
    if (blas.failed())
      return userError("device '" + name_ + "': " + blas.message());
    blas_ = std::move(*blas);
    return Status::success();
  }

  std::string description() const override { return description_; }

  Result<std::unique_ptr<DeviceMemory>> allocate(bundle::MemoryKind kind, size_t bytes, const AllocationOptions &options) override {
    if (kind != bundle::DEVICE && kind != bundle::PINNED_HOST && kind != bundle::HOST)
      return userError("device '" + name_ + "' has no memory of kind " + bundle::MemoryKind_Name(kind));
    if (Status status = enter(); status.failed())
      return status;
    const size_t size = std::max<size_t>(bytes, kMemoryAlignment);
    const bool onHost = kind != bundle::DEVICE;
    DeviceAddress base;
    CUresult result;
    if (onHost) {
      void *address = nullptr;
      result = cuda_.cuMemHostAlloc(&address, size, kHostAllocPortable);
      base = DeviceAddress::ofHost(address);
    } else {
      // Reached by host transports, too; copies between device and host that are entries of the program are to take their place.
      CUdeviceptr address = 0;
      result = cuda_.cuMemAllocManaged(&address, size, kAttachGlobal);
      base.value = address;
    }
    if (result != kSuccess)
      return userError("device '" + name_ + "' cannot have " + std::to_string(bytes) + " bytes of " + (onHost ? "pinned host memory" : "memory") +
                       ": " + cuda_.describe(onHost ? "cuMemHostAlloc" : "cuMemAllocManaged", result));
    auto memory = std::make_unique<CudaMemory>(cuda_, context_, base, bytes, onHost);
    if (onHost) {
      for (size_t i = 0; i + 8 <= size; i += 8)
        std::memcpy(base.onHost() + i, options.poison ? &kPoisonWord : &kZero, 8);
    } else {
      if (Status status =
              call("cuMemsetD32Async", cuda_.cuMemsetD32Async(pointer(base), options.poison ? uint32_t(kPoisonWord) : 0, size / 4, stream_));
          status.failed())
        return status;
      if (Status status = finish(); status.failed())
        return status;
    }
    return std::unique_ptr<DeviceMemory>(std::move(memory));
  }

  Status read(void *to, DeviceAddress from, size_t bytes) override {
    return move("cuMemcpyDtoHAsync", [&] { return cuda_.cuMemcpyDtoHAsync_v2(to, pointer(from), bytes, stream_); }, bytes);
  }
  Status write(DeviceAddress to, const void *from, size_t bytes) override {
    return move("cuMemcpyHtoDAsync", [&] { return cuda_.cuMemcpyHtoDAsync_v2(pointer(to), from, bytes, stream_); }, bytes);
  }
  Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) override {
    if (to.value < from.value + bytes && from.value < to.value + bytes && to != from) { // they overlap: by way of the host
      std::vector<std::byte> between(bytes);
      if (Status status = read(between.data(), from, bytes); status.failed())
        return status;
      return write(to, between.data(), bytes);
    }
    return move("cuMemcpyAsync", [&] { return cuda_.cuMemcpyAsync(pointer(to), pointer(from), bytes, stream_); }, bytes);
  }
  Status fill(DeviceAddress to, std::byte value, size_t bytes) override {
    return move("cuMemsetD8Async", [&] { return cuda_.cuMemsetD8Async(pointer(to), uint8_t(value), bytes, stream_); }, bytes);
  }

  Result<void *> expose(DeviceAddress address, const std::string &transport) override {
    if (!findDeviceKind("cuda")->joins(transport))
      return userError("device '" + name_ + "' (cuda) cannot join transport '" + transport + "'");
    return static_cast<void *>(address.onHost());
  }

  Status loadBodies(const bundle::BodyLibrary &library, const std::string &kernelDirectory) override {
    if (!findDeviceKind("cuda")->runs(arch_, library.arch()))
      return userError("device '" + name_ + "': the bundle's kernels are for " + library.arch() + ", this GPU is " + arch_ +
                       "; compile for it (arch: " + arch_ + " in the cluster file)");
    if (Status status = enter(); status.failed())
      return status;
    const std::string folder = kernelDirectory + "/" + library.arch() + "/";
    for (const std::string &object : library.objects()) {
      const std::string path = folder + object;
      std::ifstream file(path, std::ios::binary);
      std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      if (!file)
        return userError("kernel object '" + path + "' cannot be read");
      CUmodule module = nullptr;
      if (Status status = call("cuModuleLoadDataEx", cuda_.cuModuleLoadDataEx(&module, image.c_str(), 0, nullptr, nullptr)); status.failed())
        return userError("kernel object '" + path + "' cannot be loaded: " + status.message());
      modules_.push_back(module);
    }
    for (const bundle::Body &body : library.bodies()) {
      std::vector<Launch> &launches = bodies_.emplace_back();
      for (const bundle::Launch &launch : body.launches())
        if (Status status = prepare(body, launch, launches.emplace_back()); status.failed())
          return userError("device '" + name_ + "', body '" + body.name() + "': " + status.message());
    }
    return Status::success();
  }

  Status runBody(uint32_t index, const BodyArguments &arguments) override {
    if (index >= bodies_.size())
      return internalError("device '" + name_ + "': body " + std::to_string(index) + " of " + std::to_string(bodies_.size()) + " is called");
    std::lock_guard<std::mutex> lock(running_);
    if (Status status = enter(); status.failed())
      return status;
    for (const Launch &launch : bodies_[index]) {
      if (Status status = launch.function ? runKernel(launch, arguments) : runProduct(launch, arguments); status.failed())
        return status;
      launches_.fetch_add(1, std::memory_order_relaxed);
    }
    return finish();
  }

  uint64_t launches() const override { return launches_.load(std::memory_order_relaxed); }

private:
  static constexpr uint64_t kZero = 0;

  const CudaApi &cuda_;
  const std::string name_;
  std::string description_, arch_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::unique_ptr<BlasLt> blas_;
  std::vector<CUmodule> modules_;
  std::vector<std::vector<Launch>> bodies_;
  std::mutex running_;
  std::atomic<uint64_t> launches_{0};

  Status call(const char *what, CUresult result) const {
    return result == kSuccess ? Status::success() : Status(userError("device '" + name_ + "': " + cuda_.describe(what, result)));
  }
  /// Every thread that calls has the device's context.
  Status enter() const { return call("cuCtxSetCurrent", cuda_.cuCtxSetCurrent(context_)); }
  Status finish() const { return call("cuStreamSynchronize", cuda_.cuStreamSynchronize(stream_)); }

  template <typename Start> Status move(const char *what, Start start, size_t bytes) {
    if (bytes == 0)
      return Status::success();
    if (Status status = enter(); status.failed())
      return status;
    if (Status status = call(what, start()); status.failed())
      return status;
    return finish();
  }

  CUfunction findFunction(const std::string &symbol) const {
    for (CUmodule module : modules_) {
      CUfunction function = nullptr;
      if (cuda_.cuModuleGetFunction(&function, module, symbol.c_str()) == kSuccess)
        return function;
    }
    return nullptr;
  }

  /// What a kernel touches must lie in the slots that the body names, for every number of rows (KernelAbi.h).
  Status checkNeeds(const bundle::Body &body, const bundle::KernelLaunch &kernel) {
    std::vector<int64_t> needs;
    for (CUmodule module : modules_) {
      CUdeviceptr address = 0;
      size_t bytes = 0;
      if (cuda_.cuModuleGetGlobal_v2(&address, &bytes, module, (kernel.symbol() + "_needs").c_str()) != kSuccess)
        continue;
      needs.resize(bytes / 8);
      if (Status status = read(needs.data(), {address}, needs.size() * 8); status.failed())
        return status;
    }
    const std::string what = "kernel '" + kernel.symbol() + "': ";
    const size_t operands = size_t(kernel.operands_size());
    if (needs.size() != 3 + 4 * operands || needs[0] != int64_t(operands))
      return userError(what + "does not say what it touches, or has other operands than the body; compile the model again");
    if (needs[1] != kernel.points().fixed() || needs[2] != kernel.points().per_row())
      return userError(what + "is made for another number of points than the body gives it; compile the model again");
    for (size_t i = 0; i < operands; ++i) {
      const bundle::Pointer &at = kernel.operands(int(i));
      const bundle::Slot &slot = body.slots(int(at.slot()));
      const int64_t fixed = at.fixed() + needs[3 + 4 * i], perRow = at.per_row() + needs[4 + 4 * i];
      if (at.fixed() < 0 || at.per_row() < 0 || perRow > slot.bytes().per_row() || fixed + perRow > slot.bytes().fixed() + slot.bytes().per_row())
        return userError(what + "operand " + std::to_string(i) + " reaches outside slot '" + slot.name() + "'; compile the model again");
      if (needs[6 + 4 * i] && slot.mode() == bundle::READ && slot.kind() != bundle::WORKSPACE)
        return userError(what + "writes slot '" + slot.name() + "', which the body only reads; compile the model again");
    }
    return Status::success();
  }

  Status prepare(const bundle::Body &body, const bundle::Launch &from, Launch &out) {
    auto inside = [&](const bundle::Pointer &at) { return at.slot() < uint32_t(body.slots_size()); };
    if (from.has_kernel()) {
      const bundle::KernelLaunch &kernel = from.kernel();
      out.function = findFunction(kernel.symbol());
      if (!out.function)
        return userError("kernel '" + kernel.symbol() + "' is in none of the bundle's kernel objects");
      for (const bundle::Pointer &at : kernel.operands()) {
        if (!inside(at))
          return userError("slot " + std::to_string(at.slot()) + " of " + std::to_string(body.slots_size()) + " is named");
        out.operands.push_back(Place::of(at));
      }
      for (uint32_t operand : kernel.accumulates()) {
        if (operand >= 64 || operand >= out.operands.size())
          return userError("operand " + std::to_string(operand) + " is added to and does not exist");
        out.accumulates |= uint64_t(1) << operand;
      }
      out.points = Linear::of(kernel.points());
      out.threads = kernel.threads();
      out.perThread = kernel.per_thread();
      if (out.threads == 0 || out.threads > 1024 || out.threads % 32 || out.perThread == 0)
        return userError("kernel '" + kernel.symbol() + "' has blocks of " + std::to_string(out.threads) + " threads with " +
                         std::to_string(out.perThread) + " points each, which no GPU runs");
      return checkNeeds(body, kernel);
    }
    if (!from.has_product())
      return userError(from.has_library() ? "library routine '" + from.library().name() + "' has no code for GPUs"
                                          : "holds a launch that this runtime does not know; compile the model again");
    const bundle::MatrixProduct &product = from.product();
    auto typeOf = [](bundle::ElementType type) {
      return type == bundle::F32 ? kF32 : type == bundle::F64 ? kF64 : type == bundle::BF16 ? kBF16 : type == bundle::F16 ? kF16 : -1;
    };
    out.product.typeOfC = typeOf(product.type());
    out.product.typeOfOperands = product.operand_type() == bundle::ELEMENT_TYPE_UNSPECIFIED ? out.product.typeOfC : typeOf(product.operand_type());
    if (out.product.typeOfC < 0 || out.product.typeOfOperands < 0)
      return userError("a product of elements of type " + bundle::ElementType_Name(product.type()));
    out.product.transposeA = product.transpose_a(), out.product.transposeB = product.transpose_b();
    out.product.lda = product.lda(), out.product.ldb = product.ldb(), out.product.ldc = product.ldc();
    out.product.strideA = product.batch_stride_a(), out.product.strideB = product.batch_stride_b(), out.product.strideC = product.batch_stride_c();
    out.m = Linear::of(product.m()), out.n = Linear::of(product.n()), out.k = Linear::of(product.k());
    out.batch = product.has_batch() ? Linear::of(product.batch()) : Linear{1, 0};
    out.alpha = product.alpha();
    for (const bundle::Pointer *at : {&product.a(), &product.b(), &product.c()}) {
      if (!inside(*at))
        return userError("slot " + std::to_string(at->slot()) + " of " + std::to_string(body.slots_size()) + " is named");
      out.operands.push_back(Place::of(*at));
    }
    out.accumulates = product.accumulates();
    return Status::success();
  }

  static DeviceAddress resolve(const Place &place, const BodyArguments &arguments) {
    return arguments.slots[place.slot] + uint64_t(place.offset.at(arguments.rows));
  }
  static bool adds(const Place &place, const BodyArguments &arguments) { return !arguments.overwrite || !arguments.overwrite[place.slot]; }

  Status runKernel(const Launch &launch, const BodyArguments &arguments) {
    uint64_t leading[abi::kCudaLeadingParameters] = {uint64_t(arguments.rows), 0, uint64_t(arguments.sampleBase), arguments.instanceBase};
    std::vector<uint64_t> addresses;
    for (size_t i = 0; i < launch.operands.size(); ++i) {
      addresses.push_back(resolve(launch.operands[i], arguments).value);
      if (launch.accumulates >> i & 1 && adds(launch.operands[i], arguments))
        leading[1] |= uint64_t(1) << i;
    }
    std::vector<void *> parameters;
    for (uint64_t &value : leading)
      parameters.push_back(&value);
    for (uint64_t &value : addresses)
      parameters.push_back(&value);
    const int64_t perBlock = int64_t(launch.threads) * launch.perThread, blocks = (launch.points.at(arguments.rows) + perBlock - 1) / perBlock;
    if (blocks == 0)
      return Status::success();
    if (blocks > INT32_MAX)
      return userError("device '" + name_ + "': a launch of " + std::to_string(blocks) +
                       " blocks is more than a GPU takes; use smaller micro-batches");
    return call("cuLaunchKernel",
                cuda_.cuLaunchKernel(launch.function, unsigned(blocks), 1, 1, launch.threads, 1, 1, 0, stream_, parameters.data(), nullptr));
  }

  Status runProduct(const Launch &launch, const BodyArguments &arguments) {
    BlasProduct product = launch.product;
    product.m = launch.m.at(arguments.rows), product.n = launch.n.at(arguments.rows), product.k = launch.k.at(arguments.rows);
    product.batch = launch.batch.at(arguments.rows);
    const double beta = launch.accumulates && adds(launch.operands[2], arguments) ? 1 : 0;
    Status status = blas_->multiply(product, launch.alpha, pointer(resolve(launch.operands[0], arguments)),
                                    pointer(resolve(launch.operands[1], arguments)), beta, pointer(resolve(launch.operands[2], arguments)), stream_);
    return status.failed() ? Status(userError("device '" + name_ + "': " + status.message())) : status;
  }
};

} // namespace

Result<std::unique_ptr<Device>> zorse::runtime::makeCudaDevice(const std::string &name, int ordinal) {
  Result<const CudaApi *> api = cudaApi();
  if (api.failed())
    return userError("device '" + name + "': " + api.message());
  auto device = std::make_unique<CudaDevice>(**api, name);
  if (Status status = device->open(ordinal); status.failed())
    return status;
  return std::unique_ptr<Device>(std::move(device));
}

std::string zorse::runtime::cudaArchitecture() {
  Result<const CudaApi *> api = cudaApi();
  CUdevice device = 0;
  int count = 0;
  if (api.failed() || (*api)->cuDeviceGetCount(&count) != kSuccess || count == 0 || (*api)->cuDeviceGet(&device, 0) != kSuccess)
    return "none";
  Result<std::string> arch = architectureOf(**api, device);
  return arch.failed() ? "none" : *arch;
}

Result<std::string> zorse::runtime::cudaNumerics() { return BlasLt::identity(); }
