// Call interface of compiled kernels: the machine-level part of the contract in
// schema/bundle.proto.
#pragma once

#include <cstdint>

extern "C" {

/// Position of a call of a function in the step. Equal for all launches of the call; kernels and
/// library routines read it.
struct ZorseCallContext {
  int64_t rows = 1;       ///< samples of this call (elements for update functions), >= 1
  int64_t sampleBase = 0; ///< global index of the first row: random numbers are keyed by it
  uint64_t rngIdBase = 0; ///< added to the op instances of the function: random numbers are keyed
                          ///< by it
  /// First index of this device's shard of each axis that a group of devices divides; 0 if the call
  /// does the whole cell.
  int64_t bases[2] = {0, 0};
};

/// A kernel of a bundle, exported from kernels/<arch>/ under its symbol.
///
/// Computes the points [begin, end) of its outer loop; the whole launch is [0, points(rows)).
/// Points are independent of each other, so any split into ranges, in any order or in parallel,
/// gives the same bits.
///
/// \param operands      addresses in the order of KernelLaunch.operands; 64-byte aligned at row 0;
/// never overlapping unless equal.
/// \param context       valid while the kernel runs, in memory that the kernel can read.
/// \param accumulate    bit i set: operand i is added to; clear: it is overwritten.
typedef void ZorseKernel(void *const *operands, const ZorseCallContext *context, int64_t begin,
                         int64_t end, uint64_t accumulate);

/// The memory that a kernel accesses, exported as `<symbol>_needs`. Machine code cannot be checked,
/// but the function that launches it can: its number of points must be the one that the code was
/// compiled for, and every operand must have the required bytes in its argument. A modified
/// function can then not make correct code read or write elsewhere.
struct ZorseKernelBounds {
  int64_t operands;
  int64_t pointsFixed,
      iterationsPerRow; ///< points of a launch: fixed + perRow * rows; pointsFixed -1: any number
  struct Operand {
    int64_t fixed, perRow, perPoint; ///< bytes from its address that may be accessed: fixed +
                                     ///< perRow * rows + perPoint * points
    int64_t written;                 ///< 1: it is written
  } operand[];                       ///< `operands` elements
};
}
