/* The kernels of ToyExchange, by hand. Next to each, as <name>_needs: what it accesses
 * (abi/KernelAbi.h). */
#include <stdint.h>

enum {
  WIDTH = 16,
  FIRST = 10
}; /* numbers per row; of the matrix's rows, those of the first device */

/* ZorseCallContext (abi/KernelAbi.h) */
struct call {
  int64_t rows, sample_base;
  uint64_t instance_base;
  int64_t bases[2];
};

#define KERNEL(name)                                                                               \
  void name(void *const *operands, const struct call *call, int64_t begin, int64_t end,            \
            uint64_t accumulate)
/* Operands: bytes fixed, per row, per point; written. */
#define NEEDS(name, count, ...) const int64_t name##_needs[] = {count, -1, 0, __VA_ARGS__}
#define ROWS(written) 0, 0, 4 * WIDTH, written /* a point is a row */
#define ALL_ROWS 0, 4 * WIDTH, 0, 0
#define NUMBERS 4 * WIDTH, 0, 0, 0
#define SCALARS 256, 0, 0, 0

static float matrix(int j, int k) { return (float)((j * 3 + k * 5) % 7 - 3) / 8; }

/* Rows [begin, end) of the matrix, transposed, times dy. */
static float terms(const float *dy, int k, int begin, int end) {
  float sum = 0;
  for (int j = begin; j < end; ++j)
    sum += matrix(j, k) * dy[j];
  return sum;
}

KERNEL(toy_scale) {
  const float *x = operands[0], *a = operands[1];
  float *h = operands[2];
  for (int64_t p = begin * WIDTH; p < end * WIDTH; ++p)
    h[p] = x[p] * a[p % WIDTH];
}
NEEDS(toy_scale, 3, ROWS(0), NUMBERS, ROWS(1));

KERNEL(toy_scale_gradient) { /* a point is a number of the 16 */
  const float *x = operands[0], *dh = operands[1];
  float *da = operands[2];
  for (int64_t j = begin; j < end; ++j) {
    float sum = accumulate >> 2 & 1 ? da[j] : 0;
    for (int64_t row = 0; row < call->rows; ++row)
      sum += x[row * WIDTH + j] * dh[row * WIDTH + j];
    da[j] = sum;
  }
}
NEEDS(toy_scale_gradient, 3, ALL_ROWS, ALL_ROWS, 0, 0, 4, 1);

KERNEL(toy_square) {
  const float *h = operands[0];
  float *squares = operands[1];
  for (int64_t p = begin * WIDTH; p < end * WIDTH; ++p)
    squares[p] = h[p] * h[p];
}
NEEDS(toy_square, 2, ROWS(0), ROWS(1));

static void mix(const float *squares, float *y) {
  for (int j = 0; j < WIDTH; ++j) {
    y[j] = 0;
    for (int k = 0; k < WIDTH; ++k)
      y[j] += matrix(j, k) * squares[k];
  }
}

KERNEL(toy_mix) {
  for (int64_t row = begin; row < end; ++row)
    mix((const float *)operands[0] + row * WIDTH, (float *)operands[1] + row * WIDTH);
}
NEEDS(toy_mix, 2, ROWS(0), ROWS(1));

KERNEL(toy_pair) {
  const float *h = operands[0];
  for (int64_t row = begin; row < end; ++row) {
    float squares[WIDTH];
    for (int k = 0; k < WIDTH; ++k)
      squares[k] = h[row * WIDTH + k] * h[row * WIDTH + k];
    mix(squares, (float *)operands[1] + row * WIDTH);
  }
}
NEEDS(toy_pair, 2, ROWS(0), ROWS(1));

static void allTerms(void *const *operands, int64_t begin, int64_t end, int from, int to) {
  for (int64_t row = begin; row < end; ++row)
    for (int k = 0; k < WIDTH; ++k)
      ((float *)operands[1])[row * WIDTH + k] =
          terms((const float *)operands[0] + row * WIDTH, k, from, to);
}

KERNEL(toy_terms_0) { allTerms(operands, begin, end, 0, FIRST); }
NEEDS(toy_terms_0, 2, ROWS(0), ROWS(1));
KERNEL(toy_terms_1) { allTerms(operands, begin, end, FIRST, WIDTH); }
NEEDS(toy_terms_1, 2, ROWS(0), ROWS(1));

static void add(float *to, float number, uint64_t adds) { *to = (adds ? *to : 0) + number; }

KERNEL(toy_finish) {
  const float *h = operands[0], *sum = operands[1];
  for (int64_t p = begin * WIDTH; p < end * WIDTH; ++p)
    add((float *)operands[2] + p, 2 * h[p] * sum[p], accumulate >> 2 & 1);
}
NEEDS(toy_finish, 3, ROWS(0), ROWS(0), ROWS(1));

KERNEL(toy_pair_gradient) {
  const float *h = operands[0], *dy = operands[1];
  for (int64_t row = begin; row < end; ++row)
    for (int k = 0; k < WIDTH; ++k) {
      const float first = terms(dy + row * WIDTH, k, 0, FIRST),
                  second = terms(dy + row * WIDTH, k, FIRST, WIDTH), sum = first + second;
      add((float *)operands[2] + row * WIDTH + k, 2 * h[row * WIDTH + k] * sum,
          accumulate >> 2 & 1);
    }
}
NEEDS(toy_pair_gradient, 3, ROWS(0), ROWS(0), ROWS(1));

KERNEL(toy_loss) {
  const float *y = operands[0], *w = operands[1];
  float *loss = operands[2];
  for (int64_t row = begin; row < end; ++row) {
    loss[row] = 0;
    for (int j = 0; j < WIDTH; ++j)
      loss[row] += y[row * WIDTH + j] * w[j];
  }
}
NEEDS(toy_loss, 3, ROWS(0), NUMBERS, 0, 0, 4, 1);

KERNEL(toy_loss_gradient) {
  const float *w = operands[0];
  const double *scalars = operands[1];
  for (int64_t p = begin * WIDTH; p < end * WIDTH; ++p)
    add((float *)operands[2] + p, (float)scalars[16] * w[p % WIDTH], accumulate >> 2 & 1);
}
NEEDS(toy_loss_gradient, 3, NUMBERS, SCALARS, ROWS(1));

KERNEL(toy_weight_gradient) { /* a point is a number of the 16 */
  const float *y = operands[0];
  const double *scalars = operands[1];
  float *dw = operands[2];
  for (int64_t j = begin; j < end; ++j) {
    float sum = accumulate >> 2 & 1 ? dw[j] : 0;
    for (int64_t row = 0; row < call->rows; ++row)
      sum += (float)scalars[16] * y[row * WIDTH + j];
    dw[j] = sum;
  }
}
NEEDS(toy_weight_gradient, 3, ALL_ROWS, SCALARS, 0, 0, 4, 1);

KERNEL(toy_sgd) { /* a point is an element */
  float *w = operands[0];
  const float *gradient = operands[1];
  const double *scalars = operands[2];
  if (((const uint64_t *)operands[2])[10] != 0)
    return;
  for (int64_t i = begin; i < end; ++i)
    w[i] -= (float)(scalars[2] * scalars[8]) * gradient[i];
}
NEEDS(toy_sgd, 3, 0, 0, 4, 1, 0, 0, 4, 0, SCALARS);
