#include "CudaFunctions.h"

#include "../Reach.h"
#include "bundle.pb.h"
#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/runtime/abi/CudaAbi.h"

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::cuda;

/// Bytes of shared memory that a block may use without opting in.
static constexpr uint32_t kSharedUnasked = 48 << 10;

static Linear linear(const bundle::AffineSize &extent) {
  return {extent.fixed(), extent.per_row()};
}
static Place place(const bundle::Pointer &pointer) {
  return {pointer.argument(), {pointer.fixed(), pointer.per_row()}};
}

Result<std::unique_ptr<CudaFunctions>> CudaFunctions::create(const CudaApi &cuda,
                                                             const std::string &arch) {
  std::unique_ptr<CudaFunctions> made(new CudaFunctions(cuda, arch));
  Result<std::unique_ptr<BlasLt>> blas = BlasLt::create(cuda);
  if (blas.failed())
    return blas.error();
  made->blas_ = std::move(*blas);
  return made;
}

CudaFunctions::~CudaFunctions() {
  for (CUmodule module : modules_)
    cuda_.cuModuleUnload(module);
}

/// Whether the result is added to the accumulated value, or overwrites it because it is the first
/// contribution.
static bool adds(uint32_t argument, const FunctionArguments &arguments) {
  return !arguments.overwrite || !arguments.overwrite[argument];
}

Status CudaFunctions::load(const bundle::FunctionLibrary &library, const KernelObjects &objects) {
  if (!findDeviceKind("cuda")->runs(arch_, library.arch()))
    return userError("the bundle's kernels are for " + library.arch() + ", this GPU is " + arch_ +
                     "; compile for it (arch: " + arch_ + " in the cluster file)");
  for (const std::string &object : library.objects()) {
    Result<std::shared_ptr<const MemoryFile>> file = objects.find(library.arch(), object);
    if (file.failed())
      return file.error();
    const std::string image(reinterpret_cast<const char *>((*file)->data()),
                            (*file)->size()); // PTX ends with a null
    if (Status status = loadModule(image); status.failed())
      return userError("kernel object '" + (*file)->name() +
                       "' cannot be loaded: " + status.message());
  }
  for (const bundle::CompiledFunction &function : library.functions()) {
    std::vector<std::vector<Launch>> &segments = functions_.emplace_back(1);
    for (const bundle::Launch &launch : function.launches())
      if (launch.has_exchange())
        segments.emplace_back();
      else if (Status status = prepare(function, launch, segments.back().emplace_back());
               status.failed())
        return userError("function '" + function.name() + "': " + status.message());
  }
  return Status::success();
}

const std::vector<CudaFunctions::Launch> *
CudaFunctions::launchesOf(uint32_t index, const FunctionArguments &arguments) const {
  return index < functions_.size() && arguments.segment < functions_[index].size()
             ? &functions_[index][arguments.segment]
             : nullptr;
}

static Error doesNotExist(uint32_t index, const FunctionArguments &arguments) {
  return internalError("segment " + std::to_string(arguments.segment) + " of function " +
                       std::to_string(index) + " is called and does not exist");
}

Status CudaFunctions::launch(uint32_t index, const FunctionArguments &arguments, CUstream stream) {
  const std::vector<Launch> *launches = launchesOf(index, arguments);
  if (!launches)
    return doesNotExist(index, arguments);
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Launch &launch : *launches) {
    if (Status status = launch.function ? launchKernel(launch, arguments, stream)
                                        : launchMatmul(launch, arguments, stream);
        status.failed())
      return status;
    launches_.fetch_add(1, std::memory_order_relaxed);
  }
  return Status::success();
}

Status CudaFunctions::loadModule(const std::string &image) {
  char log[8192] = "";
  int options[] = {kJitErrorLogBuffer, kJitErrorLogBytes};
  void *values[] = {log,
                    reinterpret_cast<void *>(sizeof log)}; // NOLINT(performance-no-int-to-ptr):
                                                           // sizes are passed by value
  CUmodule module = nullptr;
  if (Status status =
          cuda_.check("cuModuleLoadDataEx",
                      cuda_.cuModuleLoadDataEx(&module, image.c_str(), 2, options, values));
      status.failed())
    return log[0] ? Status(userError(status.message() + "\n" + log)) : status;
  modules_.push_back(module);
  return Status::success();
}

CUfunction CudaFunctions::findFunction(const std::string &symbol) const {
  for (CUmodule module : modules_) {
    CUfunction function = nullptr;
    if (cuda_.cuModuleGetFunction(&function, module, symbol.c_str()) == kSuccess)
      return function;
  }
  return nullptr;
}

