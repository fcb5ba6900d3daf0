// Training options of the tools (docs/reference/training.md).
#pragma once

#include "zorse/Base/Status.h"

#include "bundle.pb.h"

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace zorse {

/// Training options as given on the command line. `resolve` fills in defaults that depend on the
/// optimizer.
struct TrainingFlags {
  std::string optimizer = "adamw", schedule = "constant";
  std::vector<double> betas = {0.9, 0.95};
  bundle::TrainingOptions options;
  std::vector<CLI::Option *> ofOptimizer; ///< options that select and configure the optimizer,
                                          ///< except the learning rate
  CLI::Option *learningRateOption = nullptr;
  CLI::Option *weightDecay = nullptr, *clip = nullptr;
  double weightDecayValue = 0, clipValue = 0;
  CLI::Option *lossScale = nullptr;
  double lossScaleValue = 0;     ///< 0: default of firstLossScale
  int64_t lossScaleInterval = 0; ///< 0: kLossScaleInterval
  double learningRate = 3e-4, epsilon = 1e-8, momentum = 0, finalRatio = 0.1;
  int64_t warmup = 0, totalSteps = 0;
  uint64_t seed = 0;
  bool nesterov = false;

  void addTo(CLI::App &app);
  bool optimizerGiven() const;
  bool learningRateGiven() const { return learningRateOption && learningRateOption->count() > 0; }
  bool clipGiven() const { return clip && clip->count() > 0; }

  /// Adds only the options that determine the size of the optimizer states.
  void addStateTo(CLI::App &app);
  /// Errors name the option, the expected value and the value found.
  Status resolve(bundle::TrainingOptions &options) const;
};

} // namespace zorse
