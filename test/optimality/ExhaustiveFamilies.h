// Families of layouts for the enumeration. A family fixes the devices of every stage, the cuts, the
// split of the batch and the state rule, and has a lower bound on its step time.
#pragma once

#include "Exhaustive.h"
#include "ExhaustiveBounds.h"

#include <functional>

namespace zorse::optimality {

struct Family {
  double bound = 0;
  std::vector<PipelineShape> pipelines;
  planning::ShardSizing state = planning::ShardSizing::Equal;
};

class Families {
public:
  Families(const planning::Problem &problem, const ExhaustiveOptions &options);

  void onePipeline(std::vector<Family> &families) const;
  void twoPipelines(std::vector<Family> &families) const;

protected:
  /// Whether the labeling is the first of all labelings that permutations of equal devices and of
  /// pipelines make of it. `stabiliser` receives the permutations that leave it unchanged.
  bool canonical(const std::vector<const Shape *> &pipelines,
                 std::vector<const std::vector<int> *> *stabiliser = nullptr) const;
  double fastestLink(Mask from, Mask to, int cut) const;
  Path pathOf(const PipelineShape &p) const;

  const planning::Problem &problem;
  const ExhaustiveOptions &options;
  Tables t;
  const int n, U;
  const int64_t B;
  double limit; ///< layouts that are not faster are skipped

private:
  void addShapes(Shape shape, Mask free);
  size_t busyIndex(Mask m, int begin, int end, int64_t samples) const {
    return ((static_cast<size_t>(m) * (U + 1) + begin) * (U + 1) + end) * (B + 1) +
           static_cast<size_t>(samples);
  }
  void minBusy();
  double minOver(Mask m, int begin, int end, int64_t samples, int rows) const;
  double fastestCell(Mask m, int begin, int end, bool forwards) const;
  double familyBound(const PipelineShape &p, const Path &path, const State &state) const;
  void cuts(size_t stages, std::vector<int> &ends,
            const std::function<void(const std::vector<int> &)> &act) const;
  void addFamily(std::vector<Family> &families, std::vector<PipelineShape> pipelines) const;

  std::vector<std::vector<int>> group;
  std::vector<Shape> shapes; ///< ordered partitions of subsets of the devices
  std::vector<double> min;
};

} // namespace zorse::optimality
