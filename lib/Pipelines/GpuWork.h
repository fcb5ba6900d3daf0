// What bodies for GPUs ask of them: the summary's part from which planning models times (TaskWork in bundle.proto).
#pragma once

#include "zorse/Codegen/Codegen.h"
#include "zorse/Units/Units.h"

namespace zorse::pipelines {

/// What one body launches, without the FLOPs inside attention kernels, which only the function that it came from tells.
bundle::TaskWork workOf(const bundle::Body &body);

/// Adds the work of all classes on one architecture to the summary of a module.
/// Precondition: `bodies` were lowered from the module for GPUs, and have all bodies of its classes.
void addGpuWork(mlir::ModuleOp module, bundle::ModelSummary &summary, const codegen::CompiledBodies &bodies);

} // namespace zorse::pipelines
