// Builds the MLIR of one kernel: two functions, the exported one unpacks operands and calls the other, whose pointers do not alias.
#pragma once

#include "Views.h"

#include "bundle.pb.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>

namespace zorse::codegen {

/// A finished kernel and how a body launches it.
struct Kernel {
  std::string hint; ///< for the symbol: what the kernel computes, in a word or two.
  mlir::OwningOpRef<mlir::ModuleOp> module;
  bundle::KernelLaunch launch; ///< without the symbol.
};

/// Size of a dimension or of several as one: fixed, or a multiple of the number of rows.
struct Size {
  int64_t count = 1;
  bool sampled = false;
};

/// Types of half precision that the target converts from and to f32 by instructions of its own. Others are converted by integer operations, to the
/// same bits (but for the payload of NaN).
struct HalfConversions {
  bool f16 = false, bf16 = false;
  bool has(mlir::Type type) const { return type.isF16() ? f16 : type.isBF16() && bf16; }
};

/// On the module of a kernel that converts numbers of 16 bits by instructions of its target.
constexpr llvm::StringLiteral kHalfAttr = "zorse.half";

class KernelBuilder {
public:
  using Value = mlir::Value;
  /// Where an operand lies.
  struct Place {
    bundle::Pointer pointer;
    bundle::Extent reach; ///< bytes from there to the end of the buffer: a kernel touches none beyond it
  };
  /// Address of element `offset` of the buffer that holds root; a null root means the SCALARS block.
  using Resolve = std::function<Place(Value root, int64_t offset)>;

  KernelBuilder(mlir::MLIRContext *context, Resolve resolve, HalfConversions conversions = {});

  mlir::OpBuilder b;
  mlir::Location loc;
  Value rows, begin, end, accumulate, sampleBase, instanceBase;

  /// The position among the kernel's operands of the buffer behind a view; equal addresses are one operand.
  unsigned operand(Value root, int64_t offset) { return operand(resolve(root, offset)); }
  unsigned operand(const Place &place);
  Value pointer(unsigned operand) { return pointers[operand]; }
  void markAccumulated(unsigned operand);
  /// For stores that are not made by `store` and `storeMany`, which do it themselves.
  void markWritten(unsigned operand) { written[operand] = true; }
  /// i1: operand is added to.
  Value accumulates(unsigned operand);
  void addCost(const Size &elements, int64_t bytes);
  /// Operations of matrix products by hand, for people.
  void addProductFlops(const Size &operations);

  /// The type in which values of `element` are computed: f32 for half precision.
  static mlir::Type computeType(mlir::Type element);
  /// The type in memory: i8 for booleans, i16 for half precision that the target does not convert.
  mlir::Type memoryType(mlir::Type element) const;

  /// Whether numbers of 16 bits are converted by instructions of the target.
  bool convertsHalf() const { return conversions.f16 && conversions.bf16; }

  /// The number of type `to` (bf16 or f16) nearest to x, ties to even, in x's type (f32 or f64).
  Value round(Value x, mlir::Type to);
  /// Of several numbers: targets that round two at a time do so.
  llvm::SmallVector<Value> roundMany(llvm::ArrayRef<Value> values, mlir::Type to);
  /// An f32 rounded to `to`, as its memoryType, and back.
  Value narrowHalf(Value x, mlir::Type to);
  Value widenHalf(Value stored, mlir::Type from);

  Value i64(int64_t value);
  Value size(const Size &size);
  Value number(mlir::Type type, double value);
  Value add(Value x, Value y);
  Value sub(Value x, Value y);
  Value mul(Value x, int64_t factor);
  Value smaller(Value x, Value y);
  Value select(Value condition, Value x, Value y);
  /// first <= x < last.
  Value inRange(Value x, Value first, Value last);
  /// Whether `condition` holds and x is not `number`.
  Value andNot(Value condition, Value x, int64_t number);
  void ifTrue(Value condition, llvm::function_ref<void()> body);
  /// What `body` returns where `condition` holds, else `otherwise`.
  llvm::SmallVector<Value> ifElse(Value condition, llvm::ArrayRef<Value> otherwise, llvm::function_ref<llvm::SmallVector<Value>()> body);
  /// An integer as i64.
  Value widen(Value x);
  /// sum of index * stride.
  Value offset(llvm::ArrayRef<Value> indices, llvm::ArrayRef<int64_t> strides);

