// Rounds to half precision and stores it with integer operations, which LLVM vectorizes for every
// CPU. LLVM's own conversions would call a library function for each element. Targets with
// conversion instructions override these functions.
#include "KernelBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

namespace {

/// An IEEE format: fraction bits, and exponents of the smallest and the largest normal number.
struct Format {
  int fraction, min, greatest;

  static Format of(Type type) {
    const llvm::fltSemantics &semantics = cast<FloatType>(type).getFloatSemantics();
    return {static_cast<int>(APFloat::semanticsPrecision(semantics)) - 1,
            APFloat::semanticsMinExponent(semantics), APFloat::semanticsMaxExponent(semantics)};
  }
};

/// Arithmetic on the bits of a float.
struct Bits {
  KernelBuilder &k;
  Type type; ///< integer with the float's width

  Value constant(uint64_t value) const {
    return arith::ConstantOp::create(k.b, k.loc,
                                     k.b.getIntegerAttr(type, static_cast<int64_t>(value)));
  }
  Value of(Value x) const { return arith::BitcastOp::create(k.b, k.loc, type, x); }
  Value as(Type floating, Value bits) const {
    return arith::BitcastOp::create(k.b, k.loc, floating, bits);
  }
  Value add(Value x, Value y) const { return arith::AddIOp::create(k.b, k.loc, x, y); }
  Value sub(Value x, uint64_t y) const { return arith::SubIOp::create(k.b, k.loc, x, constant(y)); }
  Value both(Value x, uint64_t y) const {
    return arith::AndIOp::create(k.b, k.loc, x, constant(y));
  }
  Value either(Value x, Value y) const { return arith::OrIOp::create(k.b, k.loc, x, y); }
  Value right(Value x, int bits) const {
    return arith::ShRUIOp::create(k.b, k.loc, x, constant(bits));
  }
  Value left(Value x, int bits) const {
    return arith::ShLIOp::create(k.b, k.loc, x, constant(bits));
  }
  Value less(Value x, uint64_t y) const {
    return arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::ult, x, constant(y));
  }
};

} // namespace

Value KernelBuilder::round(Value x, Type to) {
  Type type = x.getType();
  Format from = Format::of(type), target = Format::of(to);
  unsigned width = type.getIntOrFloatBitWidth();
  Bits bits{*this, IntegerType::get(b.getContext(), width)};
  const uint64_t sign = uint64_t(1) << (width - 1);
  // Add just under half of the dropped bits' range, plus one if the last kept bit is odd (ties to
  // even).
  int dropped = from.fraction - target.fraction;
  Value all = bits.of(x), magnitude = bits.both(all, sign - 1);
  Value odd = bits.both(bits.right(magnitude, dropped), 1);
  Value nearest =
      bits.add(magnitude, bits.add(odd, bits.constant((uint64_t(1) << (dropped - 1)) - 1)));
  nearest = bits.both(nearest, ~((uint64_t(1) << dropped) - 1) & (sign - 1));
  auto power = [&](int exponent) {
    return static_cast<uint64_t>(exponent + from.greatest) << from.fraction;
  }; // bits of 2^exponent
  const uint64_t infinite = power(from.greatest + 1);
  if (target.greatest < from.greatest) {
    nearest =
        select(bits.less(nearest, power(target.greatest + 1)), nearest, bits.constant(infinite));
    // Below the smallest normal number, the step size is constant. Adding a number whose last bit
    // is one step rounds to it.
    Value step = number(type, std::ldexp(1.5, from.fraction + target.min - target.fraction));
    Value sum = arith::AddFOp::create(b, loc, bits.as(type, magnitude), step);
    Value subnormal = bits.of(arith::SubFOp::create(b, loc, sum, step));
    nearest = select(bits.less(magnitude, power(target.min)), subnormal, nearest);
  }
  Value notANumber =
      bits.both(bits.either(magnitude, bits.constant(uint64_t(1) << (from.fraction - 1))),
                ~((uint64_t(1) << dropped) - 1));
  nearest = select(bits.less(magnitude, infinite + 1), nearest, notANumber);
  return bits.as(type, bits.either(nearest, bits.both(all, sign)));
}

Value KernelBuilder::narrowHalf(Value x, Type to) {
  x = round(x, to);
  Bits bits{*this, b.getI32Type()};
  Value all = bits.of(x), half;
  if (to.isBF16()) {
    half = bits.right(all, 16);
  } else {
    Value magnitude = bits.both(all, 0x7fffffff);
    Value normal = bits.sub(bits.right(magnitude, 13), uint64_t(127 - 15) << 10);
    Value subnormal =
        bits.sub(bits.of(arith::AddFOp::create(b, loc, bits.as(x.getType(), magnitude),
                                               number(x.getType(), 0.5))),
                 0x3f000000);
    Value special = bits.both(bits.right(magnitude, 13), 0x3ff);
    half = select(bits.less(magnitude, 0x38800000), subnormal, normal);
    half =
        select(bits.less(magnitude, 0x7f800000), half, bits.either(special, bits.constant(0x7c00)));
    half = bits.either(half, bits.both(bits.right(all, 16), 0x8000));
  }
  return arith::TruncIOp::create(b, loc, b.getI16Type(), half);
}

Value KernelBuilder::widenHalf(Value stored, Type from) {
  Type type = computeType(from);
  Bits bits{*this, b.getI32Type()};
  Value all = arith::ExtUIOp::create(b, loc, bits.type, stored);
  if (from.isBF16())
    return bits.as(type, bits.left(all, 16));
  Value magnitude = bits.left(bits.both(all, 0x7fff), 13);
  Value scaled = bits.of(arith::MulFOp::create(b, loc, bits.as(type, magnitude),
                                               number(type, std::ldexp(1.0, 127 - 15))));
  Value special = bits.either(magnitude, bits.constant(0x7f800000));
  Value value = select(bits.less(magnitude, 0x0f800000), scaled, special);
  return bits.as(type, bits.either(value, bits.left(bits.both(all, 0x8000), 16)));
}
