// Arithmetic that is evaluated before a step begins: factors of the loss, and numbers that
// functions of units read.
//
// The text form is the same in IR attributes, bundles, summaries and messages: `1/(2*B)`, `0.3/n0`,
// `1/sqrt(B)`, `max(n0, 1)`.
//
//   sum     = product { ("+" | "-") product }
//   product = unary { ("*" | "/") unary }
//   unary   = "-" unary | number | "B" | "n" digits | "(" sum ")"
//           | function "(" sum { "," sum } ")"
#pragma once

#include "zorse/Base/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zorse {

/// An expression of B, the number of samples of a step, and of its counts n0, n1, .... It is
/// evaluated in f64. Immutable.
class Expression {
public:
  /// Integer division truncates; `mod` has the sign of the divisor; `round` rounds half to even;
  /// `max` and `min` propagate NaN; comparisons give 1 or 0; `where(c, a, b)` is a unless c is 0.
  enum class Op : uint8_t {
    Number,
    Samples,
    Count, // without operands
    Add,
    Subtract,
    Multiply,
    Divide,
    Negate,
    Sqrt,
    Exp,
    Log,
    Log1p,
    Abs,
    Floor,
    Ceil,
    Trunc,
    Round,
    Tanh,
    Sigmoid, // functions of one operand
    Max,
    Min,
    Pow,
    Idiv,
    Mod,
    Eq,
    Less,
    LessEq, // of two
    Where   // of three
  };

  /// Maximum length of the text, and maximum nesting depth of parentheses and functions.
  static constexpr size_t kMaxLength = 16384, kMaxDepth = 256;
  /// Counts are n0 to n63.
  static constexpr uint32_t kMaxCounts = 64;

  /// If `text` is not an expression, the error reports what was expected, and the column.
  static Result<Expression> parse(std::string_view text);

  static Expression number(double value);
  static Expression samples();
  static Expression count(uint32_t index);
  /// Precondition: the number of operands matches the operation.
  static Expression apply(Op op, const std::vector<Expression> &operands);

  /// `parse(print())` is this expression.
  std::string print() const;

  /// Precondition: `counts` contains all counts that occur.
  double evaluate(double samples, const std::vector<double> &counts) const;

  bool usesSamples() const;
  /// The counts that occur, ascending.
  std::vector<uint32_t> counts() const;
  /// Dividend and divisor if the expression is a quotient.
  std::optional<std::pair<Expression, Expression>> quotient() const;
  /// The value if the expression is a single number.
  std::optional<double> constant() const;

  bool operator==(const Expression &other) const;

private:
  struct Node {
    Op op = Op::Number;
    double value = 0;   ///< value of a Number
    uint32_t index = 0; ///< index of a Count
  };
  friend class ExpressionParser;
  std::vector<Node> nodes_; ///< operands precede the operation that reads them
};

} // namespace zorse
