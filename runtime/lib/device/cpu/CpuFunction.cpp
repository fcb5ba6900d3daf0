#include "CpuFunction.h"

#include "AttentionShape.h"
#include "Matmul.h"
#include "RoutineReach.h"
#include "ThreadPool.h"
#include "bundle.pb.h"
#include "zorse/runtime/abi/Library.h"

#include <algorithm>
#include <cassert>

using namespace zorse;
using namespace zorse::runtime;

/// Checks and prepares one function. Keeps the first problem found.
class CpuFunction::Builder {
public:
  Builder(const bundle::CompiledFunction &function, const FindSymbol &findSymbol)
      : function_(function), findSymbol_(findSymbol) {}

  void fail(const std::string &what) {
    if (problem_.empty())
      problem_ = "function '" + function_.name() + "', launch " + std::to_string(launch_) + ": " +
                 what;
  }

  /// Checks that a use of a present operand is inside its argument, and that the argument may be
  /// written if the use writes.
  void use(const bundle::Pointer &pointer, const Reach &reach, bool written,
           const std::string &what) {
    if (pointer.argument() >= uint32_t(function_.arguments_size()))
      return;
    if (const std::string problem = problemOfUse(function_, pointer, reach, written, what);
        !problem.empty())
      fail(problem);
  }

  static Linear linear(const bundle::AffineSize &extent) {
    return {extent.fixed(), extent.per_row()};
  }

  Address address(const bundle::Pointer &pointer, bool optional = false) {
    if (pointer.argument() == abi::kAbsentArgument && optional)
      return {abi::kAbsentArgument, {}};
    if (pointer.argument() >= static_cast<uint32_t>(function_.arguments_size())) {
      fail("argument " + std::to_string(pointer.argument()) + " of " +
           std::to_string(function_.arguments_size()) + " is named");
      return {};
    }
    use(pointer, {}, false, "it");
    return {pointer.argument(), {pointer.fixed(), pointer.per_row()}};
  }

  template <typename Launch> uint64_t accumulates(const Launch &launch) {
    uint64_t bits = 0;
    for (uint32_t operand : launch.accumulates()) {
      if (operand >= static_cast<uint32_t>(launch.operands_size()) || operand >= 64)
        fail("accumulates into operand " + std::to_string(operand) + " of " +
             std::to_string(launch.operands_size()) + " (at most 64 can be)");
      else
        bits |= uint64_t(1) << operand;
    }
    return bits;
  }

  Kernel kernel(const bundle::KernelLaunch &launch) {
    Kernel kernel{reinterpret_cast<ZorseKernel *>(findSymbol_(launch.symbol())),
                  {},
                  accumulates(launch),
                  linear(launch.iterations()),
                  linear(launch.cost())};
    for (const bundle::Pointer &operand : launch.operands())
      kernel.operands.push_back(address(operand));
    if (!kernel.function)
      fail("kernel '" + launch.symbol() + "' is in none of the bundle's kernel objects");
    else if (const auto *needs =
                 static_cast<const ZorseKernelBounds *>(findSymbol_(launch.symbol() + "_needs")))
      checkBounds(launch, *needs);
    else
      fail("kernel '" + launch.symbol() + "' does not say what it touches (" + launch.symbol() +
           "_needs): compile the model again");
    return kernel;
  }

  void checkBounds(const bundle::KernelLaunch &launch, const ZorseKernelBounds &needs) {
    const std::string name = "kernel '" + launch.symbol() + "'";
    const bundle::AffineSize &points = launch.iterations();
    auto text = [](int64_t fixed, int64_t perRow) {
      return std::to_string(fixed) + " + " + std::to_string(perRow) + " per row";
    };
    if (needs.operands != launch.operands_size())
      return fail(name + ": expects " + std::to_string(needs.operands) + " operands, got " +
                  std::to_string(launch.operands_size()));
    const bool any = needs.pointsFixed < 0;
    if (points.fixed() < 0 || points.per_row() < 0 ||
        (!any &&
         (points.fixed() != needs.pointsFixed || points.per_row() != needs.iterationsPerRow)))
      return fail(name + ": expects " +
                  (any ? "at least 0" : text(needs.pointsFixed, needs.iterationsPerRow)) +
                  " points, got " + text(points.fixed(), points.per_row()));
    for (int i = 0; i < launch.operands_size(); ++i) {
      const ZorseKernelBounds::Operand &need = needs.operand[i];
      Reach reach{__int128(need.perPoint) * points.fixed() + need.fixed,
                  __int128(need.perPoint) * points.per_row() + need.perRow};
      use(launch.operands(i), reach, need.written != 0, name + ": operand " + std::to_string(i));
    }
  }

