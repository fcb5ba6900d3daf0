// A layout as cells, and the transfers between neighbouring stages.

#include "DealLayout.h"
#include "QuickSimulation.h"

#include <algorithm>
#include <numeric>

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
  std::vector<step::Cell> dealt; // of all stages of a pipeline, where they share out units
  std::vector<size_t> ends;
  for (size_t p = 0; p < layout.pipelines.size(); ++p) {
    const Pipeline &pipeline = layout.pipelines[p];
    if (twins.isTwin(p)) {
      base += pipeline.samples;
      continue;
    }
    const bool ways = layout.parts > 1;
    dealt.clear();
    ends.clear();
    for (size_t s = 0; s < pipeline.stages.size() && ways; ++s) {
      dealLayoutStage(layout, pipeline.stages[s], base, stageDevices, dealt);
      ends.push_back(dealt.size());
    }
    for (int32_t way = 0; way < layout.parts; ++way) {
      const size_t first = stages.size();
      for (size_t s = 0; s < pipeline.stages.size(); ++s) {
        const Stage &stage = pipeline.stages[s];
        StageInfo info{};
        info.stage = &stage;
        info.unitBegin = (stage.unitBegin + way) / layout.parts;
        info.unitEnd = (stage.unitEnd + way) / layout.parts;
        if (info.unitBegin == info.unitEnd)
          continue;
        info.front = stages.size() == first ? -1 : static_cast<int32_t>(stages.size()) - 1;
        info.behind = -1;
        info.cellBegin = static_cast<uint32_t>(cells.size());
        if (!ways)
          dealLayoutStage(layout, stage, base, stageDevices, cells);
        for (size_t i = ways && s > 0 ? ends[s - 1] : 0; ways && i < ends[s]; ++i)
          if (wayOf(layout, dealt[i].sampleBegin - base) == way)
            cells.push_back(dealt[i]);
        info.cellEnd = static_cast<uint32_t>(cells.size());
        if (info.cellEnd == info.cellBegin) // fewer turns than ways
          continue;
        if (info.front >= 0)
          stages.back().behind = static_cast<int32_t>(stages.size());
        addStage(info);
      }
    }
    base += pipeline.samples;
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
  oneStageEach = true;
  for (uint32_t d = 0; d < devices; ++d) {
    auto begin = cellsOf.begin() + cellsOfBegin[d], end = cellsOf.begin() + cellsOfBegin[d + 1];
    if (begin == end)
      continue;
    devicesUsed.push_back(d);
    auto bySample = [&](uint32_t a, uint32_t b) {
      return cells[a].sampleBegin != cells[b].sampleBegin ? cells[a].sampleBegin < cells[b].sampleBegin : a < b;
    };
    if (stageOf[*begin] != stageOf[*(end - 1)]) {
      oneStageEach = false;
      std::sort(begin, end, bySample);
    }
  }
}

/// As Expansion::findChunks: a device's cells of one range of units, and ranges that overlap.
void QuickSimulation::findChunks() {
  chunks.clear();
  bands.clear();
  chunkOf.resize(cells.size());
  bandOf.resize(cells.size());
  for (uint32_t d = 0; d + 1 < bandsBegin.size(); ++d) {
    const uint32_t before = static_cast<uint32_t>(chunks.size()), firstBand = static_cast<uint32_t>(bands.size());
    bandsBegin[d] = firstBand;
    for (uint32_t i = cellsOfBegin[d]; i < cellsOfBegin[d + 1]; ++i) {
      uint32_t c = cellsOf[i];
      const step::Cell &cell = cells[c];
      uint32_t k = before;
      while (k < chunks.size() && (chunks[k].unitBegin != cell.unitBegin || chunks[k].unitEnd != cell.unitEnd))
        ++k;
      if (k == chunks.size())
        chunks.push_back({cell.unitBegin, cell.unitEnd, c, 0});
      chunkOf[c] = k;
    }
    chunkOrder.resize(chunks.size() - before);
    std::iota(chunkOrder.begin(), chunkOrder.end(), before);
    std::sort(chunkOrder.begin(), chunkOrder.end(),
              [&](uint32_t a, uint32_t b) { return chunks[a].unitBegin != chunks[b].unitBegin ? chunks[a].unitBegin < chunks[b].unitBegin : a < b; });
    for (uint32_t k : chunkOrder) {
      if (bands.size() == firstBand || chunks[k].unitBegin >= bands.back().unitEnd)
        bands.push_back({d, chunks[k].unitEnd, 0, 0, 0});
      bands.back().unitEnd = std::max(bands.back().unitEnd, chunks[k].unitEnd);
      chunks[k].band = static_cast<uint32_t>(bands.size() - 1);
    }
    for (uint32_t i = cellsOfBegin[d]; i < cellsOfBegin[d + 1]; ++i) {
      Band &band = bands[bandOf[cellsOf[i]] = chunks[chunkOf[cellsOf[i]]].band];
      ++band.end; // for the moment: how many
      band.rows += cells[cellsOf[i]].rows();
    }
    uint32_t begin = cellsOfBegin[d];
    for (uint32_t k = firstBand; k < bands.size(); ++k) {
      bands[k].begin = begin;
      begin += bands[k].end;
      bands[k].end = begin;
    }
  }
  bandsBegin.back() = static_cast<uint32_t>(bands.size());
  if (oneStageEach)
    return; // lists are cellsOf
  bandCells.resize(cells.size());
  std::vector<uint32_t> next;
  for (const Band &band : bands)
    next.push_back(band.begin);
  for (uint32_t c : cellsOf)
    bandCells[next[bandOf[c]]++] = c;
}

/// The kinds of its cells.
void QuickSimulation::addStage(StageInfo info) {
  info.kindBegin = static_cast<uint32_t>(kinds.size());
  for (uint32_t c = info.cellBegin; c < info.cellEnd; ++c) {
    uint32_t deviceClass = problem.costs.deviceClass(cells[c].device);
    int64_t rows = cells[c].rows();
    uint32_t k = info.kindBegin;
    while (k < kinds.size() && (kinds[k].rows != rows || kinds[k].deviceClass != deviceClass))
      ++k;
    if (k == kinds.size()) {
      const UnitTimes::Prefix &times = unitTimes.of(deviceClass, rows);
      size_t a = static_cast<size_t>(info.unitBegin), b = static_cast<size_t>(info.unitEnd);
      Kind kind;
      kind.deviceClass = deviceClass;
      kind.rows = rows;
      kind.forward = times.forward[b] - times.forward[a];
      kind.backward = split ? times.inputGradients[b] - times.inputGradients[a] : times.backward[b] - times.backward[a];
      kind.weights = split ? times.weightGradients[b] - times.weightGradients[a] : 0;
      kind.inputBytes = tables.inputBytesOf(info.unitBegin, info.unitEnd) * static_cast<double>(rows);
      kind.bytes = tables.cellBytes(info.unitBegin, info.unitEnd, rows, split);
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
    int32_t cut = info.unitEnd;
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
