// How compiled kernels are called: the machine-level half of the contract in schema/bundle.proto.
#pragma once

#include <cstdint>

extern "C" {

/// Where a call of a body stands in the step; the same for all launches of the call, read by kernels and library routines alike.
struct ZorseCallContext {
  int64_t rows = 1;          ///< samples of this call (elements for update bodies), >= 1.
  int64_t sampleBase = 0;    ///< global index of the first row: random numbers are keyed by it.
  uint64_t instanceBase = 0; ///< added to the op instances of the function: random numbers are keyed by it.
  int64_t bases[2] = {0,
                      0}; ///< first index of this device's share of each axis that a group of devices divides; 0 where the call does the whole cell.
};

/// A kernel of a bundle, exported from kernels/<arch>/ under its symbol.
///
/// Computes the points [begin, end) of its outer loop; the whole launch is [0, points(rows)). Points are independent of each other, so any
/// split into ranges, in any order or at once, gives the same bits.
///
/// \param operands      addresses in the order of KernelLaunch.operands; 64-byte aligned at row 0; never overlapping unless equal.
/// \param context       valid while the kernel runs, in memory that the kernel can read.
/// \param accumulate    bit i set: operand i is added to; clear: it is overwritten.
typedef void ZorseKernel(void *const *operands, const ZorseCallContext *context, int64_t begin, int64_t end, uint64_t accumulate);

/// What a kernel touches, exported beside it as `<symbol>_needs`. Machine code cannot be checked, but the body that launches it can: its points must
/// be those that the code was made for, and every operand must reach as far in its slot, so that no change of a body lets good code read or write
/// elsewhere.
struct ZorseKernelNeeds {
  int64_t operands;
  int64_t pointsFixed, pointsPerRow; ///< points of a launch: fixed + perRow * rows; pointsFixed -1: any number
  struct Operand {
    int64_t fixed, perRow, perPoint; ///< bytes from its address that may be touched: fixed + perRow * rows + perPoint * points
    int64_t written;                 ///< 1: it is written to
  } operand[];                       ///< as many as `operands` says
};
}
