// Builds the MLIR of one kernel: two functions, the exported one unpacks operands and calls the other, whose pointers do not alias.
#pragma once

#include "Views.h"

#include "bundle.pb.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
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
/// Number of elements of several dimensions together; at most one of them is sampled.
Size product(llvm::ArrayRef<Size> sizes);

/// What kernels of all targets are made of. Each target has a subclass, which ends the kernel and may convert half precision in its own way.
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

  KernelBuilder(mlir::MLIRContext *context, Resolve resolve);

  mlir::OpBuilder b;
  mlir::Location loc;
  Value rows, begin, end, accumulate, sampleBase, instanceBase;

  /// The position among the kernel's operands of the buffer behind a view; equal addresses are one operand.
  unsigned operand(Value root, int64_t offset) { return operand(resolve(root, offset)); }
  unsigned operand(const Place &place);
  Value pointer(unsigned operand) { return pointers[operand]; }
  void markAccumulated(unsigned operand);
  /// For stores that the builder does not make itself.
  void markWritten(unsigned operand) { written[operand] = true; }
  /// i1: operand is added to.
  Value accumulates(unsigned operand);
  void addCost(const Size &elements, int64_t bytes);
  /// Operations of matrix products by hand, for people.
  void addProductFlops(const Size &operations);

  /// The type in which values of `element` are computed: f32 for half precision.
  static mlir::Type computeType(mlir::Type element);
  /// The type in memory: i8 for booleans, i16 for half precision that is converted by integer operations.
  virtual mlir::Type memoryType(mlir::Type element) const;
  /// The number of type `to` (bf16 or f16) nearest to x, ties to even, in x's type (f32 or f64).
  virtual Value round(Value x, mlir::Type to);

  Value i32(int64_t value) { return mlir::arith::ConstantIntOp::create(b, loc, value, 32); }
  Value i64(int64_t value) { return mlir::arith::ConstantIntOp::create(b, loc, value, 64); }
  Value size(const Size &size) { return size.sampled ? mul(rows, size.count) : i64(size.count); }
  Value number(mlir::Type type, double value);
  /// \param x  null: 0
  Value add(Value x, Value y) { return x ? Value(mlir::arith::AddIOp::create(b, loc, x, y)) : y; }
  Value sub(Value x, Value y) { return mlir::arith::SubIOp::create(b, loc, x, y); }
  Value mul(Value x, int64_t factor) { return factor == 1 ? x : Value(mlir::arith::MulIOp::create(b, loc, x, i64(factor))); }
  Value smaller(Value x, Value y) { return mlir::arith::MinSIOp::create(b, loc, x, y); }
  Value select(Value condition, Value x, Value y) { return mlir::arith::SelectOp::create(b, loc, condition, x, y); }
  /// first <= x < last.
  Value inRange(Value x, Value first, Value last);
  /// Whether `condition` holds and x is not `number`.
  Value andNot(Value condition, Value x, int64_t number);
  void ifTrue(Value condition, llvm::function_ref<void()> body);
  /// What `body` returns where `condition` holds, else `otherwise`.
  llvm::SmallVector<Value> ifElse(Value condition, llvm::ArrayRef<Value> otherwise, llvm::function_ref<llvm::SmallVector<Value>()> body);
  /// An integer as i64.
  Value widen(Value x) { return x.getType().isInteger(64) ? x : Value(mlir::arith::ExtSIOp::create(b, loc, b.getI64Type(), x)); }
  /// sum of index * stride.
  Value offset(llvm::ArrayRef<Value> indices, llvm::ArrayRef<int64_t> strides);

  Value load(Value base, Value offset, mlir::Type element);
  /// Adds to what is there if `accumulate` (may be null) is true.
  void store(Value value, Value base, Value offset, mlir::Type element, Value accumulate = {});
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

protected:
  ~KernelBuilder() = default;

  /// An f32 rounded to `to`, as its memoryType, and back.
  virtual Value narrowHalf(Value x, mlir::Type to);
  virtual Value widenHalf(Value stored, mlir::Type from);
  /// Between what is in memory and what is computed with.
  Value fromMemory(Value stored, mlir::Type element);
  Value toMemory(Value value, mlir::Type element);
  Value elementPointer(Value base, Value offset, mlir::Type element);
  void noteWritten(Value base);
  /// The address of a new global. Internal ones get a number behind their name.
  /// \param value  null: none
  Value declare(llvm::StringRef name, mlir::Type array, mlir::Attribute value, bool isConstant, unsigned alignment, unsigned addressSpace = 0,
                mlir::LLVM::Linkage linkage = mlir::LLVM::Linkage::Internal);

  /// Ends `inner`, adds what the kernel needs (abi/KernelAbi.h, ZorseKernelNeeds), and inserts behind it from then on.
  /// \param inlining  LLVM's attribute for calls of `inner`
  void close(const Size &points, llvm::StringRef inlining, bool contract);
  Kernel take(llvm::StringRef hint, const Size &points);

  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::LLVM::LLVMFuncOp inner;
  mlir::Block *entry;
  llvm::SmallVector<Value> pointers;
  std::vector<char> written; ///< pointers that are stored to
  Kernel kernel;

private:
  Resolve resolve;
  std::vector<bundle::Extent> reaches; ///< of pointers
  unsigned globals = 0;
};

} // namespace zorse::codegen
