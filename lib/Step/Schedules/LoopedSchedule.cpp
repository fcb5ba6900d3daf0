#include "LoopedSchedule.h"

#include <algorithm>
#include <map>
#include <set>

using namespace zorse::step;

namespace {

std::string show(const Plan &plan, const std::set<uint32_t> &devices) {
  std::string text;
  for (uint32_t d : devices)
    text += (text.empty() ? "" : ", ") + plan.devices[d].name;
  return text;
}

std::string showUnits(std::pair<int32_t, int32_t> units) {
  return "units " + std::to_string(units.first) + "-" + std::to_string(units.second);
}

} // namespace

zorse::Result<LoopedTiling> zorse::step::findLoopedTiling(const Plan &plan, LoopStyle style) {
  std::map<std::pair<int32_t, int32_t>, std::set<uint32_t>> devicesOf; // by unit range
  for (const Cell &cell : plan.cells)
    devicesOf[{cell.unitBegin, cell.unitEnd}].insert(cell.device);
  std::vector<std::pair<int32_t, int32_t>> ranges;
  for (auto &[range, devices] : devicesOf) {
    if (!ranges.empty() && ranges.back().second != range.first)
      return userError("expected the same cuts between units for all samples, found cells of " +
                       showUnits(ranges.back()) + " and of " + showUnits(range) +
                       "; schedule \"steady_state\" takes any tiling");
    ranges.push_back(range);
  }

  // The first loop ends at the first device that appears again.
  LoopedTiling tiling;
  std::set<uint32_t> seen;
  for (auto &range : ranges) {
    const std::set<uint32_t> &devices = devicesOf[range];
    if (std::any_of(devices.begin(), devices.end(), [&](uint32_t d) { return seen.count(d) > 0; }))
      break;
    seen.insert(devices.begin(), devices.end());
    ++tiling.stages;
  }
  if (tiling.stages == ranges.size())
    return userError("expected devices that hold several ranges of units, found one range on each: "
                     "\"1f1b\" is the schedule of this tiling");
  auto stageOf = [&](size_t chunk) {
    size_t lap = chunk / tiling.stages, at = chunk % tiling.stages;
    return style == LoopStyle::V && lap % 2 ? tiling.stages - 1 - at : at;
  };
  for (size_t chunk = 0; chunk < ranges.size(); ++chunk)
    if (devicesOf[ranges[chunk]] != devicesOf[ranges[stageOf(chunk)]])
      return userError(
          "expected " + showUnits(ranges[chunk]) + " on the devices of " +
          showUnits(ranges[stageOf(chunk)]) + " (" + show(plan, devicesOf[ranges[stageOf(chunk)]]) +
          "), " +
          (style == LoopStyle::Loop ? "as laps of a ring go around" : "as laps go back and forth") +
          ", found " + show(plan, devicesOf[ranges[chunk]]) +
          "; schedule \"steady_state\" takes any tiling");
  tiling.virtualPipelineSize = (ranges.size() + tiling.stages - 1) / tiling.stages;

  tiling.positions.resize(plan.cells.size());
  std::map<std::pair<uint32_t, int32_t>, std::vector<uint32_t>> cellsOf; // by device and first unit
  for (uint32_t c = 0; c < plan.cells.size(); ++c)
    cellsOf[{plan.cells[c].device, plan.cells[c].unitBegin}].push_back(c);
  tiling.stageOf.assign(plan.devices.size(), 0);
  for (size_t chunk = 0; chunk < ranges.size(); ++chunk)
    for (uint32_t device : devicesOf[ranges[chunk]]) {
      tiling.stageOf[device] = stageOf(chunk);
      std::vector<uint32_t> &cells = cellsOf[{device, ranges[chunk].first}];
      std::sort(cells.begin(), cells.end(), [&](uint32_t a, uint32_t b) {
        return plan.cells[a].sampleBegin < plan.cells[b].sampleBegin;
      });
      for (size_t i = 0; i < cells.size(); ++i)
        tiling.positions[cells[i]] = {static_cast<uint32_t>(chunk / tiling.stages),
                                      static_cast<uint32_t>(i)};
    }
  return tiling;
}

std::string LoopedSchedule::whyUnsupported(const Plan &plan, const bundle::ModelSummary &) const {
  Result<LoopedTiling> tiling = findLoopedTiling(plan, style);
  return tiling.failed() ? std::string("schedule \"") + name + "\": " + tiling.message() : "";
}
