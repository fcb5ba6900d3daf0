// What `python3 -m zorse.data` says about the arrays that it has written.
#pragma once

#include "zorse/runtime/Status.h"

#include "bundle.pb.h"

#include <string>

namespace zorse::runtime {

/// An error where the folder of an array says (data.json) that labels are shifted and the model shifts them too, or that neither does.
Status checkPrepared(const bundle::GraphInput &input, const std::string &path);

} // namespace zorse::runtime
