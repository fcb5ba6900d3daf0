#include "BlasLt.h"

#include "BlasLibraries.h"
#include "zorse/runtime/HalfTypes.h"

#include <algorithm>
#include <set>
#include <tuple>

using namespace zorse::runtime;
using namespace zorse::runtime::cuda;

namespace {

Status check(const char *call, int status) {
  return status == 0 ? Status::success()
                     : Status(userError(std::string(call) + ": cuBLASLt's status " +
                                        std::to_string(status)));
}

} // namespace

bool BlasMatmul::operator<(const BlasMatmul &o) const {
  auto key = [](const BlasMatmul &p) {
    return std::tie(p.typeOfOperands, p.typeOfC, p.tf32, p.sumsF16, p.transposeA, p.transposeB, p.m,
                    p.n, p.k, p.batch, p.lda, p.ldb, p.ldc, p.strideA, p.strideB, p.strideC,
                    p.alignmentA, p.alignmentB, p.alignmentC, p.alignmentBias);
  };
  return key(*this) < key(o);
}

/// A prepared matmul. A row-major matrix is the transpose of a column-major one: C' = op(B)'
/// op(A)'.
struct BlasLt::Plan {
  const BlasLtApi &lt;
  void *description = nullptr, *a = nullptr, *b = nullptr, *c = nullptr;
  Algorithm algorithm;
  explicit Plan(const BlasLtApi &lt) : lt(lt) {}
  Plan(const Plan &) = delete;
  ~Plan() {
    for (void *layout : {a, b, c})
      if (layout)
        lt.cublasLtMatrixLayoutDestroy(layout);
    if (description)
      lt.cublasLtMatmulDescDestroy(description);
  }
};

Result<std::unique_ptr<BlasLt>> BlasLt::create(const CudaApi &cuda) {
  Result<BlasHost> host = blasHostHere(cuda);
  if (host.failed())
    return host.error();
  Result<std::vector<const BlasLibrary *>> libraries = blasLibraries(*host);
  if (libraries.failed())
    return libraries.error();
  std::string why;
  for (const BlasLibrary *library : *libraries) {
    std::unique_ptr<BlasLt> made(new BlasLt(cuda, *library));
    const int status = library->api.cublasLtCreate(&made->handle_);
    if (status == 0)
      return made;
    made->handle_ = nullptr;
    why += (why.empty() ? "" : "; ") + library->name + " (" + versionText(library->version) +
           "): status " + std::to_string(status);
  }
  return userError("cublasLtCreate fails with every cuBLASLt that may serve this GPU: " + why +
                   "; look at its memory and its driver with nvidia-smi");
}

BlasLt::BlasLt(const CudaApi &cuda, const BlasLibrary &library) : cuda_(cuda), library_(library) {}

BlasLt::~BlasLt() {
  plans_.clear();
  for (auto [stream, workspace] : workspaces_)
    cuda_.cuMemFree_v2(workspace);
  if (handle_)
    library_.api.cublasLtDestroy(handle_);
}

std::string BlasLt::version() const { return "cuBLASLt " + versionText(library_.version); }

Result<std::string> BlasLt::identity(const std::vector<BlasHost> &hosts) {
  std::set<size_t> versions;
  for (const BlasHost &host : hosts) {
    Result<std::vector<const BlasLibrary *>> libraries = blasLibraries(host);
    if (!libraries.failed())
      versions.insert(libraries->front()->version);
    else if (hosts.size() == 1)
      return libraries.error();
  }
  std::string text;
  for (size_t version : versions)
    text += (text.empty() ? "cuBLASLt " : " and ") + std::to_string(version);
  return text;
}

/// cublasComputeType_t and the type of alpha and beta.
static std::pair<int, int> sumsOf(const BlasMatmul &p) {
  if (p.typeOfC == kF64)
    return {kCompute64F, kF64};
  return p.sumsF16 ? std::pair(kCompute16F, kF16)
                   : std::pair(p.tf32 ? kComputeTf32 : kCompute32F, kF32);
}

// NOLINTNEXTLINE(performance-no-int-to-ptr): required by the library
static void *pointerTo(CUdeviceptr address) { return reinterpret_cast<void *>(uintptr_t(address)); }

