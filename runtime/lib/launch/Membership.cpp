#include "zorse/runtime/Membership.h"

#include <algorithm>
#include <limits>

using namespace zorse::runtime;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kSoon = 2; ///< a failure within this multiple of the last delay doubles it

} // namespace

Membership::Membership(size_t devices, const Options &options)
    : options_(options), devices_(devices) {}

void Membership::failed(const std::vector<size_t> &devices, double now) {
  ++failures_;
  for (const size_t device : devices) {
    Device &failing = devices_[device];
    const bool again = failing.delay > 0 && now < failing.triedAgainAt + kSoon * failing.delay;
    failing.delay = again ? std::min(2 * failing.delay, options_.maxRejoinSeconds)
                          : options_.rejoinSeconds;
    failing.triedAgainAt = options_.rejoinSeconds > 0 ? now + failing.delay : kNever;
  }
}

void Membership::left(const std::vector<size_t> &devices, double now) {
  for (const size_t device : devices)
    devices_[device].triedAgainAt = options_.rejoinSeconds > 0 ? now + options_.rejoinSeconds
                                                               : kNever;
}

void Membership::progressed() { failures_ = 0; }

void Membership::setAvailable(const std::vector<bool> &available) {
  for (size_t d = 0; d < devices_.size() && d < available.size(); ++d)
    devices_[d].available = available[d];
}

std::vector<bool> Membership::wanted(double now) const {
  std::vector<bool> wanted;
  wanted.reserve(devices_.size());
  for (const Device &device : devices_)
    wanted.push_back(device.available && now >= device.triedAgainAt);
  return wanted;
}

double Membership::nextTry() const {
  double next = kNever;
  for (const Device &device : devices_)
    if (device.available && device.triedAgainAt > 0)
      next = std::min(next, device.triedAgainAt);
  return next;
}
