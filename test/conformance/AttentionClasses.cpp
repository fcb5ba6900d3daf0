// Attention and its gradient, as matmuls, softmaxes and copies, and separate matmuls.
//
// Cases for tensor cores have head sizes that are multiples of 8 and values with the size of keys,
// and need several tiles. The other cases use the code for GPUs and types without tensor cores, or
// a mix of both.
#include "Cases.h"

#include <utility>

using namespace zorse::conformance;

namespace {

struct Attention {
  int64_t rows, queries, keys, heads, keyHeads, size, valueSize;
  std::string attributes, mask, maskType, shapeText;
  char maskShape = 0; ///< 'M': floats, 'B': booleans

  /// A case for tensor cores: sizes close to those of tiles, many keys, and every kind of mask.
  static Attention forTensorCores(Sizes &s, Text &t) {
    Attention a;
    a.size = s.inTurn({64,  128, 80, 96,  256, 32, 8,   16, 64, 128, 40, 72,
                       104, 200, 64, 128, 80,  96, 256, 24, 64, 128, 64, 136});
    a.queries = s.oneOf(
        {1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 95, 96, 97, 127, 128, 129, 160, 191, 200});
    if (a.size > 100)
      a.queries = std::min<int64_t>(a.queries, 129);
    const int kind = (s.index + s.index / 8) % 8;
    a.keys = a.queries + s.oneOf({0, 0, 1, 31, 64, 70});
    if (kind == 0 || kind == 5)
      a.keys = s.oneOf({1, 16, 31, 32, 33, 64, 100, 129});
    a.keyHeads = s.oneOf({1, 2}), a.heads = a.keyHeads * s.oneOf({1, 1, 2, 3});
    a.valueSize = a.size;
    a.rows = a.queries > 100 ? 1 : s.oneOf({1, 2});
    a.finish(s, t, kind);
    return a;
  }

  static Attention anyOther(Sizes &s, Text &t) {
    Attention a;
    a.size = s.inTurn({1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 33, 64, 65, 80, 128});
    a.queries = s.oneOf({1, 2, 3, 5, 7, 8, 9, 15, 17, 31, 33});
    if (a.size > 40)
      a.queries = std::min<int64_t>(a.queries, 9);
    const int kind = s.index % 8;
    a.keys = kind == 0 || kind == 5 || kind == 6 ? a.queries + s.oneOf({0, 1, 4})
                                                 : a.queries + (kind == 2 ? s.below(3) : 0);
    a.keyHeads = s.oneOf({1, 2}),
    a.heads = a.keyHeads * (kind == 3 || s.below(2) ? s.oneOf({2, 3}) : 1);
    a.valueSize = s.below(3) ? a.size : s.oneOf({1, 4, 9});
    a.rows = s.oneOf({1, 2, 3});
    a.finish(s, t, kind);
    return a;
  }

private:
  Attention() = default;

  void finish(Sizes &s, Text &t, int kind) {
    attributes = "scale = " + std::string(size > 40 ? "0.11" : "0.35") + " : f64";
    if (kind == 1 || kind == 2 || kind == 3 || kind == 7)
      attributes += ", causal";
    if (kind == 2)
      attributes += ", window = " + std::to_string(1 + s.below(queries)) + " : i64";
    if (kind == 4 || kind == 6)
      attributes += ", softcap = 3.0 : f64";
    if (kind == 7)
      attributes += ", dropout = 0.2 : f64, rng_id = 2 : i64";
    t.shape('Q', {-1, queries, heads, size})
        .shape('K', {-1, keys, keyHeads, size})
        .shape('V', {-1, keys, keyHeads, valueSize});
    t.shape('O', {-1, queries, heads, valueSize});
    if (kind == 6) // an additive mask: a maximum score and a sum
      t.shape('L', {-1, heads, queries, 2});
    else
      t.shape('L', {-1, heads, queries});
    t.narrowIn("%q", 'Q').narrowIn("%k", 'K').narrowIn("%v", 'V');
    const int64_t maskHeads = s.below(2) ? heads : 1;
    if (kind == 5) { // booleans: some queries have no visible key
      t.shape('B', {-1, maskHeads, queries, keys});
      maskType = "tensor<?x" + std::to_string(maskHeads) + "x" + std::to_string(queries) + "x" +
                 std::to_string(keys) + "xi1>";
      t.argument("%m: " + maskType + " {@@input0}");
    } else if (kind == 6 && s.below(2)) {
      t.shape('M', {1, maskHeads, queries, keys}).narrowIn("%m", 'M');
      maskType = "#M";
    } else if (kind == 6) { // mask values absorb the scores; some queries are fully masked
      const std::string hides = t.storage() == "f16" ? "-6.0e4" : "-3.0e38";
      const std::string conditions = "tensor<1x" + std::to_string(maskHeads) + "x" +
                                     std::to_string(queries) + "x" + std::to_string(keys) + "xi1>";
      t.shape('M', {1, maskHeads, queries, keys})
          .shape('C', {1, maskHeads, queries})
          .narrowIn("%m0", 'M')
          .narrowIn("%c0", 'C');
      t.line("%none = arith.constant dense<0.0> : #M")
          .line("%hides = arith.constant dense<" + hides + "> : #M");
      t.line("%four = arith.constant dense<4.0> : #C")
          .line("%c = arith.mulf %c0, %four : #C")
          .line("%of = zorse.broadcast %c dims [0, 1, 2] : #C -> #M");
      t.line("%both = arith.addf %m0, %of : #M").line("%open = arith.cmpf ogt, %both, %none : #M");
      t.line("%m = arith.select %open, %none, %hides : " + conditions + ", #M");
      maskType = "#M";
    }
    mask = maskType.empty() ? "" : " mask %m";
    shapeText = std::to_string(rows) + " rows, " + std::to_string(queries) + " queries, " +
                std::to_string(keys) + " keys, " + std::to_string(heads) + "/" +
                std::to_string(keyHeads) + " heads of " + std::to_string(size) + " and " +
                std::to_string(valueSize) + ", " + attributes + mask;
  }

public:
  std::string more() const { return maskType.empty() ? "" : ", " + maskType; }

