// The attributes of an attention call.
#pragma once

#include "zorse/runtime/HalfTypes.h"
#include "zorse/runtime/Status.h"
#include "zorse/runtime/abi/StepScalars.h"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace zorse::bundle {
class LibraryCall;
}

namespace zorse::runtime {

/// Strides of a [row, position, head, element] operand, in elements; the element stride is 1.
struct HeadStrides {
  int64_t row = 0, position = 0, head = 0;

  template <typename T> T *at(void *base, int64_t r, int64_t p, int64_t h) const {
    return static_cast<T *>(base) + r * row + p * position + h * head;
  }
};

struct AttentionShape {
  bool isDouble = false;          ///< computed in f64, otherwise in f32
  std::optional<HalfType> stored; ///< storage type of q, k, v, out and dout; absent: the
                                  ///< computation type
  bool narrowGradients = false;   ///< dq, dk and dv also have the type `stored`
  int64_t queries = 0, keys = 0, heads = 0, keyHeads = 0, headSize = 0, valueHeadSize = 0;
  bool causal = false;
  int64_t window = 0;
  double scale = 1, softcap = 0, dropout = 0;
  int64_t instance = 0;
  int64_t firstHead = 0; ///< number in the undivided attention, for dropout
  bool maskIsBoolean = false;
  bool addsMask = false; ///< there is a mask and it is not boolean
  int64_t maskRow = 0, maskHead = 0, maskQuery = 0;
  HeadStrides q, k, v, out, dout, dq, dk, dv;

  /// Causality and window allow query i to see keys [firstKey(i), lastKey(i)). Both bounds grow
  /// with i.
  int64_t firstKey(int64_t query) const {
    return window > 0 ? std::clamp<int64_t>(query + keys - queries - window + 1, 0, keys) : 0;
  }
  int64_t lastKey(int64_t query) const {
    return causal ? std::clamp<int64_t>(query + keys - queries + 1, 0, keys) : keys;
  }

  /// Number of values that the forward stores per query: the logarithm of the sum of exponentials,
  /// or, if a mask is added, the maximum score and the sum of exponentials relative to it. A mask
  /// value may be so large that the logarithm would be lost in rounding.
  int64_t statistics() const { return addsMask ? 2 : 1; }
};

/// The half-precision type of a schema type, or nullopt.
std::optional<HalfType> halfType(int elementType);

Result<AttentionShape> readAttentionShape(const bundle::LibraryCall &call, bool backward);

} // namespace zorse::runtime
