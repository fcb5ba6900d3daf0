// Rounding to half precision and its storage. Targets without conversions of their own use operations on integers, which every processor vectorises:
// LLVM's conversions would call a library there, element by element.
//
// GPUs that have bf16 round two numbers by one instruction (cvt.rn.bf16x2), so neighbours are rounded, loaded and stored as words of two. The halves
// of a word are widened by one operation on integers each; LLVM's own widening takes two for the upper half. Since LLVM sees no conversion there, it
// does not turn a product that is rounded into a product of bf16 either, which would round subnormal results once where others round them twice.
#include "KernelBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

namespace {

/// An IEEE format: bits of the fraction, exponents of the least and the greatest normal number.
struct Format {
  int fraction, least, greatest;

  static Format of(Type type) {
    const llvm::fltSemantics &semantics = cast<FloatType>(type).getFloatSemantics();
    return {static_cast<int>(APFloat::semanticsPrecision(semantics)) - 1, APFloat::semanticsMinExponent(semantics),
            APFloat::semanticsMaxExponent(semantics)};
  }
};

/// Arithmetic on the bits of one float.
struct Bits {
  KernelBuilder &k;
  Type type; ///< integer of the float's width

  Value constant(uint64_t value) const { return arith::ConstantOp::create(k.b, k.loc, k.b.getIntegerAttr(type, static_cast<int64_t>(value))); }
  Value of(Value x) const { return arith::BitcastOp::create(k.b, k.loc, type, x); }
  Value as(Type floating, Value bits) const { return arith::BitcastOp::create(k.b, k.loc, floating, bits); }
  Value add(Value x, Value y) const { return arith::AddIOp::create(k.b, k.loc, x, y); }
  Value sub(Value x, uint64_t y) const { return arith::SubIOp::create(k.b, k.loc, x, constant(y)); }
  Value both(Value x, uint64_t y) const { return arith::AndIOp::create(k.b, k.loc, x, constant(y)); }
  Value either(Value x, Value y) const { return arith::OrIOp::create(k.b, k.loc, x, y); }
  Value right(Value x, int bits) const { return arith::ShRUIOp::create(k.b, k.loc, x, constant(bits)); }
  Value left(Value x, int bits) const { return arith::ShLIOp::create(k.b, k.loc, x, constant(bits)); }
  Value less(Value x, uint64_t y) const { return arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::ult, x, constant(y)); }
};

} // namespace

Value KernelBuilder::round(Value x, Type to) {
  if (x.getType().isF32() && conversions.has(to))
    return widenHalf(narrowHalf(x, to), to);
  return roundByBits(x, to);
}