/// Checks that a kernel's accesses are inside the arguments that the function names, for every
/// number of rows (KernelAbi.h).
Status CudaFunctions::checkBounds(const bundle::CompiledFunction &function,
                                  const bundle::KernelLaunch &kernel) {
  std::vector<int64_t> needs;
  for (CUmodule module : modules_) {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (cuda_.cuModuleGetGlobal_v2(&address, &bytes, module,
                                   (kernel.symbol() + "_needs").c_str()) != kSuccess)
      continue;
    needs.resize(bytes / 8);
    if (Status status = cuda_.check("cuMemcpyDtoH",
                                    cuda_.cuMemcpyDtoH_v2(needs.data(), address, needs.size() * 8));
        status.failed())
      return status;
  }
  const std::string what = "kernel '" + kernel.symbol() + "': ";
  const size_t operands = size_t(kernel.operands_size());
  if (needs.size() != 3 + 4 * operands || needs[0] != int64_t(operands))
    return userError(what + "does not say what it touches, or has other operands than the "
                            "function; compile the model again");
  if (needs[1] != kernel.iterations().fixed() || needs[2] != kernel.iterations().per_row())
    return userError(what + "is made for another number of iterations than the function gives it; "
                            "compile the model again");
  for (size_t i = 0; i < operands; ++i) {
    const bundle::Pointer &at = kernel.operands(int(i));
    const bundle::FunctionArgument &argument = function.arguments(int(at.argument()));
    const int64_t fixed = at.fixed() + needs[3 + 4 * i], perRow = at.per_row() + needs[4 + 4 * i];
    if (at.fixed() < 0 || at.per_row() < 0 || perRow > argument.bytes().per_row() ||
        fixed + perRow > argument.bytes().fixed() + argument.bytes().per_row())
      return userError(what + "operand " + std::to_string(i) + " reaches outside argument '" +
                       argument.name() + "'; compile the model again");
    if (needs[6 + 4 * i] && argument.mode() == bundle::READ && argument.kind() != bundle::WORKSPACE)
      return userError(what + "writes argument '" + argument.name() +
                       "', which the function only reads; compile the model again");
  }
  return Status::success();
}

Status CudaFunctions::prepare(const bundle::CompiledFunction &function, const bundle::Launch &from,
                              Launch &out) {
  auto inside = [&](const bundle::Pointer &at) {
    return at.argument() < uint32_t(function.arguments_size());
  };
  if (from.has_kernel()) {
    const bundle::KernelLaunch &kernel = from.kernel();
    out.function = findFunction(kernel.symbol());
    if (!out.function)
      return userError("kernel '" + kernel.symbol() +
                       "' is in none of the bundle's kernel objects");
    for (const bundle::Pointer &at : kernel.operands()) {
      if (!inside(at))
        return userError("argument " + std::to_string(at.argument()) + " of " +
                         std::to_string(function.arguments_size()) + " is named");
      out.operands.push_back(place(at));
    }
    for (uint32_t operand : kernel.accumulates()) {
      if (operand >= 64 || operand >= out.operands.size())
        return userError("operand " + std::to_string(operand) + " is added to and does not exist");
      out.accumulates |= uint64_t(1) << operand;
    }
    out.iterations = linear(kernel.iterations());
    out.threads = kernel.threads();
    out.perThread = kernel.per_thread();
    if (out.threads == 0 || out.threads > 1024 || out.threads % 32 || out.perThread == 0)
      return userError("kernel '" + kernel.symbol() + "' has blocks of " +
                       std::to_string(out.threads) + " threads with " +
                       std::to_string(out.perThread) + " points each, which no GPU runs");
    out.sharedBytes = kernel.shared_bytes();
    if (out.sharedBytes > kSharedUnasked) {
      const Status status =
          out.sharedBytes > INT32_MAX
              ? userError("no GPU has that much")
              : cuda_.check("cuFuncSetAttribute",
                            cuda_.cuFuncSetAttribute(out.function, kMaxDynamicSharedSizeBytes,
                                                     int(out.sharedBytes)));
      if (status.failed())
        return userError(
            "kernel '" + kernel.symbol() + "' wants " + std::to_string(out.sharedBytes) +
            " bytes of shared memory for a block, which this GPU refuses: " + status.message() +
            "; compile for its own architecture");
    }
    return checkBounds(function, kernel);
  }
  if (!from.has_matmul())
    return userError(
        from.has_library()
            ? "library routine '" + from.library().name() + "' has no code for GPUs"
            : "holds a launch that this runtime does not know; compile the model again");
  const bundle::Matmul &matmul = from.matmul();
  auto typeOf = [](bundle::ElementType type) {
    return type == bundle::F32    ? kF32
           : type == bundle::F64  ? kF64
           : type == bundle::BF16 ? kBF16
           : type == bundle::F16  ? kF16
                                  : -1;
  };
  out.matmul.typeOfC = typeOf(matmul.type());
  out.matmul.typeOfOperands = matmul.operand_type() == bundle::ELEMENT_TYPE_UNSPECIFIED
                                  ? out.matmul.typeOfC
                                  : typeOf(matmul.operand_type());
  if (out.matmul.typeOfC < 0 || out.matmul.typeOfOperands < 0)
    return userError("a matmul of elements of type " + bundle::ElementType_Name(matmul.type()));
  if (matmul.tf32() && (out.matmul.typeOfC != kF32 || out.matmul.typeOfOperands != kF32))
    return userError("a product in TF32 of elements that are not f32");
  if (matmul.sums_f16() && (out.matmul.typeOfC != kF16 || out.matmul.typeOfOperands != kF16))
    return userError("a product with sums in f16 of elements that are not f16");
  if (matmul.has_bias() &&
      (out.matmul.typeOfC == kF64 || matmul.batch().per_row() != 0 || matmul.batch().fixed() > 1))
    return userError("a product with a bias in f64, or of several matrices");
  out.matmul.tf32 = matmul.tf32(), out.matmul.sumsF16 = matmul.sums_f16();
  out.matmul.transposeA = matmul.transpose_a(), out.matmul.transposeB = matmul.transpose_b();
  out.matmul.lda = matmul.lda(), out.matmul.ldb = matmul.ldb(), out.matmul.ldc = matmul.ldc();
  out.matmul.strideA = matmul.batch_stride_a(), out.matmul.strideB = matmul.batch_stride_b(),
  out.matmul.strideC = matmul.batch_stride_c();
  out.m = linear(matmul.m()), out.n = linear(matmul.n()), out.k = linear(matmul.k());
  out.batch = matmul.has_batch() ? linear(matmul.batch()) : Linear{1, 0};
  out.alpha = matmul.alpha();
  if (const std::string problem = problemOfMatmul(function, matmul); !problem.empty())
    return userError(problem);
  for (const bundle::Pointer *at : {&matmul.a(), &matmul.b(), &matmul.c()})
    out.operands.push_back(place(*at));
  if (matmul.has_bias())
    out.operands.push_back(place(matmul.bias()));
  out.accumulates = matmul.accumulates();
  return Status::success();
}

