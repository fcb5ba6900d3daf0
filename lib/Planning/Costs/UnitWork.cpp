// What a unit has to compute, from the summary.
#include "CostTables.h"

#include "zorse/Step/UnitTasks.h"

#include "bundle.pb.h"

#include <algorithm>
#include <tuple>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Matrix rows of one sample: all dimensions but the last of what flows through the unit; of ids, which have no channels, all.
double positions(const bundle::ModelSummary &summary, const bundle::UnitInfo &unit) {
  const bundle::ValueInfo *largest = nullptr;
  auto consider = [&](const auto &values) {
    for (uint32_t v : values) {
      const bundle::ValueInfo &value = summary.values(static_cast<int>(v));
      if (!largest ||
          std::make_tuple(value.needs_gradient(), value.bytes_per_row()) > std::make_tuple(largest->needs_gradient(), largest->bytes_per_row()))
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
  return std::lexicographical_compare(std::begin(tasks), std::end(tasks), std::begin(o.tasks), std::end(o.tasks));
}

UnitWork zorse::planning::unitWork(const bundle::ModelSummary &summary, int32_t index) {
  const bundle::UnitInfo &unit = summary.units(index);
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
  // A unit that does not split does all of its backward in one of the two (step::unitTask). A summary in which none does was made before backwards
  // could be split: a forward and the two parts of its backward then take a third of the whole each, where a unit has both.
  bool known = std::any_of(summary.units().begin(), summary.units().end(), [](const bundle::UnitInfo &other) { return other.splits(); });
  bool inputs =
      std::any_of(unit.values_in().begin(), unit.values_in().end(), [&](uint32_t v) { return summary.values(static_cast<int>(v)).needs_gradient(); });
  bool weights = std::any_of(unit.parameters().begin(), unit.parameters().end(),
                             [&](uint32_t q) { return summary.parameters(static_cast<int>(q)).trainable(); });
  double first = inputs && weights && !known ? 0.5 : weights && !inputs ? 0 : 1;
  work.inputPart = first;
  const Work &whole = work.tasks[size_t(step::UnitTask::Backward)];
  work.tasks[size_t(step::UnitTask::InputGradients)] = {first * whole.flops, first * whole.bytes, p};
  work.tasks[size_t(step::UnitTask::WeightGradients)] = {(1 - first) * whole.flops, (1 - first) * whole.bytes, p};
  return work;
}
