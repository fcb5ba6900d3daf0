// Converts event times to the host's clock.
#pragma once

#include "CudaApi.h"

#include <array>
#include <chrono>
#include <mutex>

namespace zorse::runtime::cuda {

/// Times are seconds of std::chrono::steady_clock. Event differences are floats; an anchor event is
/// therefore recorded again every few seconds.
class EventClock {
public:
  explicit EventClock(const CudaApi &cuda) : cuda_(cuda) {}
  ~EventClock() {
    for (CUevent event : anchors_)
      if (event)
        cuda_.cuEventDestroy_v2(event);
  }

  Status open() {
    for (CUevent &event : anchors_)
      if (Status status =
              cuda_.check("cuEventCreate", cuda_.cuEventCreate(&event, kEventBlockingSync));
          status.failed())
        return status;
    return anchor();
  }

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  /// Time of an event that has completed.
  double secondsOf(CUevent event) {
    constexpr double kAnchored = 8;
    std::lock_guard<std::mutex> lock(mutex_);
    float milliseconds = 0;
    const double latest = now();
    if (cuda_.cuEventElapsedTime(&milliseconds, anchors_[0], event) != kSuccess)
      return latest;
    const double seconds = std::min(at_ + double(milliseconds) * 1e-3, latest);
    if (latest - at_ > kAnchored)
      (void)anchor(); // if it fails, a later call reports the error
    return seconds;
  }

private:
  /// Records the anchor on a stream without work of a step.
  Status anchor() {
    std::swap(anchors_[0], anchors_[1]);
    if (Status status = cuda_.check("cuEventRecord", cuda_.cuEventRecord(anchors_[0], nullptr));
        status.failed())
      return status;
    Status status = cuda_.check("cuEventSynchronize", cuda_.cuEventSynchronize(anchors_[0]));
    at_ = now();
    return status;
  }

  const CudaApi &cuda_;
  std::mutex mutex_;
  std::array<CUevent, 2> anchors_ = {nullptr, nullptr}; ///< the first is in use
  double at_ = 0;
};

} // namespace zorse::runtime::cuda