Status CudaFunctions::launchKernel(const Launch &launch, const FunctionArguments &arguments,
                                   CUstream stream) {
  uint64_t leading[abi::kCudaLeadingParameters] = {
      uint64_t(arguments.rows), 0, uint64_t(arguments.sampleBase), arguments.rngIdBase};
  addresses_.clear();
  for (size_t i = 0; i < launch.operands.size(); ++i) {
    addresses_.push_back(resolve(launch.operands[i], arguments).value);
    if (launch.accumulates >> i & 1 && adds(launch.operands[i].argument, arguments))
      leading[1] |= uint64_t(1) << i;
  }
  parameters_.clear();
  for (uint64_t &value : leading)
    parameters_.push_back(&value);
  for (uint64_t &value : addresses_)
    parameters_.push_back(&value);
  const int64_t perBlock = int64_t(launch.threads) * launch.perThread,
                blocks = (launch.iterations.at(arguments.rows) + perBlock - 1) / perBlock;
  if (blocks == 0)
    return Status::success();
  if (blocks > INT32_MAX)
    return userError("a launch of " + std::to_string(blocks) +
                     " blocks is more than a GPU takes; use smaller micro-batches");
  return cuda_.check("cuLaunchKernel",
                     cuda_.cuLaunchKernel(launch.function, unsigned(blocks), 1, 1, launch.threads,
                                          1, 1, launch.sharedBytes, stream, parameters_.data(),
                                          nullptr));
}

BlasMatmul CudaFunctions::matmulOf(const Launch &launch, int64_t rows) {
  BlasMatmul matmul = launch.matmul;
  matmul.m = launch.m.at(rows), matmul.n = launch.n.at(rows), matmul.k = launch.k.at(rows);
  matmul.batch = launch.batch.at(rows);
  return matmul;
}

BlasOperands CudaFunctions::operandsOf(const Launch &launch, const FunctionArguments &arguments) {
  auto at = [&](size_t operand) {
    return operand < launch.operands.size() ? resolve(launch.operands[operand], arguments).value
                                            : 0;
  };
  return {at(0), at(1), at(2), at(3)};
}

Result<bool> CudaFunctions::warmUp(uint32_t index, const FunctionArguments &arguments,
                                   CUstream stream) {
  const std::vector<Launch> *launches = launchesOf(index, arguments);
  if (!launches)
    return doesNotExist(index, arguments);
  std::lock_guard<std::mutex> lock(mutex_);
  bool ran = false;
  for (const Launch &launch : *launches) {
    if (launch.function)
      continue;
    Result<bool> one =
        blas_->warmUp(matmulOf(launch, arguments.rows), operandsOf(launch, arguments), stream);
    if (one.failed())
      return one.error();
    ran |= *one;
  }
  return ran;
}

Status CudaFunctions::launchMatmul(const Launch &launch, const FunctionArguments &arguments,
                                   CUstream stream) {
  const BlasMatmul matmul = matmulOf(launch, arguments.rows);
  const double beta = launch.accumulates && adds(launch.operands[2].argument, arguments) ? 1 : 0;
  return blas_->multiply(matmul, launch.alpha, beta, operandsOf(launch, arguments), stream);
}
