#include "Number.h"

#include "zorse/runtime/Expression.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>

using namespace zorse::onnx_import;

namespace {

constexpr size_t kLongest = 4096; // approximate limit on the characters of a printed number
constexpr size_t kMaxTerms = 16;  // largest number of terms of a product that is expanded
constexpr int kLargestPower = 16;
constexpr double kExactInts = 9007199254740992.0; // 2^53

std::string printDouble(double value) {
  std::array<char, 64> text;
  auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

} // namespace

// --- coefficients

Number::Coefficient Number::Coefficient::of(double value) {
  Coefficient out;
  if (value == std::floor(value) && std::fabs(value) <= kExactInts) {
    out.numerator = static_cast<int64_t>(value);
    return out;
  }
  if (double scaled = value * 1024; scaled == std::floor(scaled) && std::fabs(scaled) < 1e12) {
    const auto numerator = static_cast<int64_t>(scaled);
    const int64_t divisor = std::gcd(numerator, int64_t(1024));
    out.numerator = numerator / divisor;
    out.denominator = 1024 / divisor;
    return out;
  }
  out.real = std::fabs(value);
  out.numerator = value < 0 ? -1 : 1;
  return out;
}

Number::Coefficient Number::Coefficient::inverse() const {
  Coefficient out;
  out.real = 1 / real;
  out.numerator = numerator < 0 ? -denominator : denominator;
  out.denominator = numerator < 0 ? -numerator : numerator;
  return out;
}

Number::Coefficient Number::Coefficient::times(const Coefficient &b) const {
  Coefficient out;
  const int64_t left = std::gcd(numerator, b.denominator),
                right = std::gcd(b.numerator, denominator);
  out.real = real * b.real;
  if (__builtin_mul_overflow(numerator / left, b.numerator / right, &out.numerator) ||
      __builtin_mul_overflow(denominator / right, b.denominator / left, &out.denominator))
    return of(value() * b.value());
  return out;
}

Number::Coefficient Number::Coefficient::plus(const Coefficient &b) const {
  int64_t x = 0, y = 0, sum = 0, denominators = 0;
  if (isExact() && b.isExact() && !__builtin_mul_overflow(numerator, b.denominator, &x) &&
      !__builtin_mul_overflow(b.numerator, denominator, &y) &&
      !__builtin_add_overflow(x, y, &sum) &&
      !__builtin_mul_overflow(denominator, b.denominator, &denominators)) {
    const int64_t divisor = std::max<int64_t>(std::gcd(sum, denominators), 1);
    Coefficient out;
    out.numerator = sum / divisor;
    out.denominator = denominators / divisor;
    return out;
  }
  return of(value() + b.value());
}

// --- sums of terms

std::string Number::Term::key() const {
  std::string key = std::to_string(samples);
  for (auto &[text, power] : powers)
    key += "|" + text + "^" + std::to_string(power.above) + "/" + std::to_string(power.below);
  return key;
}

Number Number::bad() {
  Number out;
  out.invalid = true;
  return out;
}

void Number::add(const Term &term) {
  if (term.coefficient.numerator == 0)
    return;
  auto [found, isNew] = terms.try_emplace(term.key(), term);
  if (isNew)
    return;
  found->second.coefficient = found->second.coefficient.plus(term.coefficient);
  if (found->second.coefficient.value() == 0)
    terms.erase(found);
}

Number::Number(double value) {
  if (!std::isfinite(value)) {
    invalid = true;
    return;
  }
  Term term;
  term.coefficient = Coefficient::of(value);
  add(term);
}

Number Number::samples() {
  Number out;
  Term term;
  term.samples = 1;
  out.add(term);
  return out;
}

Number Number::count(int64_t index) {
  Atom atom;
  atom.count = index;
  atom.text = "n" + std::to_string(index);
  return ofAtom(std::make_shared<Atom>(std::move(atom)));
}

Number Number::ofAtom(const std::shared_ptr<const Atom> &atom, bool inverse) {
  Number out;
  Term term;
  Power power{atom, inverse ? 0 : 1, inverse ? 1 : 0};
  term.powers[atom->text] = std::move(power);
  out.add(term);
  out.invalid = atom->text.size() > kLongest;
  return out;
}

std::shared_ptr<const Number::Atom> Number::makeAtom(const std::string &function,
                                                     std::vector<Number> operands) {
  auto atom = std::make_shared<Atom>();
  atom->function = function;
  atom->text = function + "(";
  for (size_t i = 0; i < operands.size(); ++i)
    atom->text += (i ? ", " : "") + operands[i].print();
  atom->text += ")";
  const auto all = [&](auto test) { return std::all_of(operands.begin(), operands.end(), test); };
  const auto any = [&](auto test) { return std::any_of(operands.begin(), operands.end(), test); };
  const auto positive = [](const Number &x) { return x.isPositive(); };
  const auto nonNegative = [](const Number &x) { return x.isNonNegative(); };
  if (function == "exp" || function == "sigmoid")
    atom->positive = true;
  else if (function == "max")
    atom->positive = any(positive);
  else if (function.empty() || function == "sqrt" || function == "min" || function == "pow" ||
           function == "ceil")
    atom->positive = all(positive);
  const bool isTruth = function == "eq" || function == "less" || function == "less_eq";
  atom->nonNegative =
      atom->positive || isTruth || function == "sqrt" || function == "abs" ||
      (function == "max" && any(nonNegative)) ||
      ((function.empty() || function == "min" || function == "floor" || function == "trunc") &&
       all(nonNegative));
  atom->integer =
      isTruth || function == "floor" || function == "ceil" || function == "trunc" ||
      function == "round" ||
      ((function.empty() || function == "max" || function == "min" || function == "abs") &&
       all([](const Number &x) { return x.isInteger(); }));
  atom->operands = std::move(operands);
  return atom;
}

size_t Number::length() const {
  size_t length = 0;
  for (auto &[key, term] : terms)
    length += key.size() + 8;
  return length;
}

Number Number::grouped() const { return terms.size() < 2 ? *this : ofAtom(makeAtom("", {*this})); }

Number::Term Number::product(const Term &a, const Term &b) {
  Term out = a;
  out.coefficient = a.coefficient.times(b.coefficient);
  out.samples += b.samples;
  for (auto &[text, power] : b.powers) {
    Power &own = out.powers[text];
    own.atom = power.atom;
    own.above += power.above;
    own.below += power.below;
    if (own.atom->positive) {
      const int common = std::min(own.above, own.below);
      own.above -= common;
      own.below -= common;
    }
    if (own.above == 0 && own.below == 0)
      out.powers.erase(text);
  }
  return out;
}

Number Number::inverse() const {
  if (terms.empty())
    return bad();
  if (terms.size() > 1)
    return ofAtom(makeAtom("", {*this}), /*inverse=*/true);
  Term term = terms.begin()->second;
  term.coefficient = term.coefficient.inverse();
  term.samples = -term.samples;
  for (auto &[text, power] : term.powers)
    std::swap(power.above, power.below);
  Number out;
  out.add(term);
  return out;
}

namespace zorse::onnx_import {

Number operator+(const Number &a, const Number &b) {
  Number out = a;
  for (auto &[key, term] : b.terms)
    out.add(term);
  out.invalid = a.invalid || b.invalid || out.length() > kLongest;
  return out;
}

Number operator-(const Number &a, const Number &b) { return a + -b; }

Number operator*(const Number &a, const Number &b) {
  Number out;
  out.invalid = a.invalid || b.invalid;
  if (out.invalid)
    return out;
  if (a.terms.size() > 1 && b.terms.size() > 1 && a.terms.size() * b.terms.size() > kMaxTerms)
    return a.grouped() * b.grouped();
  for (auto &[key, left] : a.terms)
    for (auto &[otherKey, right] : b.terms) {
      Number::Term term = Number::product(left, right);
      if (std::abs(term.samples) > kLargestPower)
        return Number::bad();
      for (auto &[text, power] : term.powers)
        if (power.above > kLargestPower || power.below > kLargestPower)
          return Number::bad();
      out.add(term);
    }
  out.invalid = out.length() > kLongest;
  return out;
}

Number operator/(const Number &a, const Number &b) {
  if (a.invalid || b.invalid)
    return Number::bad();
  if (a.isEqualTo(b) == true && b.isPositive())
    return Number(1.0);
  return a * b.inverse();
}

} // namespace zorse::onnx_import

Number Number::operator-() const {
  Number out = *this;
  for (auto &[key, term] : out.terms)
    term.coefficient.numerator = -term.coefficient.numerator;
  return out;
}

// --- properties of a number

std::optional<double> Number::constant() const {
  if (invalid)
    return std::nullopt;
  if (terms.empty())
    return 0;
  const Term &term = terms.begin()->second;
  if (terms.size() > 1 || term.samples != 0 || !term.powers.empty())
    return std::nullopt;
  return term.coefficient.value();
}

std::optional<int64_t> Number::multipleOfPower(int power) const {
  if (invalid || terms.size() != 1)
    return std::nullopt;
  const Term &term = terms.begin()->second;
  if (term.samples != power || !term.powers.empty() || !term.coefficient.isExact() ||
      term.coefficient.denominator != 1 || term.coefficient.numerator < 1)
    return std::nullopt;
  return term.coefficient.numerator;
}

std::vector<Number::Part> Number::parts() const {
  std::vector<Part> out;
  for (auto &[key, term] : terms) {
    Part part;
    Term rest = term;
    for (auto &[text, power] : term.powers)
      if (part.count < 0 && power.atom->count >= 0 && power.above == 1 && power.below == 0) {
        part.count = power.atom->count;
        rest.powers.erase(text);
      }
    part.factor.add(rest);
    out.push_back(std::move(part));
  }
  return out;
}

std::optional<std::vector<double>> Number::shifted() const {
  if (invalid)
    return std::nullopt;
  int lowest = 0, highest = 0;
  for (auto &[key, term] : terms) {
    if (!term.powers.empty())
      return std::nullopt;
    lowest = std::min(lowest, term.samples);
    highest = std::max(highest, term.samples);
  }
  // Expand (1 + t)^k with binomial coefficients. Sums of doubles are exact if they are integers
  // below 2^53; otherwise nothing is returned.
  int64_t common = 1;
  for (auto &[key, term] : terms)
    if (!term.coefficient.isExact() || common > 1000000 ||
        __builtin_mul_overflow(common / std::gcd(common, term.coefficient.denominator),
                               term.coefficient.denominator, &common)) {
      if (terms.size() == 1)
        return std::vector<double>{term.coefficient.value()}; // B^k is positive
      return std::nullopt;
    }
  std::vector<double> out(static_cast<size_t>(highest - lowest) + 1, 0.0);
  for (auto &[key, term] : terms) {
    const int power = term.samples - lowest;
    const int64_t whole = common / term.coefficient.denominator; // exact division
    double factor = static_cast<double>(term.coefficient.numerator) * static_cast<double>(whole);
    for (int k = 0; k <= power; ++k) {
      out[static_cast<size_t>(k)] += factor;
      if (std::fabs(factor) > kExactInts || std::fabs(out[static_cast<size_t>(k)]) > kExactInts)
        return std::nullopt;
      factor = factor * (power - k) / (k + 1);
    }
  }
  return out;
}

bool Number::isPositive() const {
  if (auto polynomial = shifted())
    return !terms.empty() && polynomial->front() > 0 &&
           std::all_of(polynomial->begin(), polynomial->end(), [](double x) { return x >= 0; });
  bool any = false;
  for (auto &[key, term] : terms) {
    const bool positive = std::all_of(term.powers.begin(), term.powers.end(),
                                      [](auto &entry) { return entry.second.atom->positive; });
    const bool nonNegative = std::all_of(term.powers.begin(), term.powers.end(), [](auto &entry) {
      return entry.second.atom->nonNegative;
    });
    if (!nonNegative || term.coefficient.value() < 0)
      return false;
    any |= positive;
  }
  return any && !invalid;
}

bool Number::isNonNegative() const {
  if (auto polynomial = shifted())
    return std::all_of(polynomial->begin(), polynomial->end(), [](double x) { return x >= 0; });
  return !invalid && std::all_of(terms.begin(), terms.end(), [](auto &entry) {
    const Term &term = entry.second;
    return term.coefficient.value() >= 0 &&
           std::all_of(term.powers.begin(), term.powers.end(),
                       [](auto &power) { return power.second.atom->nonNegative; });
  });
}

bool Number::isInteger() const {
  return !invalid && std::all_of(terms.begin(), terms.end(), [](auto &entry) {
    const Term &term = entry.second;
    return term.coefficient.isExact() && term.coefficient.denominator == 1 && term.samples >= 0 &&
           std::all_of(term.powers.begin(), term.powers.end(), [](auto &power) {
             return power.second.atom->integer && power.second.below == 0;
           });
  });
}

std::optional<bool> Number::isEqualTo(const Number &other) const {
  const Number difference = *this - other;
  if (difference.invalid)
    return std::nullopt;
  if (difference.terms.empty())
    return true;
  if (difference.isPositive() || (-difference).isPositive())
    return false;
  return std::nullopt;
}

std::optional<bool> Number::isLessThan(const Number &other) const {
  const Number difference = other - *this;
  if (difference.isPositive())
    return true;
  if ((-difference).isNonNegative())
    return false;
  return std::nullopt;
}

std::vector<int64_t> Number::counts() const {
  std::set<int64_t> found;
  for (auto &[key, term] : terms)
    for (auto &[text, power] : term.powers) {
      if (power.atom->count >= 0)
        found.insert(power.atom->count);
      for (const Number &operand : power.atom->operands)
        for (int64_t inner : operand.counts())
          found.insert(inner);
    }
  return {found.begin(), found.end()};
}

// --- functions

/// The value of the function at these operands. Nothing if no function has this name and number of
/// operands.
static std::optional<double> valueOf(const std::string &function,
                                     const std::vector<double> &operands) {
  std::string text = function + "(";
  for (size_t i = 0; i < operands.size(); ++i)
    text += (i ? ", " : "") + printDouble(operands[i]);
  auto expression = zorse::Expression::parse(text + ")");
  return expression.failed() ? std::nullopt : std::optional<double>(expression->evaluate(1, {}));
}

std::optional<Number> Number::power(const Number &base, const Number &exponent) {
  auto number = exponent.constant();
  if (!number)
    return std::nullopt;
  if (*number == 0.5)
    return apply("sqrt", {base});
  if (*number == -0.5)
    return Number(1.0) / *apply("sqrt", {base});
  if (*number != std::floor(*number) || std::fabs(*number) > 4)
    return std::nullopt;
  Number out(1.0);
  for (int i = 0; i < static_cast<int>(std::fabs(*number)); ++i)
    out *= base;
  return *number < 0 ? Number(1.0) / out : out;
}

std::optional<Number> Number::folded(const std::string &function, const std::vector<Number> &x) {
  const auto truth = [](std::optional<bool> value) {
    return value ? std::optional<Number>(Number(*value ? 1.0 : 0.0)) : std::nullopt;
  };
  const bool rounds = function == "floor" || function == "ceil" || function == "trunc" ||
                      function == "round";
  if ((rounds && x[0].isInteger()) || (function == "abs" && x[0].isNonNegative()))
    return x[0];
  if (function == "pow")
    return power(x[0], x[1]);
  if (function == "eq")
    return truth(x[0].isEqualTo(x[1]));
  if (function == "less")
    return truth(x[0].isLessThan(x[1]));
  if (function == "less_eq") {
    auto above = x[1].isLessThan(x[0]);
    return truth(above ? std::optional<bool>(!*above) : std::nullopt);
  }
  if (function == "max" || function == "min") {
    const bool largest = function == "max";
    if ((x[0] - x[1]).isNonNegative())
      return largest ? x[0] : x[1];
    if ((x[1] - x[0]).isNonNegative())
      return largest ? x[1] : x[0];
  }
  if (function == "where")
    if (auto condition = x[0].constant())
      return *condition != 0 ? x[1] : x[2];
  return std::nullopt;
}

std::optional<Number> Number::apply(const std::string &function,
                                    const std::vector<Number> &operands) {
  std::vector<double> values;
  bool constant = true;
  for (const Number &operand : operands) {
    if (operand.invalid)
      return bad();
    constant &= operand.isConstant();
    values.push_back(operand.constant().value_or(1));
  }
  auto value = valueOf(function, values);
  if (!value || constant)
    return value ? std::optional<Number>(*value) : std::nullopt;
  if (auto simpler = folded(function, operands))
    return simpler;
  return ofAtom(makeAtom(function, operands));
}

// --- text and value

std::string Number::Term::print(bool &negative) const {
  std::vector<std::string> above, below;
  const auto repeat = [](std::vector<std::string> &list, const std::string &text, int times) {
    if (times > 3)
      list.push_back("pow(" + text + ", " + std::to_string(times) + ")");
    else
      list.insert(list.end(), static_cast<size_t>(std::max(times, 0)), text);
  };
  negative = coefficient.numerator < 0;
  const double size = std::fabs(coefficient.real * static_cast<double>(coefficient.numerator));
  if (size != 1)
    above.push_back(printDouble(size));
  if (coefficient.denominator != 1)
    below.push_back(std::to_string(coefficient.denominator));
  repeat(above, "B", samples);
  repeat(below, "B", -samples);
  for (auto &[text, power] : powers) {
    repeat(above, text, power.above);
    repeat(below, text, power.below);
  }
  const auto joined = [](const std::vector<std::string> &list) {
    std::string text;
    for (const std::string &part : list)
      text += (text.empty() ? "" : "*") + part;
    return text;
  };
  std::string text = above.empty() ? "1" : joined(above);
  if (below.empty())
    return text;
  return text + "/" + (below.size() == 1 ? below[0] : "(" + joined(below) + ")");
}

std::string Number::print() const {
  if (terms.empty())
    return invalid ? "?" : "0";
  // Print powers of B in descending order, as for polynomials.
  std::vector<const Term *> order;
  order.reserve(terms.size());
  for (auto &[key, term] : terms)
    order.push_back(&term);
  std::stable_sort(order.begin(), order.end(),
                   [](const Term *a, const Term *b) { return a->samples > b->samples; });
  std::string text;
  for (const Term *term : order) {
    bool negative = false;
    const std::string part = term->print(negative);
    text += text.empty() ? (negative ? "-" : "") : (negative ? " - " : " + ");
    text += part;
  }
  return text;
}
