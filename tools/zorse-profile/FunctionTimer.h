// Measures the unit functions of a bundle on one device at several batch sizes. Rounds over all
// functions are interleaved and repeated until the medians are stable.
#pragma once

#include "zorse/Planning/Profile.h"
#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Device.h"

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace zorse::profile {

/// Options of timeFunctions.
struct TimerOptions {
  std::vector<int64_t> rows;   ///< batch sizes, ascending
  double sampleSeconds = 0.02; ///< minimum duration of a sample
  double budgetSeconds = 120;  ///< no round starts after it, but at least three are completed
  double spread = 0.03;        ///< stability limit: interquartile range / median
  uint64_t memory = 0;         ///< bytes that may be allocated
  double cpus = 0;  ///< CPUs that the device's single thread should get; a warning is printed below
                    ///< 0.9 of it. 0: unknown
  double quota = 0; ///< CPUs that a control group allows the device, if its threads use all of
                    ///< them; 0: none. CPU time is then measured, and the part of the quota that
                    ///< was available.
  std::function<void(const std::string &)> say; ///< receives progress lines; null: silent
};

/// Measures unit classes, update, norm, copy and load on `device`, which has loaded the bundle's
/// functions. Leaves `profile.device` empty.
/// \param processors  receives the number of CPUs that this process had during the measurement of
///                    the classes
runtime::Result<planning::DeviceProfile> timeFunctions(runtime::Device &device,
                                                       const runtime::Bundle &bundle,
                                                       const TimerOptions &options, double &cpus);

} // namespace zorse::profile
