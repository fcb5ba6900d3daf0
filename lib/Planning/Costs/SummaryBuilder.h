// Builds a model summary unit by unit, for models without an exported graph. Each unit feeds the
// next one, and each has its own state group. Internal.
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::planning {

class SummaryBuilder {
public:
  SummaryBuilder(const std::string &name, bundle::ElementType computeType);

protected:
  /// Work of one unit per sample.
  struct Work {
    double forward = 0, weights = 0; ///< FLOPs of the forward, and of its products with weights
    double last = 0; ///< FLOPs of the forward that compute its results but no saved activations
    double elementwise = 0; ///< bytes touched by elementwise kernels
    int64_t saved = 0, deferred = 0;
    bundle::AffineSize workspace; ///< of every task except the weight gradients of a split backward
  };
  struct Parameter {
    std::string name;
    std::vector<int64_t> shape;
  };

  bundle::GraphInput &addInput(const std::string &name, const std::string &role,
                               const std::vector<int64_t> &dims, int64_t bytes, uint32_t unit);
  /// Adds a unit. Units of one class do equal work. `splits`: the backward has two parts.
  void addUnit(const std::string &name, uint32_t classId, const Work &work,
               const std::vector<Parameter> &parameters, bool splits);
  /// Adds a class. `splits`: of units that split.
  bundle::UnitClass &addClass(const std::string &name, const Work &work, bool splits);
  /// Adds a value that unit u passes to unit u + 1.
  void addValue(int u, int64_t bytes, const std::vector<int64_t> &dims, bool needsGradient);
  /// Adds one update rule for all parameters, with a number of optimizer states per element.
  void addRule(uint32_t optimizerStates);
  /// Adds the loss of the last unit, a mean over `lossTermsPerRow` terms per sample, and the
  /// compiled functions that belong to no unit. Lays out the state groups, with the update rules of
  /// the summary's training options if there is no rule yet. Returns the problem of a parameter
  /// with its rule, or "".
  std::string finish(double lossTermsPerRow);

  bundle::ModelSummary out;
  std::vector<bundle::ElementType> copies; ///< per parameter: type in which it is read;
                                           ///< unspecified: its own

private:
  uint32_t functions = 0; ///< number of compiled functions added
  void addFunction(bundle::UnitClass &unitClass, bundle::UnitFunction::Task task,
                   const bundle::AffineSize &workspace, double flops, double bytes);
  void addSplit(bundle::UnitClass &unitClass, const Work &work);
};

} // namespace zorse::planning
