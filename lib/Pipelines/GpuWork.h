// Work of compiled functions on GPUs: the part of the summary from which the planner models times
// (FunctionCost in bundle.proto).
#pragma once

#include "zorse/Codegen/Codegen.h"
#include "zorse/Units/Units.h"

namespace zorse::pipelines {

/// Returns the launches of one compiled function, without the FLOPs inside attention kernels, which
/// are computed from its MLIR function.
bundle::FunctionCost workOf(const bundle::CompiledFunction &compiled);

/// Adds the work of all classes on one architecture to the summary of a module.
/// Precondition: `functions` were lowered from the module for GPUs, and contain all compiled
/// functions of its classes.
void addGpuWork(mlir::ModuleOp module, bundle::ModelSummary &summary,
                const codegen::CompiledFunctions &functions);

} // namespace zorse::pipelines
