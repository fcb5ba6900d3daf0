// How far a launch reaches from the addresses it is given: checked against the slots of its body when a bundle is loaded, for every number of rows at
// once. What drivers of all kinds of devices share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::bundle {
class Body;
class MatrixProduct;
class Pointer;
} // namespace zorse::bundle

namespace zorse::runtime {

/// fixed + perRow * rows bytes. Wide enough for products of two sizes of a bundle, whatever they are, and for sums of some.
struct Reach {
  __int128 fixed = 0, perRow = 0;
};

/// (count - 1) * stride: where the last of them begins.
constexpr Reach last(const Reach &count, __int128 stride) { return {(count.fixed - 1) * stride, count.perRow * stride}; }
constexpr Reach operator+(const Reach &a, const Reach &b) { return {a.fixed + b.fixed, a.perRow + b.perRow}; }
constexpr Reach operator*(const Reach &a, int64_t bytes) { return {a.fixed * bytes, a.perRow * bytes}; }

/// What a launch does with one of its operands.
struct OperandUse {
  int operand;
  Reach reach; ///< of the byte behind the last one it may touch
  bool written;
};

/// Sizes and strides of products and routines beyond this are refused: no memory is as large.
inline constexpr int64_t kLargestSize = int64_t(1) << 48;

/// Whether what lies between `pointer` and `reach` bytes behind it is inside the pointer's slot, for every number of rows from 1, and whether that
/// slot may be written if it is. `pointer` names a slot of `body`. \return  empty, or what is wrong with `what`
std::string problemOfUse(const bundle::Body &body, const bundle::Pointer &pointer, const Reach &reach, bool written, const std::string &what);

/// Whether sizes and strides of a product are numbers that libraries take, and its matrices inside their slots. \return  empty, or the first problem
std::string problemOfProduct(const bundle::Body &body, const bundle::MatrixProduct &product);

} // namespace zorse::runtime
