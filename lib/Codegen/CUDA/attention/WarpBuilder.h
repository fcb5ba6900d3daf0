// Building blocks for tensor-core kernels: 32-bit numbers, shared memory, and the warp operations
// of sm_80 (PTX ISA 7.0: mma.sync, ldmatrix, cp.async).
#pragma once

#include "CudaKernelBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <array>

namespace zorse::codegen::cuda {

class WarpBuilder {
public:
  using Value = mlir::Value;
  /// Registers of a lane: a 16 x 16 left operand, two 16 x 8 right operands, or a 16 x 8 sum in
  /// f32.
  using Four = std::array<Value, 4>;

  /// \param element  type of product operands: bf16 or f16
  WarpBuilder(CudaKernelBuilder &k, mlir::Type element);

  CudaKernelBuilder &k;
  mlir::OpBuilder &b;
  const mlir::Location loc;
  const mlir::Type element, word, real;

  // ---- 32-bit integers.
  Value i32(int64_t value) { return k.i32(value); }
  Value add(Value x, Value y) { return mlir::arith::AddIOp::create(b, loc, x, y); }
  Value add(Value x, int64_t y) { return y == 0 ? x : add(x, i32(y)); }
  Value sub(Value x, Value y) { return mlir::arith::SubIOp::create(b, loc, x, y); }
  Value mul(Value x, int64_t y) { return y == 1 ? x : mul(x, i32(y)); }
  Value mul(Value x, Value y) { return mlir::arith::MulIOp::create(b, loc, x, y); }
  /// For non-negative numbers.
  Value divide(Value x, int64_t y) {
    return y == 1 ? x : Value(mlir::arith::DivUIOp::create(b, loc, x, i32(y)));
  }
  Value remainder(Value x, int64_t y) {
    return y == 1 ? i32(0) : Value(mlir::arith::RemUIOp::create(b, loc, x, i32(y)));
  }
  Value bitsOf(Value x, int64_t mask) { return mlir::arith::AndIOp::create(b, loc, x, i32(mask)); }
  Value exclusiveOr(Value x, Value y) { return mlir::arith::XOrIOp::create(b, loc, x, y); }
  Value exclusiveOr(Value x, int64_t y) { return y == 0 ? x : exclusiveOr(x, i32(y)); }
  Value shiftLeft(Value x, int bits) { return mlir::arith::ShLIOp::create(b, loc, x, i32(bits)); }
  Value smaller(Value x, int64_t y) { return mlir::arith::MinSIOp::create(b, loc, x, i32(y)); }
  Value larger(Value x, int64_t y) { return mlir::arith::MaxSIOp::create(b, loc, x, i32(y)); }
  Value isLess(Value x, Value y) {
    return mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::slt, x, y);
  }
  Value isLess(Value x, int64_t y) { return isLess(x, i32(y)); }
  Value isGreater(Value x, int64_t y) { return isLess(i32(y), x); }
  Value isEqual(Value x, int64_t y) {
    return mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::eq, x, i32(y));
  }
  Value both(Value x, Value y) { return mlir::arith::AndIOp::create(b, loc, x, y); }
  Value either(Value x, Value y) { return mlir::arith::OrIOp::create(b, loc, x, y); }
  Value negate(Value condition) {
    return mlir::arith::XOrIOp::create(b, loc, condition,
                                       mlir::arith::ConstantIntOp::create(b, loc, 1, 1));
  }
  Value widen(Value x) {
    return mlir::arith::ExtUIOp::create(b, loc, b.getI64Type(), x);
  } ///< to i64

  // ---- f32.
  Value f32(double value) {
    return mlir::arith::ConstantOp::create(b, loc, b.getF32FloatAttr(float(value)));
  }
  Value addF(Value x, Value y) { return mlir::arith::AddFOp::create(b, loc, x, y); }
  Value subF(Value x, Value y) { return mlir::arith::SubFOp::create(b, loc, x, y); }
  Value mulF(Value x, Value y) { return mlir::arith::MulFOp::create(b, loc, x, y); }
  Value fma(Value x, Value y, Value z) { return mlir::math::FmaOp::create(b, loc, x, y, z); }
  Value maxF(Value x, Value y) { return mlir::arith::MaxNumFOp::create(b, loc, x, y); }
  /// One operation of the special-function unit; error of at most 2 units in the last place; 0 for
  /// -inf.
  Value exp2(Value x) { return k.intrinsic("llvm.nvvm.ex2.approx.ftz", real, {x}); }
  /// One operation of the special-function unit; error of at most 1 unit in the last place.
  Value reciprocal(Value x) { return k.intrinsic("llvm.nvvm.rcp.approx.ftz.f", real, {x}); }
  Value isMinusInfinite(Value x);
  /// Returns the value of lane ^ `lanes`.
  Value exchange(Value x, int lanes) { return k.exchange(x, lanes); }
  /// Rounds two numbers to the element type and packs them; x is the lower half.
  Value pack(Value x, Value y) { return k.pack(x, y, element); }

  // ---- Memory.
  /// Address in global memory of a kernel operand.
  Value global(unsigned operand);
  /// Address plus `bytes` (i64 or i32).
  Value at(Value address, Value bytes);
  Value at(Value address, int64_t bytes) {
    return bytes == 0 ? address : at(address, k.i64(bytes));
  }
  Value load(Value address, mlir::Type type, unsigned alignment) {
    return mlir::LLVM::LoadOp::create(b, loc, type, address, alignment);
  }
  void store(Value value, Value address, unsigned alignment) {
    mlir::LLVM::StoreOp::create(b, loc, value, address, alignment);
  }
  mlir::VectorType vectorOf(mlir::Type type, int64_t count) {
    return mlir::VectorType::get({count}, type);
  }
  Value extract(Value vector, int64_t index) {
    return mlir::LLVM::ExtractElementOp::create(b, loc, vector, k.i64(index));
  }
  Value vector(llvm::ArrayRef<Value> elements);

  /// Starts an asynchronous copy of 16 or 8 bytes from global to shared memory; a later `wait`
  /// completes it. \param size  i32: number of bytes to read, the rest is zero; null: all
  void copy(Value shared, Value global, int bytes, Value size = {});
  void commit() { k.effect("llvm.nvvm.cp.async.commit.group", {}); }
  /// Waits until at most `groups` of this thread's latest commit groups are pending.
  void wait(int groups) { k.effect("llvm.nvvm.cp.async.wait.group", {i32(groups)}); }
  void barrier() { k.barrier(); }
  void warpBarrier() { k.effect("llvm.nvvm.bar.warp.sync", {i32(-1)}); }

  // ---- Tensor cores.
  /// Loads four matrices of 8 x 8 elements; lane l provides the address of row l & 7 of matrix l /
  /// 8.
  Four loadMatrices(Value shared, bool transposed);
  /// sum + a * b: 16 x 16 times 16 x 8.
  Four multiply(const Four &a, Value b0, Value b1, const Four &sum);
};

} // namespace zorse::codegen::cuda
