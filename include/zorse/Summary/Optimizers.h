// The optimizers: names, options and optimizer states. lib/Units/Optimizers.cpp has their formulas;
// docs/internals/extending.md says how to add one.
#pragma once

#include "bundle.pb.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace zorse {

/// Maximum number of optimizer states per parameter, including the moving average of parameters.
inline constexpr uint32_t kMaxOptimizerStates = 4;

struct OptimizerInfo {
  enum Option : unsigned {
    Betas = 1,
    Epsilon = 2,
    Momentum = 4,
    Nesterov = 8,
    Alpha = 16,
    Centered = 32,
    AmsGrad = 64,
  };

  bundle::TrainingOptions::Optimizer optimizer;
  const char *name;            ///< as on the command line
  unsigned options;            ///< Option, combined
  std::array<double, 2> betas; ///< defaults; 0 for options that it does not have
  double epsilon, alpha;
  double weightDecay, clipNorm; ///< defaults
  bool decoupledDecay = false;  ///< w <- w (1 - lr * decay) instead of g <- g + decay * w

  bool has(Option option) const { return options & option; }
};

/// All optimizers, in the order of the documentation.
const std::vector<OptimizerInfo> &optimizers();

/// The row of an optimizer; that of SGD for OPTIMIZER_UNSPECIFIED.
const OptimizerInfo &infoOf(bundle::TrainingOptions::Optimizer optimizer);

/// The row with this name, or null.
const OptimizerInfo *optimizerNamed(const std::string &name);

/// Number of optimizer states per parameter, including the moving average.
uint32_t optimizerStates(const bundle::TrainingOptions &training);

/// Names as on the command line: "cosine_with_restarts", "minus_sqrt".
std::string nameOf(bundle::TrainingOptions::Schedule schedule);
std::string nameOf(bundle::TrainingOptions::WsdStyle style);

} // namespace zorse
