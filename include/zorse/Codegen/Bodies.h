// What is known of a body beside the body itself.
#pragma once

#include "bundle.pb.h"

namespace zorse::codegen {

/// What a body costs, beside what bundle::Body itself says.
struct BodyFacts {
  bundle::Extent saved;     ///< bytes of the packed saved block; 0 when the function has none.
  bundle::Extent workspace; ///< bytes of temporaries.
  double flopsPerRow = 0;
  double bytesPerRow = 0; ///< touched by all launches, for cost models.
};

} // namespace zorse::codegen
