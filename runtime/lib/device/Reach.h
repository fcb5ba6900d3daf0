// Bounds of the bytes that a launch accesses through its operands. Drivers of all device kinds
// check them against the arguments of a function when a bundle is loaded, for every number of rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::bundle {
class CompiledFunction;
class Matmul;
class Pointer;
} // namespace zorse::bundle

namespace zorse::runtime {

/// fixed + perRow * rows bytes. 128 bits hold the product of any two sizes of a bundle, and sums of
/// several products.
struct Reach {
  __int128 fixed = 0, perRow = 0;
};

/// (count - 1) * stride: the beginning of the last of `count` elements.
constexpr Reach last(const Reach &count, __int128 stride) {
  return {(count.fixed - 1) * stride, count.perRow * stride};
}
constexpr Reach operator+(const Reach &a, const Reach &b) {
  return {a.fixed + b.fixed, a.perRow + b.perRow};
}
constexpr Reach operator*(const Reach &a, int64_t bytes) {
  return {a.fixed * bytes, a.perRow * bytes};
}

/// How a launch accesses one of its operands.
struct OperandUse {
  int operand;
  Reach reach; ///< end of the bytes that it may access
  bool written;
};

/// Larger sizes and strides of products and routines are refused: no device has that much memory.
inline constexpr int64_t kLargestSize = int64_t(1) << 48;

/// Checks that the `reach` bytes that follow `pointer` are inside the pointer's argument, for every
/// number of rows from 1, and that the argument may be written if `written`. `pointer` names an
/// argument of `function`. \return  empty, or the problem, which begins with `what`
std::string problemOfUse(const bundle::CompiledFunction &function, const bundle::Pointer &pointer,
                         const Reach &reach, bool written, const std::string &what);

/// Checks that libraries accept the sizes and strides of a product, and that its matrices are
/// inside their arguments. \return  empty, or the first problem
std::string problemOfMatmul(const bundle::CompiledFunction &function, const bundle::Matmul &matmul);

} // namespace zorse::runtime
