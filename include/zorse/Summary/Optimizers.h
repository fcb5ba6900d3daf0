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
inline constexpr uint32_t kMaxOptimizerStates = 5;

/// Elements of a block of 8-bit states, and the fewest elements of a parameter that has them, as in
/// torchao. Other parameters have states of the type of the parameter.
inline constexpr int64_t kCodeBlock = 256, kFewestCoded = 4096;

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
    Codes = 256,    ///< states of large parameters are 8-bit codes
    Factors = 512,  ///< second moments of matrices are products of rows and columns
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

/// Fills the optimizer states of a rule from its block, including the moving average of parameters,
/// which is the last one. Running statistics have no others.
void addOptimizerStates(const bundle::TrainingOptions &training, bundle::UpdateRule &rule);
/// FLOPs of the matmuls of an update per element: Muon's.
double updateFlops(const bundle::TrainingOptions &training, const bundle::UpdateRule &rule);
/// Number of optimizer states of a group, as its update rules say; 0 if it is frozen or has no
/// rule.
uint32_t optimizerStates(const bundle::ModelSummary &summary, const bundle::FlatGroupInfo &group);
/// The largest of these numbers: of all update rules.
uint32_t maxOptimizerStates(const bundle::ModelSummary &summary);
/// Bytes of optimizer states per element of trained parameters, on average; the largest of all
/// rules if there is no parameter.
double meanStateBytes(const bundle::ModelSummary &summary);

/// Names as on the command line: "cosine_with_restarts", "minus_sqrt".
std::string nameOf(bundle::TrainingOptions::Schedule schedule);
std::string nameOf(bundle::TrainingOptions::WsdStyle style);

} // namespace zorse
