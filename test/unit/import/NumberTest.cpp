// Tests numbers that are known before a step: their algebra, compared with doubles at random B and
// counts, comparisons that hold for every B, and their text.
#include "Number.h"

#include "zorse/runtime/Expression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

using zorse::onnx_import::Number;

namespace {

const Number B = Number::samples(), n0 = Number::count(0), n1 = Number::count(1);

Number of(const std::string &function, const std::vector<Number> &operands) {
  return *Number::apply(function, operands);
}

/// The value that the step computes from the text.
double at(const Number &number, double samples, const std::vector<double> &counts) {
  auto expression = zorse::Expression::parse(number.print());
  EXPECT_FALSE(expression.failed()) << number.print() << ": " << expression.message();
  return expression.failed() ? NAN : expression->evaluate(samples, counts);
}

} // namespace

TEST(Number, Text) {
  EXPECT_EQ((Number(1.0) / (Number(2.0) * B)).print(), "1/(2*B)");
  EXPECT_EQ((Number(0.3) / n0).print(), "0.3/n0");
  EXPECT_EQ((Number(0.3) / (Number(20.0) * B)).print(), "0.3/(20*B)");
  EXPECT_EQ((Number(1.0) / of("sqrt", {B})).print(), "1/sqrt(B)");
  EXPECT_EQ(of("max", {n0, 1.0}).print(), "max(n0, 1)");
  EXPECT_EQ((B + Number(1.0)).print(), "B + 1");
  EXPECT_EQ((Number(1.0) / (B - Number(1.0))).print(), "1/(B - 1)");
  EXPECT_EQ((-B).print(), "-B");
  EXPECT_EQ((Number(1e-6) - n0).print(), "1e-06 - n0");
  EXPECT_EQ(Number(0.0).print(), "0");
  EXPECT_EQ((n0 / n0).print(), "n0/n0") << "not a number where n0 is 0";
}

TEST(Number, WhatIsTheSameForEveryBFolds) {
  EXPECT_TRUE((B / B).is(1));
  EXPECT_TRUE((Number(2.0) * B / Number(2.0) - B).is(0));
  EXPECT_TRUE(((B + Number(1.0)) / (B + Number(1.0))).is(1));
  EXPECT_EQ(of("trunc", {Number(6.0) * B / Number(2.0)}).print(), "3*B");
  EXPECT_EQ(of("max", {B, 1.0}).print(), "B");
  EXPECT_TRUE(of("min", {B, 1.0}).is(1));
  EXPECT_EQ(of("min", {B, 4.0}).print(), "min(B, 4)");
  EXPECT_EQ(of("floor", {B / Number(2.0)}).print(), "floor(B/2)");
  EXPECT_TRUE(of("less", {0.0, B}).is(1));
  EXPECT_TRUE(of("less_eq", {B, B * B}).is(1));
  EXPECT_EQ(of("less", {1.0, B}).print(), "less(1, B)");
  EXPECT_TRUE(of("eq", {B, Number(2.0) * B}).is(0));
  EXPECT_EQ(of("pow", {B, 2.0}).print(), "B*B");
  EXPECT_EQ(of("pow", {B, 0.5}).print(), "sqrt(B)");
  EXPECT_EQ(of("where", {1.0, B, n0}).print(), "B");
}

TEST(Number, LengthsAreMultiplesOfB) {
  EXPECT_EQ((Number(12.0) * B).multipleOfPower(1), 12);
  EXPECT_FALSE((B * B).multipleOfPower(1));
  EXPECT_FALSE((B + Number(1.0)).multipleOfPower(1));
  EXPECT_FALSE((B / Number(2.0)).multipleOfPower(1));
  EXPECT_FALSE((-B).multipleOfPower(1));
  EXPECT_FALSE(n0.multipleOfPower(1));
  EXPECT_EQ(Number(5.0).multipleOfPower(0), 5);
}

