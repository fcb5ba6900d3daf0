// Options of the learning rate and its schedule, which zorse-compile and zorse-run have.
#pragma once

#include "zorse/Base/Status.h"

#include "bundle.pb.h"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

namespace zorse {

/// Given options; those that are not given leave the training options as they are.
struct ScheduleFlags {
  std::optional<double> learningRate, finalRatio, decayPower;
  std::optional<int64_t> warmup, totalSteps, cycles, wsdDecaySteps;
  std::string schedule, wsdDecayStyle, file;

  /// \param compiled  whether defaults are those of the bundle
  void addTo(CLI::App &app, const std::string &group, bool compiled);
  /// Reads --lr-schedule-file. Errors name the option, the expected value and the value found.
  Status apply(bundle::TrainingOptions &training) const;
  /// All options as text, except the contents of --lr-schedule-file.
  std::string text() const;
  /// The names of these options.
  static const std::vector<std::string> &names();
};

} // namespace zorse
