#include "CpuBody.h"

#include "MatrixProduct.h"
#include "ThreadPool.h"
#include "bundle.pb.h"
#include "zorse/runtime/abi/Library.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::runtime;

/// Reads one body. The first problem found is kept.
class CpuBody::Builder {
public:
  Builder(const bundle::Body &body, const FindKernel &findKernel) : body_(body), findKernel_(findKernel) {}

  void fail(const std::string &what) {
    if (problem_.empty())
      problem_ = "body '" + body_.name() + "', launch " + std::to_string(launch_) + ": " + what;
  }

  static Linear linear(const bundle::Extent &extent) { return {extent.fixed(), extent.per_row()}; }

  Address address(const bundle::Pointer &pointer, bool optional = false) {
    if (pointer.slot() == abi::kAbsentSlot && optional)
      return {abi::kAbsentSlot, {}};
    if (pointer.slot() >= static_cast<uint32_t>(body_.slots_size())) {
      fail("slot " + std::to_string(pointer.slot()) + " of " + std::to_string(body_.slots_size()) + " is named");
      return {};
    }
    const bundle::Extent &bytes = body_.slots(pointer.slot()).bytes();
    constexpr int64_t kMost = int64_t(1) << 60; // sums of two stay in range
    if (pointer.fixed() < 0 || pointer.per_row() < 0 || pointer.fixed() > kMost || pointer.per_row() > kMost || bytes.fixed() > kMost || bytes.per_row() > kMost ||
        pointer.fixed() + pointer.per_row() > bytes.fixed() + bytes.per_row())
      fail("address " + std::to_string(pointer.fixed()) + " + " + std::to_string(pointer.per_row()) + " per row lies outside slot " +
           std::to_string(pointer.slot()) + " of " + std::to_string(bytes.fixed()) + " + " + std::to_string(bytes.per_row()) + " per row bytes");
    return {pointer.slot(), {pointer.fixed(), pointer.per_row()}};
  }

  template <typename Launch> uint64_t accumulates(const Launch &launch) {
    uint64_t bits = 0;
    for (uint32_t operand : launch.accumulates()) {
      if (operand >= static_cast<uint32_t>(launch.operands_size()) || operand >= 64)
        fail("accumulates into operand " + std::to_string(operand) + " of " + std::to_string(launch.operands_size()) + " (at most 64 can be)");
      else
        bits |= uint64_t(1) << operand;
    }
    return bits;
  }

  Kernel kernel(const bundle::KernelLaunch &launch) {
    Kernel kernel{findKernel_(launch.symbol()), {}, accumulates(launch), linear(launch.points()), linear(launch.cost())};
    if (!kernel.function)
      fail("kernel '" + launch.symbol() + "' is in none of the bundle's kernel objects");
    for (const bundle::Pointer &operand : launch.operands())
      kernel.operands.push_back(address(operand));
    return kernel;
  }

  Product product(const bundle::MatrixProduct &launch) {
    if (launch.type() != bundle::F32 && launch.type() != bundle::F64)
      fail("matrix product: expects element type F32 or F64, got " + bundle::ElementType_Name(launch.type()));
    Product product;
    product.isDouble = launch.type() == bundle::F64;
    product.transposeA = launch.transpose_a();
    product.transposeB = launch.transpose_b();
    product.accumulates = launch.accumulates();
    product.m = linear(launch.m());
    product.n = linear(launch.n());
    product.k = linear(launch.k());
    product.batch = linear(launch.batch());
    if (!launch.has_batch())
      product.batch = {1, 0};
    product.a = address(launch.a());
    product.b = address(launch.b());
    product.c = address(launch.c());
    product.lda = launch.lda();
    product.ldb = launch.ldb();
    product.ldc = launch.ldc();
    product.strideA = launch.batch_stride_a();
    product.strideB = launch.batch_stride_b();
    product.strideC = launch.batch_stride_c();
    product.alpha = launch.alpha();
    auto checkLeading = [&](const char *name, int64_t leading, const Linear &columns) {
      if (columns.fixed < 0 || columns.perRow < 0)
        fail("matrix product: extents are expected to be >= 0");
      else if (columns.perRow == 0 && leading < std::max<int64_t>(columns.fixed, 1))
        fail("matrix product: expects " + std::string(name) + " >= " + std::to_string(columns.fixed) + ", got " + std::to_string(leading));
    };
    checkLeading("lda", product.lda, product.transposeA ? product.m : product.k);
    checkLeading("ldb", product.ldb, product.transposeB ? product.k : product.n);
    checkLeading("ldc", product.ldc, product.n);
    return product;
  }

  Library library(const bundle::LibraryCall &call) {
    Library library{nullptr, {}, accumulates(call)};
    for (const bundle::Pointer &operand : call.operands())
      library.operands.push_back(address(operand, /*optional=*/true));
    Result<std::unique_ptr<LibraryRoutine>> routine = makeLibraryRoutine(call);
    if (routine.failed())
      fail(routine.message());
    else
      library.routine = std::move(*routine);
    return library;
  }

