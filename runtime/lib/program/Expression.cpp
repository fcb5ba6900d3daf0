#include "zorse/runtime/Expression.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

using namespace zorse;
using Op = Expression::Op;

namespace {

struct Function {
  std::string_view name;
  Op op;
  int operands;
};

constexpr Function kFunctions[] = {
    {"sqrt", Op::Sqrt, 1},      {"exp", Op::Exp, 1},         {"log", Op::Log, 1},
    {"log1p", Op::Log1p, 1},    {"abs", Op::Abs, 1},         {"floor", Op::Floor, 1},
    {"ceil", Op::Ceil, 1},      {"trunc", Op::Trunc, 1},     {"round", Op::Round, 1},
    {"tanh", Op::Tanh, 1},      {"sigmoid", Op::Sigmoid, 1}, {"max", Op::Max, 2},
    {"min", Op::Min, 2},        {"pow", Op::Pow, 2},         {"idiv", Op::Idiv, 2},
    {"mod", Op::Mod, 2},        {"eq", Op::Eq, 2},           {"less", Op::Less, 2},
    {"less_eq", Op::LessEq, 2}, {"where", Op::Where, 3}};

const Function *functionOf(Op op) {
  const auto *found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                   [&](const Function &f) { return f.op == op; });
  return found == std::end(kFunctions) ? nullptr : found;
}

int operandsOf(Op op) {
  if (const Function *function = functionOf(op))
    return function->operands;
  return op <= Op::Count ? 0 : op == Op::Negate ? 1 : 2;
}

/// Maximum or minimum as in IEEE 754, but NaN if an operand is NaN.
double extreme(double a, double b, bool greatest) {
  if (std::isnan(a) || std::isnan(b))
    return std::numeric_limits<double>::quiet_NaN();
  return greatest ? std::max(a, b) : std::min(a, b);
}

