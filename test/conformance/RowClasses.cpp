// Kernels with sums over rows: norms, softmaxes, losses, and their gradients.
#include "Cases.h"

using namespace zorse::conformance;

namespace {

std::string sized(int64_t rows, std::initializer_list<int64_t> sizes) {
  std::string text = std::to_string(rows) + " rows of";
  const char *before = " ";
  for (int64_t size : sizes) {
    text += before + std::to_string(size);
    before = " x ";
  }
  return text;
}

/// Above 32,768 columns, a block's part of a row does not fit in its registers.
struct Rows {
  int64_t columns, lead, rows;
  explicit Rows(Sizes &sizes)
      : columns(sizes.columns()), lead(sizes.lead()), rows(sizes.rows(columns)) {
    if (sizes.index == 10 || sizes.index == 17) // one with only whole vectors, and one with single
                                                // elements
      columns = sizes.index == 10 ? 40000 : 33001, lead = 1, rows = 2;
  }
  std::string text() const { return sized(rows, {lead, columns}); }
  /// X: vectors; S: one number per vector; C: one vector.
  Text begin(const std::string &type) const {
    Text t(type);
    t.shape('X', {-1, lead, columns}).shape('S', {-1, lead}).shape('C', {columns});
    return t;
  }
};

Case layerNorm(Sizes &sizes, const std::string &type) {
  Rows r(sizes);
  Text t = r.begin(type);
  t.in("%x", 'X').wideIn("%g", 'C').wideIn("%b", 'C');
  t.line("%y, %m, %r = zorse.layer_norm %x weight %g bias %b {epsilon = 1.0e-5 : f64} : ($X, $C, "
         "$C) -> ($X, $S, $S)");
  t.out("%y", 'X').wideOut("%m", 'S').wideOut("%r", 'S');
  return {t.str(), r.rows, r.text()};
}

Case layerNormGradient(Sizes &sizes, const std::string &type) {
  Rows r(sizes);
  Text t = r.begin(type);
  t.in("%x", 'X').in("%d", 'X').wideIn("%g", 'C');
  t.line("%y, %m, %r = zorse.layer_norm %x weight %g {epsilon = 1.0e-3 : f64} : ($X, $C) -> ($X, "
         "$S, $S)");
  t.line("%dx = zorse.layer_norm_grad_input %d, %x, %m, %r weight %g : ($X, $X, $S, $S, $C) -> $X");
  t.out("%dx", 'X');
  return {t.str(), r.rows, r.text()};
}

Case rmsNorm(Sizes &sizes, const std::string &type) {
  Rows r(sizes);
  Text t = r.begin(type);
  t.in("%x", 'X').wideIn("%g", 'C').line(
      "%y, %r = zorse.rms_norm %x weight %g {epsilon = 1.0e-6 : f64} : ($X, $C) -> ($X, $S)");
  t.out("%y", 'X').wideOut("%r", 'S');
  return {t.str(), r.rows, r.text()};
}

Case rmsNormGradient(Sizes &sizes, const std::string &type) {
  Rows r(sizes);
  Text t = r.begin(type);
  t.in("%x", 'X').in("%d", 'X').wideIn("%g", 'C');
  t.line("%y, %r = zorse.rms_norm %x weight %g {epsilon = 1.0e-3 : f64} : ($X, $C) -> ($X, $S)");
  t.line("%dx = zorse.rms_norm_grad_input %d, %x, %r weight %g : ($X, $X, $S, $C) -> $X");
  t.out("%dx", 'X');
  return {t.str(), r.rows, r.text()};
}

/// \param op  softmax or log_softmax
Case softmax(Sizes &sizes, const std::string &type, const std::string &op) {
  Rows r(sizes);
  Text t = r.begin(type);
  t.in("%x", 'X').line("%y = zorse." + op + " %x : $X").out("%y", 'X');
  return {t.str(), r.rows, r.text()};
}

Case softmaxGradient(Sizes &sizes, const std::string &type, const std::string &op) {
  Rows r(sizes);
  Text t = r.begin(type);
  t.in("%x", 'X')
      .in("%d", 'X')
      .line("%y = zorse." + op + " %x : $X")
      .line("%dx = zorse." + op + "_grad %y, %d : $X")
      .out("%dx", 'X');
  return {t.str(), r.rows, r.text()};
}

/// Vocabulary sizes: those of the list, those of real models, and irregular ones.
struct Vocabulary {
  int64_t size, tokens, rows;
  explicit Vocabulary(Sizes &sizes) {
    static const int64_t large[] = {50257, 32003, 65536, 40009, 8191};
    const int at = sizes.index - 3;
    size = at >= 0 && at < 5 ? large[at] : sizes.columns(at % 2 ? 4100 : 9000);
    tokens = size > 5000 ? 1 : sizes.lead();
    rows = size > 5000 ? 2 : sizes.rows(size);
  }
  Text begin(const std::string &type) const {
    Text t(type);
    t.shape('X', {-1, tokens, size})
        .shape('S', {-1, tokens})
        .shape('P', {-1, tokens, 2})
        .shape('C', {size});
    return t;
  }
  std::string ids() const { return "tensor<?x" + std::to_string(tokens) + "xi64>"; }
};

Case crossEntropy(Sizes &sizes, const std::string &type) {
  Vocabulary v(sizes);
  const bool weights = sizes.index % 3 == 1;
  Text t = v.begin(type);
  t.in("%x", 'X').ids("%l", 'S', -1, v.size);
  if (weights)
    t.wideIn("%w", 'C');
  t.line("%y, %e = zorse.cross_entropy %x, %l" + std::string(weights ? " weights %w" : "") +
         " {ignore_index = -1 : i64} : ($X, " + v.ids() + (weights ? ", $C" : "") +
         ") -> ($S, $P)");
  t.wideOut("%y", 'S').wideOut("%e", 'P');
  return {t.str(), v.rows, sized(v.rows, {v.tokens, v.size})};
}

Case crossEntropyGradient(Sizes &sizes, const std::string &type) {
  Vocabulary v(sizes);
  const bool weights = sizes.index % 3 == 1;
  const std::string with = weights ? " weights %w" : "", more = weights ? ", $C" : "";
  Text t = v.begin(type);
  t.in("%x", 'X').ids("%l", 'S', -1, v.size).wideIn("%d", 'S');
  if (weights)
    t.wideIn("%w", 'C');
  t.line("%y, %e = zorse.cross_entropy %x, %l" + with + " {ignore_index = -1 : i64} : ($X, " +
         v.ids() + more + ") -> ($S, $P)");
  t.line("%dx = zorse.cross_entropy_grad %d, %x, %l, %e" + with +
         " {ignore_index = -1 : i64} : ($S, $X, " + v.ids() + ", $P" + more + ") -> $X");
  t.out("%dx", 'X');
  return {t.str(), v.rows, sized(v.rows, {v.tokens, v.size})};
}

} // namespace

void zorse::conformance::addRowClasses(std::vector<KernelClass> &classes) {
  classes.push_back({"layer norm", layerNorm});
  classes.push_back({"layer norm, gradient", layerNormGradient});
  classes.push_back({"rms norm", rmsNorm});
  classes.push_back({"rms norm, gradient", rmsNormGradient});
  for (const char *op : {"softmax", "log_softmax"}) {
    const bool logarithm = std::string(op) != "softmax";
    classes.push_back({logarithm ? "log-softmax" : "softmax",
                       [op](Sizes &s, const std::string &type) { return softmax(s, type, op); }});
    classes.push_back(
        {logarithm ? "log-softmax, gradient" : "softmax, gradient",
         [op](Sizes &s, const std::string &type) { return softmaxGradient(s, type, op); }});
  }
  classes.push_back({"cross-entropy", crossEntropy});
  classes.push_back({"cross-entropy, gradient", crossEntropyGradient});
}