  Value load(Value base, Value offset, mlir::Type element);
  /// Adds to what is there if `accumulate` (may be null) is true.
  void store(Value value, Value base, Value offset, mlir::Type element, Value accumulate = {});
  /// `count` elements behind each other, as one access; the first lies on a multiple of them all.
  llvm::SmallVector<Value> loadMany(Value base, Value offset, mlir::Type element, int64_t count);
  void storeMany(llvm::ArrayRef<Value> values, Value base, Value offset, mlir::Type element, Value accumulate = {});
  /// Scratch of the kernel's frame.
  Value scratch(mlir::Type type, int64_t count);
  /// A table of constants in the kernel itself.
  Value global(mlir::DenseElementsAttr data);

  /// A loop; `body` gets the induction variable and the carried values and returns their next ones.
  /// \param step  null: 1
  llvm::SmallVector<Value> loop(Value from, Value to, llvm::ArrayRef<Value> carried,
                                llvm::function_ref<llvm::SmallVector<Value>(Value, llvm::ArrayRef<Value>)> body, Value step = {});
  void loop(Value from, Value to, llvm::function_ref<void(Value)> body);

  /// Splits a linear index into one index per size, the last running fastest.
  llvm::SmallVector<Value> delinearize(Value index, llvm::ArrayRef<Size> sizes);

  /// One of the combining ops of reductions.
  Value combine(ReduceKind kind, Value x, Value y);
  Value identity(ReduceKind kind, mlir::Type type);

  // ---- CUDA: `begin` is the number of this thread in the grid times what it computes; see abi/CudaAbi.h.

  /// Of this thread in its block; of its block in the grid.
  Value threadIndex();
  Value blockIndex();
  /// Every thread of the warp gets the combination over its warp, the same bits.
  Value combineWarp(ReduceKind kind, Value x);
  /// Likewise over a block of `threads`, with one barrier. Each call has places of its own.
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
  void barrier();
  /// Bit i: `condition` of lane i.
  Value ballot(Value condition);
  Value intrinsic(mlir::StringRef name, mlir::Type result, llvm::ArrayRef<Value> operands);
  /// Bytes to whose multiple every address of an operand is known to be aligned, at element 0 of its rows.
  int64_t alignment(unsigned operand) const;
  /// \param points           of the launch; the kernel itself keeps away from those that do not exist.
  /// \param takesRegisters  a multiprocessor need not hold more than one block: the assembler may give threads as many registers as there are
  Kernel finishCuda(llvm::StringRef hint, const Size &points, int threads, int perThread, bool takesRegisters = false, bool contract = true);

  // ---- Processors.

  /// \param contract  allow fused multiply-add: only where the split of points among threads cannot change how a loop is vectorised.
  Kernel finish(llvm::StringRef hint, const Size &points, bool contract);

private:
  /// Where an f32 that is a bf16 comes from: alone, or from one half of a word of two.
  struct Narrow {
    Value alone, word;
    bool isHigh = false;
  };

  const HalfConversions conversions;
  llvm::DenseMap<Value, Narrow> narrow;
  Value roundByBits(Value x, mlir::Type to);
  /// Whether `count` numbers of this type are handled as words of two.
  bool comesInWords(mlir::Type element, int64_t count) const { return element.isBF16() && conversions.bf16 && count % 2 == 0; }
  llvm::SmallVector<Value> widenWord(Value word);
  void markHalf();
  /// Two numbers in a word, rounded unless they are bf16 already.
  Value narrowWord(Value low, Value high);
  /// The word of which these are the halves; null: there is none.
  Value wordOf(Value low, Value high) const;
  /// Between what is in memory and what is computed with.
  Value fromMemory(Value stored, mlir::Type element);
  Value toMemory(Value value, mlir::Type element);
  void noteWritten(Value base);
  void close(bool contract);
  Kernel take(llvm::StringRef hint, const Size &points);
  /// The global `needs`: abi/KernelAbi.h, ZorseKernelNeeds.
  void emitNeeds(const Size &points);
  /// The exported function, a ZorseKernel: unpacks operands and context and calls `inner`.
  void emitEntry();

  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::LLVM::LLVMFuncOp inner;
  mlir::Block *entry;
  Resolve resolve;
  llvm::SmallVector<Value> pointers;
  std::vector<bundle::Extent> reaches; ///< of pointers
  std::vector<char> written;           ///< pointers that are stored to
  Kernel kernel;
  unsigned globals = 0;
};

} // namespace zorse::codegen
