#include "BlasLt.h"

#include "BlasLtApi.h"
#include "LibraryFunctions.h"

#include <tuple>

using namespace zorse::runtime;
using namespace zorse::runtime::cuda;

namespace {

Result<BlasLtApi> load() {
  void *library = nullptr;
  std::string problems;
  for (const char *name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"}) {
    library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library)
      break;
    problems = ::dlerror();
  }
  if (!library)
    return userError("CUDA devices need cuBLASLt (13, 12 or 11): " + problems +
                     "; install CUDA's libraries, or the Python package nvidia-cublas and put its folder into LD_LIBRARY_PATH");
  BlasLtApi api;
  std::string missing;
#define ZORSE_LOAD(name, parameters) findFunction(library, #name, api.name, missing);
  ZORSE_BLAS_FUNCTIONS(ZORSE_LOAD)
#undef ZORSE_LOAD
  api.cublasLtGetVersion = reinterpret_cast<size_t (*)()>(::dlsym(library, "cublasLtGetVersion"));
  if (!missing.empty())
    return userError("cuBLASLt has no " + missing + ": install another version");
  return api;
}

Result<const BlasLtApi *> api() {
  static const Result<BlasLtApi> loaded = load();
  if (loaded.failed())
    return loaded.error();
  return &*loaded;
}

Status check(const char *call, int status) {
  return status == 0 ? Status::success() : Status(userError(std::string(call) + ": cuBLASLt's status " + std::to_string(status)));
}

} // namespace

bool BlasProduct::operator<(const BlasProduct &o) const {
  auto key = [](const BlasProduct &p) {
    return std::tie(p.typeOfOperands, p.typeOfC, p.transposeA, p.transposeB, p.m, p.n, p.k, p.batch, p.lda, p.ldb, p.ldc, p.strideA, p.strideB,
                    p.strideC, p.alignmentA, p.alignmentB, p.alignmentC);
  };
  return key(*this) < key(o);
}

/// A product made ready. What is row-major here is column-major and transposed there: C' = op(B)' op(A)'.
struct BlasLt::Plan {
  void *description = nullptr, *a = nullptr, *b = nullptr, *c = nullptr;
  Algorithm algorithm;
  ~Plan() {
    const BlasLtApi &lt = **api();
    for (void *layout : {a, b, c})
      if (layout)
        lt.cublasLtMatrixLayoutDestroy(layout);
    if (description)
      lt.cublasLtMatmulDescDestroy(description);
  }
};

Result<std::unique_ptr<BlasLt>> BlasLt::create(const CudaApi &cuda) {
  Result<const BlasLtApi *> lt = api();
  if (lt.failed())
    return lt.error();
  std::unique_ptr<BlasLt> made(new BlasLt(cuda));
  if (Status status = check("cublasLtCreate", (*lt)->cublasLtCreate(&made->handle_)); status.failed())
    return status;
  return made;
}

BlasLt::BlasLt(const CudaApi &cuda) : cuda_(cuda) {}

BlasLt::~BlasLt() {
  plans_.clear();
  for (auto [stream, workspace] : workspaces_)
    cuda_.cuMemFree_v2(workspace);
  if (handle_)
    (*api())->cublasLtDestroy(handle_);
}

Result<std::string> BlasLt::identity() {
  Result<const BlasLtApi *> lt = api();
  if (lt.failed())
    return lt.error();
  return "cuBLASLt " + ((*lt)->cublasLtGetVersion ? std::to_string((*lt)->cublasLtGetVersion()) : std::string("of an unknown version"));
}

