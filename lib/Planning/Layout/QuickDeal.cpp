// A layout as cells, and the transfers between neighbouring stages.

#include "QuickSimulation.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

void QuickSimulation::deal(const Layout &layout) {
  cells.clear();
  kinds.clear();
  stages.clear();
  kindOf.clear();
  stageOf.clear();
  split = layout.schedule.splitBackward;
  int64_t base = 0;
  uint32_t p = 0;
  for (const Pipeline &pipeline : layout.pipelines) {
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      const Stage &stage = pipeline.stages[s];
      StageInfo info{};
      info.stage = &stage;
      info.pipeline = p;
      info.front = s == 0 ? -1 : static_cast<int32_t>(stages.size()) - 1;
      info.behind = s + 1 == pipeline.stages.size() ? -1 : static_cast<int32_t>(stages.size()) + 1;
      info.cellBegin = static_cast<uint32_t>(cells.size());
      info.kindBegin = static_cast<uint32_t>(kinds.size());
      stageDevices.clear();
      for (const Member &member : stage.members)
        if (member.samples > 0)
          stageDevices.push_back({member.device, member.samples, member.rows});
      step::dealStage(stage.unitBegin, stage.unitEnd, base, stageDevices, cells);
      info.cellEnd = static_cast<uint32_t>(cells.size());
      for (uint32_t c = info.cellBegin; c < info.cellEnd; ++c) {
        uint32_t deviceClass = problem.costs.deviceClass(cells[c].device);
        int64_t rows = cells[c].rows();
        uint32_t k = info.kindBegin;
        while (k < kinds.size() && (kinds[k].rows != rows || kinds[k].deviceClass != deviceClass))
          ++k;
        if (k == kinds.size()) {
          const UnitTimes::Prefix &times = unitTimes.of(deviceClass, rows);
          size_t a = static_cast<size_t>(stage.unitBegin), b = static_cast<size_t>(stage.unitEnd);
          Kind kind;
          kind.deviceClass = deviceClass;
          kind.rows = rows;
          kind.forward = times.forward[b] - times.forward[a];
          kind.backward = split ? times.inputGradients[b] - times.inputGradients[a] : times.backward[b] - times.backward[a];
          kind.weights = split ? times.weightGradients[b] - times.weightGradients[a] : 0;
          kind.inputBytes = tables.inputBytesOf(stage.unitBegin, stage.unitEnd) * static_cast<double>(rows);
          kind.bytes = tables.cellBytes(stage.unitBegin, stage.unitEnd, rows, split);
          kinds.push_back(kind);
        }
        kindOf.push_back(k);
        stageOf.push_back(static_cast<uint32_t>(stages.size()));
      }
      info.kindEnd = static_cast<uint32_t>(kinds.size());
      info.cellsLeft = info.cellEnd - info.cellBegin;
      info.gathers = 0;
      stages.push_back(info);
    }
    base += pipeline.samples;
    ++p;
  }
  // Cells by device, by (sample, unit): a counting sort of cells by (sample, unit).
  size_t devices = problem.cluster.devices.size();
  std::fill(cellsOfBegin.begin(), cellsOfBegin.end(), 0);
  for (const step::Cell &cell : cells)
    ++cellsOfBegin[cell.device + 1];
  for (size_t d = 0; d < devices; ++d)
    cellsOfBegin[d + 1] += cellsOfBegin[d];
  cellsOf.resize(cells.size());
  for (size_t d = 0; d < devices; ++d)
    position[d] = cellsOfBegin[d];
  for (uint32_t c = 0; c < cells.size(); ++c)
    cellsOf[position[cells[c].device]++] = c; // by stage, then sample
  devicesUsed.clear();
  for (uint32_t d = 0; d < devices; ++d) {
    auto begin = cellsOf.begin() + cellsOfBegin[d], end = cellsOf.begin() + cellsOfBegin[d + 1];
    if (begin == end)
      continue;
    devicesUsed.push_back(d);
    auto bySample = [&](uint32_t a, uint32_t b) { return cells[a].sampleBegin != cells[b].sampleBegin ? cells[a].sampleBegin < cells[b].sampleBegin : a < b; };
    if (stageOf[*begin] != stageOf[*(end - 1)])
      std::sort(begin, end, bySample);
  }
}

void QuickSimulation::connect() {
  size_t count = cells.size();
  transfers.clear();
  gradients.clear();
  sends.assign(count, {0, 0});
  gradientSends.assign(count, {0, 0});
  pendingForward.assign(count, 0);
  pendingBackward.assign(count, 0);
  for (const StageInfo &info : stages) {
    if (info.behind < 0)
      continue;
    const StageInfo &behind = stages[static_cast<size_t>(info.behind)];
    int32_t cut = info.stage->unitEnd;
    const auto &values = tables.valuesAt(cut), &valueGradients = tables.gradientsAt(cut);
    // Both lists are by sample: pairs come in order of both.
    for (uint32_t a = info.cellBegin, b = behind.cellBegin; a < info.cellEnd && b < behind.cellEnd;) {
      int64_t rows = std::min(cells[a].sampleEnd, cells[b].sampleEnd) - std::max(cells[a].sampleBegin, cells[b].sampleBegin);
      if (sends[a].begin == sends[a].end)
        sends[a].begin = sends[a].end = static_cast<uint32_t>(transfers.size());
      for (uint64_t bytes : values) {
        transfers.push_back({a, b, static_cast<double>(bytes * static_cast<uint64_t>(rows))});
        ++sends[a].end;
        ++pendingForward[b];
      }
      if (gradientSends[b].begin == gradientSends[b].end)
        gradientSends[b].begin = gradientSends[b].end = static_cast<uint32_t>(gradients.size());
      for (uint64_t bytes : valueGradients) {
        gradients.push_back({b, a, static_cast<double>(bytes * static_cast<uint64_t>(rows))});
        ++gradientSends[b].end;
        ++pendingBackward[a];
      }
      if (cells[a].sampleEnd < cells[b].sampleEnd)
        ++a;
      else if (cells[a].sampleEnd > cells[b].sampleEnd)
        ++b;
      else
        ++a, ++b;
    }
  }
  sendsLeft.resize(count);
  gradientSendsLeft.resize(count);
  for (size_t c = 0; c < count; ++c) {
    sendsLeft[c] = sends[c].end - sends[c].begin;
    gradientSendsLeft[c] = gradientSends[c].end - gradientSends[c].begin;
  }
}
