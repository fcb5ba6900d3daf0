#include "WarpBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

using namespace mlir;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

WarpBuilder::WarpBuilder(CudaKernelBuilder &k, Type element)
    : k(k), b(k.b), loc(k.loc), element(element), word(k.b.getI32Type()), real(k.b.getF32Type()) {}

Value WarpBuilder::add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
Value WarpBuilder::sub(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
Value WarpBuilder::mul(Value x, int64_t y) { return y == 1 ? x : mul(x, i32(y)); }
Value WarpBuilder::mul(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }
Value WarpBuilder::divide(Value x, int64_t y) { return y == 1 ? x : Value(arith::DivUIOp::create(b, loc, x, i32(y))); }
Value WarpBuilder::remainder(Value x, int64_t y) { return y == 1 ? i32(0) : Value(arith::RemUIOp::create(b, loc, x, i32(y))); }
Value WarpBuilder::bitsOf(Value x, int64_t mask) { return arith::AndIOp::create(b, loc, x, i32(mask)); }
Value WarpBuilder::exclusiveOr(Value x, Value y) { return arith::XOrIOp::create(b, loc, x, y); }
Value WarpBuilder::shiftLeft(Value x, int bits) { return arith::ShLIOp::create(b, loc, x, i32(bits)); }
Value WarpBuilder::smaller(Value x, int64_t y) { return arith::MinSIOp::create(b, loc, x, i32(y)); }
Value WarpBuilder::larger(Value x, int64_t y) { return arith::MaxSIOp::create(b, loc, x, i32(y)); }
Value WarpBuilder::isLess(Value x, Value y) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, y); }
Value WarpBuilder::isEqual(Value x, int64_t y) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, x, i32(y)); }
Value WarpBuilder::both(Value x, Value y) { return arith::AndIOp::create(b, loc, x, y); }
Value WarpBuilder::either(Value x, Value y) { return arith::OrIOp::create(b, loc, x, y); }
Value WarpBuilder::negate(Value condition) { return arith::XOrIOp::create(b, loc, condition, arith::ConstantIntOp::create(b, loc, 1, 1)); }
Value WarpBuilder::widen(Value x) { return arith::ExtUIOp::create(b, loc, b.getI64Type(), x); }

Value WarpBuilder::f32(double value) { return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(float(value))); }
Value WarpBuilder::addF(Value x, Value y) { return arith::AddFOp::create(b, loc, x, y); }
Value WarpBuilder::subF(Value x, Value y) { return arith::SubFOp::create(b, loc, x, y); }
Value WarpBuilder::mulF(Value x, Value y) { return arith::MulFOp::create(b, loc, x, y); }
Value WarpBuilder::fma(Value x, Value y, Value z) { return math::FmaOp::create(b, loc, x, y, z); }
Value WarpBuilder::maxF(Value x, Value y) { return arith::MaxNumFOp::create(b, loc, x, y); }
Value WarpBuilder::exp2(Value x) { return k.intrinsic("llvm.nvvm.ex2.approx.ftz", real, {x}); }
Value WarpBuilder::reciprocal(Value x) { return k.intrinsic("llvm.nvvm.rcp.approx.ftz.f", real, {x}); }

Value WarpBuilder::isMinusInfinite(Value x) {
  return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, x, f32(-std::numeric_limits<double>::infinity()));
}

Value WarpBuilder::global(unsigned operand) {
  return LLVM::AddrSpaceCastOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), kGlobalMemory), k.pointer(operand));
}

Value WarpBuilder::at(Value address, Value bytes) {
  return LLVM::GEPOp::create(b, loc, address.getType(), b.getI8Type(), address, LLVM::GEPArg(bytes));
}

Value WarpBuilder::at(Value address, int64_t bytes) { return bytes == 0 ? address : at(address, k.i64(bytes)); }

Value WarpBuilder::load(Value address, Type type, unsigned alignment) { return LLVM::LoadOp::create(b, loc, type, address, alignment); }
void WarpBuilder::store(Value value, Value address, unsigned alignment) { LLVM::StoreOp::create(b, loc, value, address, alignment); }
Value WarpBuilder::extract(Value vector, int64_t index) { return LLVM::ExtractElementOp::create(b, loc, vector, k.i64(index)); }

Value WarpBuilder::vector(ArrayRef<Value> elements) {
  Value all = LLVM::UndefOp::create(b, loc, vectorOf(elements.front().getType(), int64_t(elements.size())));
  for (auto [i, element] : llvm::enumerate(elements))
    all = LLVM::InsertElementOp::create(b, loc, all, element, k.i64(int64_t(i)));
  return all;
}

void WarpBuilder::copy(Value shared, Value global, int bytes, Value size) {
  // Sixteen bytes go past the first-level cache: nobody reads them there again.
  const std::string name = bytes == 16 ? "llvm.nvvm.cp.async.cg.shared.global.16" : "llvm.nvvm.cp.async.ca.shared.global." + std::to_string(bytes);
  if (size)
    k.effect(name + ".s", {shared, global, size});
  else
    k.effect(name, {shared, global});
}

void WarpBuilder::commit() { k.effect("llvm.nvvm.cp.async.commit.group", {}); }
void WarpBuilder::wait(int groups) { k.effect("llvm.nvvm.cp.async.wait.group", {i32(groups)}); }
void WarpBuilder::warpBarrier() { k.effect("llvm.nvvm.bar.warp.sync", {i32(-1)}); }

WarpBuilder::Four WarpBuilder::loadMatrices(Value shared, bool transposed) {
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), {word, word, word, word});
  Value all =
      k.intrinsic(transposed ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16" : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16", type, {shared});
  Four four;
  for (int64_t i = 0; i < 4; ++i)
    four[size_t(i)] = LLVM::ExtractValueOp::create(b, loc, all, i);
  return four;
}

WarpBuilder::Four WarpBuilder::multiply(const Four &a, Value b0, Value b1, const Four &sum) {
  SmallVector<Value> operands = {a[0], a[1], a[2], a[3], b0, b1};
  if (!element.isBF16())
    for (Value &operand : operands)
      operand = LLVM::BitcastOp::create(b, loc, vectorOf(element, 2), operand);
  operands.append(sum.begin(), sum.end());
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), {real, real, real, real});
  Value all = k.intrinsic(element.isBF16() ? "llvm.nvvm.mma.m16n8k16.row.col.bf16" : "llvm.nvvm.mma.m16n8k16.row.col.f32.f32", type, operands);
  Four four;
  for (int64_t i = 0; i < 4; ++i)
    four[size_t(i)] = LLVM::ExtractValueOp::create(b, loc, all, i);
  return four;
}
