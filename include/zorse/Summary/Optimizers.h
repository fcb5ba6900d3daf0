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

/// Number of iterations with which Muon orthogonalizes a matrix.
inline constexpr int kNewtonSchulzSteps = 5;

struct OptimizerInfo {
  enum Option : unsigned {
    Betas = 1,
    Epsilon = 2,
    Momentum = 4,
    Nesterov = 8,
    Alpha = 16,
    Centered = 32,
    AmsGrad = 64,
    Matrices = 128, ///< updates hidden weights as matrices, and others as AdamW does
  };

  bundle::TrainingOptions::Optimizer optimizer;
  const char *name;            ///< as on the command line
  unsigned options;            ///< Option, combined
  std::array<double, 2> betas; ///< defaults; 0 for options that it does not have
  double epsilon, alpha;
  double weightDecay, clipNorm; ///< defaults
  bool decoupledDecay = false;  ///< w <- w (1 - lr * decay) instead of g <- g + decay * w
  double momentum = 0;          ///< default; above 0: Nesterov by default

  bool has(Option option) const { return options & option; }
};

/// All optimizers, in the order of the documentation.
const std::vector<OptimizerInfo> &optimizers();

/// The row of an optimizer; that of SGD for OPTIMIZER_UNSPECIFIED.
const OptimizerInfo &infoOf(bundle::TrainingOptions::Optimizer optimizer);

/// The row with this name, or null.
const OptimizerInfo *optimizerNamed(const std::string &name);

/// Number of optimizer states per element of a parameter, including the moving average. \param
/// statistic  running statistics have no others  \param matrix  of Muon: of a hidden weight
uint32_t optimizerStates(const bundle::TrainingOptions &training, bool statistic = false,
                         bool matrix = false);
/// FLOPs of Muon's matmuls per element of a matrix.
double updateFlops(const bundle::Matrix &matrix);
/// Number of optimizer states per element of a group, as its update rules say; 0 if it is frozen or
/// has no rule.
uint32_t optimizerStates(const bundle::ModelSummary &summary, const bundle::FlatGroupInfo &group);
/// The largest of these numbers: of all update rules.
uint32_t maxOptimizerStates(const bundle::ModelSummary &summary);

/// Names as on the command line: "cosine_with_restarts", "minus_sqrt".
std::string nameOf(bundle::TrainingOptions::Schedule schedule);
std::string nameOf(bundle::TrainingOptions::WsdStyle style);

} // namespace zorse
