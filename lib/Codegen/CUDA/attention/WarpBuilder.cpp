#include "WarpBuilder.h"

#include <limits>

using namespace mlir;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

WarpBuilder::WarpBuilder(CudaKernelBuilder &k, Type element)
    : k(k), b(k.b), loc(k.loc), element(element), word(k.b.getI32Type()), real(k.b.getF32Type()) {}

Value WarpBuilder::isMinusInfinite(Value x) {
  return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, x,
                               f32(-std::numeric_limits<double>::infinity()));
}

Value WarpBuilder::global(unsigned operand) {
  return LLVM::AddrSpaceCastOp::create(
      b, loc, LLVM::LLVMPointerType::get(b.getContext(), kGlobalMemory), k.pointer(operand));
}

Value WarpBuilder::at(Value address, Value bytes) {
  return LLVM::GEPOp::create(b, loc, address.getType(), b.getI8Type(), address,
                             LLVM::GEPArg(bytes));
}

Value WarpBuilder::vector(ArrayRef<Value> elements) {
  Value all =
      LLVM::UndefOp::create(b, loc, vectorOf(elements.front().getType(), int64_t(elements.size())));
  for (auto [i, element] : llvm::enumerate(elements))
    all = LLVM::InsertElementOp::create(b, loc, all, element, k.i64(int64_t(i)));
  return all;
}

void WarpBuilder::copy(Value shared, Value global, int bytes, Value size) {
  // Copies of 16 bytes bypass the L1 cache, because the data is not read there again.
  const std::string name = bytes == 16
                               ? "llvm.nvvm.cp.async.cg.shared.global.16"
                               : "llvm.nvvm.cp.async.ca.shared.global." + std::to_string(bytes);
  if (size)
    k.effect(name + ".s", {shared, global, size});
  else
    k.effect(name, {shared, global});
}

WarpBuilder::Four WarpBuilder::loadMatrices(Value shared, bool transposed) {
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), {word, word, word, word});
  Value all = k.intrinsic(transposed ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16"
                                     : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16",
                          type, {shared});
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
  Value all = k.intrinsic(element.isBF16() ? "llvm.nvvm.mma.m16n8k16.row.col.bf16"
                                           : "llvm.nvvm.mma.m16n8k16.row.col.f32.f32",
                          type, operands);
  Four four;
  for (int64_t i = 0; i < 4; ++i)
    four[size_t(i)] = LLVM::ExtractValueOp::create(b, loc, all, i);
  return four;
}
