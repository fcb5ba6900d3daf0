// Values have a rank, by which they ascend; ranks of a decade are equally far apart. So codes
// follow from comparisons and one division, without a table, and kernels stay elementwise.
#include "BlockwiseCodes.h"

#include <array>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

constexpr int kDecades = 7;
constexpr double kLeastScale = 1e-12;
constexpr int kZero = 127; ///< code of 0, if codes are signed

/// Values of one decade: value(rank) = base + step * rank for ranks from first to last.
struct Decade {
  double first, last, base, step;

  double value(double rank) const { return base + step * rank; }
};

/// The decades of positive values. Rank 0 is 0, and the rank after the last decade is 1.
std::array<Decade, kDecades> decades(bool isSigned) {
  std::array<Decade, kDecades> out = {};
  double first = 1;
  for (int i = 0; i < kDecades; ++i) {
    const double unit = std::pow(10.0, i - kDecades + 1), count = std::ldexp(isSigned ? 1 : 2, i),
                 step = 0.9 * unit / count;
    out[size_t(i)] = {first, first + count - 1, 0.1 * unit + step * (0.5 - first), step};
    first += count;
  }
  return out;
}

/// Builds numbers by rank and ranks by number.
class Ranks {
public:
  Ranks(TensorBuilder &t, bool isSigned, Value like)
      : t(t), isSigned(isSigned), like(like), table(decades(isSigned)) {}

  /// \param rank  as floats, not negative
  Value valueOf(Value rank) {
    Value base = t.splat(like, table[0].base), step = t.splat(like, table[0].step);
    for (size_t i = 1; i < table.size(); ++i) {
      Value reached = atLeast(rank, table[i].first);
      base = t.select(reached, t.splat(like, table[i].base), base);
      step = t.select(reached, t.splat(like, table[i].step), step);
    }
    Value value = t.select(atLeast(rank, 1), t.add(base, t.mul(step, rank)), t.splat(like, 0));
    return t.select(atLeast(rank, top()), t.splat(like, 1), value);
  }

  /// Returns the rank of the nearest value, the larger of two equally near ones, as floats.
  /// \param number  in [0, 1]
  Value nearest(Value number) {
    const std::array<double, 4> zero = {table[0].first, table[0].last, table[0].base,
                                        table[0].step};
    std::array<Value, 4> of;
    for (size_t k = 0; k < of.size(); ++k)
      of[k] = t.splat(like, zero[k]);
    for (size_t i = 1; i < table.size(); ++i) {
      const Decade &decade = table[i], &below = table[i - 1];
      Value reached = atLeast(number, (below.value(below.last) + decade.value(decade.first)) / 2);
      const std::array<double, 4> here = {decade.first, decade.last, decade.base, decade.step};
      for (size_t k = 0; k < of.size(); ++k)
        of[k] = t.select(reached, t.splat(like, here[k]), of[k]);
    }
    Value rank = whole(t.plus(t.div(t.sub(number, of[2]), of[3]), 0.5));
    rank = t.select(less(rank, of[0]), of[0], t.select(less(of[1], rank), of[1], rank));
    const Decade &highest = table.back();
    rank = t.select(atLeast(number, table[0].value(1) / 2), rank, t.splat(like, 0));
    return t.select(atLeast(number, (highest.value(highest.last) + 1) / 2), t.splat(like, top()),
                    rank);
  }

  double top() const { return table.back().last + 1; }
  Value less(Value x, Value y) { return t.make<arith::CmpFOp>(arith::CmpFPredicate::OLT, x, y); }

private:
  Value atLeast(Value x, double y) {
    return t.make<arith::CmpFOp>(arith::CmpFPredicate::OGE, x, t.splat(like, y));
  }
  /// The integral part of numbers from 0 to 255.5; 0 for negative ones.
  Value whole(Value x) {
    Value positive = t.select(atLeast(x, 0), x, t.splat(like, 0));
    Value integer = t.make<arith::FPToSIOp>(t.withElement(x, t.b.getI32Type()), positive);
    return t.make<arith::SIToFPOp>(x.getType(), integer);
  }

  TensorBuilder &t;
  const bool isSigned;
  Value like;
  const std::array<Decade, kDecades> table;
};

} // namespace

Value units::decode(TensorBuilder &t, const BlockwiseCodes &in, bool isSigned) {
  Type element = TensorBuilder::elementOf(in.scales);
  Value code = t.make<arith::UIToFPOp>(t.withElement(in.codes, element), in.codes);
  Value rank = isSigned ? t.plus(code, -kZero) : code;
  Ranks ranks(t, isSigned, rank);
  Value value;
  if (isSigned) {
    Value isNegative = ranks.less(rank, t.splat(rank, 0));
    value = ranks.valueOf(t.select(isNegative, t.neg(rank), rank));
    value = t.select(isNegative, t.neg(value), value);
  } else {
    value = ranks.valueOf(rank);
  }
  Value scale = t.reshape(in.scales, {ShapedType::kDynamic});
  return t.mul(value, t.alongLast(scale, value));
}

BlockwiseCodes units::encode(TensorBuilder &t, Value numbers, bool isSigned) {
  Ranks ranks(t, isSigned, numbers);
  Value isNegative = ranks.less(numbers, t.splat(numbers, 0));
  Value size = isSigned ? t.select(isNegative, t.neg(numbers), numbers) : numbers;
  Value scale = t.reduceLast(size, ReduceKind::Max), least = t.splat(scale, kLeastScale);
  scale = t.select(ranks.less(scale, least), least, scale);
  Value rank = ranks.nearest(t.div(size, t.alongLast(scale, size)));
  Value code = rank;
  if (isSigned) { // -1 has no code
    Value last = t.splat(rank, ranks.top() - 1);
    Value below = t.neg(t.select(ranks.less(last, rank), last, rank));
    code = t.plus(t.select(isNegative, below, rank), kZero);
  }
  Value codes = t.make<arith::FPToUIOp>(t.withElement(code, t.b.getI8Type()), code);
  return {codes, t.reshape(scale, {ShapedType::kDynamic, 1})};
}