  Matmul matmul(const bundle::Matmul &launch) {
    Matmul matmul;
    const bundle::ElementType operands = launch.operand_type() == bundle::ELEMENT_TYPE_UNSPECIFIED
                                             ? launch.type()
                                             : launch.operand_type();
    matmul.half = halfType(operands);
    matmul.narrowResult = halfType(launch.type()).has_value();
    const bool known = matmul.half ? launch.type() == bundle::F32 || launch.type() == operands
                                   : launch.type() == operands &&
                                         (operands == bundle::F32 || operands == bundle::F64);
    if (!known)
      fail("matrix product: expects operands and result of F32 or of F64, or operands of BF16 or "
           "F16 with a result of the same or of F32, got " +
           bundle::ElementType_Name(operands) + " and " + bundle::ElementType_Name(launch.type()));
    if (matmul.half && (launch.alpha() != 1.0 || (matmul.narrowResult && launch.accumulates())))
      fail("matrix product: half precision expects alpha 1, and no accumulation into a result of "
           "half precision");
    if (launch.has_bias() || launch.sums_f16() || launch.tf32())
      fail("matrix product: biases, sums in f16 and TF32 are for GPUs");
    matmul.isDouble = launch.type() == bundle::F64;
    matmul.transposeA = launch.transpose_a();
    matmul.transposeB = launch.transpose_b();
    matmul.accumulates = launch.accumulates();
    matmul.m = linear(launch.m());
    matmul.n = linear(launch.n());
    matmul.k = linear(launch.k());
    matmul.batch = linear(launch.batch());
    if (!launch.has_batch())
      matmul.batch = {1, 0};
    matmul.a = address(launch.a());
    matmul.b = address(launch.b());
    matmul.c = address(launch.c());
    matmul.lda = launch.lda();
    matmul.ldb = launch.ldb();
    matmul.ldc = launch.ldc();
    matmul.strideA = launch.batch_stride_a();
    matmul.strideB = launch.batch_stride_b();
    matmul.strideC = launch.batch_stride_c();
    matmul.alpha = launch.alpha();
    if (const std::string problem = problemOfMatmul(function_, launch); !problem.empty())
      fail(problem);
    return matmul;
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
    if (!problem_.empty())
      return library;
    Result<std::vector<OperandUse>> uses = operandUses(call);
    if (uses.failed())
      fail(uses.message());
    else
      for (const OperandUse &one : *uses)
        if (one.operand < call.operands_size())
          use(call.operands(one.operand), one.reach, one.written,
              "library routine '" + call.name() + "': operand " + std::to_string(one.operand));
    return library;
  }

  Result<CpuFunction> build() {
    CpuFunction function;
    size_t maxOperands = 16; // library routines also read the optional operands after the given
                             // ones
    for (launch_ = 0; launch_ < function_.launches_size(); ++launch_) {
      const bundle::Launch &launch = function_.launches(launch_);
      switch (launch.what_case()) {
      case bundle::Launch::kKernel:
        function.launches_.push_back(kernel(launch.kernel()));
        maxOperands = std::max<size_t>(maxOperands, launch.kernel().operands_size());
        break;
      case bundle::Launch::kMatmul:
        function.launches_.push_back(matmul(launch.matmul()));
        break;
      case bundle::Launch::kLibrary:
        function.launches_.push_back(library(launch.library()));
        maxOperands = std::max<size_t>(maxOperands, launch.library().operands_size());
        break;
      case bundle::Launch::kExchange:
        function.segmentEnds_.push_back(function.launches_.size());
        break;
      case bundle::Launch::WHAT_NOT_SET:
        fail("holds nothing this runtime knows");
        break;
      }
    }
    if (!problem_.empty())
      return userError(problem_);
    function.operands_.resize(maxOperands);
    return function;
  }

private:
  const bundle::CompiledFunction &function_;
  const FindSymbol &findSymbol_;
  int launch_ = 0;
  std::string problem_;
};

Result<CpuFunction> CpuFunction::create(const bundle::CompiledFunction &function,
                                        const FindSymbol &findSymbol) {
  return Builder(function, findSymbol).build();
}

void *CpuFunction::resolve(const Address &address, const FunctionArguments &arguments) const {
  if (address.argument == abi::kAbsentArgument)
    return nullptr;
  return arguments.addresses[address.argument].onHost() + address.offset.at(arguments.rows);
}

