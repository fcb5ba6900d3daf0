// The routines that functions call by name (abi/Library.md).
#pragma once

#include "Gemm.h"
#include "zorse/runtime/abi/KernelAbi.h"

#include <cstdint>
#include <memory>

namespace zorse::bundle {
class LibraryCall;
}

namespace zorse::runtime {

class ThreadPool;

struct LibraryArguments : ZorseCallContext {
  void *const *operands; ///< null if an optional operand is absent
  uint64_t accumulate;   ///< bit i: accumulate into operand i
  ThreadPool &pool;
  const Gemm &gemm;
};

/// A routine with parsed and checked attributes. The device serializes its runs.
class LibraryRoutine {
public:
  virtual ~LibraryRoutine() = default;
  virtual void run(const LibraryArguments &arguments) = 0;
};

/// Returns an error on unknown names, missing attributes and wrong operand counts.
Result<std::unique_ptr<LibraryRoutine>> makeLibraryRoutine(const bundle::LibraryCall &call);

/// Attention.cpp
Result<std::unique_ptr<LibraryRoutine>> makeAttentionForward(const bundle::LibraryCall &call);
Result<std::unique_ptr<LibraryRoutine>> makeAttentionBackward(const bundle::LibraryCall &call);

/// Checks the number of operands of `call` and that the first `required` are present unless their
/// bit in `optional` is set.
Status checkOperands(const bundle::LibraryCall &call, int min, int max, uint64_t optional);

} // namespace zorse::runtime
