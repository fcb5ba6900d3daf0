// A model summary unit by unit, for models that nobody has exported: each unit feeds the next, each has a state group of its own. Internal.
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::planning {

class SummaryBuilder {
public:
  SummaryBuilder(const std::string &name, bundle::ElementType computeType, uint32_t moments);

protected:
  /// Of one unit per sample.
  struct Work {
    double forward = 0, weights = 0; ///< FLOPs; of the forward, those of products with weights
    double last = 0;                 ///< FLOPs of the forward that only its results need, and not what is saved
    double elementwise = 0;          ///< bytes touched besides
    int64_t saved = 0, deferred = 0;
    bundle::Extent workspace; ///< of every task but the gradients of weights of a backward in two parts
  };
  struct Parameter {
    std::string name;
    std::vector<int64_t> shape;
    bool decays;
  };

  bundle::GraphInput &addInput(const std::string &name, const std::string &role, const std::vector<int64_t> &dims, int64_t bytes, uint32_t unit);
  /// Units of one class do the same work. `splits`: its backward has two parts.
  void addUnit(const std::string &name, uint32_t classId, const Work &work, const std::vector<Parameter> &parameters, bool splits);
  /// From unit u to unit u + 1.
  void addValue(int u, int64_t bytes, const std::vector<int64_t> &dims, bool needsGradient);
  /// The loss of the last unit, a mean over so many terms per sample, and the bodies that are no unit's.
  void finish(double lossTermsPerRow);

  bundle::ModelSummary out;

private:
  uint32_t bodies = 0; ///< so far
  void addFunction(bundle::UnitClass &unitClass, bundle::UnitFunction::Task task, const bundle::Extent &workspace, double flops, double bytes);
  bundle::UnitClass &addClass(const std::string &name, const Work &work);
};

} // namespace zorse::planning
