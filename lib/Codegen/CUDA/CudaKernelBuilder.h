#pragma once

#include "KernelBuilder.h"

namespace zorse::codegen::cuda {

/// Types of half precision that the GPU converts from and to f32 by instructions of its own. Others are converted by integer operations, to the same
/// bits (but for the payload of NaN).
struct HalfConversions {
  bool f16 = false, bf16 = false;
  bool has(mlir::Type type) const { return type.isF16() ? f16 : type.isBF16() && bf16; }
};

/// Address spaces of LLVM's NVPTX target.
constexpr unsigned kGlobalMemory = 1, kSharedMemory = 3;

/// On the module of a kernel that converts numbers of 16 bits by instructions of the GPU.
constexpr llvm::StringLiteral kHalfAttr = "zorse.half";

/// Builds a kernel for GPUs: `begin` is the number of this thread in the grid times what it computes (abi/CudaAbi.h).
class CudaKernelBuilder final : public KernelBuilder {
public:
  CudaKernelBuilder(mlir::MLIRContext *context, Resolve resolve, HalfConversions conversions = {})
      : KernelBuilder(context, std::move(resolve)), conversions(conversions) {}

  /// Whether numbers of 16 bits are converted by instructions of the GPU.
  bool convertsHalf() const { return conversions.f16 && conversions.bf16; }
  mlir::Type memoryType(mlir::Type element) const override;
  Value round(Value x, mlir::Type to) override;
  /// Rounds several numbers, two at a time where the GPU does so.
  llvm::SmallVector<Value> roundMany(llvm::ArrayRef<Value> values, mlir::Type to);
  /// Two f32 rounded to `to` (bf16 or f16) by one instruction, in an i32; `low` is the lower half.
  Value pack(Value low, Value high, mlir::Type to);

  /// `count` elements behind each other, as one access; the first lies on a multiple of them all.
  llvm::SmallVector<Value> loadMany(Value base, Value offset, mlir::Type element, int64_t count);
  void storeMany(llvm::ArrayRef<Value> values, Value base, Value offset, mlir::Type element, Value accumulate = {});
  /// Bytes to whose multiple every address of an operand is known to be aligned, at element 0 of its rows.
  int64_t alignment(unsigned operand) const;

  /// LLVM's intrinsic `name`. The names of kernels are hashes of their text, so an operation of the NVVM dialect in its place renames all kernels.
  Value intrinsic(llvm::StringRef name, mlir::Type result, llvm::ArrayRef<Value> operands);
  /// An intrinsic without result.
  void effect(llvm::StringRef name, llvm::ArrayRef<Value> operands);
  /// Of this thread in its block; of its block in the grid.
  Value threadIndex();
  Value blockIndex();
  void barrier();
  /// Bit i: `condition` of lane i.
  Value ballot(Value condition);
  /// What lane ^ `mask` has, of 32 or 64 bits.
  Value exchange(Value x, int mask);
  /// Every thread of the warp gets the combination over its warp, the same bits.
  Value combineWarp(ReduceKind kind, Value x);
  /// Every thread of a block of `threads` gets the combination over the block, with one barrier. Each call has its own shared memory.
  Value combineBlock(ReduceKind kind, Value x, int threads);

  /// `count` elements that the threads of a block share.
  Value shared(mlir::Type type, int64_t count);
  /// The `bytes` of shared memory that a launch gives every block, on a multiple of 128: beyond 48 KiB no code can declare it. Once in a kernel.
  Value launchShared(int64_t bytes);
  /// `count` elements that all blocks share, in memory of the kernel's own; 0 when the kernel is loaded, and then what launches leave there. Launches
  /// of one kernel follow each other (abi/CudaAbi.h).
  Value common(mlir::Type type, int64_t count);
  /// An element of it as another block has left it.
  Value loadCommon(Value base, Value offset, mlir::Type element);
  /// Whether this block is the last of `blocks` that come here; then all its threads see what the others stored before they came. `counters` is
  /// common memory of i32, in which those blocks count at `index`: 0 before them, and 0 again after the last.
  Value comesLast(Value counters, Value index, Value blocks);

  /// \param points           of the launch; the kernel itself keeps away from those that do not exist.
  /// \param takesRegisters  a multiprocessor need not hold more than one block: the assembler may give threads as many registers as there are
  Kernel finish(llvm::StringRef hint, const Size &points, int threads, int perThread, bool takesRegisters = false, bool contract = true);

private:
  /// Where an f32 that is a bf16 comes from: alone, or from one half of a word of two.
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
  bool comesInWords(mlir::Type element, int64_t count) const { return element.isBF16() && conversions.bf16 && count % 2 == 0; }
  llvm::SmallVector<Value> widenWord(Value word);
  /// Two numbers in a word, rounded unless they are bf16 already.
  Value narrowWord(Value low, Value high);
  /// The word of which these are the halves; null: there is none.
  Value wordOf(Value low, Value high) const;
};

} // namespace zorse::codegen::cuda
