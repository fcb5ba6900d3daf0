#include "Matmul.h"

#include "ThreadPool.h"

#include <algorithm>

using namespace zorse::runtime;

namespace {

// A smaller chunk of work is not worth waking a thread. It is about 0.2 ms on one core.
constexpr double kSmallestPiece = 2.0e7;

/// Maximum number of chunks of one matmul. Every chunk packs its operands again: with 2 to 4 chunks
/// of a GPT-2 124M matmul, a library loses about 4 % of its rate, with 16 about 10 %. Matmuls that
/// take one core less than 0.1 s therefore have at most four chunks, larger ones more.
int64_t maxPieces(double operations) { return operations < 8e9 ? 4 : operations < 32e9 ? 8 : 16; }

int64_t roundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
int64_t divideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

template <typename T> void scale(const GemmArguments<T> &g) {
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j)
      g.c[i * g.ldc + j] = g.beta == T(0) ? T(0) : g.beta * g.c[i * g.ldc + j];
}

} // namespace

MatmulPieces zorse::runtime::choosePieces(int64_t m, int64_t n, int64_t k, int64_t batch) {
  double operations = 2.0 * double(m) * double(n) * double(k);
  int64_t wanted = std::min<int64_t>(
      divideUp(maxPieces(operations * double(batch)), std::max<int64_t>(batch, 1)),
      int64_t(operations / kSmallestPiece));
  MatmulPieces best{m, n};
  if (wanted <= 1)
    return best;

  // Every chunk reads its rows of A and columns of B. Of the splits into about `wanted` chunks,
  // take the one that reads least. Chunks keep the tiles of the libraries' inner kernels whole (8 x
  // 48, and 16 x 4 with 512-bit registers).
  double minRead = 1e300;
  for (int64_t down = 1; down <= wanted; ++down) {
    int64_t across = wanted / down;
    if (across * down != wanted)
      continue;
    int64_t rows = std::min(m, roundUp(divideUp(m, down), 16)),
            columns = std::min(n, roundUp(divideUp(n, across), 96));
    double pieces = double(divideUp(m, rows)) * double(divideUp(n, columns));
    double read = double(divideUp(n, columns)) * double(m) + double(divideUp(m, rows)) * double(n);
    read *= 1.0 + 0.5 * std::max(0.0, double(wanted) - pieces); // too few chunks leave threads idle
    if (read < minRead) {
      minRead = read;
      best = {rows, columns};
    }
  }
  return best;
}

namespace {

/// One chunk of a batch of matmuls: rows and columns of C.
struct Piece {
  int64_t batch, row, rows, column, columns;
};

/// Calls `multiply` for every chunk, on the pool's threads if there are several.
template <typename Multiply>
void forEachPiece(int64_t m, int64_t n, int64_t k, int64_t batch, ThreadPool &pool,
                  const Multiply &multiply) {
  if (m <= 0 || n <= 0 || batch <= 0)
    return;
  MatmulPieces pieces = choosePieces(m, n, k, batch);
  int64_t down = divideUp(m, pieces.rows), across = divideUp(n, pieces.columns);
  auto piece = [&](int64_t index) {
    int64_t row = index / across % down * pieces.rows, column = index % across * pieces.columns;
    multiply(Piece{index / (down * across), row, std::min(pieces.rows, m - row), column,
                   std::min(pieces.columns, n - column)});
  };
  int64_t count = batch * down * across;
  if (2.0 * double(m) * double(n) * double(k) * double(batch) < kSmallestPiece) {
    for (int64_t i = 0; i < count; ++i)
      piece(i);
    return;
  }
  pool.forEach(count, piece);
}

/// The arguments of one chunk, except its address in C.
template <typename Arguments, typename Product>
Arguments argumentsOf(Arguments g, const Piece &piece, const Product &matmul) {
  g.m = piece.rows;
  g.n = piece.columns;
  g.a += piece.batch * matmul.strideA + (g.transposeA ? piece.row : piece.row * g.lda);
  g.b += piece.batch * matmul.strideB + (g.transposeB ? piece.column * g.ldb : piece.column);
  return g;
}

} // namespace

template <typename T>
void zorse::runtime::multiply(const BatchedMatmul<T> &matmul, const Gemm &gemm, ThreadPool &pool) {
  const GemmArguments<T> &whole = matmul.first;
  forEachPiece(whole.m, whole.n, whole.k, matmul.batch, pool, [&](const Piece &piece) {
    GemmArguments<T> g = argumentsOf(whole, piece, matmul);
    g.c += piece.batch * matmul.strideC + piece.row * whole.ldc + piece.column;
    if (g.k <= 0)
      scale(g);
    else
      gemm.multiply(g);
  });
}

void zorse::runtime::multiply(const BatchedHalfMatmul &matmul, ThreadPool &pool) {
  const HalfMatmul &whole = matmul.first;
  forEachPiece(whole.m, whole.n, whole.k, matmul.batch, pool, [&](const Piece &piece) {
    HalfMatmul g = argumentsOf(whole, piece, matmul);
    int64_t at = piece.batch * matmul.strideC + piece.row * whole.ldc + piece.column;
    g.c = static_cast<char *>(whole.c) + at * (whole.narrowC ? 2 : 4);
    multiply(g);
  });
}

template void zorse::runtime::multiply<float>(const BatchedMatmul<float> &, const Gemm &,
                                              ThreadPool &);
template void zorse::runtime::multiply<double>(const BatchedMatmul<double> &, const Gemm &,
                                               ThreadPool &);
