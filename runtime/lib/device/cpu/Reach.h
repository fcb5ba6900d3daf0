// How far a launch reaches from the addresses it is given: checked against the slots when a bundle is loaded, for every number of rows at once.
#pragma once

#include "zorse/runtime/Status.h"

#include <cstdint>
#include <vector>

namespace zorse::bundle {
class Extent;
class LibraryCall;
class MatrixProduct;
} // namespace zorse::bundle

namespace zorse::runtime {

/// fixed + perRow * rows bytes. Wide enough for products of two sizes of a bundle, whatever they are, and for sums of some.
struct Reach {
  __int128 fixed = 0, perRow = 0;
};

/// What a launch does with one of its operands.
struct OperandUse {
  int operand;
  Reach reach; ///< of the byte behind the last one it may touch
  bool written;
};

/// Sizes and strides of products and routines beyond this are refused: no memory is as large.
inline constexpr int64_t kLargestSize = int64_t(1) << 48;

/// Operands 0, 1 and 2: a, b and c. Sizes are in [0, kLargestSize].
std::vector<OperandUse> operandUses(const bundle::MatrixProduct &product);

/// Of a routine whose attributes and number of operands have been found right (makeLibraryRoutine).
Result<std::vector<OperandUse>> operandUses(const bundle::LibraryCall &call);

} // namespace zorse::runtime
