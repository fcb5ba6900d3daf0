// Numbers that are known before a step but not during import: functions of B, the number of samples
// of a step, and of counts n0, n1, ... A count is a reduction, over all samples of a step, of
// values computed from inputs alone.
//
// A number is a sum of terms. A term is a coefficient times powers of B and of atoms (counts, and
// functions that cannot be simplified). Coefficients are exact rationals if they fit into int64. B
// is never replaced by a value.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zorse::onnx_import {

class Number {
public:
  Number() = default;      ///< 0
  Number(double value);    // NOLINT(google-explicit-constructor): constants are numbers
  static Number samples(); ///< B
  static Number count(int64_t index);

  friend Number operator+(const Number &a, const Number &b);
  friend Number operator-(const Number &a, const Number &b);
  friend Number operator*(const Number &a, const Number &b);
  friend Number operator/(const Number &a, const Number &b);
  Number operator-() const;
  Number &operator*=(const Number &other) { return *this = *this * other; }
  Number &operator/=(const Number &other) { return *this = *this / other; }

  /// Applies a function of Expression.h. Simplifies the result if that is valid for every B >= 1.
  /// Returns nothing if there is no function with this name.
  static std::optional<Number> apply(const std::string &function,
                                     const std::vector<Number> &operands);

  /// The value, if it depends neither on B nor on counts.
  std::optional<double> constant() const;
  bool isConstant() const { return constant().has_value(); }
  bool is(double value) const { return constant() == value; }
  /// c, if the number is c * B^power with an integer c > 0.
  std::optional<int64_t> multipleOfPower(int power) const;
  /// The summands, each as factor * n_count. `count` is -1 if no count is a factor.
  struct Part;
  std::vector<Part> parts() const;
  /// Whether the property holds for all B >= 1 and all counts; false also if that is not known.
  bool isPositive() const;
  bool isNonNegative() const;
  bool isInteger() const;
  std::optional<bool> isEqualTo(const Number &other) const; ///< nothing if it depends on B or is
                                                            ///< not known
  std::optional<bool> isLessThan(const Number &other) const;
  /// Whether the number can be printed: its text is not too long, it does not divide by zero, and
  /// all its parts are finite.
  bool isValid() const { return !invalid; }
  std::vector<int64_t> counts() const; ///< indices of the counts that occur, in increasing order

  /// Text that zorse::Expression can parse.
  std::string print() const;

private:
  /// real * numerator / denominator
  struct Coefficient {
    double real = 1;
    int64_t numerator = 1, denominator = 1;
    static Coefficient of(double value);
    double value() const {
      return real * static_cast<double>(numerator) / static_cast<double>(denominator);
    }
    bool isExact() const { return real == 1; }
    Coefficient inverse() const;
    Coefficient times(const Coefficient &other) const;
    Coefficient plus(const Coefficient &other) const;
  };
  /// A count, or a function of numbers. The function "" is its operand in parentheses.
  struct Atom {
    int64_t count = -1;
    std::string function;
    std::vector<Number> operands;
    std::string text;
    bool positive = false, nonNegative = false, integer = false;
  };
  /// Powers of an atom in the numerator (above) and the denominator (below). They do not cancel: n0
  /// / n0 is not 1 if n0 is 0.
  struct Power {
    std::shared_ptr<const Atom> atom;
    int above = 0, below = 0;
  };
  struct Term {
    Coefficient coefficient;
    int samples = 0;                     ///< power of B
    std::map<std::string, Power> powers; ///< by the atom's text
    std::string key() const;
    std::string print(bool &negative) const;
  };

  static Number ofAtom(const std::shared_ptr<const Atom> &atom, bool inverse = false);
  static std::shared_ptr<const Atom> makeAtom(const std::string &function,
                                              std::vector<Number> operands);
  static std::optional<Number> folded(const std::string &function,
                                      const std::vector<Number> &operands);
  static std::optional<Number> power(const Number &base, const Number &exponent);
  static Term product(const Term &a, const Term &b);
  void add(const Term &term);
  Number grouped() const;
  Number inverse() const;
  static Number bad();
  /// Coefficients of a polynomial in t = B - 1 that has the same sign as this number, lowest power
  /// first.
  std::optional<std::vector<double>> shifted() const;
  size_t length() const;

  std::map<std::string, Term> terms;
  bool invalid = false;
};

struct Number::Part {
  Number factor;
  int64_t count = -1;
};

} // namespace zorse::onnx_import