static int setBias(const BlasLtApi &lt, void *description, CUdeviceptr bias) {
  const void *address = pointerTo(bias);
  return lt.cublasLtMatmulDescSetAttribute(description, kBiasPointer,
                                           static_cast<const void *>(&address), sizeof address);
}

Result<BlasLt::Plan *> BlasLt::planOf(const BlasMatmul &p, CUdeviceptr bias) {
  std::unique_ptr<Plan> &plan = plans_[p];
  if (plan)
    return plan.get();
  const BlasLtApi &lt = library_.api;
  auto made = std::make_unique<Plan>(lt);
  const auto [compute, scale] = sumsOf(p);
  Status failure;
  auto call = [&](const char *name, int status) {
    if (failure.succeeded())
      failure = check(name, status);
  };
  auto layout = [&](void *&to, int type, uint64_t rows, uint64_t columns, int64_t ld,
                    int64_t stride) {
    call("cublasLtMatrixLayoutCreate", lt.cublasLtMatrixLayoutCreate(&to, type, rows, columns, ld));
    if (p.batch == 1 || failure.failed())
      return;
    const int32_t count = int32_t(p.batch);
    call("cublasLtMatrixLayoutSetAttribute",
         lt.cublasLtMatrixLayoutSetAttribute(to, kBatchCount, &count, sizeof count));
    call("cublasLtMatrixLayoutSetAttribute",
         lt.cublasLtMatrixLayoutSetAttribute(to, kBatchOffset, &stride, sizeof stride));
  };
  call("cublasLtMatmulDescCreate", lt.cublasLtMatmulDescCreate(&made->description, compute, scale));
  const int32_t first = p.transposeB, second = p.transposeA;
  if (failure.succeeded()) {
    call("cublasLtMatmulDescSetAttribute",
         lt.cublasLtMatmulDescSetAttribute(made->description, kTransposeA, &first, sizeof first));
    call("cublasLtMatmulDescSetAttribute",
         lt.cublasLtMatmulDescSetAttribute(made->description, kTransposeB, &second, sizeof second));
  }
  if (bias && failure.succeeded()) { // the heuristic reads the address to get its alignment
    const uint32_t epilogue = kEpilogueBias;
    call("cublasLtMatmulDescSetAttribute",
         lt.cublasLtMatmulDescSetAttribute(made->description, kEpilogue, &epilogue,
                                           sizeof epilogue));
    call("cublasLtMatmulDescSetAttribute", setBias(lt, made->description, bias));
  }
  layout(made->b, p.typeOfOperands, uint64_t(p.transposeB ? p.k : p.n),
         uint64_t(p.transposeB ? p.n : p.k), p.ldb, p.strideB);
  layout(made->a, p.typeOfOperands, uint64_t(p.transposeA ? p.m : p.k),
         uint64_t(p.transposeA ? p.k : p.m), p.lda, p.strideA);
  layout(made->c, p.typeOfC, uint64_t(p.n), uint64_t(p.m), p.ldc, p.strideC);
  void *preference = nullptr;
  call("cublasLtMatmulPreferenceCreate", lt.cublasLtMatmulPreferenceCreate(&preference));
  if (failure.failed())
    return failure;
  auto prefer = [&](int attribute, auto value) {
    call("cublasLtMatmulPreferenceSetAttribute",
         lt.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
  };
  prefer(kMaxWorkspace, uint64_t(kWorkspace));
  // The library's first operand is our second. Its default assumes alignments of 256 bytes, but
  // slices of views have less.
  prefer(kMinAlignmentA, p.alignmentB);
  prefer(kMinAlignmentB, p.alignmentA);
  prefer(kMinAlignmentC, p.alignmentC);
  prefer(kMinAlignmentD, p.alignmentBias ? std::min(p.alignmentC, p.alignmentBias) : p.alignmentC);
  Heuristic best{};
  int found = 0;
  call("cublasLtMatmulAlgoGetHeuristic",
       lt.cublasLtMatmulAlgoGetHeuristic(handle_, made->description, made->b, made->a, made->c,
                                         made->c, preference, 1, &best, &found));
  lt.cublasLtMatmulPreferenceDestroy(preference);
  if (failure.failed())
    return failure;
  if (found == 0)
    return userError("cuBLASLt has no algorithm for a product of " + std::to_string(p.m) + " x " +
                     std::to_string(p.n) + " x " + std::to_string(p.k));
  made->algorithm = best.algorithm;
  plan = std::move(made);
  return plan.get();
}

/// The largest power of two that divides the address, at most 256, the largest that the library
/// uses.
static uint32_t alignmentOf(CUdeviceptr address) {
  uint32_t alignment = 256;
  while (address % alignment)
    alignment /= 2;
  return alignment;
}

Result<CUdeviceptr> BlasLt::workspaceOf(CUstream stream) {
  CUdeviceptr &workspace = workspaces_[stream];
  if (!workspace)
    if (CUresult result = cuda_.cuMemAlloc_v2(&workspace, kWorkspace); result != kSuccess)
      return userError(cuda_.describe("cuMemAlloc of a workspace for products", result) +
                       (result == kOutOfMemory ? whatIsLeft(cuda_, kWorkspace) : ""));
  return workspace;
}

namespace {

/// alpha and beta in the type that the library expects.
class Factors {
public:
  Factors(int type, double alpha, double beta)
      : type_(type), wide_{alpha, beta}, narrow_{float(alpha), float(beta)},
        half_{narrow<HalfType::F16>(narrow_[0]), narrow<HalfType::F16>(narrow_[1])} {}
  const void *alpha() const { return at(0); }
  const void *beta() const { return at(1); }

private:
  const void *at(size_t i) const {
    return type_ == kF64   ? static_cast<const void *>(&wide_[i])
           : type_ == kF16 ? static_cast<const void *>(&half_[i])
                           : &narrow_[i];
  }
  int type_;
  double wide_[2];
  float narrow_[2];
  uint16_t half_[2];
};

} // namespace

static bool isEmpty(const BlasMatmul &matmul) {
  return matmul.m == 0 || matmul.n == 0 || matmul.batch == 0;
}

static BlasMatmul withAlignments(BlasMatmul matmul, const BlasOperands &at) {
  matmul.alignmentA = alignmentOf(at.a), matmul.alignmentB = alignmentOf(at.b),
  matmul.alignmentC = alignmentOf(at.c);
  matmul.alignmentBias = at.bias ? alignmentOf(at.bias) : 0;
  return matmul;
}

Result<bool> BlasLt::warmUp(const BlasMatmul &matmul, const BlasOperands &at, CUstream stream) {
  if (isEmpty(matmul))
    return false;
  if (Result<CUdeviceptr> workspace = workspaceOf(stream); workspace.failed())
    return workspace.error();
  if (plans_.count(withAlignments(matmul, at)))
    return false;
  Status status = multiply(matmul, 1, 0, at, stream);
  return status.failed() ? Result<bool>(status.error()) : Result<bool>(true);
}

Status BlasLt::multiply(BlasMatmul matmul, double alpha, double beta, const BlasOperands &at,
                        CUstream stream) {
  if (isEmpty(matmul))
    return Status::success();
  matmul = withAlignments(matmul, at);
  Result<Plan *> plan = planOf(matmul, at.bias);
  if (plan.failed())
    return plan.error();
  if (at.bias)
    if (Status status = check("cublasLtMatmulDescSetAttribute",
                              setBias(library_.api, (*plan)->description, at.bias));
        status.failed())
      return status;
  Result<CUdeviceptr> workspace = workspaceOf(stream);
  if (workspace.failed())
    return workspace.error();
  const Factors factors(sumsOf(matmul).second, alpha, beta);
  void *c = pointerTo(at.c);
  return check("cublasLtMatmul",
               library_.api.cublasLtMatmul(
                   handle_, (*plan)->description, factors.alpha(), pointerTo(at.b), (*plan)->b,
                   pointerTo(at.a), (*plan)->a, factors.beta(), c, (*plan)->c, c, (*plan)->c,
                   &(*plan)->algorithm, pointerTo(*workspace), kWorkspace, stream));
}
