// Command-line values of SavePolicy.
#pragma once

#include "zorse/Autodiff/Autodiff.h"

#include "llvm/Support/CommandLine.h"

namespace zorse::autodiff {

inline llvm::cl::ValuesClass savePolicies() {
  return llvm::cl::values(clEnumValN(SavePolicy::MinimumCut, "min-cut", "fewest bytes without recomputing products or attention"),
                          clEnumValN(SavePolicy::Keep, "keep", "all values that the gradients read"),
                          clEnumValN(SavePolicy::Full, "full", "nothing: recompute from the boundary inputs"));
}

} // namespace zorse::autodiff
