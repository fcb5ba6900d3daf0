// zorse-to-cuda, for zorse-opt.
#pragma once

namespace zorse::pipelines {

/// Registers the pipeline `zorse-to-cuda`.
void registerCudaPipeline();

} // namespace zorse::pipelines
