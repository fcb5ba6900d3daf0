// --rebuild-kernels: a bundle from elsewhere is made anew from its model, so that nothing of it is left but numbers.
#pragma once

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Pipelines/Compile.h"

#include <string>

namespace zorse::pipelines {

/// Puts the weights of the bundle `options.rebuild` into `contents`, if its summary is what this compiler made; else an error that says what differs.
/// \param remark  receives what people should know.
Status takeFromBundle(const CompileOptions &options, bundle::BundleContents &contents, std::string &remark);

} // namespace zorse::pipelines
