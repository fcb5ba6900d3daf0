// What kernels for tensor cores are made of: numbers of 32 bits, shared memory, and the operations of a warp that sm_80 has (PTX ISA 7.0: mma.sync,
// ldmatrix, cp.async).
#pragma once

#include "CudaKernelBuilder.h"

#include <array>

namespace zorse::codegen::cuda {

class WarpBuilder {
public:
  using Value = mlir::Value;
  /// Registers of a lane: of a 16 x 16 left operand, of two 16 x 8 right ones, or of a 16 x 8 sum in f32.
  using Four = std::array<Value, 4>;

  /// \param element  of operands of products: bf16 or f16
  WarpBuilder(CudaKernelBuilder &k, mlir::Type element);

  CudaKernelBuilder &k;
  mlir::OpBuilder &b;
  const mlir::Location loc;
  const mlir::Type element, word, real;

  // ---- Integers of 32 bits.
  Value i32(int64_t value) { return k.i32(value); }
  Value add(Value x, Value y);
  Value add(Value x, int64_t y) { return y == 0 ? x : add(x, i32(y)); }
  Value sub(Value x, Value y);
  Value mul(Value x, int64_t y);
  Value mul(Value x, Value y);
  /// Of numbers that are not negative.
  Value divide(Value x, int64_t y);
  Value remainder(Value x, int64_t y);
  Value bitsOf(Value x, int64_t mask);
  Value exclusiveOr(Value x, Value y);
  Value exclusiveOr(Value x, int64_t y) { return y == 0 ? x : exclusiveOr(x, i32(y)); }
  Value shiftLeft(Value x, int bits);
  Value smaller(Value x, int64_t y);
  Value larger(Value x, int64_t y);
  Value isLess(Value x, Value y);
  Value isLess(Value x, int64_t y) { return isLess(x, i32(y)); }
  Value isGreater(Value x, int64_t y) { return isLess(i32(y), x); }
  Value isEqual(Value x, int64_t y);
  Value both(Value x, Value y);
  Value either(Value x, Value y);
  Value negate(Value condition);
  Value widen(Value x); ///< to i64

  // ---- f32.
  Value f32(double value);
  Value addF(Value x, Value y);
  Value subF(Value x, Value y);
  Value mulF(Value x, Value y);
  Value fma(Value x, Value y, Value z);
  Value maxF(Value x, Value y);
  Value exp2(Value x);       ///< one operation of the special-function unit, to 2 units in the last place; 0 of -inf
  Value reciprocal(Value x); ///< likewise, to 1
  Value isMinusInfinite(Value x);
  /// What lane ^ `lanes` has.
  Value exchange(Value x, int lanes) { return k.exchange(x, lanes); }
  /// Two numbers rounded to the element type; x in the lower half.
  Value pack(Value x, Value y) { return k.pack(x, y, element); }

  // ---- Memory.
  /// An operand of the kernel as an address of global memory.
  Value global(unsigned operand);
  /// `bytes` (i64 or i32) behind an address.
  Value at(Value address, Value bytes);
  Value at(Value address, int64_t bytes);
  Value load(Value address, mlir::Type type, unsigned alignment);
  void store(Value value, Value address, unsigned alignment);
  mlir::VectorType vectorOf(mlir::Type type, int64_t count) { return mlir::VectorType::get({count}, type); }
  Value extract(Value vector, int64_t index);
  Value vector(llvm::ArrayRef<Value> elements);

  /// 16 or 8 bytes from global to shared memory that arrive by a later `wait`. \param size  i32: bytes that are read, the rest is zero; null: all
  void copy(Value shared, Value global, int bytes, Value size = {});
  void commit();
  /// Until at most `groups` of this thread's latest commits are under way.
  void wait(int groups);
  void barrier() { k.barrier(); }
  void warpBarrier();

  // ---- Tensor cores.
  /// Four matrices of 8 x 8 elements; lane l has the address of row l & 7 of matrix l / 8.
  Four loadMatrices(Value shared, bool transposed);
  /// sum + a * b, of 16 x 16 times 16 x 8.
  Four multiply(const Four &a, Value b0, Value b1, const Four &sum);
};

} // namespace zorse::codegen::cuda
