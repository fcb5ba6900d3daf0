// The runtime's own inner loops, compiled once per instruction set and chosen at startup.
#pragma once

#include <cstdint>

namespace zorse::runtime {

/// The functions of one instruction set.
struct SimdOps {
  const char *name;

  void (*squaredNormF32)(const float *x, int64_t n, double *squares, double *nonFinite);
  void (*squaredNormF64)(const double *x, int64_t n, double *squares, double *nonFinite);

  /// Largest of x[0, n), -inf for n = 0.
  float (*maximumF32)(const float *x, int64_t n);
  double (*maximumF64)(const double *x, int64_t n);

  /// x[i] = exp(x[i] - shift); returns the sum.
  float (*exponentialsF32)(float *x, int64_t n, float shift);
  double (*exponentialsF64)(double *x, int64_t n, double shift);

  /// s[i] = p[i] * (d[i] - delta): the gradient of softmax.
  void (*softmaxGradientF32)(float *s, const float *p, const float *d, int64_t n, float delta);
  void (*softmaxGradientF64)(double *s, const double *p, const double *d, int64_t n, double delta);

  void (*scaleF32)(float *x, int64_t n, float factor);
  void (*scaleF64)(double *x, int64_t n, double factor);

  float (*dotF32)(const float *x, const float *y, int64_t n);
  double (*dotF64)(const double *x, const double *y, int64_t n);

  void (*addF32)(float *x, const float *y, int64_t n);
  void (*addF64)(double *x, const double *y, int64_t n);

  /// y (columns x rows) = transpose of x (rows x columns). Leading dimensions in elements; x and y
  /// do not overlap.
  void (*transposeF32)(const float *x, int64_t ldx, int64_t rows, int64_t columns, float *y,
                       int64_t ldy);
};

/// The functions of the best instruction set that this CPU supports.
const SimdOps &simdOps();

extern const SimdOps simdBaseline;
#if defined(__x86_64__)
extern const SimdOps simdV3; ///< AVX2 and FMA
extern const SimdOps simdV4; ///< AVX-512
#endif

} // namespace zorse::runtime
