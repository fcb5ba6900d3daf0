#include "zorse/runtime/SlowDevices.h"

#include <algorithm>

using namespace zorse::runtime;

SlowDeviceFinder::SlowDeviceFinder(std::vector<double> planned, const std::vector<double> &slow)
    : planned_(std::move(planned)), devices_(planned_.size()) {
  for (size_t d = 0; d < std::min(devices_.size(), slow.size()); ++d) {
    devices_[d].atStart = devices_[d].level = slow[d];
  }
}

std::optional<SlowDeviceFinder::Finding> SlowDeviceFinder::add(uint32_t device, uint64_t step,
                                                               uint64_t steps, double seconds) {
  if (device >= devices_.size() || !(seconds > 0))
    return std::nullopt;
  Device &my = devices_[device];
  // The first measurement contains the start. Of the next two the lower one counts.
  if (++my.measurements == 1)
    return std::nullopt;
  if (const double first = seconds / my.atStart; my.measurements <= 3)
    my.first = my.first == 0 ? first : std::min(my.first, first);
  my.latest = seconds / my.first;
  const std::optional<double> others = my.measurements > 3 ? changeOfOthers(device) : std::nullopt;
  if (!others)
    return std::nullopt;
  const double times = my.latest / *others;
  const bool isSlower = times > kSlow * my.level,
             isFaster = my.level > 1 && times < std::max(kRecovered, my.level / kSlow);
  if (!isSlower && !isFaster) {
    my.inARow = 0;
    return std::nullopt;
  }
  if (isSlower != my.slower)
    my.inARow = 0;
  my.slower = isSlower;
  if (my.inARow == 0)
    my.since = step - std::min(step, steps);
  if (++my.inARow < 2)
    return std::nullopt;
  my.inARow = 0;
  my.level = times < kSlow ? 1 : times;
  return Finding{device,    my.level == 1, my.since,
                 my.latest, times,         planned_[device] > 0 ? seconds / planned_[device] : 0};
}

/// The median of the relative times of the other devices that compute; nullopt if there are none.
std::optional<double> SlowDeviceFinder::changeOfOthers(uint32_t device) const {
  std::vector<double> changes;
  for (uint32_t d = 0; d < devices_.size(); ++d)
    if (d != device && devices_[d].latest > 0)
      changes.push_back(devices_[d].latest);
  if (changes.empty())
    return std::nullopt;
  const auto middle = changes.begin() + std::ptrdiff_t(changes.size() / 2);
  std::nth_element(changes.begin(), middle, changes.end());
  return std::max(*middle, 1.0); // if the others became faster, this one is not slow
}
