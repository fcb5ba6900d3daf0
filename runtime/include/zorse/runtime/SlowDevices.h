// Finds devices that become slower than the others during training: another process, a thermal
// limit, a lower clock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace zorse::runtime {

/// Compares each device's computing time with its time at the start of the run, and with how that
/// of the other devices has changed: a step that is longer for all devices is no finding.
class SlowDeviceFinder {
public:
  /// A measurement is the mean of the measured ones of at least this number of steps and seconds.
  static constexpr uint64_t kWindowSteps = 5;
  static constexpr double kWindowSeconds = 0.5;
  /// Limits relative to the earlier time. A device is slow above kSlow, and is named again when its
  /// time has changed by that factor. It has recovered below kSlow, or below kRecovered if it was
  /// not much slower. All of that holds after two measurements in a row.
  static constexpr double kSlow = 1.5, kRecovered = 1.2;

  /// \param planned  planned computing seconds of a step by device; 0: none
  /// \param slow     by device: how many times its time it takes at the start; empty: 1
  explicit SlowDeviceFinder(std::vector<double> planned, const std::vector<double> &slow = {});

  struct Finding {
    uint32_t device = 0;
    bool recovered = false;
    uint64_t since = 0; ///< step after which it is slow
    double earlier = 0; ///< its time divided by that at the start
    double times = 0;   ///< the same, divided by that of the other devices
    double planned = 0; ///< its time divided by the planned time; 0: none
  };
  /// \param step     last step of the measurement
  /// \param steps    number of steps that it covers
  /// \param seconds  mean computing seconds of the device in a step
  std::optional<Finding> add(uint32_t device, uint64_t step, uint64_t steps, double seconds);

private:
  struct Device {
    uint64_t measurements = 0;
    double first = 0;    ///< time at the start, had it not been slow then; 0: unknown
    double atStart = 1;  ///< how many times `first` it took then
    double level = 1;    ///< how many times `first` it took when it was named; 1: it is not slow
    double latest = 0;   ///< relative to `first`
    uint64_t since = 0;  ///< step before the first of `inARow` measurements
    int inARow = 0;      ///< measurements beyond a limit
    bool slower = false; ///< which limit
  };
  std::optional<double> changeOfOthers(uint32_t device) const;

  std::vector<double> planned_;
  std::vector<Device> devices_;
};

} // namespace zorse::runtime
