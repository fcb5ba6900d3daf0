// Work of a unit, from the summary.
#include "CostTables.h"

#include "zorse/Step/UnitTasks.h"

#include "bundle.pb.h"

#include <algorithm>
#include <tuple>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Returns the matrix rows of one sample: the product of all dimensions except the last of the
/// unit's largest value; for ids, which have no channels, of all dimensions.
double positions(const bundle::ModelSummary &summary, const bundle::UnitInfo &unit) {
  const bundle::ValueInfo *largest = nullptr;
  auto consider = [&](const auto &values) {
    for (uint32_t v : values) {
      const bundle::ValueInfo &value = summary.values(static_cast<int>(v));
      if (!largest || std::make_tuple(value.needs_gradient(), value.bytes_per_row()) >
                          std::make_tuple(largest->needs_gradient(), largest->bytes_per_row()))
        largest = &value;
    }
  };
  consider(unit.values_out());
  consider(unit.values_in());
  double product = 1;
  if (largest) {
    for (int i = 0; i + 1 < largest->shape_size(); ++i)
      product *= static_cast<double>(std::max<int64_t>(largest->shape(i), 1));
    return product;
  }
  for (uint32_t i : unit.inputs()) {
    double ids = 1;
    for (int64_t dimension : summary.inputs(static_cast<int>(i)).shape())
      ids *= static_cast<double>(std::max<int64_t>(dimension, 1));
    product = std::max(product, ids);
  }
  return product;
}

} // namespace

bool UnitWork::operator<(const UnitWork &o) const {
  if (classId != o.classId)
    return classId < o.classId;
  return std::lexicographical_compare(std::begin(tasks), std::end(tasks), std::begin(o.tasks),
                                      std::end(o.tasks));
}

UnitWork zorse::planning::unitWork(const bundle::ModelSummary &summary, step::UnitRef index) {
  const bundle::UnitInfo &unit = step::unitInfo(summary, index);
  UnitWork work;
  work.classId = unit.class_id();
  double p = positions(summary, unit);
  for (step::UnitTask task : step::kUnitTasks) {
    const bundle::UnitFunction &function = step::unitFunction(summary, index, task);
    work.tasks[size_t(task)] = {function.flops_per_row(), function.bytes_per_row(), p};
  }
  work.splits = unit.splits();
  if (work.splits)
    return work;
  // A unit that does not split executes its whole backward in one of the two parts
  // (step::unitTask). If no unit of a summary splits, the summary is older than split backwards. A
  // forward and the two parts of its backward then take a third of the total each, if the unit has
  // both parts.
  bool known = std::any_of(summary.units().begin(), summary.units().end(),
                           [](const bundle::UnitInfo &other) { return other.splits(); });
  bool inputs = std::any_of(unit.values_in().begin(), unit.values_in().end(), [&](uint32_t v) {
    return summary.values(static_cast<int>(v)).needs_gradient();
  });
  bool weights = std::any_of(unit.parameters().begin(), unit.parameters().end(), [&](uint32_t q) {
    return summary.parameters(static_cast<int>(q)).trainable();
  });
  double first = inputs && weights && !known ? 0.5 : weights && !inputs ? 0 : 1;
  work.inputPart = first;
  const Work &whole = work.tasks[size_t(step::UnitTask::Backward)];
  work.tasks[size_t(step::UnitTask::InputGradients)] = {first * whole.flops, first * whole.bytes,
                                                        p};
  work.tasks[size_t(step::UnitTask::WeightGradients)] = {(1 - first) * whole.flops,
                                                         (1 - first) * whole.bytes, p};
  return work;
}
