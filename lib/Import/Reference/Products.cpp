// Matmuls and other tensor contractions: MatMul, Gemm, Einsum, Conv.
#include "Call.h"

#include <algorithm>
#include <map>

using namespace zorse::onnx_reference;

namespace {

bool onMatMul(Call &call) {
  const Array *left = call.in(0), *right = call.in(1);
  if (!call.floats({0, 1}) || left->rank() < 1 || right->rank() < 1)
    return false;
  Array a = *left, b = *right;
  if (a.rank() == 1)
    a.shape.insert(a.shape.begin(), 1);
  if (b.rank() == 1)
    b.shape.push_back(1);
  const int64_t m = a.shape[a.rank() - 2], k = a.shape.back(), n = b.shape.back();
  Shape batch;
  const Shape batchA(a.shape.begin(), a.shape.end() - 2),
      batchB(b.shape.begin(), b.shape.end() - 2);
  if (b.shape[b.rank() - 2] != k || !broadcast(batchA, batchB, batch))
    return call.fail("multiplies " + text(left->shape) + " by " + text(right->shape));
  Shape shape = batch;
  if (left->rank() > 1)
    shape.push_back(m);
  if (right->rank() > 1)
    shape.push_back(n);
  Array y = Array::of(left->type, shape);
  int64_t to = 0;
  walk<2>(batch, {stridesOnto(batchA, batch), stridesOnto(batchB, batch)},
          [&](const std::array<int64_t, 2> &at) {
            double *out = &y.reals[to];
            for (int64_t i = 0; i < m; ++i)
              for (int64_t l = 0; l < k; ++l) {
                const double factor = a.reals[at[0] * m * k + i * k + l];
                for (int64_t j = 0; j < n; ++j)
                  out[i * n + j] += factor * b.reals[at[1] * k * n + l * n + j];
              }
            to += m * n;
          });
  return call.out(std::move(y));
}

bool onGemm(Call &call) {
  const Array *left = call.in(0), *right = call.in(1), *c = call.in(2);
  if (!call.floats({0, 1}) || left->rank() != 2 || right->rank() != 2)
    return call.fail("expects matrices");
  const Array a = call.integer("transA", 0) ? transposed(*left, {1, 0}) : *left,
              b = call.integer("transB", 0) ? transposed(*right, {1, 0}) : *right;
  const double alpha = call.real("alpha", 1), beta = call.real("beta", 1);
  if (a.shape[1] != b.shape[0])
    return call.fail("multiplies " + text(a.shape) + " by " + text(b.shape));
  const int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  Array y = Array::of(a.type, {m, n});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j)
        y.reals[i * n + j] += alpha * a.reals[i * k + l] * b.reals[l * n + j];
  if (!c)
    return call.out(std::move(y));
  Shape shape;
  if (!call.floats({2}) || !broadcast(c->shape, y.shape, shape) || shape != y.shape)
    return call.fail("adds another shape");
  int64_t i = 0;
  walk<1>(y.shape, {stridesOnto(c->shape, y.shape)},
          [&](const std::array<int64_t, 1> &at) { y.reals[i++] += beta * c->reals[at[0]]; });
  return call.out(std::move(y));
}

/// The label of the axis number `i` from the right among those of `...`; no letter is one of them.
char hiddenLabel(int64_t i) { return static_cast<char>(i + 1); }

bool isHidden(char label) { return label < 'A'; }

/// One label per axis; `...` becomes hidden labels, counted from the right.
std::string letters(const std::string &term, int64_t rank) {
  const size_t dots = term.find("...");
  if (dots == std::string::npos)
    return term;
  std::string hidden;
  for (int64_t i = rank - static_cast<int64_t>(term.size()) + 3; i > 0; --i)
    hidden += hiddenLabel(i - 1);
  return term.substr(0, dots) + hidden + term.substr(dots + 3);
}

