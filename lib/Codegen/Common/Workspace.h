// Offsets of temporaries: two lie on the same bytes only if no launch needs both.
#pragma once

#include "Clusters.h"
#include "Slots.h"

namespace zorse::codegen {

struct Workspace {
  llvm::DenseMap<mlir::Value, Place> places; ///< slot left out; sampled tensors lie behind all fixed bytes.
  bundle::Extent bytes;
};

/// Places every value that is materialised without a claim, and every concat without one.
Workspace allocateWorkspace(const Clustering &clustering, const Claims &claims);

} // namespace zorse::codegen
