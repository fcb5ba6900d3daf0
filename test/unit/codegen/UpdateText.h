// The updates of optimizers as text, for tests of code generation.
#pragma once

#include "bundle.pb.h"

#include <string>
#include <vector>

namespace zorse::test {

/// The body of an update function. Its arguments are, in this order, %arg0 (parameters), %arg1
/// (gradients), one for each optimizer state, the learning rate, the clip factor, the skip flag and
/// the optimizer step.
struct UpdateText {
  int states = 0;
  std::string lines;
  std::vector<std::string> results; ///< names of the new parameters and states
};

/// \param element  "f32" or "f64"
UpdateText updateText(const bundle::TrainingOptions &training, double weightDecay,
                      const std::string &element);

struct OptimizerCase {
  const char *name;
  std::string options; ///< of TrainingOptions, as text
  double weightDecay = 0;
  std::vector<int> positive = {}; ///< states that are not negative

  bundle::TrainingOptions training() const;
};

/// Every optimizer and option that changes the function.
const std::vector<OptimizerCase> &optimizerCases();

} // namespace zorse::test
