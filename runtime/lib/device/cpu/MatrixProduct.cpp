#include "MatrixProduct.h"

#include "ThreadPool.h"

#include <algorithm>

using namespace zorse::runtime;

namespace {

// A piece below this is not worth a thread's waking: about a fifth of a millisecond on one core.
constexpr double kSmallestPiece = 2.0e7;

/// Pieces of one product. Every piece packs its operands anew: in 2 to 4 pieces of a GPT-2 124M's products a library loses about 4 % of its rate, in
/// 16 about 10 %. So products that take a core less than a tenth of a second are cut in four, only larger ones in more.
int64_t mostPieces(double operations) { return operations < 8e9 ? 4 : operations < 32e9 ? 8 : 16; }

int64_t roundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
int64_t divideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

template <typename T> void scale(const GemmArguments<T> &g) {
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j)
      g.c[i * g.ldc + j] = g.beta == T(0) ? T(0) : g.beta * g.c[i * g.ldc + j];
}

} // namespace

ProductPieces zorse::runtime::choosePieces(int64_t m, int64_t n, int64_t k, int64_t batch) {
  double operations = 2.0 * double(m) * double(n) * double(k);
  int64_t wanted =
      std::min<int64_t>(divideUp(mostPieces(operations * double(batch)), std::max<int64_t>(batch, 1)), int64_t(operations / kSmallestPiece));
  ProductPieces best{m, n};
  if (wanted <= 1)
    return best;

  // Every piece reads its rows of A and columns of B: of the cuts into about `wanted` pieces take the one that reads least. Pieces keep whole tiles
  // of the libraries' inner kernels (8 x 48 and 16 x 4 with 512-bit registers).
  double leastRead = 1e300;
  for (int64_t down = 1; down <= wanted; ++down) {
    int64_t across = wanted / down;
    if (across * down != wanted)
      continue;
    int64_t rows = std::min(m, roundUp(divideUp(m, down), 16)), columns = std::min(n, roundUp(divideUp(n, across), 96));
    double pieces = double(divideUp(m, rows)) * double(divideUp(n, columns));
    double read = double(divideUp(n, columns)) * double(m) + double(divideUp(m, rows)) * double(n);
    read *= 1.0 + 0.5 * std::max(0.0, double(wanted) - pieces); // too few pieces starve threads.
    if (read < leastRead) {
      leastRead = read;
      best = {rows, columns};
    }
  }
  return best;
}

template <typename T> void zorse::runtime::multiply(const BatchedProduct<T> &product, const Gemm &gemm, ThreadPool &pool) {
  const GemmArguments<T> &whole = product.first;
  if (whole.m <= 0 || whole.n <= 0 || product.batch <= 0)
    return;
  ProductPieces pieces = choosePieces(whole.m, whole.n, whole.k, product.batch);
  int64_t down = divideUp(whole.m, pieces.rows), across = divideUp(whole.n, pieces.columns);

  auto piece = [&](int64_t index) {
    int64_t b = index / (down * across), row = index / across % down * pieces.rows, column = index % across * pieces.columns;
    GemmArguments<T> g = whole;
    g.m = std::min(pieces.rows, whole.m - row);
    g.n = std::min(pieces.columns, whole.n - column);
    g.a += b * product.strideA + (whole.transposeA ? row : row * whole.lda);
    g.b += b * product.strideB + (whole.transposeB ? column * whole.ldb : column);
    g.c += b * product.strideC + row * whole.ldc + column;
    if (g.k <= 0)
      scale(g);
    else
      gemm.multiply(g);
  };

  int64_t count = product.batch * down * across;
  double operations = 2.0 * double(whole.m) * double(whole.n) * double(whole.k) * double(product.batch);
  if (operations < kSmallestPiece) {
    for (int64_t i = 0; i < count; ++i)
      piece(i);
    return;
  }
  pool.forEach(count, piece);
}

template void zorse::runtime::multiply<float>(const BatchedProduct<float> &, const Gemm &, ThreadPool &);
template void zorse::runtime::multiply<double>(const BatchedProduct<double> &, const Gemm &, ThreadPool &);
