// Reads pipelines and stages out of the cells of a plan. Internal to Planning.
#pragma once

#include "ReadStrategy.h"

namespace zorse::planning {

/// Reads the pipelines of a strategy: samples that share devices are one pipeline, and ranges of
/// units of a pipeline are its stages. Stages that share units have a fixed pattern of ranges,
/// which is tried with several numbers of parts.
Result<ReadStrategy> readTiling(const step::Plan &plan, int32_t units);

} // namespace zorse::planning
