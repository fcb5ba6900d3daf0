// A device that has memory but computes nothing. It is a template for new drivers, and it measures
// the host's share of a run. Its description says that its results mean nothing.
#pragma once

#include "zorse/runtime/Device.h"

namespace zorse::runtime {

std::unique_ptr<Device> makeNullDevice(const std::string &name);

} // namespace zorse::runtime
