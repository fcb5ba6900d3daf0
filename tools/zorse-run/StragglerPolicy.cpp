#include "StragglerPolicy.h"

#include "zorse/Base/Format.h"
#include "zorse/runtime/Simulation.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>

using namespace zorse::run;
using namespace zorse::runtime;

namespace {

constexpr double kLeastGain = 0.05, kPaysBack = 2, kPausesBetween = 10;

double timesOf(const Slowdowns &slowdowns, const std::string &device) {
  const auto found = slowdowns.find(device);
  return found == slowdowns.end() ? 1 : found->second;
}

/// Simulated seconds of a step of a plan; infinity: it cannot be simulated.
double stepSeconds(const StragglerPolicy::Plan &plan, const Slowdowns &observed) {
  Result<Bundle> bundle = loadBundle(plan.bundle, BundleUse::Simulate);
  if (bundle.failed())
    return std::numeric_limits<double>::infinity();
  SimulationOptions options;
  for (const BundleDevice &device : bundle->devices)
    options.speedTimes.push_back(timesOf(plan.slowdowns, device.name) /
                                 timesOf(observed, device.name));
  Result<Simulation> simulation = simulatePrograms(*bundle, options);
  return simulation.failed() ? std::numeric_limits<double>::infinity() : simulation->step;
}

} // namespace

StragglerPolicy::StragglerPolicy(const Options &options)
    : o_(options), switchedAt_(-std::numeric_limits<double>::infinity()) {
  std::error_code none;
  if (!options.resume) // another job's
    std::filesystem::remove(slowDevicesFile(options), none);
}

void StragglerPolicy::poll() { slow_ = readSlowDevices(slowDevicesFile(o_)); }

std::string StragglerPolicy::describe(double gain) const {
  std::string text;
  for (const auto &[name, times] : slow_.times)
    text += (text.empty() ? "" : ", ") + ("device " + name) + " takes " + format("%.1f", times) +
            " times its undisturbed computing time";
  return (text.empty() ? "all devices compute as fast as at the start again" : text) +
         "; the new plan's steps are predicted to be " + format("%.0f %%", 100 * gain) + " shorter";
}

std::optional<std::string> StragglerPolicy::reasonFor(const Plan &other, const Plan &present,
                                                      double now) {
  if (now < switchedAt_ + kPausesBetween * slow_.startSeconds || slow_.startSeconds == 0)
    return std::nullopt;
  const std::string bundles = present.bundle + "\n" + other.bundle + "\n" +
                              slowdownText(slow_.times);
  if (!question_ || question_->bundles != bundles) {
    question_.emplace();
    question_->bundles = bundles;
    question_->gain = std::async(std::launch::async, [other, present, observed = slow_.times] {
      const double before = stepSeconds(present, observed), after = stepSeconds(other, observed);
      return std::isfinite(before) && std::isfinite(after) && before > 0 ? 1 - after / before : 0;
    });
  }
  if (!question_->known) {
    if (question_->gain.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      return std::nullopt;
    question_->known = question_->gain.get();
  }
  const double gain = *question_->known,
               saved = double(o_.steps - std::min(o_.steps, slow_.step)) * slow_.stepSeconds * gain;
  if (gain < kLeastGain || saved <= kPaysBack * slow_.startSeconds)
    return std::nullopt;
  switchedAt_ = now;
  return describe(gain);
}
