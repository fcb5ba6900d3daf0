#include "zorse/runtime/Expression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

using zorse::Expression;
using Op = Expression::Op;

namespace {

Expression parsed(const std::string &text) {
  auto expression = Expression::parse(text);
  EXPECT_FALSE(expression.failed()) << text << ": " << expression.message();
  return expression.failed() ? Expression::number(std::nan("")) : *expression;
}

double value(const std::string &text, double samples = 8,
             const std::vector<double> &counts = {5, 3}) {
  return parsed(text).evaluate(samples, counts);
}

std::string errorOf(const std::string &text) {
  auto expression = Expression::parse(text);
  EXPECT_TRUE(expression.failed()) << text;
  return expression.message();
}

TEST(Expression, ComputesAsWritten) {
  EXPECT_EQ(value("1/(2*B)"), 1.0 / 16);
  EXPECT_EQ(value("0.3/n0"), 0.3 / 5);
  EXPECT_EQ(value("1/sqrt(B)"), 1 / std::sqrt(8.0));
  EXPECT_EQ(value("max(n0, 1)"), 5);
  EXPECT_EQ(value("1 - 2 - 3"), -4);
  EXPECT_EQ(value("1 - (2 - 3)"), 2);
  EXPECT_EQ(value("8/4/2"), 1);
  EXPECT_EQ(value("-B*3 + 1"), -23);
  EXPECT_EQ(value("--B"), 8);
  EXPECT_EQ(value("  1e-3 * n1"), 1e-3 * 3);
  EXPECT_EQ(value("pow(B, 0.5)"), std::pow(8, 0.5));
  EXPECT_EQ(value("log1p(exp(log(abs(-2))))"), std::log1p(std::exp(std::log(2.0))));
  EXPECT_EQ(value("tanh(1) + sigmoid(0)"), std::tanh(1.0) + 0.5);
}

TEST(Expression, RoundsAsPyTorchAndDividesIntegersAsOnnx) {
  EXPECT_EQ(value("floor(-1.5)"), -2);
  EXPECT_EQ(value("ceil(-1.5)"), -1);
  EXPECT_EQ(value("trunc(-1.5)"), -1);
  EXPECT_EQ(value("round(2.5)"), 2);
  EXPECT_EQ(value("round(-3.5)"), -4);
  EXPECT_EQ(value("idiv(-7, 2)"), -3);
  EXPECT_EQ(value("mod(-7, 3)"), 2);
  EXPECT_EQ(value("mod(7, -3)"), -2);
  EXPECT_EQ(value("eq(B, 8) + less(B, 8) + less_eq(B, 8)"), 2);
  EXPECT_EQ(value("where(less(n0, 1), 1, n0)"), 5);
}

TEST(Expression, WhatIsNotFiniteIsComputedToo) {
  EXPECT_EQ(value("1/n0", 8, {0}), std::numeric_limits<double>::infinity());
  EXPECT_EQ(value("1/max(n0, 1)", 8, {0}), 1);
  EXPECT_TRUE(std::isnan(value("n0/n0", 8, {0})));
  const double nan = std::nan("");
  for (const char *text :
       {"max(n0, 1)", "max(1, n0)", "min(n0, 1)", "min(1, n0)", "1/n0", "sqrt(-1)"})
    EXPECT_TRUE(std::isnan(value(text, 8, {nan}))) << text;
  EXPECT_EQ(value("inf"), std::numeric_limits<double>::infinity());
}

TEST(Expression, SaysWhatItReads) {
  EXPECT_TRUE(parsed("1/(2*B)").usesSamples());
  EXPECT_FALSE(parsed("1/n0").usesSamples());
  EXPECT_EQ(parsed("n7 + n2*n7").counts(), (std::vector<uint32_t>{2, 7}));
  auto quotient = parsed("0.3/(20*B + n0)").quotient();
  ASSERT_TRUE(quotient);
  EXPECT_EQ(quotient->first.constant(), 0.3);
  EXPECT_EQ(quotient->second.print(), "20*B + n0");
  EXPECT_FALSE(parsed("1/B*2").quotient());
}

TEST(Expression, PrintsShortAndReadsItBack) {
  for (const char *text : {"1/(2*B)", "0.3/n0", "max(n0, 1)", "1 - (2 - B)", "-B*3", "-(B*3)",
                           "2*(-3)", "B - (-3)", "-(-3)", "where(eq(B, 1), n0, n1)", "B/(n0/n1)",
                           "(B + 1)*(B - 1)", "1e-300", "0.1", "1e+300", "-(-B)"})
    EXPECT_EQ(parsed(text).print(), text);
  EXPECT_EQ(parsed(" ( 1 ) / ( ( B ) ) ").print(), "1/B");
  EXPECT_EQ(Expression::apply(Op::Negate, {Expression::number(3)}), parsed("-3"));
}

TEST(Expression, ErrorsNameTheColumn) {
  EXPECT_EQ(errorOf(""),
            "column 1: expected a number, B, a count such as n0, a function or '(', found the end");
  EXPECT_EQ(errorOf("1/"),
            "column 3: expected a number, B, a count such as n0, a function or '(', found the end");
  EXPECT_EQ(errorOf("1/(2*B"), "column 7: expected ')', found the end");
  EXPECT_EQ(errorOf("1 B"), "column 3: expected an operator or the end, found 'B'");
  EXPECT_EQ(errorOf("b"),
            "column 1: expected a count such as n0 or a function such as sqrt, found 'b'");
  EXPECT_EQ(errorOf("1/n64"), "column 3: expected a count from n0 to n63, found 'n64'");
  EXPECT_EQ(errorOf("n00"), "column 1: expected a count from n0 to n63, found 'n00'");
  EXPECT_EQ(errorOf("n99999999999"),
            "column 1: expected a count from n0 to n63, found 'n99999999999'");
  EXPECT_EQ(errorOf("sqrt B"), "column 6: expected '(' behind 'sqrt', found 'B'");
  EXPECT_EQ(errorOf("max(B)"), "column 6: expected ',': 'max' has 2 operands; found ')'");
  EXPECT_EQ(errorOf("sqrt(B, 2)"),
            "column 7: expected ')' behind the operands of 'sqrt', found ','");
  EXPECT_EQ(errorOf("1e999"), "column 1: expected a number that a double holds, found '1e999'");
  EXPECT_EQ(errorOf(std::string("1\0", 2)),
            "column 2: expected an operator or the end, found character 0");
  EXPECT_EQ(errorOf(std::string(1000, '(')), "column 258: nested more than 256 deep");
  EXPECT_EQ(errorOf(std::string(1000, '-')), "column 258: nested more than 256 deep");
  EXPECT_EQ(errorOf(std::string(20000, '1')),
            "column 1: expected at most 16384 characters, found 20000");
}

/// Random trees. A printed tree parses to the same expression, and the parsed expression has the
/// value of the tree.
struct RandomTree {
  std::mt19937_64 random;
  double samples;
  std::vector<double> counts;

