// Command-line values of RecomputePolicy.
#pragma once

#include "zorse/Autodiff/Autodiff.h"

#include "llvm/Support/CommandLine.h"

namespace zorse::autodiff {

inline llvm::cl::ValuesClass savePolicies() {
  return llvm::cl::values(
      clEnumValN(RecomputePolicy::MinCut, "min-cut",
                 "fewest bytes without recomputing products or attention"),
      clEnumValN(RecomputePolicy::None, "keep", "all values that the gradients read"),
      clEnumValN(RecomputePolicy::Full, "full", "nothing: recompute from the boundary inputs"));
}

} // namespace zorse::autodiff
