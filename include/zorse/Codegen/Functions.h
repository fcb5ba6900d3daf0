// Facts about a compiled function that bundle::Body does not contain.
#pragma once

#include "bundle.pb.h"

namespace zorse::codegen {

/// Costs of a compiled function.
struct FunctionSizes {
  bundle::AffineSize saved;     ///< bytes of the packed saved-tensor buffer; 0 if the function has
                                ///< none.
  bundle::AffineSize workspace; ///< bytes of temporaries.
  double flopsPerRow = 0;
  double bytesPerRow = 0; ///< bytes read and written by all launches, for cost models.
};

} // namespace zorse::codegen
