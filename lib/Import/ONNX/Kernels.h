// Makes kernels over the elements of constants from functions of one or two numbers.
#pragma once

#include "Lazy.h"

namespace zorse::onnx_import {

template <typename F> Kernel floatKernel1(F f) {
  Kernel kernel;
  kernel.floats = [f](int64_t n, const double *const *x, double *to) {
    for (int64_t i = 0; i < n; ++i)
      to[i] = f(x[0][i]);
  };
  return kernel;
}
template <typename F> Kernel intKernel1(F f) {
  Kernel kernel;
  kernel.ints = [f](int64_t n, const int64_t *const *x, int64_t *to) {
    for (int64_t i = 0; i < n; ++i)
      to[i] = f(x[0][i]);
  };
  return kernel;
}
template <typename F> Kernel floatKernel2(F f) {
  Kernel kernel;
  kernel.floats = [f](int64_t n, const double *const *x, double *to) {
    for (int64_t i = 0; i < n; ++i)
      to[i] = f(x[0][i], x[1][i]);
  };
  return kernel;
}
template <typename F> Kernel intKernel2(F f) {
  Kernel kernel;
  kernel.ints = [f](int64_t n, const int64_t *const *x, int64_t *to) {
    for (int64_t i = 0; i < n; ++i)
      to[i] = f(x[0][i], x[1][i]);
  };
  return kernel;
}

} // namespace zorse::onnx_import
