// A prepared function: symbols are resolved, attributes read and everything checked, so that
// running it cannot fail.
#pragma once

#include "LibraryRoutine.h"
#include "zorse/runtime/Device.h"
#include "zorse/runtime/HalfTypes.h"
#include "zorse/runtime/abi/KernelAbi.h"

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace zorse::bundle {
class CompiledFunction;
class AffineSize;
class KernelLaunch;
class Matmul;
class Pointer;
} // namespace zorse::bundle

namespace zorse::runtime {

class CpuFunction {
public:
  /// Returns the address of a symbol in the bundle's kernel objects, or null if there is none.
  using FindSymbol = std::function<void *(const std::string &symbol)>;
  static Result<CpuFunction> create(const bundle::CompiledFunction &function,
                                    const FindSymbol &findSymbol);

  /// \param launches  counts the finished launches; only the calling thread writes it
  void run(const FunctionArguments &arguments, ThreadPool &pool, const Gemm &gemm,
           std::atomic<uint64_t> &launches);

private:
  struct Linear { ///< fixed + perRow * rows
    int64_t fixed = 0, perRow = 0;
    int64_t at(int64_t rows) const { return fixed + perRow * rows; }
  };
  struct Address {
    uint32_t argument = 0;
    Linear offset;
  };
  struct Kernel {
    ZorseKernel *function;
    std::vector<Address> operands;
    uint64_t accumulates; ///< bit i: operand i
    Linear iterations, cost;
  };
  struct Matmul {
    bool isDouble, transposeA, transposeB, accumulates;
    std::optional<HalfType> half; ///< type of A and B; absent: the type of C
    bool narrowResult;            ///< C has this half precision, too
    Linear m, n, k, batch;
    Address a, b, c;
    int64_t lda, ldb, ldc, strideA, strideB, strideC;
    double alpha;
  };
  struct Library {
    std::shared_ptr<LibraryRoutine> routine;
    std::vector<Address> operands;
    uint64_t accumulates;
  };

  class Builder;
  void *resolve(const Address &address, const FunctionArguments &arguments) const;
  uint64_t accumulateBits(uint64_t accumulates, const std::vector<Address> &operands,
                          const FunctionArguments &arguments) const;
  void run(const Kernel &kernel, const FunctionArguments &arguments, ThreadPool &pool,
           const Gemm &gemm);
  void run(const Matmul &matmul, const FunctionArguments &arguments, ThreadPool &pool,
           const Gemm &gemm);
  void run(const Library &library, const FunctionArguments &arguments, ThreadPool &pool,
           const Gemm &gemm);

  std::vector<std::variant<Kernel, Matmul, Library>> launches_;
  std::vector<size_t> segmentEnds_; ///< by segment but the last: the launch behind it
  std::vector<void *> operands_;    ///< scratch memory of a run, to avoid allocation during a step
};

} // namespace zorse::runtime