std::vector<std::string> split(const std::string &text) {
  std::vector<std::string> parts(1);
  for (char c : text)
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

struct Equation {
  std::vector<std::string> terms;
  std::string result, all; ///< `all`: letters of the result, then summed letters
  std::map<char, int64_t> sizes;

  Shape shapeOf(const std::string &letters) const {
    Shape shape;
    for (char letter : letters)
      shape.push_back(sizes.at(letter));
    return shape;
  }
  /// Strides, over `all`, of an array with axes `term`.
  Shape stepsOf(const std::string &term, const Shape &own) const {
    const Shape strides = stridesOf(own);
    Shape steps(all.size(), 0);
    for (size_t i = 0; i < term.size(); ++i)
      steps[all.find(term[i])] += own[i] == 1 ? 0 : strides[i];
    return steps;
  }
};

/// Finds the sizes of all letters. `hidden`: number of axes of `...`.
bool readTerms(Call &call, Equation &equation, int64_t &hidden) {
  for (size_t k = 0; k < equation.terms.size(); ++k) {
    if (!call.floats({k}))
      return false;
    std::string &term = equation.terms[k];
    term = letters(term, call.in(k)->rank());
    if (static_cast<int64_t>(term.size()) != call.in(k)->rank())
      return call.fail("has a term of another rank");
    for (size_t i = 0; i < term.size(); ++i) {
      int64_t &size = equation.sizes.try_emplace(term[i], 1).first->second;
      if (size != 1 && call.in(k)->shape[i] != 1 && size != call.in(k)->shape[i])
        return call.fail("has a letter of two sizes");
      size = std::max(size, call.in(k)->shape[i]);
      hidden = std::max<int64_t>(hidden, isHidden(term[i]) ? term[i] : 0);
    }
  }
  return true;
}

/// The letters that occur once, in alphabetical order. In an implicit result they follow the axes
/// of `...`.
std::string implied(const Equation &equation) {
  std::map<char, int> uses;
  for (const std::string &term : equation.terms)
    for (char letter : term)
      ++uses[letter];
  std::string result;
  for (auto &[letter, count] : uses)
    if (count == 1 && !isHidden(letter))
      result += letter;
  return result;
}

bool onEinsum(Call &call) {
  std::string text = call.string("equation", "");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const size_t arrow = text.find("->");
  Equation equation;
  equation.terms = split(text.substr(0, arrow));
  int64_t hidden = 0;
  if (equation.terms.size() != call.inputs.size() || equation.terms.size() > 2)
    return call.fail("expects one or two operands");
  if (!readTerms(call, equation, hidden))
    return false;
  const std::string right = arrow == std::string::npos ? "..." + implied(equation)
                                                       : text.substr(arrow + 2);
  equation.result = letters(right, static_cast<int64_t>(right.size()) - 3 + hidden);
  equation.all = equation.result;
  for (auto &[letter, size] : equation.sizes)
    if (equation.all.find(letter) == std::string::npos)
      equation.all += letter;
  for (char letter : equation.result)
    if (!equation.sizes.count(letter))
      return call.fail("yields a letter that no operand has");
  Array y = Array::of(call.in(0)->type, equation.shapeOf(equation.result));
  const bool two = equation.terms.size() > 1;
  const Array &a = *call.in(0), one = Array::ofReals({}, {1}), &b = two ? *call.in(1) : one;
  walk<3>(
      equation.shapeOf(equation.all),
      {equation.stepsOf(equation.result, y.shape), equation.stepsOf(equation.terms[0], a.shape),
       equation.stepsOf(two ? equation.terms[1] : "", b.shape)},
      [&](const std::array<int64_t, 3> &at) { y.reals[at[0]] += a.reals[at[1]] * b.reals[at[2]]; });
  return call.out(std::move(y));
}

struct Window {
  std::vector<int64_t> kernel, strides, dilations, pads;
};

bool readWindow(Call &call, const Array &x, const Array &w, Window &window) {
  const auto dims = static_cast<size_t>(x.rank() - 2);
  window.kernel.assign(w.shape.begin() + 2, w.shape.end());
  window.strides = call.integers("strides").value_or(std::vector<int64_t>(dims, 1));
  window.dilations = call.integers("dilations").value_or(std::vector<int64_t>(dims, 1));
  window.pads = call.integers("pads").value_or(std::vector<int64_t>(2 * dims, 0));
  const std::string automatic = call.string("auto_pad", "NOTSET");
  return (automatic == "NOTSET" || automatic == "VALID") || call.fail("has automatic padding");
}

bool onConv(Call &call) {
  const Array *x = call.in(0), *w = call.in(1), *bias = call.in(2);
  Window window;
  if (!call.floats({0, 1}) || x->rank() < 3 || w->rank() != x->rank() ||
      !readWindow(call, *x, *w, window))
    return false;
  const auto dims = static_cast<size_t>(x->rank() - 2);
  const int64_t groups = call.integer("group", 1), outs = w->shape[0], ins = w->shape[1];
  if (groups < 1 || outs % groups != 0 || ins * groups != x->shape[1] ||
      window.strides.size() != dims || window.dilations.size() != dims ||
      window.pads.size() != 2 * dims || (bias && (!bias->isFloat() || bias->size() != outs)))
    return call.fail("its operands have other shapes");
  Shape shape{x->shape[0], outs}, spatial, kernel = window.kernel;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t reach = (kernel[d] - 1) * window.dilations[d] + 1;
    spatial.push_back(
        (x->shape[d + 2] + window.pads[d] + window.pads[d + dims] - reach) / window.strides[d] + 1);
    shape.push_back(spatial.back());
  }
  Array y = Array::of(x->type, shape);
  const Shape at = stridesOf(spatial), in = stridesOf(x->shape), tap = stridesOf(kernel);
  const int64_t places = product(spatial), taps = product(kernel), inside = product(x->shape, 2);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t place = i % places, o = i / places % outs, n = i / places / outs,
                  group = o / (outs / groups);
    double sum = bias ? bias->reals[o] : 0;
    for (int64_t t = 0; t < taps; ++t) {
      int64_t from = 0;
      bool outside = false;
      for (size_t d = 0; d < dims; ++d) {
        const int64_t p = place / at[d] % spatial[d] * window.strides[d] +
                          t / tap[d] % kernel[d] * window.dilations[d] - window.pads[d];
        outside |= p < 0 || p >= x->shape[d + 2];
        from += p * in[d + 2];
      }
      for (int64_t c = 0; c < ins && !outside; ++c)
        sum += x->reals[(n * x->shape[1] + group * ins + c) * inside + from] *
               w->reals[(o * ins + c) * taps + t];
    }
    y.reals[i] = sum;
  }
  return call.out(std::move(y));
}

} // namespace

void zorse::onnx_reference::addProducts(OperatorMap &map) {
  map["MatMul"] = onMatMul;
  map["Gemm"] = onGemm;
  map["Einsum"] = onEinsum;
  map["Conv"] = onConv;
}