uint64_t CpuFunction::accumulateBits(uint64_t accumulates, const std::vector<Address> &operands,
                                     const FunctionArguments &arguments) const {
  if (!arguments.overwrite || !accumulates)
    return accumulates;
  for (size_t i = 0; i < operands.size() && i < 64; ++i)
    if (operands[i].argument != abi::kAbsentArgument && arguments.overwrite[operands[i].argument])
      accumulates &= ~(uint64_t(1) << i);
  return accumulates;
}

void CpuFunction::run(const FunctionArguments &arguments, ThreadPool &pool, const Gemm &gemm,
                      std::atomic<uint64_t> &launches) {
  const size_t segment = arguments.segment;
  assert(segment <= segmentEnds_.size() && "programs are checked");
  const size_t end = segment < segmentEnds_.size() ? segmentEnds_[segment] : launches_.size();
  for (size_t i = segment ? segmentEnds_[segment - 1] : 0; i < end; ++i) {
    std::visit([&](const auto &what) { run(what, arguments, pool, gemm); }, launches_[i]);
    // No atomic increment is needed: functions of a device run one at a time.
    launches.store(launches.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
}

void CpuFunction::run(const Kernel &kernel, const FunctionArguments &arguments, ThreadPool &pool,
                      const Gemm &) {
  for (size_t i = 0; i < kernel.operands.size(); ++i)
    operands_[i] = resolve(kernel.operands[i], arguments);
  uint64_t accumulate = accumulateBits(kernel.accumulates, kernel.operands, arguments);
  int64_t points = kernel.iterations.at(arguments.rows);
  if (points <= 0)
    return;

  // With fewer bytes, waking a thread costs more time than it saves.
  constexpr int64_t kBytesPerPiece = 64 << 10;
  int64_t pieces = std::min(
      {points, kernel.cost.at(arguments.rows) / kBytesPerPiece, int64_t(pool.threads()) * 4});
  if (pieces <= 1 || pool.threads() == 1) {
    kernel.function(operands_.data(), &arguments, 0, points, accumulate);
    return;
  }
  pool.forEach(pieces, [&](int64_t piece) {
    kernel.function(operands_.data(), &arguments, points * piece / pieces,
                    points * (piece + 1) / pieces, accumulate);
  });
}

void CpuFunction::run(const Matmul &matmul, const FunctionArguments &arguments, ThreadPool &pool,
                      const Gemm &gemm) {
  int64_t rows = arguments.rows;
  bool add = matmul.accumulates && !(arguments.overwrite && arguments.overwrite[matmul.c.argument]);
  void *a = resolve(matmul.a, arguments), *b = resolve(matmul.b, arguments),
       *c = resolve(matmul.c, arguments);
  if (matmul.half) {
    HalfMatmul first{*matmul.half,
                     matmul.transposeA,
                     matmul.transposeB,
                     matmul.m.at(rows),
                     matmul.n.at(rows),
                     matmul.k.at(rows),
                     static_cast<const uint16_t *>(a),
                     matmul.lda,
                     static_cast<const uint16_t *>(b),
                     matmul.ldb,
                     matmul.narrowResult,
                     add,
                     c,
                     matmul.ldc};
    return multiply(BatchedHalfMatmul{first, matmul.batch.at(rows), matmul.strideA, matmul.strideB,
                                      matmul.strideC},
                    pool);
  }
  auto multiplyAs = [&](auto zero) {
    using T = decltype(zero);
    multiply(BatchedMatmul<T>{{matmul.transposeA, matmul.transposeB, matmul.m.at(rows),
                               matmul.n.at(rows), matmul.k.at(rows), T(matmul.alpha),
                               static_cast<const T *>(a), matmul.lda, static_cast<const T *>(b),
                               matmul.ldb, T(add ? 1 : 0), static_cast<T *>(c), matmul.ldc},
                              matmul.batch.at(rows),
                              matmul.strideA,
                              matmul.strideB,
                              matmul.strideC},
             gemm, pool);
  };
  matmul.isDouble ? multiplyAs(double(0)) : multiplyAs(float(0));
}

void CpuFunction::run(const Library &library, const FunctionArguments &arguments, ThreadPool &pool,
                      const Gemm &gemm) {
  std::fill(operands_.begin(), operands_.end(), nullptr);
  for (size_t i = 0; i < library.operands.size(); ++i)
    operands_[i] = resolve(library.operands[i], arguments);
  library.routine->run({arguments, operands_.data(),
                        accumulateBits(library.accumulates, library.operands, arguments), pool,
                        gemm});
}
