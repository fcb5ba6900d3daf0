// Offsets of temporaries. Two temporaries overlap only if no launch needs both.
#pragma once

#include "ArgumentLayout.h"
#include "Fusion.h"

namespace zorse::codegen {

struct Workspace {
  llvm::DenseMap<mlir::Value, Place> places; ///< without argument; tensors with a batch dimension
                                             ///< follow all fixed bytes.
  llvm::DenseMap<int, Place> scratch; ///< without argument; scratch buffers of clusters, shared by
                                      ///< their launches
  bundle::AffineSize bytes;
};

/// Allocates every materialized value without a claim, every concat without a claim, and scratch
/// buffers.
/// \param scratch  bytes per sample that a cluster needs in addition to values; 0: none
Workspace allocateWorkspace(const FusionPlan &plan, const BufferAliases &aliases,
                            llvm::function_ref<int64_t(const FusionGroup &)> scratch);

} // namespace zorse::codegen
