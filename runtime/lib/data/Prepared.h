// Checks arrays against the metadata that `python3 -m zorse.data` writes.
#pragma once

#include "zorse/runtime/Status.h"

#include "bundle.pb.h"

#include <string>

namespace zorse::runtime {

/// Returns an error if, by the folder's data.json, the labels are shifted and the model shifts them
/// too, or if neither shifts them.
Status checkPrepared(const bundle::GraphInput &input, const std::string &path);

} // namespace zorse::runtime