  uint64_t below(uint64_t n) { return random() % n; }

  std::pair<Expression, double> make(int depth) {
    if (depth == 0 || below(5) == 0) {
      if (below(3) == 0)
        return {Expression::samples(), samples};
      if (uint32_t index = uint32_t(below(counts.size())); below(2) == 0)
        return {Expression::count(index), counts[index]};
      double number = std::ldexp(double(below(1u << 20)) - (1 << 19), int(below(60)) - 40);
      return {Expression::number(number), number};
    }
    auto [a, x] = make(depth - 1);
    auto [b, y] = make(depth - 1);
    switch (below(6)) {
    case 0:
      return {Expression::apply(Op::Add, {a, b}), x + y};
    case 1:
      return {Expression::apply(Op::Subtract, {a, b}), x - y};
    case 2:
      return {Expression::apply(Op::Multiply, {a, b}), x * y};
    case 3:
      return {Expression::apply(Op::Divide, {a, b}), x / y};
    case 4:
      return {Expression::apply(Op::Negate, {a}), -x};
    default:
      return {Expression::apply(Op::Abs, {a}), std::fabs(x)};
    }
  }
};

TEST(Expression, RandomTreesSurviveTheText) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    RandomTree tree{std::mt19937_64(seed), double(1 + seed % 17), {0, 3, 1e9}};
    auto [expression, expected] = tree.make(1 + int(seed % 6));
    const Expression again = parsed(expression.print());
    EXPECT_EQ(again, expression) << "seed " << seed << ": " << expression.print();
    const double got = again.evaluate(tree.samples, tree.counts);
    EXPECT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected)))
        << "seed " << seed << ": " << expression.print();
  }
}

/// Texts that no compiler wrote are refused or parsed; a parsed text prints to itself.
TEST(Expression, OddTextsAreReadOrRefused) {
  const std::string good[] = {"1/(2*B)", "where(less(n0, 1), 1, n63)", "-0.3/max(n0 + 1e-5, 1)",
                              "pow(sigmoid(B), -(-inf))"};
  const std::string pieces[] = {"(",    ")",    ",", "-",  "/",    "*",     "+",
                                "B",    "n0",   "n", "1e", ".",    "1e308", "nan",
                                "max(", "sqrt", " ", "\n", "\xff", "0x1",   "_"};
  size_t read = 0;
  for (uint64_t seed = 0; seed < 50000; ++seed) {
    std::mt19937_64 random(seed);
    std::string text = good[random() % std::size(good)];
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % (text.size() + 1);
      const std::string &piece = pieces[random() % std::size(pieces)];
      text.replace(at, random() % 3, piece);
    }
    auto expression = Expression::parse(text);
    EXPECT_EQ(expression.failed(), !expression.message().empty()) << text;
    if (expression.failed())
      continue;
    ++read;
    EXPECT_EQ(parsed(expression->print()), *expression) << text;
    (void)expression->evaluate(4, std::vector<double>(Expression::kMaxCounts, 2));
  }
  EXPECT_GT(read, 1000u);
  EXPECT_LT(read, 40000u);
}

} // namespace
