// Passes from functions to verified programs (Passes.td), and the complete pipeline.
#pragma once

#include "zorse/Step/StepGraph.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include <memory>

namespace zorse::pipelines {

#define GEN_PASS_DECL
#include "zorse/Pipelines/Passes.h.inc"

/// Registers the passes of Passes.td and `zorse-train-pipeline`.
void registerPasses();

} // namespace zorse::pipelines
