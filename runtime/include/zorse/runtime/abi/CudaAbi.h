// Launch interface of CUDA kernels: the machine-level part of the contract in schema/bundle.proto.
//
// Parameters of a kernel, in this order, 8 bytes each:
//
//   int64_t rows           samples of this call (elements for update functions), >= 1
//   uint64_t accumulate    bit i set: operand i is added to; clear: it is overwritten
//   int64_t sampleBase     global index of the first row: random numbers are keyed by it
//   int64_t rngIdBase      added to the op instances of the function
//   then one device address per operand, in the order of KernelLaunch.operands
//
// The grid has one dimension: ceil(points(rows) / (threads * per_thread)) blocks of `threads`
// threads, each with `shared_bytes` of dynamic shared memory. Results depend on `threads` and
// `per_thread`, which are compiled in, and on no other launch parameter. The memory that a kernel
// accesses is exported as `<symbol>_needs` (ZorseKernelBounds), a constant in global memory.
//
// A kernel may have static memory in its module. The blocks of a launch store partial sums and
// counters there; every launch restores the counters. Launches of one kernel of one loaded module
// must therefore not overlap: they run in one stream or wait for each other across streams.
#pragma once

namespace zorse::abi {

inline constexpr int kCudaLeadingParameters = 4;

} // namespace zorse::abi
