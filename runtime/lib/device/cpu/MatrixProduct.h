// Splits matrix products over the device's threads.
#pragma once

#include "Gemm.h"
#include "HalfGemm.h"

#include <cstdint>

namespace zorse::runtime {

class ThreadPool;

/// A batch of products: C[b] = alpha * op(A[b]) * op(B[b]) + beta * C[b].
template <typename T> struct BatchedProduct {
  GemmArguments<T> first; ///< the product of batch 0.
  int64_t batch, strideA, strideB, strideC;
};

/// How one product is cut: pieces of `rows` x `columns` of C, the last ones shorter. Depends on the shape alone, so that the number of threads never
/// changes which library call computes an element, nor therefore its bits.
struct ProductPieces {
  int64_t rows, columns;
};
ProductPieces choosePieces(int64_t m, int64_t n, int64_t k, int64_t batch);

/// A batch of products in half precision; C may be f32.
struct BatchedHalfProduct {
  HalfProduct first; ///< the product of batch 0.
  int64_t batch, strideA, strideB, strideC;
};

template <typename T> void multiply(const BatchedProduct<T> &product, const Gemm &gemm, ThreadPool &pool);
void multiply(const BatchedHalfProduct &product, ThreadPool &pool);

} // namespace zorse::runtime
