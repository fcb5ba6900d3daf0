// Training options of the tools (docs/reference/training.md).
#pragma once

#include "ScheduleFlags.h"

#include "zorse/Base/Status.h"

#include "bundle.pb.h"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

namespace zorse {

/// Training options as given on the command line. `resolve` fills in defaults that depend on the
/// optimizer.
struct TrainingFlags {
  std::string optimizer = "adamw";
  std::vector<double> betas;
  std::optional<double> epsilon, alpha, momentum, weightDecay, clipNorm, clipValue;
  std::optional<double> beta2Decay, epsilon2, updateClip; ///< of Adafactor
  bool nesterov = false, noNesterov = false, centered = false, amsgrad = false,
       noScaleParameter = false;
  std::string muonScale;
  double emaDecay = 0;
  std::vector<std::string> groups; ///< texts of --param-group
  ScheduleFlags schedule;
  std::vector<CLI::Option *> ofOptimizer; ///< options that select and configure the optimizer,
                                          ///< except the learning rate
  std::optional<double> lossScale;        ///< none: default of firstLossScale
  int64_t lossScaleInterval = 0;          ///< 0: kLossScaleInterval
  uint64_t seed = 0;

  void addTo(CLI::App &app);
  bool optimizerGiven() const;
  bool learningRateGiven() const { return schedule.learningRate.has_value(); }
  bool clipGiven() const { return clipNorm || clipValue; }

  /// Adds only the options that plans depend on.
  void addStateTo(CLI::App &app);
  /// Errors name the option, the expected value and the value found.
  Status resolve(bundle::TrainingOptions &options);

private:
  /// Adds an option of the optimizer.
  template <typename Value>
  CLI::Option *addOfOptimizer(CLI::App &app, const char *name, Value &value,
                              const std::string &text);
  CLI::Option *addFlag(CLI::App &app, const char *name, bool &value, const char *text);
  Status checkOptions(const bundle::TrainingOptions &options) const;
};

} // namespace zorse