SmallVector<Value> KernelBuilder::roundMany(ArrayRef<Value> values, Type to) {
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

void KernelBuilder::markHalf() { (*module)->setAttr(kHalfAttr, b.getUnitAttr()); }

SmallVector<Value> KernelBuilder::widenWord(Value word) {
  markHalf();
  Bits bits{*this, b.getI32Type()};
  SmallVector<Value> halves = {bits.as(b.getF32Type(), bits.left(word, 16)), bits.as(b.getF32Type(), bits.both(word, 0xffff0000))};
  narrow[halves[0]] = {{}, word, false};
  narrow[halves[1]] = {{}, word, true};
  return halves;
}

Value KernelBuilder::wordOf(Value low, Value high) const {
  const Narrow first = narrow.lookup(low), second = narrow.lookup(high);
  return first.word && first.word == second.word && !first.isHigh && second.isHigh ? first.word : Value();
}

Value KernelBuilder::narrowWord(Value low, Value high) {
  if (Value word = wordOf(low, high))
    return word;
  markHalf();
  auto pair = VectorType::get({2}, b.getBF16Type());
  Operation *first = low.getDefiningOp(), *second = high.getDefiningOp();
  if (first && second && first->getName() == second->getName() && isa<arith::AddFOp, arith::SubFOp>(first)) {
    // The sum of two bf16, rounded once: f32 has more than twice as many bits, so rounding to f32 on the way changes nothing.
    Value x = wordOf(first->getOperand(0), second->getOperand(0)), y = wordOf(first->getOperand(1), second->getOperand(1));
    if (x && y) {
      x = LLVM::BitcastOp::create(b, loc, pair, x), y = LLVM::BitcastOp::create(b, loc, pair, y);
      Value sum = isa<arith::AddFOp>(first) ? Value(arith::AddFOp::create(b, loc, x, y)) : Value(arith::SubFOp::create(b, loc, x, y));
      return LLVM::BitcastOp::create(b, loc, b.getI32Type(), sum);
    }
  }
  return LLVM::BitcastOp::create(b, loc, b.getI32Type(), intrinsic("llvm.nvvm.ff2bf16x2.rn", pair, {high, low}));
}

Value KernelBuilder::roundByBits(Value x, Type to) {
  Type type = x.getType();
  Format from = Format::of(type), target = Format::of(to);
  unsigned width = type.getIntOrFloatBitWidth();
  Bits bits{*this, IntegerType::get(b.getContext(), width)};
  const uint64_t sign = uint64_t(1) << (width - 1);
  // Of the bits that go, add just under a half, and one more where the last bit that stays is odd.
  int dropped = from.fraction - target.fraction;
  Value all = bits.of(x), magnitude = bits.both(all, sign - 1);
  Value odd = bits.both(bits.right(magnitude, dropped), 1);
  Value nearest = bits.add(magnitude, bits.add(odd, bits.constant((uint64_t(1) << (dropped - 1)) - 1)));
  nearest = bits.both(nearest, ~((uint64_t(1) << dropped) - 1) & (sign - 1));
  auto power = [&](int exponent) { return static_cast<uint64_t>(exponent + from.greatest) << from.fraction; }; // bits of 2^exponent
  const uint64_t infinite = power(from.greatest + 1);
  if (target.greatest < from.greatest) {
    nearest = select(bits.less(nearest, power(target.greatest + 1)), nearest, bits.constant(infinite));
    // Below the least normal number all steps are equal: those of a sum with a number whose last bit is one step.
    Value step = number(type, std::ldexp(1.5, from.fraction + target.least - target.fraction));
    Value sum = arith::AddFOp::create(b, loc, bits.as(type, magnitude), step);
    Value subnormal = bits.of(arith::SubFOp::create(b, loc, sum, step));
    nearest = select(bits.less(magnitude, power(target.least)), subnormal, nearest);
  }
  Value notANumber = bits.both(bits.either(magnitude, bits.constant(uint64_t(1) << (from.fraction - 1))), ~((uint64_t(1) << dropped) - 1));
  nearest = select(bits.less(magnitude, infinite + 1), nearest, notANumber);
  return bits.as(type, bits.either(nearest, bits.both(all, sign)));
}

Value KernelBuilder::narrowHalf(Value x, Type to) {
  if (conversions.has(to)) {
    markHalf();
    Value known = to.isBF16() ? narrow.lookup(x).alone : Value();
    return known ? known : Value(arith::TruncFOp::create(b, loc, to, x));
  }
  x = roundByBits(x, to);
  Bits bits{*this, b.getI32Type()};
  Value all = bits.of(x), half;
  if (to.isBF16()) {
    half = bits.right(all, 16);
  } else {
    Value magnitude = bits.both(all, 0x7fffffff);
    Value normal = bits.sub(bits.right(magnitude, 13), uint64_t(127 - 15) << 10);
    Value subnormal = bits.sub(bits.of(arith::AddFOp::create(b, loc, bits.as(x.getType(), magnitude), number(x.getType(), 0.5))), 0x3f000000);
    Value special = bits.both(bits.right(magnitude, 13), 0x3ff);
    half = select(bits.less(magnitude, 0x38800000), subnormal, normal);
    half = select(bits.less(magnitude, 0x7f800000), half, bits.either(special, bits.constant(0x7c00)));
    half = bits.either(half, bits.both(bits.right(all, 16), 0x8000));
  }
  return arith::TruncIOp::create(b, loc, b.getI16Type(), half);
}

Value KernelBuilder::widenHalf(Value stored, Type from) {
  Type type = computeType(from), half = b.getI16Type();
  if (conversions.has(from))
    markHalf();
  if (conversions.has(from) && !from.isBF16())
    return arith::ExtFOp::create(b, loc, type, stored);
  Bits bits{*this, b.getI32Type()};
  Value all = arith::ExtUIOp::create(b, loc, bits.type, stored.getType() == half ? stored : Value(arith::BitcastOp::create(b, loc, half, stored)));
  if (from.isBF16()) {
    Value wide = bits.as(type, bits.left(all, 16));
    if (conversions.has(from))
      narrow[wide].alone = stored;
    return wide;
  }
  Value magnitude = bits.left(bits.both(all, 0x7fff), 13);
  Value scaled = bits.of(arith::MulFOp::create(b, loc, bits.as(type, magnitude), number(type, std::ldexp(1.0, 127 - 15))));
  Value special = bits.either(magnitude, bits.constant(0x7f800000));
  Value value = select(bits.less(magnitude, 0x0f800000), scaled, special);
  return bits.as(type, bits.either(value, bits.left(bits.both(all, 0x8000), 16)));
}
