// Which devices take part in an elastic job. Pure decisions, in time that the caller gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zorse::runtime {

/// A device takes part unless it is not available (as the cluster's resource manager says) or has
/// failed. A device that failed is tried again after a delay. The delay doubles if the device fails
/// again soon after it was tried, as for containers in Kubernetes (CrashLoopBackOff).
class Membership {
public:
  struct Options {
    double rejoinSeconds = 60; ///< delay after a failure; 0: the device is not tried again
    double maxRejoinSeconds = 3600;
    uint32_t maxFailures = 5; ///< failures of the job without progress in between, after which it
                              ///< gives up: then the cause is not a device
  };

  Membership(size_t devices, const Options &options);

  /// The job has failed because of these devices; none: the cause is not known. \param now seconds,
  /// from any origin
  void failed(const std::vector<size_t> &devices, double now);
  /// These devices leave. They are tried again like devices that failed once. \param now seconds
  void left(const std::vector<size_t> &devices, double now);
  /// The job has progressed: a checkpoint was completed that it can continue from.
  void progressed();
  /// Sets which devices are available.
  void setAvailable(const std::vector<bool> &available);

  /// Returns which devices should take part now.
  std::vector<bool> wanted(double now) const;
  /// Returns the time at which the first device that failed is tried again; infinity: none is.
  double nextTry() const;
  /// Whether the job has failed repeatedly without progress.
  bool isHopeless() const { return failures_ >= options_.maxFailures; }

private:
  struct Device {
    bool available = true;
    double triedAgainAt = 0; ///< it takes part from this time on
    double delay = 0;        ///< of the last failure
  };
  Options options_;
  std::vector<Device> devices_;
  uint32_t failures_ = 0; ///< since the last progress
};

} // namespace zorse::runtime
