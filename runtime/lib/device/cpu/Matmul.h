// Splits matmuls over the device's threads.
#pragma once

#include "Gemm.h"
#include "HalfGemm.h"

#include <cstdint>

namespace zorse::runtime {

class ThreadPool;

/// A batch of matmuls: C[b] = alpha * op(A[b]) * op(B[b]) + beta * C[b].
template <typename T> struct BatchedMatmul {
  GemmArguments<T> first; ///< matmul of batch 0
  int64_t batch, strideA, strideB, strideC;
};

/// Split of one matmul: chunks of `rows` x `columns` of C; the last ones may be smaller. It depends
/// only on the shape, so the number of threads changes neither the library call that computes an
/// element nor its bits.
struct MatmulPieces {
  int64_t rows, columns;
};
MatmulPieces choosePieces(int64_t m, int64_t n, int64_t k, int64_t batch);

/// A batch of matmuls in half precision; C may be f32.
struct BatchedHalfMatmul {
  HalfMatmul first; ///< matmul of batch 0
  int64_t batch, strideA, strideB, strideC;
};

template <typename T>
void multiply(const BatchedMatmul<T> &matmul, const Gemm &gemm, ThreadPool &pool);
void multiply(const BatchedHalfMatmul &matmul, ThreadPool &pool);

} // namespace zorse::runtime
