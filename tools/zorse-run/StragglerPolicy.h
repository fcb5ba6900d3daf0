// Decides whether an elastic job continues with another plan because devices have become slow, or
// fast again.
//
// A switch pays if the time that it saves in the rest of the run is more than twice its own:
//
//     (last step - step) * step seconds * gain > 2 * start seconds,   gain >= 5 %
//
// The gain is 1 - T(new plan) / T(present plan), both simulated with the observed speeds. So that
// switches take at most a tenth of the time, the next one is 10 * start seconds later.
#pragma once

#include "SlowDevices.h"
#include "StandbyBundles.h"

#include <future>
#include <optional>
#include <string>

namespace zorse::run {

class StragglerPolicy {
public:
  explicit StragglerPolicy(const Options &options);

  /// Reads what rank 0 has written.
  void poll();
  /// Devices that are slow at present.
  const Slowdowns &observed() const { return slow_.times; }

  /// A bundle, and the slowdowns that its plan knows.
  struct Plan {
    std::string bundle;
    Slowdowns slowdowns;
  };
  /// Returns the reason to continue with another plan if that pays. The first calls only start the
  /// simulations, which run in another thread. \param now seconds
  std::optional<std::string> reasonFor(const Plan &other, const Plan &present, double now);

private:
  std::string describe(double gain) const;

  const Options &o_;
  SlowDevices slow_;
  double switchedAt_; ///< time of the last switch
  struct Question {
    std::string bundles; ///< which plans are compared, and for which slowdowns
    std::future<double> gain;
    std::optional<double> known;
  };
  std::optional<Question> question_;
};

} // namespace zorse::run
