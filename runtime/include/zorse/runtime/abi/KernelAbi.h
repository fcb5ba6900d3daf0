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
}
