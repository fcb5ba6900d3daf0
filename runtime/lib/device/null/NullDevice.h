// A device that has memory and computes nothing: what a new driver starts from, and what the host's part of a run is measured with. Its results mean
// nothing, and it says so.
#pragma once

#include "zorse/runtime/Device.h"

namespace zorse::runtime {

std::unique_ptr<Device> makeNullDevice(const std::string &name);

} // namespace zorse::runtime
