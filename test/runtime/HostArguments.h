// Arguments in the test's own memory, for devices whose memory is the host's.
#pragma once

#include "zorse/runtime/Device.h"

#include <initializer_list>
#include <vector>

namespace zorse::runtime::test {

class HostArguments {
public:
  HostArguments(std::initializer_list<void *> pointers) {
    for (void *pointer : pointers)
      addresses_.push_back(DeviceAddress::ofHost(pointer));
  }
  operator const DeviceAddress *() const { return addresses_.data(); }

private:
  std::vector<DeviceAddress> addresses_;
};

} // namespace zorse::runtime::test