double compute(Op op, const double *x) {
  switch (op) {
  case Op::Add:
    return x[0] + x[1];
  case Op::Subtract:
    return x[0] - x[1];
  case Op::Multiply:
    return x[0] * x[1];
  case Op::Divide:
    return x[0] / x[1];
  case Op::Negate:
    return -x[0];
  case Op::Sqrt:
    return std::sqrt(x[0]);
  case Op::Exp:
    return std::exp(x[0]);
  case Op::Log:
    return std::log(x[0]);
  case Op::Log1p:
    return std::log1p(x[0]);
  case Op::Abs:
    return std::abs(x[0]);
  case Op::Floor:
    return std::floor(x[0]);
  case Op::Ceil:
    return std::ceil(x[0]);
  case Op::Trunc:
    return std::trunc(x[0]);
  case Op::Round:
    return std::nearbyint(x[0]);
  case Op::Tanh:
    return std::tanh(x[0]);
  case Op::Sigmoid:
    return 1 / (1 + std::exp(-x[0]));
  case Op::Max:
    return extreme(x[0], x[1], true);
  case Op::Min:
    return extreme(x[0], x[1], false);
  case Op::Pow:
    return std::pow(x[0], x[1]);
  case Op::Idiv:
    return std::trunc(x[0] / x[1]);
  case Op::Mod:
    return x[0] - std::floor(x[0] / x[1]) * x[1];
  case Op::Eq:
    return x[0] == x[1];
  case Op::Less:
    return x[0] < x[1];
  case Op::LessEq:
    return x[0] <= x[1];
  case Op::Where:
    return x[0] != 0 ? x[1] : x[2];
  case Op::Number:
  case Op::Samples:
  case Op::Count:
    break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

/// Precedence of a printed expression. As an operand of an operator with higher precedence it needs
/// parentheses.
enum Binding { kSum, kProduct, kUnary, kAtom };

Binding bindingOf(Op op) {
  switch (op) {
  case Op::Add:
  case Op::Subtract:
    return kSum;
  case Op::Multiply:
  case Op::Divide:
    return kProduct;
  case Op::Negate:
    return kUnary;
  default:
    return kAtom;
  }
}

/// A minus sign before such a number is part of the number.
bool isPositive(double value) { return !std::isnan(value) && !std::signbit(value); }

std::string inParentheses(const std::string &text) { return "(" + text + ")"; }

} // namespace

namespace zorse {

/// A recursive-descent parser. The depth counts nesting; chains of operators of one kind do not
/// nest.
class ExpressionParser {
public:
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  Result<Expression> parse() {
    Expression result;
    nodes_ = &result.nodes_;
    if (!whole())
      return userError(error_);
    return result;
  }

private:
  bool whole() {
    if (text_.size() > Expression::kMaxLength)
      return fail("expected at most " + std::to_string(Expression::kMaxLength) +
                  " characters, found " + std::to_string(text_.size()));
    return sum() &&
           (at_ == text_.size() || fail("expected an operator or the end, found " + found()));
  }

  bool fail(const std::string &message) {
    error_ = "column " + std::to_string(at_ + 1) + ": " + message;
    return false;
  }

  std::string found() {
    if (at_ >= text_.size())
      return "the end";
    const char c = text_[at_];
    return c > ' ' && c < 127 ? std::string("'") + c + "'"
                              : "character " + std::to_string(static_cast<unsigned char>(c));
  }

  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ')
      ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool take(char c) {
    if (at_ >= text_.size() || peek() != c)
      return false;
    ++at_;
    return true;
  }

  bool add(Op op) {
    nodes_->push_back({op});
    return true;
  }

  bool sum() {
    if (!product())
      return false;
    for (char c = peek(); c == '+' || c == '-'; c = peek()) {
      ++at_;
      if (!product())
        return false;
      add(c == '+' ? Op::Add : Op::Subtract);
    }
    return true;
  }

  bool product() {
    if (!unary())
      return false;
    for (char c = peek(); c == '*' || c == '/'; c = peek()) {
      ++at_;
      if (!unary())
        return false;
      add(c == '*' ? Op::Multiply : Op::Divide);
    }
    return true;
  }

  bool unary() {
    if (!take('-'))
      return atom();
    if (++depth_ > Expression::kMaxDepth)
      return fail("nested more than " + std::to_string(Expression::kMaxDepth) + " deep");
    const size_t before = nodes_->size();
    if (!unary())
      return false;
    --depth_;
    if (nodes_->size() == before + 1 && isPositive(nodes_->back().value) &&
        nodes_->back().op == Op::Number)
      nodes_->back().value = -nodes_->back().value;
    else
      add(Op::Negate);
    return true;
  }

  bool atom() {
    const char c = peek();
    if (take('('))
      return nested() && (take(')') || fail("expected ')', found " + found()));
    if ((c >= '0' && c <= '9') || c == '.')
      return number();
    if (c >= 'a' && c <= 'z')
      return name();
    if (take('B'))
      return add(Op::Samples);
    return fail("expected a number, B, a count such as n0, a function or '(', found " + found());
  }

  bool nested() {
    if (++depth_ > Expression::kMaxDepth)
      return fail("nested more than " + std::to_string(Expression::kMaxDepth) + " deep");
    if (!sum())
      return false;
    --depth_;
    return true;
  }

  bool number() {
    double value = 0;
    const char *begin = text_.data() + at_;
    auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (code == std::errc::result_out_of_range)
      return fail("expected a number that a double holds, found '" + std::string(begin, end) + "'");
    if (code != std::errc())
      return fail("expected a number, found " + found());
    at_ += size_t(end - begin);
    nodes_->push_back({Op::Number, value});
    return true;
  }

  bool name() {
    const size_t begin = at_;
    while (at_ < text_.size() && ((text_[at_] >= 'a' && text_[at_] <= 'z') ||
                                  (text_[at_] >= '0' && text_[at_] <= '9') || text_[at_] == '_'))
      ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name == "inf" || name == "nan") {
      nodes_->push_back({Op::Number, name == "inf" ? std::numeric_limits<double>::infinity()
                                                   : std::numeric_limits<double>::quiet_NaN()});
      return true;
    }
    if (name.size() > 1 && name[0] == 'n' &&
        std::all_of(name.begin() + 1, name.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return count(begin, name);
    const auto *function = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                        [&](const Function &f) { return f.name == name; });
    if (function == std::end(kFunctions)) {
      at_ = begin;
      return fail("expected a count such as n0 or a function such as sqrt, found '" +
                  std::string(name) + "'");
    }
    return operands(*function);
  }

  bool count(size_t begin, std::string_view name) {
    uint32_t index = 0;
    auto [end, code] = std::from_chars(name.data() + 1, name.data() + name.size(), index);
    const bool leadingZero = name.size() > 2 && name[1] == '0';
    if (code != std::errc() || end != name.data() + name.size() ||
        index >= Expression::kMaxCounts || leadingZero) {
      at_ = begin;
      return fail("expected a count from n0 to n" + std::to_string(Expression::kMaxCounts - 1) +
                  ", found '" + std::string(name) + "'");
    }
    nodes_->push_back({Op::Count, 0, index});
    return true;
  }

  bool operands(const Function &function) {
    if (!take('('))
      return fail("expected '(' behind '" + std::string(function.name) + "', found " + found());
    for (int i = 0; i < function.operands; ++i) {
      if (i > 0 && !take(','))
        return fail("expected ',': '" + std::string(function.name) + "' has " +
                    std::to_string(function.operands) + " operands; found " + found());
      if (!nested())
        return false;
    }
    return take(')') ? add(function.op)
                     : fail("expected ')' behind the operands of '" + std::string(function.name) +
                            "', found " + found());
  }

  std::string_view text_;
  std::string error_;
  size_t at_ = 0, depth_ = 0;
  std::vector<Expression::Node> *nodes_ = nullptr;
};

} // namespace zorse

Result<Expression> Expression::parse(std::string_view text) {
  return ExpressionParser(text).parse();
}

Expression Expression::number(double value) {
  Expression result;
  result.nodes_.push_back({Op::Number, value});
  return result;
}

Expression Expression::samples() {
  Expression result;
  result.nodes_.push_back({Op::Samples});
  return result;
}

Expression Expression::count(uint32_t index) {
  assert(index < kMaxCounts);
  Expression result;
  result.nodes_.push_back({Op::Count, 0, index});
  return result;
}

Expression Expression::apply(Op op, const std::vector<Expression> &operands) {
  assert(int(operands.size()) == operandsOf(op));
  Expression result;
  for (const Expression &operand : operands)
    result.nodes_.insert(result.nodes_.end(), operand.nodes_.begin(), operand.nodes_.end());
  if (std::optional<double> value = op == Op::Negate ? result.constant() : std::nullopt;
      value && isPositive(*value))
    return number(-*value);
  result.nodes_.push_back({op});
  return result;
}

static std::string printNumber(double value) {
  if (std::isnan(value))
    return "nan";
  char text[64];
  auto [end, code] = std::to_chars(std::begin(text), std::end(text), value);
  assert(code == std::errc());
  return {std::begin(text), end};
}

std::string Expression::print() const {
  std::vector<std::pair<std::string, Binding>> stack;
  for (const Node &node : nodes_) {
    if (node.op == Op::Number) {
      const bool negative = std::signbit(node.value) && !std::isnan(node.value);
      stack.emplace_back(printNumber(node.value), negative ? kUnary : kAtom);
      continue;
    }
    if (node.op == Op::Samples || node.op == Op::Count) {
      stack.emplace_back(node.op == Op::Samples ? "B" : "n" + std::to_string(node.index), kAtom);
      continue;
    }
    const auto operands = stack.end() - operandsOf(node.op);
    const Binding binding = bindingOf(node.op);
    std::string text;
    if (const Function *function = functionOf(node.op)) {
      for (auto operand = operands; operand != stack.end(); ++operand)
        text += (text.empty() ? "" : ", ") + operand->first;
      text = std::string(function->name) + inParentheses(text);
    } else if (node.op == Op::Negate) {
      text = "-" + (operands->second < kAtom ? inParentheses(operands->first) : operands->first);
    } else {
      static constexpr const char *kSigns[] = {" + ", " - ", "*", "/"};
      const auto &left = operands[0], &right = operands[1];
      text = (left.second < binding ? inParentheses(left.first) : left.first) +
             kSigns[int(node.op) - int(Op::Add)] +
             (right.second <= binding || right.second == kUnary ? inParentheses(right.first)
                                                                : right.first);
    }
    stack.erase(operands, stack.end());
    stack.emplace_back(std::move(text), binding);
  }
  return stack.empty() ? "" : stack.back().first;
}

double Expression::evaluate(double samples, const std::vector<double> &counts) const {
  std::vector<double> stack;
  for (const Node &node : nodes_) {
    if (node.op <= Op::Count) {
      assert(node.op != Op::Count || node.index < counts.size());
      stack.push_back(node.op == Op::Number    ? node.value
                      : node.op == Op::Samples ? samples
                                               : counts[node.index]);
      continue;
    }
    const size_t first = stack.size() - size_t(operandsOf(node.op));
    const double value = compute(node.op, &stack[first]);
    stack.resize(first);
    stack.push_back(value);
  }
  return stack.empty() ? std::numeric_limits<double>::quiet_NaN() : stack.back();
}

bool Expression::usesSamples() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [](const Node &node) { return node.op == Op::Samples; });
}

