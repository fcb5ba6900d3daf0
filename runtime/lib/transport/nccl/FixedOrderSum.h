// Sums of terms that are consecutive in GPU memory, in fixed order, by functions that add a fixed
// number of terms per call.
#pragma once

#include "zorse/runtime/DeviceTransport.h"

namespace zorse::runtime::nccl {

/// sum = (((term 0 + term 1) + term 2) + ...), element by element. Terms begin `stride` bytes
/// apart. If there are more terms than one function adds, space for two partial sums must follow
/// the terms.
Status addTerms(const DeviceSums &sums, NumberType type, DeviceAddress terms, uint64_t stride,
                size_t count, DeviceAddress sum, int64_t elements, WorkStream &stream);

/// The same for `count` terms that are rounded to bf16; sums are f32. Space for two partial sums,
/// `partialStride` bytes apart, is at `partials` if there are more terms than one function adds.
Status addRoundedTerms(const RoundedSumFunctions &sums, DeviceAddress terms, uint64_t stride,
                       size_t count, DeviceAddress partials, uint64_t partialStride,
                       DeviceAddress sum, int64_t elements, WorkStream &stream);

/// Rounds f32 numbers to bf16.
Status roundTerm(const RoundedSumFunctions &sums, DeviceAddress term, DeviceAddress rounded,
                 int64_t elements, WorkStream &stream);

} // namespace zorse::runtime::nccl
