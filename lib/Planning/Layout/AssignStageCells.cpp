#include "AssignStageCells.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

void zorse::planning::assignStageCells(const Strategy &strategy, const Stage &stage, int64_t base,
                                       std::vector<step::StageDevice> &devices,
                                       std::vector<step::Cell> &cells) {
  devices.clear();
  for (const step::StageDevice &member : stage.members)
    if (member.samples > 0)
      devices.push_back(member);
  const size_t first = cells.size();
  step::assignMicroBatches(stage.unitBegin, stage.unitEnd, base, devices, cells);
  if (strategy.boundaryDenominator == 1)
    return;
  const std::vector<step::Cell> dealt(cells.begin() + static_cast<long>(first), cells.end());
  cells.resize(first);
  for (const step::Cell &cell : dealt)
    for (int64_t begin = cell.sampleBegin; begin < cell.sampleEnd;) {
      int64_t end =
          std::min(cell.sampleEnd, base + ((begin - base) / strategy.samplesPerVariant + 1) *
                                              strategy.samplesPerVariant);
      int32_t boundaryVariant = boundaryVariantOf(strategy, begin - base);
      step::Cell piece{(stage.unitBegin + boundaryVariant) / strategy.boundaryDenominator,
                       (stage.unitEnd + boundaryVariant) / strategy.boundaryDenominator, begin, end,
                       cell.device};
      if (piece.unitBegin < piece.unitEnd)
        cells.push_back(piece);
      begin = end;
    }
}
