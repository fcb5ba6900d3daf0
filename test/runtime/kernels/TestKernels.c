/* Kernels as a bundle's object exports them, by hand: what the runtime's tests load. */
#include <stdint.h>

/* ZorseCallContext (abi/KernelAbi.h) */
struct call {
  int64_t rows, sample_base;
  uint64_t instance_base;
  int64_t bases[2];
};

/* Next to each, as <name>_needs: what it accesses (abi/KernelAbi.h): operands, points; of each
 * operand bytes fixed, per row and per point, and whether it is written. */

/* operand 1[p] (+)= 2 * operand 0[p]; one f32 per point. */
void zorse_test_double(void *const *operands, const struct call *call, int64_t begin, int64_t end,
                       uint64_t accumulate) {
  const float *x = operands[0];
  float *y = operands[1];
  for (int64_t p = begin; p < end; ++p)
    y[p] = (accumulate >> 1 & 1 ? y[p] : 0.0f) + 2.0f * x[p];
}
const int64_t zorse_test_double_needs[] = {2, -1, 0, 0, 0, 4, 0, 0, 0, 4, 1};

/* operand 0[p] = sample_base + p + 1000 * instance_base; one f64 per row. */
void zorse_test_identify(void *const *operands, const struct call *call, int64_t begin, int64_t end,
                         uint64_t accumulate) {
  double *y = operands[0];
  for (int64_t p = begin; p < end; ++p)
    y[p] = (double)(call->sample_base + p) + 1000.0 * (double)call->instance_base;
}
const int64_t zorse_test_identify_needs[] = {1, -1, 0, 0, 0, 8, 1};

/* operand 2[row] = sum over 4 elements of operand 0[row] * operand 1; a point is a row. */
void zorse_test_dot(void *const *operands, const struct call *call, int64_t begin, int64_t end,
                    uint64_t accumulate) {
  const float *y = operands[0], *w = operands[1];
  float *loss = operands[2];
  for (int64_t row = begin; row < end; ++row) {
    loss[row] = 0;
    for (int j = 0; j < 4; ++j)
      loss[row] += y[row * 4 + j] * w[j];
  }
}
const int64_t zorse_test_dot_needs[] = {3, -1, 0, 0, 0, 16, 0, 16, 0, 0, 0, 0, 0, 4, 1};

/* operand 2[j] (+)= lossGradient[0] * sum over rows of operand 0[row, j]; operand 1 is the step
 * scalars; a point is an element. */
void zorse_test_dot_gradient(void *const *operands, const struct call *call, int64_t begin,
                             int64_t end, uint64_t accumulate) {
  const float *y = operands[0];
  const double *scalars = operands[1];
  float *gradient = operands[2];
  for (int64_t j = begin; j < end; ++j) {
    float sum = accumulate >> 2 & 1 ? gradient[j] : 0.0f;
    for (int64_t row = 0; row < call->rows; ++row)
      sum += (float)scalars[16] * y[row * 4 + j];
    gradient[j] = sum;
  }
}
const int64_t zorse_test_dot_gradient_needs[] = {3, -1, 0, 0, 16, 0, 0, 256, 0, 0, 0, 0, 0, 4, 1};

/* operand 0 -= learning rate * clip factor * operand 1, unless skipped; operand 2 is the step
 * scalars; a point is an element. */
void zorse_test_sgd(void *const *operands, const struct call *call, int64_t begin, int64_t end,
                    uint64_t accumulate) {
  float *w = operands[0];
  const float *gradient = operands[1];
  const double *scalars = operands[2];
  if (((const uint64_t *)operands[2])[10] != 0)
    return;
  for (int64_t i = begin; i < end; ++i)
    w[i] -= (float)(scalars[2] * scalars[8]) * gradient[i];
}
const int64_t zorse_test_sgd_needs[] = {3, -1, 0, 0, 0, 4, 1, 0, 0, 4, 0, 256, 0, 0, 0};