Result<BlasLt::Plan *> BlasLt::planOf(const BlasProduct &p) {
  std::unique_ptr<Plan> &plan = plans_[p];
  if (plan)
    return plan.get();
  const BlasLtApi &lt = **api();
  auto made = std::make_unique<Plan>();
  const int compute = p.typeOfC == kF64 ? kCompute64F : kCompute32F, scale = p.typeOfC == kF64 ? kF64 : kF32;
  Status failure;
  auto call = [&](const char *name, int status) {
    if (failure.succeeded())
      failure = check(name, status);
  };
  auto layout = [&](void *&to, int type, uint64_t rows, uint64_t columns, int64_t ld, int64_t stride) {
    call("cublasLtMatrixLayoutCreate", lt.cublasLtMatrixLayoutCreate(&to, type, rows, columns, ld));
    if (p.batch == 1 || failure.failed())
      return;
    const int32_t count = int32_t(p.batch);
    call("cublasLtMatrixLayoutSetAttribute", lt.cublasLtMatrixLayoutSetAttribute(to, kBatchCount, &count, sizeof count));
    call("cublasLtMatrixLayoutSetAttribute", lt.cublasLtMatrixLayoutSetAttribute(to, kBatchOffset, &stride, sizeof stride));
  };
  call("cublasLtMatmulDescCreate", lt.cublasLtMatmulDescCreate(&made->description, compute, scale));
  const int32_t first = p.transposeB, second = p.transposeA;
  if (failure.succeeded()) {
    call("cublasLtMatmulDescSetAttribute", lt.cublasLtMatmulDescSetAttribute(made->description, kTransposeA, &first, sizeof first));
    call("cublasLtMatmulDescSetAttribute", lt.cublasLtMatmulDescSetAttribute(made->description, kTransposeB, &second, sizeof second));
  }
  layout(made->b, p.typeOfOperands, uint64_t(p.transposeB ? p.k : p.n), uint64_t(p.transposeB ? p.n : p.k), p.ldb, p.strideB);
  layout(made->a, p.typeOfOperands, uint64_t(p.transposeA ? p.m : p.k), uint64_t(p.transposeA ? p.k : p.m), p.lda, p.strideA);
  layout(made->c, p.typeOfC, uint64_t(p.n), uint64_t(p.m), p.ldc, p.strideC);
  void *preference = nullptr;
  call("cublasLtMatmulPreferenceCreate", lt.cublasLtMatmulPreferenceCreate(&preference));
  if (failure.failed())
    return failure;
  auto prefer = [&](int attribute, auto value) {
    call("cublasLtMatmulPreferenceSetAttribute", lt.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
  };
  prefer(kMaxWorkspace, uint64_t(kWorkspace));
  // The library's first operand is our second. It would otherwise assume 256 bytes of every address, and slices of views have less.
  prefer(kMinAlignmentA, p.alignmentB);
  prefer(kMinAlignmentB, p.alignmentA);
  prefer(kMinAlignmentC, p.alignmentC);
  prefer(kMinAlignmentD, p.alignmentC);
  Heuristic best{};
  int found = 0;
  call("cublasLtMatmulAlgoGetHeuristic",
       lt.cublasLtMatmulAlgoGetHeuristic(handle_, made->description, made->b, made->a, made->c, made->c, preference, 1, &best, &found));
  lt.cublasLtMatmulPreferenceDestroy(preference);
  if (failure.failed())
    return failure;
  if (found == 0)
    return userError("cuBLASLt has no algorithm for a product of " + std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k));
  made->algorithm = best.algorithm;
  plan = std::move(made);
  return plan.get();
}

/// The largest power of two that divides the address, at most 256: the library asks for no more.
static uint32_t alignmentOf(CUdeviceptr address) {
  uint32_t alignment = 256;
  while (address % alignment)
    alignment /= 2;
  return alignment;
}

Status BlasLt::multiply(BlasProduct product, double alpha, CUdeviceptr a, CUdeviceptr b, double beta, CUdeviceptr c, CUstream stream) {
  if (product.m == 0 || product.n == 0 || product.batch == 0)
    return Status::success();
  product.alignmentA = alignmentOf(a), product.alignmentB = alignmentOf(b), product.alignmentC = alignmentOf(c);
  Result<Plan *> plan = planOf(product);
  if (plan.failed())
    return plan.error();
  CUdeviceptr &workspace = workspaces_[stream];
  if (!workspace)
    if (Status status = cuda_.check("cuMemAlloc of a workspace for products", cuda_.cuMemAlloc_v2(&workspace, kWorkspace)); status.failed())
      return status;
  const float narrow[2] = {float(alpha), float(beta)};
  const double wide[2] = {alpha, beta};
  const bool isWide = product.typeOfC == kF64;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): as the library wants it
  auto at = [](CUdeviceptr address) { return reinterpret_cast<void *>(uintptr_t(address)); };
  const void *factors[2] = {isWide ? static_cast<const void *>(&wide[0]) : &narrow[0], isWide ? static_cast<const void *>(&wide[1]) : &narrow[1]};
  return check("cublasLtMatmul",
               (*api())->cublasLtMatmul(handle_, (*plan)->description, factors[0], at(b), (*plan)->b, at(a), (*plan)->a, factors[1], at(c),
                                        (*plan)->c, at(c), (*plan)->c, &(*plan)->algorithm, at(workspace), kWorkspace, stream));
}
