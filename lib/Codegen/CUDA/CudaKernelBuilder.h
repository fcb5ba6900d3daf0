#pragma once

#include "KernelBuilder.h"

namespace zorse::codegen::cuda {

/// Half-precision types that the GPU converts from and to f32 with its own instructions. Others are
/// converted with integer operations, which give the same bits (except for NaN payloads).
struct HalfConversions {
  bool f16 = false, bf16 = false;
  bool has(mlir::Type type) const { return type.isF16() ? f16 : type.isBF16() && bf16; }
};

/// Address spaces of LLVM's NVPTX target.
constexpr unsigned kGlobalMemory = 1, kSharedMemory = 3;

/// Attribute on the module of a kernel that converts 16-bit numbers with GPU instructions.
constexpr llvm::StringLiteral kHalfAttr = "zorse.half";

/// Builds a kernel for GPUs. `begin` is the index of this thread in the grid times the number of
/// elements per thread (abi/CudaAbi.h).
class CudaKernelBuilder final : public KernelBuilder {
public:
  CudaKernelBuilder(mlir::MLIRContext *context, Resolve resolve, HalfConversions conversions = {})
      : KernelBuilder(context, std::move(resolve)), conversions(conversions) {}

  /// Whether 16-bit numbers are converted with GPU instructions.
  bool convertsHalf() const { return conversions.f16 && conversions.bf16; }
  mlir::Type memoryType(mlir::Type element) const override;
  Value round(Value x, mlir::Type to) override;
  /// Rounds several numbers, two at a time if the GPU supports it.
  llvm::SmallVector<Value> roundMany(llvm::ArrayRef<Value> values, mlir::Type to);
  /// Rounds two f32 to `to` (bf16 or f16) with one instruction and returns them in an i32; `low` is
  /// the lower half.
  Value pack(Value low, Value high, mlir::Type to);

  /// Loads `count` contiguous elements with one access. The first must be aligned to their total
  /// size.
  llvm::SmallVector<Value> loadMany(Value base, Value offset, mlir::Type element, int64_t count);
  void storeMany(llvm::ArrayRef<Value> values, Value base, Value offset, mlir::Type element,
                 Value accumulate = {});
  /// Known alignment in bytes of all addresses of an operand at element 0 of its rows.
  int64_t alignment(unsigned operand) const;

  /// Calls LLVM's intrinsic `name`. Kernel names are hashes of their text, so replacing it by an
  /// operation of the NVVM dialect would rename all kernels.
  Value intrinsic(llvm::StringRef name, mlir::Type result, llvm::ArrayRef<Value> operands);
  /// Calls an intrinsic without result.
  void effect(llvm::StringRef name, llvm::ArrayRef<Value> operands);
  /// Index of this thread in its block, and of its block in the grid.
  Value threadIndex();
  Value blockIndex();
  void barrier();
  /// Bit i of the result is `condition` of lane i.
  Value ballot(Value condition);
  /// Returns the value of lane ^ `mask`; 32 or 64 bits.
  Value exchange(Value x, int mask);
  /// Combines x over the warp. Every thread of the warp gets the same bits.
  Value combineWarp(ReduceKind kind, Value x);
  /// Combines x over a block of `threads` with one barrier. Every thread gets the result. Each call
  /// has its own shared memory.
  Value combineBlock(ReduceKind kind, Value x, int threads);

  /// Allocates `count` elements in the shared memory of a block.
  Value shared(mlir::Type type, int64_t count);
  /// Returns the `bytes` of dynamic shared memory that a launch gives every block, aligned to 128.
  /// Blocks need it for more than 48 KiB, which code cannot declare statically. At most one call
  /// per kernel.
  Value launchShared(int64_t bytes);
  /// Allocates `count` elements of global memory that all blocks share. They are 0 when the kernel
  /// is loaded and keep their values between launches. Launches of one kernel are sequential
  /// (abi/CudaAbi.h).
  Value common(mlir::Type type, int64_t count);
  /// Loads an element of common memory that another block may have stored.
  Value loadCommon(Value base, Value offset, mlir::Type element);
  /// Whether this block is the last of `blocks` that call this. If so, all its threads see the
  /// values that the other blocks stored before their calls. `counters` is common memory of i32;
  /// the blocks count at `index`, which is 0 before the first call and again after the last.
  Value comesLast(Value counters, Value index, Value blocks);

  /// \param points           number of points of the launch; the kernel itself skips points that do
  /// not exist.
  /// \param takesRegisters  one block per multiprocessor is enough: the assembler may give each
  /// thread the maximum number of registers
  Kernel finish(llvm::StringRef hint, const Size &points, int threads, int perThread,
                bool takesRegisters = false, bool contract = true);

private:
  /// Source of an f32 that is a widened bf16: a single bf16, or one half of a word of two.
  struct Narrow {
    Value alone, word;
    bool isHigh = false;
  };

  const HalfConversions conversions;
  llvm::DenseMap<Value, Narrow> narrow;

  Value narrowHalf(Value x, mlir::Type to) override;
  Value widenHalf(Value stored, mlir::Type from) override;
  void markHalf();
  /// Whether `count` numbers of this type are handled as words of two.
  bool comesInWords(mlir::Type element, int64_t count) const {
    return element.isBF16() && conversions.bf16 && count % 2 == 0;
  }
  llvm::SmallVector<Value> widenWord(Value word);
  /// Packs two numbers into a word. Rounds them unless they are bf16 already.
  Value narrowWord(Value low, Value high);
  /// Returns the word with these two halves; null if there is none.
  Value wordOf(Value low, Value high) const;
};

} // namespace zorse::codegen::cuda
