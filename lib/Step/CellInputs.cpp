#include "CellInputs.h"

#include "CellTemplates.h"

#include <algorithm>

using namespace zorse::step;

std::vector<CellInputs::Range> &CellInputs::rangesOf(uint32_t device, uint32_t input) {
  return ranges[device * static_cast<size_t>(x.summary.inputs_size()) + input];
}

void CellInputs::plan() {
  ranges.resize(x.plan.devices.size() * static_cast<size_t>(x.summary.inputs_size()));
  for (uint32_t d = 0; d < x.plan.devices.size(); ++d)
    for (uint32_t c : x.cellsOf[d])
      for (auto [input, tasks] : x.shapeOf[c]->inputs)
        rangesOf(d, input).push_back({x.plan.cells[c].sampleBegin, x.plan.cells[c].sampleEnd});
  auto less = [](const Range &a, const Range &b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  };
  for (size_t i = 0; i < ranges.size(); ++i) {
    std::vector<Range> &list = ranges[i];
    if (list.empty())
      continue;
    if (!std::is_sorted(list.begin(), list.end(), less))
      std::sort(list.begin(), list.end(), less);
    const uint64_t row =
        x.summary.inputs(static_cast<int>(i % static_cast<size_t>(x.summary.inputs_size())))
            .bytes_per_row();
    size_t kept = 0;
    for (const Range &range : std::vector<Range>(list)) {
      const bool inside = kept > 0 && range.end <= list[kept - 1].end &&
                          (range.begin - list[kept - 1].begin) * row % kRegionAlignment == 0;
      bool repeated = inside;
      for (size_t k = kept; k > 0 && !repeated && list[k - 1].begin == range.begin; --k)
        repeated = list[k - 1].end == range.end;
      if (!repeated)
        list[kept++] = range;
    }
    list.resize(kept);
  }
}

CellInputs::Range &CellInputs::find(const Cell &cell, uint32_t input) {
  auto &list = rangesOf(cell.device, input);
  uint64_t row = x.summary.inputs(input).bytes_per_row();
  // Ranges are sorted by begin. Finds the last one that contains the cell at an aligned offset.
  auto it = std::upper_bound(list.begin(), list.end(), cell.sampleBegin,
                             [](int64_t s, const Range &r) { return s < r.begin; });
  while (it != list.begin()) {
    --it;
    if (it->begin <= cell.sampleBegin && cell.sampleEnd <= it->end &&
        (cell.sampleBegin - it->begin) * row % kRegionAlignment == 0)
      return *it;
  }
  return list.front(); // unreachable: plan() kept a range for every cell
}

void CellInputs::load(uint32_t c) {
  const Cell &cell = x.plan.cells[c];
  for (auto [input, tasks] : x.shapeOf[c]->inputs) {
    Range &range = find(cell, input);
    if (range.loaded == kNone) {
      range.loaded = static_cast<uint32_t>(x.inputs.size());
      x.inputs.push_back(loadRange(c, input, range.begin, range.end));
    }
    x.loads.push_back(range.loaded);
  }
}

InputRows CellInputs::loadRange(uint32_t c, uint32_t input, int64_t begin, int64_t end) {
  const Cell &cell = x.plan.cells[c];
  const uint64_t bytes = static_cast<uint64_t>(end - begin) *
                         x.summary.inputs(static_cast<int>(input)).bytes_per_row();
  const uint32_t buffer = x.addBuffer(cell.device, bytes, MemoryCategory::Activations);
  const uint32_t op =
      x.addOp(x.costs->load(cell.device, bytes), kShortPriority, begin, cell.unitBegin);
  x.ops[op].cell = c;
  x.ops[op].needsAdmission = true;
  x.addAccess(op, buffer);
  x.addInstruction(cell.device, kLoad);
  x.describe(OpKind::LoadInput, static_cast<uint32_t>(x.inputs.size()));
  return {input, begin, end, buffer, op};
}