std::vector<uint32_t> Expression::counts() const {
  std::vector<uint32_t> result;
  for (const Node &node : nodes_)
    if (node.op == Op::Count)
      result.push_back(node.index);
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::optional<std::pair<Expression, Expression>> Expression::quotient() const {
  if (nodes_.empty() || nodes_.back().op != Op::Divide)
    return std::nullopt;
  // The divisor is the shortest suffix before the operation that evaluates to one value.
  size_t begin = nodes_.size() - 1;
  for (int missing = 1; missing > 0;) {
    --begin;
    missing += operandsOf(nodes_[begin].op) - 1;
  }
  std::pair<Expression, Expression> result;
  result.first.nodes_.assign(nodes_.begin(), nodes_.begin() + ptrdiff_t(begin));
  result.second.nodes_.assign(nodes_.begin() + ptrdiff_t(begin), nodes_.end() - 1);
  return result;
}

std::optional<double> Expression::constant() const {
  if (nodes_.size() != 1 || nodes_[0].op != Op::Number)
    return std::nullopt;
  return nodes_[0].value;
}

static uint64_t bitsOf(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

bool Expression::operator==(const Expression &other) const {
  return std::equal(nodes_.begin(), nodes_.end(), other.nodes_.begin(), other.nodes_.end(),
                    [](const Node &a, const Node &b) {
                      return a.op == b.op && a.index == b.index &&
                             bitsOf(a.value) == bitsOf(b.value);
                    });
}
