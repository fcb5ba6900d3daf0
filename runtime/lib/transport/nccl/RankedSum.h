// Terms that lie in memory of a GPU one behind the other, added in their order by bodies that add so many at once.
#pragma once

#include "zorse/runtime/DirectTransport.h"

namespace zorse::runtime::nccl {

/// sum = (((term 0 + term 1) + term 2) + ...), element by element. Terms begin `stride` bytes behind each other; where they are more than one body
/// adds, room for two more follows.
Status addTerms(const DirectSums &sums, NumberType type, DeviceAddress terms, uint64_t stride, size_t count, DeviceAddress sum, int64_t elements,
                WorkStream &stream);

} // namespace zorse::runtime::nccl