  void forward(Text &t) const {
    t.line("%o, %l = zorse.attention %q, %k, %v" + mask + " {" + attributes + "} : (#Q, #K, #V" +
           more() + ") -> (#O, $L)");
  }
};

using MakeAttention = Attention (*)(Sizes &, Text &);

template <MakeAttention make> Case attention(Sizes &sizes, const std::string &type) {
  Text t(type);
  const Attention a = make(sizes, t);
  a.forward(t);
  t.narrowOut("%o", 'O').wideOut("%l", 'L');
  return {t.str(), a.rows, a.shapeText};
}

template <MakeAttention make> Case attentionGradient(Sizes &sizes, const std::string &type) {
  Text t(type);
  const Attention a = make(sizes, t);
  t.narrowIn("%do", 'O');
  a.forward(t);
  const bool wide = sizes.index % 3 == 2; // f32 gradients of half-precision operands
  t.line("%dq, %dk, %dv = zorse.attention_grad %do, %q, %k, %v, %o, %l" + a.mask + " {" +
         a.attributes + "} : (#O, #Q, #K, #V, #O, $L" + a.more() + ") -> " +
         (wide ? "($Q, $K, $V)" : "(#Q, #K, #V)"));
  for (auto [value, shape] : {std::pair("%dq", 'Q'), {"%dk", 'K'}, {"%dv", 'V'}})
    wide ? t.wideOut(value, shape) : t.narrowOut(value, shape);
  return {t.str(), a.rows, a.shapeText};
}

/// Both orders of both operands, weights and their gradients, f32 and low-precision results.
Case products(Sizes &sizes, const std::string &type) {
  const int64_t n = sizes.columns(300), k = sizes.oneOf({1, 2, 3, 5, 8, 31, 33, 64, 100, 257}),
                lead = sizes.lead(), rows = sizes.rows(n);
  Text t(type);
  t.shape('X', {-1, lead, k})
      .shape('W', {k, n})
      .shape('V', {n, k})
      .shape('Y', {-1, lead, n})
      .shape('S', {-1, lead, lead});
  t.narrowIn("%x", 'X').narrowIn("%w", 'W').narrowIn("%v", 'V').narrowIn("%d", 'Y');
  t.line("%a = zorse.matmul %x, %w : #X, #W -> $Y")
      .line("%b = zorse.matmul %x, %v {transpose_b} : #X, #V -> #Y");
  t.line("%dx = zorse.matmul %d, %w {transpose_b} : #Y, #W -> #X")
      .line("%dw = zorse.matmul_grad_weight %x, %d : #X, #Y -> $W");
  t.line("%s = zorse.matmul %x, %x {transpose_b} : #X, #X -> $S"); // one matmul per sample
  t.wideOut("%a", 'Y')
      .narrowOut("%b", 'Y')
      .narrowOut("%dx", 'X')
      .wideOut("%dw", 'W')
      .wideOut("%s", 'S');
  return {t.str(), rows,
          std::to_string(rows) + " rows of " + std::to_string(lead) + ", " + std::to_string(k) +
              " to " + std::to_string(n)};
}

} // namespace

void zorse::conformance::addAttentionClasses(std::vector<KernelClass> &classes) {
  classes.push_back({"attention", attention<Attention::anyOther>});
  classes.push_back({"attention, gradient", attentionGradient<Attention::anyOther>});
  classes.push_back({"tensor cores", attention<Attention::forTensorCores>, true});
  classes.push_back({"tensor cores, gradient", attentionGradient<Attention::forTensorCores>, true});
}

KernelClass zorse::conformance::productClass() { return {"products (stand-in)", products}; }
