// Offsets of temporaries: two lie on the same bytes only if no launch needs both.
#pragma once

#include "Clusters.h"
#include "Slots.h"

namespace zorse::codegen {

struct Workspace {
  llvm::DenseMap<mlir::Value, Place> places; ///< slot left out; sampled tensors lie behind all fixed bytes.
  llvm::DenseMap<int, Place> scratch;        ///< likewise: what the launches of one cluster leave for each other
  bundle::Extent bytes;
};

/// Places every value that is materialised without a claim, every concat without one, and scratch.
/// \param scratch  bytes of a sample that a cluster needs beside values; 0: none
Workspace allocateWorkspace(const Clustering &clustering, const Claims &claims, llvm::function_ref<int64_t(const Cluster &)> scratch);

} // namespace zorse::codegen
