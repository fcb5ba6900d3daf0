// How kernels for CUDA are launched: the machine-level half of the contract in schema/bundle.proto.
//
// Parameters of a kernel, in this order, all of 8 bytes:
//
//   int64_t rows           samples of this call (elements for update bodies), >= 1
//   uint64_t accumulate    bit i set: operand i is added to; clear: it is overwritten
//   int64_t sampleBase     global index of the first row: random numbers are keyed by it
//   int64_t instanceBase   added to the op instances of the function
//   then one device address per operand, in the order of KernelLaunch.operands
//
// The grid has one dimension: ceil(points(rows) / (threads * per_thread)) blocks of `threads` threads, each with `shared_bytes` of dynamic shared
// memory. Bits depend on `threads` and `per_thread`, which are compiled in, and on nothing else of the launch. What a kernel touches is exported
// beside it as `<symbol>_needs` (ZorseKernelNeeds), a constant in global memory.
//
// A kernel may have memory of its own in its module, in which the blocks of a launch leave parts of sums and count themselves; every launch leaves
// the counters as it found them. So launches of one kernel of one loaded module follow each other, in one stream or by waits between streams.
#pragma once

namespace zorse::abi {

inline constexpr int kCudaLeadingParameters = 4;

} // namespace zorse::abi