TEST(Number, NothingIsGuessed) {
  EXPECT_FALSE((Number(1.0) / Number(0.0)).isValid());
  EXPECT_FALSE(Number(std::numeric_limits<double>::infinity()).isValid());
  EXPECT_FALSE(Number::apply("erf", {B}));
  EXPECT_FALSE(Number::apply("sqrt", {B, B}));
  Number large = B;
  for (int i = 0; i < 40 && large.isValid(); ++i)
    large = of("max", {large + n0, large * n1});
  EXPECT_FALSE(large.isValid()) << "a formula of thousands of characters";
  Number product = Number(static_cast<double>(int64_t(1) << 52)) * B;
  product = product * product; // 2^104 does not fit in int64
  EXPECT_DOUBLE_EQ(at(product, 3, {}), std::ldexp(9.0, 104));
  EXPECT_FALSE(product.multipleOfPower(2));
}

// Random formulas: values at random B and counts are equal to those of the same operations on
// doubles, and comparisons are correct.
TEST(Number, FormulasHaveTheValueOfTheirOperations) {
  std::mt19937 random(7); // NOLINT(bugprone-random-generator-seed): the same formulas every time
  std::uniform_real_distribution<double> real(0.25, 4);
  const auto pick = [&](int most) {
    return std::uniform_int_distribution<int>(0, most - 1)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    const double b = 1 + pick(20);
    const std::vector<double> counts{double(pick(9)), real(random)};
    std::vector<std::pair<Number, double>> values{{B, b},
                                                  {n0, counts[0]},
                                                  {n1, counts[1]},
                                                  {Number(double(1 + pick(5))), 0},
                                                  {Number(real(random)), 0}};
    values[3].second = *values[3].first.constant();
    values[4].second = *values[4].first.constant();
    for (int step = 0; step < 5; ++step) {
      const auto [x, u] = values[static_cast<size_t>(pick(static_cast<int>(values.size())))];
      const auto [y, v] = values[static_cast<size_t>(pick(static_cast<int>(values.size())))];
      std::pair<Number, double> next;
      switch (pick(9)) {
      case 0:
        next = {x + y, u + v};
        break;
      case 1:
        next = {x - y, u - v};
        break;
      case 2:
        next = {x * y, u * v};
        break;
      case 3:
        next = {x / y, u / v};
        break;
      case 4:
        next = {of("max", {x, y}), std::max(u, v)};
        break;
      case 5:
        next = {of("min", {x, y}), std::min(u, v)};
        break;
      case 6:
        next = {of("abs", {x}), std::fabs(u)};
        break;
      case 7:
        next = {of("sqrt", {of("abs", {x})}), std::sqrt(std::fabs(u))};
        break;
      default:
        next = {of("trunc", {x}), std::trunc(u)};
        break;
      }
      if (!next.first.isValid() || !std::isfinite(next.second) || std::fabs(next.second) > 1e12)
        continue;
      // Rounding may move a value across an integer, or leave a remainder of an integer.
      if (std::fabs(next.second - std::round(next.second)) < 1e-9 * std::max(1.0, std::fabs(u)) &&
          next.first.print().find("trunc") != std::string::npos)
        continue;
      const double found = at(next.first, b, counts);
      ASSERT_NEAR(found, next.second,
                  1e-7 * std::max({1.0, std::fabs(next.second), std::fabs(u), std::fabs(v)}))
          << next.first.print() << " at " << b;
      const double slack = 1e-9 * std::max(1.0, std::fabs(next.second));
      if (next.first.isPositive())
        ASSERT_GT(next.second, -slack) << next.first.print();
      if (next.first.isNonNegative())
        ASSERT_GE(next.second, -slack) << next.first.print();
      if (auto equal = next.first.isEqualTo(x))
        ASSERT_EQ(*equal, std::fabs(next.second - u) <= slack)
            << next.first.print() << " and " << x.print();
      if (auto less = next.first.isLessThan(x))
        ASSERT_TRUE(*less ? next.second < u + slack : next.second >= u - slack)
            << next.first.print() << " and " << x.print();
      values.push_back(next);
    }
  }
}
