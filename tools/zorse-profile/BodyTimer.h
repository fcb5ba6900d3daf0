// Times of the unit functions of a bundle on one device: several row counts, rounds interleaved, medians, until they are stable.
#pragma once

#include "zorse/Planning/Profile.h"
#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Device.h"

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace zorse::profile {

struct TimerOptions {
  std::vector<int64_t> rows;   ///< ascending
  double sampleSeconds = 0.02; ///< one sample lasts at least this long
  double budgetSeconds = 120;  ///< after it no round begins, but at least three are done
  double spread = 0.03;        ///< stable: distance of the quartiles over the median
  uint64_t memory = 0;         ///< bytes that may be used
  double processors = 0;       ///< that the device's one thread should get; less than 0.9 of it is reported. 0: not known
  double quota = 0; ///< processors that a control group leaves the device and that its threads use up: processor time is measured, and how much of it
                    ///< there was. 0: none
  std::function<void(const std::string &)> say; ///< a line for people; null: silent
};

/// Classes, update, norm, copy and load of `device`, which has loaded the bundle's bodies. `profile.device` is left empty.
/// \param processors  receives how many processors this process had while it measured the classes
runtime::Result<planning::DeviceProfile> timeBodies(runtime::Device &device, const runtime::Bundle &bundle, const TimerOptions &options,
                                                    double &processors);

} // namespace zorse::profile
