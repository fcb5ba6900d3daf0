// Builds the MLIR of one kernel. It has two functions: the exported one unpacks operands and calls
// the inner one, whose pointers do not alias.
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

/// A finished kernel and its launch.
struct Kernel {
  std::string hint; ///< prefix of the symbol: a short description of the computation.
  mlir::OwningOpRef<mlir::ModuleOp> module;
  bundle::KernelLaunch launch; ///< launch without the symbol.
};

/// Size of one dimension or of several merged ones: fixed, or a multiple of the number of rows.
struct Size {
  int64_t count = 1;
  bool sampled = false;
};
/// Number of elements of several dimensions. At most one of them may depend on the number of rows.
Size matmul(llvm::ArrayRef<Size> sizes);

/// Building blocks for kernels of all targets. Each target has a subclass that finishes the kernel
/// and may override the half-precision conversions.
class KernelBuilder {
public:
  using Value = mlir::Value;
  /// Location of an operand.
  struct Place {
    bundle::Pointer pointer;
    bundle::AffineSize reach; ///< bytes from the start to the end of the buffer; a kernel accesses
                              ///< nothing beyond it
  };
  /// Returns the address of element `offset` of the buffer that holds root. A null root is the
  /// SCALARS block.
  using Resolve = std::function<Place(Value root, int64_t offset)>;

  KernelBuilder(mlir::MLIRContext *context, Resolve resolve);

  mlir::OpBuilder b;
  mlir::Location loc;
  Value rows, begin, end, accumulate, sampleBase, rngIdBase;

  /// Returns the operand number of the buffer of a view. Equal addresses share one operand.
  unsigned operand(Value root, int64_t offset) { return operand(resolve(root, offset)); }
  unsigned operand(const Place &place);
  Value pointer(unsigned operand) { return pointers[operand]; }
  void markAccumulated(unsigned operand);
  /// For stores that are not emitted by the builder.
  void markWritten(unsigned operand) { written[operand] = true; }
  /// i1: whether the kernel adds to the operand instead of overwriting it.
  Value accumulates(unsigned operand);
  void addCost(const Size &elements, int64_t bytes);
  /// Adds the floating-point operations of matrix products that are written out in the kernel, for
  /// reports.
  void addMatmulFlops(const Size &operations);

  /// The type in which values of `element` are computed: f32 for half precision.
  static mlir::Type computeType(mlir::Type element);
  /// The type in memory: i8 for booleans, i16 for half precision that is converted with integer
  /// operations.
  virtual mlir::Type memoryType(mlir::Type element) const;
  /// Rounds x to the nearest number of type `to` (bf16 or f16), ties to even. The result has x's
  /// type (f32 or f64).
  virtual Value round(Value x, mlir::Type to);

  Value i32(int64_t value) { return mlir::arith::ConstantIntOp::create(b, loc, value, 32); }
  Value i64(int64_t value) { return mlir::arith::ConstantIntOp::create(b, loc, value, 64); }
  Value size(const Size &size) { return size.sampled ? mul(rows, size.count) : i64(size.count); }
  Value number(mlir::Type type, double value);
  /// \param x  null: 0
  Value add(Value x, Value y) { return x ? Value(mlir::arith::AddIOp::create(b, loc, x, y)) : y; }
  Value sub(Value x, Value y) { return mlir::arith::SubIOp::create(b, loc, x, y); }
  Value mul(Value x, int64_t factor) {
    return factor == 1 ? x : Value(mlir::arith::MulIOp::create(b, loc, x, i64(factor)));
  }
  Value smaller(Value x, Value y) { return mlir::arith::MinSIOp::create(b, loc, x, y); }
  Value select(Value condition, Value x, Value y) {
    return mlir::arith::SelectOp::create(b, loc, condition, x, y);
  }
  /// i1: first <= x < last.
  Value inRange(Value x, Value first, Value last);
  /// i1: `condition` and x != number.
  Value andNot(Value condition, Value x, int64_t number);
  void ifTrue(Value condition, llvm::function_ref<void()> body);
  /// Returns the results of `body` if `condition` holds, else `otherwise`.
  llvm::SmallVector<Value> ifElse(Value condition, llvm::ArrayRef<Value> otherwise,
                                  llvm::function_ref<llvm::SmallVector<Value>()> body);
  /// Sign-extends an integer to i64.
  Value widen(Value x) {
    return x.getType().isInteger(64)
               ? x
               : Value(mlir::arith::ExtSIOp::create(b, loc, b.getI64Type(), x));
  }
  /// Returns the sum of index * stride.
  Value offset(llvm::ArrayRef<Value> indices, llvm::ArrayRef<int64_t> strides);

  Value load(Value base, Value offset, mlir::Type element);
  /// Stores a value, or adds it to the stored one if `accumulate` (may be null) is true.
  void store(Value value, Value base, Value offset, mlir::Type element, Value accumulate = {});
  /// Adds a constant table to the kernel and returns its address.
  Value global(mlir::DenseElementsAttr data);

  /// Emits a loop. `body` gets the induction variable and the carried values, and returns the next
  /// carried values.
  /// \param step  null: 1
  llvm::SmallVector<Value>
  loop(Value from, Value to, llvm::ArrayRef<Value> carried,
       llvm::function_ref<llvm::SmallVector<Value>(Value, llvm::ArrayRef<Value>)> body,
       Value step = {});
  void loop(Value from, Value to, llvm::function_ref<void(Value)> body);

  /// Splits a linear index into one index per size. The last index varies fastest.
  llvm::SmallVector<Value> delinearize(Value index, llvm::ArrayRef<Size> sizes);

  /// Emits the combining op of a reduction.
  Value combine(ReduceKind kind, Value x, Value y);
  Value identity(ReduceKind kind, mlir::Type type);

protected:
  ~KernelBuilder() = default;

  /// Rounds an f32 to `to` and returns it as memoryType(to); and the inverse.
  virtual Value narrowHalf(Value x, mlir::Type to);
  virtual Value widenHalf(Value stored, mlir::Type from);
  /// Converts between the memory type and the compute type.
  Value fromMemory(Value stored, mlir::Type element);
  Value toMemory(Value value, mlir::Type element);
  Value elementPointer(Value base, Value offset, mlir::Type element);
  void noteWritten(Value base);
  /// Returns the address of a new global. A number is appended to the name of internal globals.
  /// \param value  initial value; null: none
  Value declare(llvm::StringRef name, mlir::Type array, mlir::Attribute value, bool isConstant,
                unsigned alignment, unsigned addressSpace = 0,
                mlir::LLVM::Linkage linkage = mlir::LLVM::Linkage::Internal);

  /// Ends `inner`, adds the kernel's requirements (abi/KernelAbi.h, ZorseKernelBounds), and sets
  /// the insertion point after it.
  /// \param inlining  LLVM's attribute for calls of `inner`
  void close(const Size &points, llvm::StringRef inlining, bool contract);
  Kernel take(llvm::StringRef hint, const Size &points);

  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::LLVM::LLVMFuncOp inner;
  mlir::Block *entry;
  llvm::SmallVector<Value> pointers;
  std::vector<char> written; ///< whether the kernel stores to the pointer
  Kernel kernel;

private:
  Resolve resolve;
  std::vector<bundle::AffineSize> reaches; ///< reach of each pointer, see Place
  unsigned globals = 0;
};

} // namespace zorse::codegen
