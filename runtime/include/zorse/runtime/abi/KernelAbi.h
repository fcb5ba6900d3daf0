// How compiled kernels are called: the machine-level half of the contract in schema/bundle.proto.
#pragma once

#include <cstdint>

extern "C" {

/// A kernel of a bundle, exported from kernels/<arch>/ under its symbol.
///
/// Computes the points [begin, end) of its outer loop; the whole launch is [0, points(rows)). Points are independent of each other, so any
/// split into ranges, in any order or at once, gives the same bits.
///
/// \param operands      addresses in the order of KernelLaunch.operands; 64-byte aligned at row 0; never overlapping unless equal.
/// \param rows          samples of this call (elements for update bodies), >= 1.
/// \param accumulate    bit i set: operand i is added to; clear: it is overwritten.
/// \param sampleBase    global index of the first row: random numbers are keyed by it.
/// \param instanceBase  added to the op instances of the function: random numbers are keyed by it.
typedef void ZorseKernel(void *const *operands, int64_t rows, int64_t begin, int64_t end, uint64_t accumulate, int64_t sampleBase,
                         uint64_t instanceBase);

/// What a kernel touches, exported beside it as `<symbol>_needs`. Machine code cannot be checked, but the body that launches it can: its points must be those
/// that the code was made for, and every operand must reach as far in its slot, so that no change of a body lets good code read or write elsewhere.
struct ZorseKernelNeeds {
  int64_t operands;
  int64_t pointsFixed, pointsPerRow; ///< points of a launch: fixed + perRow * rows; pointsFixed -1: any number
  struct Operand {
    int64_t fixed, perRow, perPoint; ///< bytes from its address that may be touched: fixed + perRow * rows + perPoint * points
    int64_t written;                 ///< 1: it is written to
  } operand[];                       ///< as many as `operands` says
};
}
