// Rounds to half precision and stores it with the GPU's instructions.
//
// GPUs with bf16 round two numbers with one instruction (cvt.rn.bf16x2), so neighboring numbers are
// rounded, loaded and stored as words of two. Each half of a word is widened by one integer
// operation; LLVM's own widening needs two for the upper half. Because LLVM sees no conversion
// there, it also does not turn a rounded product into a bf16 product, which would round subnormal
// results once where other targets round them twice.
#include "CudaKernelBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

Type CudaKernelBuilder::memoryType(Type element) const {
  return conversions.has(element) ? element : KernelBuilder::memoryType(element);
}

Value CudaKernelBuilder::round(Value x, Type to) {
  return x.getType().isF32() && conversions.has(to) ? widenHalf(narrowHalf(x, to), to)
                                                    : KernelBuilder::round(x, to);
}

SmallVector<Value> CudaKernelBuilder::roundMany(ArrayRef<Value> values, Type to) {
  SmallVector<Value> rounded;
  if (values[0].getType().isF32() && comesInWords(to, int64_t(values.size()))) {
    for (size_t i = 0; i < values.size(); i += 2)
      rounded.append(widenWord(narrowWord(values[i], values[i + 1])));
    return rounded;
  }
  for (Value value : values)
    rounded.push_back(round(value, to));
  return rounded;
}

Value CudaKernelBuilder::pack(Value low, Value high, Type to) {
  Value both = intrinsic(to.isBF16() ? "llvm.nvvm.ff2bf16x2.rn" : "llvm.nvvm.ff2f16x2.rn",
                         VectorType::get({2}, to), {high, low});
  return LLVM::BitcastOp::create(b, loc, b.getI32Type(), both);
}

void CudaKernelBuilder::markHalf() { (*module)->setAttr(kHalfAttr, b.getUnitAttr()); }

Value CudaKernelBuilder::narrowHalf(Value x, Type to) {
  if (!conversions.has(to))
    return KernelBuilder::narrowHalf(x, to);
  markHalf();
  Value known = to.isBF16() ? narrow.lookup(x).alone : Value();
  return known ? known : Value(arith::TruncFOp::create(b, loc, to, x));
}

Value CudaKernelBuilder::widenHalf(Value stored, Type from) {
  if (!conversions.has(from))
    return KernelBuilder::widenHalf(stored, from);
  markHalf();
  if (!from.isBF16())
    return arith::ExtFOp::create(b, loc, computeType(from), stored);
  Value wide =
      KernelBuilder::widenHalf(arith::BitcastOp::create(b, loc, b.getI16Type(), stored), from);
  narrow[wide].alone = stored;
  return wide;
}

SmallVector<Value> CudaKernelBuilder::widenWord(Value word) {
  markHalf();
  auto asFloat = [&](Value bits) -> Value {
    return arith::BitcastOp::create(b, loc, b.getF32Type(), bits);
  };
  Value low = asFloat(arith::ShLIOp::create(b, loc, word, i32(16)));
  Value high = asFloat(arith::AndIOp::create(b, loc, word, i32(0xffff0000)));
  narrow[low] = {{}, word, false};
  narrow[high] = {{}, word, true};
  return {low, high};
}

Value CudaKernelBuilder::wordOf(Value low, Value high) const {
  const Narrow first = narrow.lookup(low), second = narrow.lookup(high);
  return first.word && first.word == second.word && !first.isHigh && second.isHigh ? first.word
                                                                                   : Value();
}

Value CudaKernelBuilder::narrowWord(Value low, Value high) {
  if (Value word = wordOf(low, high))
    return word;
  markHalf();
  Operation *first = low.getDefiningOp(), *second = high.getDefiningOp();
  if (first && second && first->getName() == second->getName() &&
      isa<arith::AddFOp, arith::SubFOp>(first)) {
    // The sum of two bf16, rounded once. f32 has more than twice the bits, so the intermediate
    // rounding to f32 changes nothing.
    Value x = wordOf(first->getOperand(0), second->getOperand(0)),
          y = wordOf(first->getOperand(1), second->getOperand(1));
    if (x && y) {
      auto pair = VectorType::get({2}, b.getBF16Type());
      x = LLVM::BitcastOp::create(b, loc, pair, x), y = LLVM::BitcastOp::create(b, loc, pair, y);
      Value sum = isa<arith::AddFOp>(first) ? Value(arith::AddFOp::create(b, loc, x, y))
                                            : Value(arith::SubFOp::create(b, loc, x, y));
      return LLVM::BitcastOp::create(b, loc, b.getI32Type(), sum);
    }
  }
  return pack(low, high, b.getBF16Type());
}

SmallVector<Value> CudaKernelBuilder::loadMany(Value base, Value offset, Type element,
                                               int64_t count) {
  const bool inWords = comesInWords(element, count);
  auto type = inWords ? VectorType::get({count / 2}, b.getI32Type())
                      : VectorType::get({count}, memoryType(element));
  Value all = LLVM::LoadOp::create(b, loc, type, elementPointer(base, offset, element),
                                   unsigned(count * elementBytes(element)));
  SmallVector<Value> values;
  for (int64_t i = 0; i < type.getNumElements(); ++i) {
    Value one = LLVM::ExtractElementOp::create(b, loc, all, i64(i));
    inWords ? values.append(widenWord(one)) : values.push_back(fromMemory(one, element));
  }
  return values;
}

void CudaKernelBuilder::storeMany(ArrayRef<Value> values, Value base, Value offset, Type element,
                                  Value accumulate) {
  const auto count = static_cast<int64_t>(values.size());
  SmallVector<Value> sums(values);
  if (accumulate)
    for (auto [sum, old] : llvm::zip(sums, loadMany(base, offset, element, count)))
      sum = select(accumulate, combine(ReduceKind::Sum, old, sum), sum);
  SmallVector<Value> stored;
  if (comesInWords(element, count))
    for (size_t i = 0; i < sums.size(); i += 2)
      stored.push_back(narrowWord(sums[i], sums[i + 1]));
  else
    for (Value sum : sums)
      stored.push_back(toMemory(sum, element));
  Value all =
      LLVM::UndefOp::create(b, loc, VectorType::get({int64_t(stored.size())}, stored[0].getType()));
  for (auto [i, one] : llvm::enumerate(stored))
    all = LLVM::InsertElementOp::create(b, loc, all, one, i64(int64_t(i)));
  LLVM::StoreOp::create(b, loc, all, elementPointer(base, offset, element),
                        unsigned(count * elementBytes(element)));
  noteWritten(base);
}
