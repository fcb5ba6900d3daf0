/* Kernels as a bundle's object exports them, by hand: what the runtime's tests load. */
#include <stdint.h>

/* operand 1[p] (+)= 2 * operand 0[p]; one f32 per point. */
void zorse_test_double(void *const *operands, int64_t rows, int64_t begin, int64_t end, uint64_t accumulate, int64_t sample_base, uint64_t instance_base) {
  const float *x = operands[0];
  float *y = operands[1];
  for (int64_t p = begin; p < end; ++p)
    y[p] = (accumulate >> 1 & 1 ? y[p] : 0.0f) + 2.0f * x[p];
}

/* operand 0[p] = sample_base + p + 1000 * instance_base; one f64 per row. */
void zorse_test_identify(void *const *operands, int64_t rows, int64_t begin, int64_t end, uint64_t accumulate, int64_t sample_base, uint64_t instance_base) {
  double *y = operands[0];
  for (int64_t p = begin; p < end; ++p)
    y[p] = (double)(sample_base + p) + 1000.0 * (double)instance_base;
}