  Result<CpuBody> build() {
    CpuBody body;
    size_t mostOperands = 16; // library routines look at optional operands beyond those given.
    for (launch_ = 0; launch_ < body_.launches_size(); ++launch_) {
      const bundle::Launch &launch = body_.launches(launch_);
      switch (launch.what_case()) {
      case bundle::Launch::kKernel:
        body.launches_.push_back(kernel(launch.kernel()));
        mostOperands = std::max<size_t>(mostOperands, launch.kernel().operands_size());
        break;
      case bundle::Launch::kProduct:
        body.launches_.push_back(product(launch.product()));
        break;
      case bundle::Launch::kLibrary:
        body.launches_.push_back(library(launch.library()));
        mostOperands = std::max<size_t>(mostOperands, launch.library().operands_size());
        break;
      case bundle::Launch::WHAT_NOT_SET:
        fail("holds nothing this runtime knows");
        break;
      }
    }
    if (!problem_.empty())
      return userError(problem_);
    body.operands_.resize(mostOperands);
    return body;
  }

private:
  const bundle::Body &body_;
  const FindKernel &findKernel_;
  int launch_ = 0;
  std::string problem_;
};

Result<CpuBody> CpuBody::create(const bundle::Body &body, const FindKernel &findKernel) { return Builder(body, findKernel).build(); }

void *CpuBody::resolve(const Address &address, const BodyArguments &arguments) const {
  if (address.slot == abi::kAbsentSlot)
    return nullptr;
  return static_cast<std::byte *>(arguments.slots[address.slot]) + address.offset.at(arguments.rows);
}

uint64_t CpuBody::accumulateBits(uint64_t accumulates, const std::vector<Address> &operands, const BodyArguments &arguments) const {
  if (!arguments.overwrite || !accumulates)
    return accumulates;
  for (size_t i = 0; i < operands.size() && i < 64; ++i)
    if (operands[i].slot != abi::kAbsentSlot && arguments.overwrite[operands[i].slot])
      accumulates &= ~(uint64_t(1) << i);
  return accumulates;
}

void CpuBody::run(const BodyArguments &arguments, ThreadPool &pool, const Gemm &gemm, std::atomic<uint64_t> &launches) {
  for (const auto &launch : launches_) {
    std::visit([&](const auto &what) { run(what, arguments, pool, gemm); }, launch);
    launches.store(launches.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); // bodies of a device run one after the other.
  }
}

void CpuBody::run(const Kernel &kernel, const BodyArguments &arguments, ThreadPool &pool, const Gemm &) {
  for (size_t i = 0; i < kernel.operands.size(); ++i)
    operands_[i] = resolve(kernel.operands[i], arguments);
  uint64_t accumulate = accumulateBits(kernel.accumulates, kernel.operands, arguments);
  int64_t points = kernel.points.at(arguments.rows);
  if (points <= 0)
    return;

  // Below this many bytes a thread costs more to wake than it saves.
  constexpr int64_t kBytesPerPiece = 64 << 10;
  int64_t pieces = std::min({points, kernel.cost.at(arguments.rows) / kBytesPerPiece, int64_t(pool.threads()) * 4});
  if (pieces <= 1 || pool.threads() == 1) {
    kernel.function(operands_.data(), arguments.rows, 0, points, accumulate, arguments.sampleBase, arguments.instanceBase);
    return;
  }
  pool.forEach(pieces, [&](int64_t piece) {
    kernel.function(operands_.data(), arguments.rows, points * piece / pieces, points * (piece + 1) / pieces, accumulate, arguments.sampleBase,
                    arguments.instanceBase);
  });
}

void CpuBody::run(const Product &product, const BodyArguments &arguments, ThreadPool &pool, const Gemm &gemm) {
  int64_t rows = arguments.rows;
  bool add = product.accumulates && !(arguments.overwrite && arguments.overwrite[product.c.slot]);
  void *a = resolve(product.a, arguments), *b = resolve(product.b, arguments), *c = resolve(product.c, arguments);
  auto multiplyAs = [&](auto zero) {
    using T = decltype(zero);
    multiply(BatchedProduct<T>{{product.transposeA, product.transposeB, product.m.at(rows), product.n.at(rows), product.k.at(rows), T(product.alpha),
                                static_cast<const T *>(a), product.lda, static_cast<const T *>(b), product.ldb, T(add ? 1 : 0), static_cast<T *>(c),
                                product.ldc},
                               product.batch.at(rows), product.strideA, product.strideB, product.strideC},
             gemm, pool);
  };
  product.isDouble ? multiplyAs(double(0)) : multiplyAs(float(0));
}

void CpuBody::run(const Library &library, const BodyArguments &arguments, ThreadPool &pool, const Gemm &gemm) {
  std::fill(operands_.begin(), operands_.end(), nullptr);
  for (size_t i = 0; i < library.operands.size(); ++i)
    operands_[i] = resolve(library.operands[i], arguments);
  library.routine->run({operands_.data(), arguments.rows, arguments.sampleBase, arguments.instanceBase,
                        accumulateBits(library.accumulates, library.operands, arguments), pool, gemm});
}
