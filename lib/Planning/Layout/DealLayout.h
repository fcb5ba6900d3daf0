// A stage of a layout as cells. Internal to Planning.
#pragma once

#include "zorse/Planning/Layout.h"
#include "zorse/Step/Deal.h"

namespace zorse::planning {

/// Appends the stage's cells of all ways, by sample: dealt to its devices whatever their way, cut where turns end, and left out where a way has no
/// units here.
/// \param base     the pipeline's first sample
/// \param devices  memory to work in
void dealLayoutStage(const Layout &layout, const Stage &stage, int64_t base, std::vector<step::StageDevice> &devices, std::vector<step::Cell> &cells);

/// The way that a sample of the pipeline takes: in every round all ways, and in other places than in the round before, so that whoever gets every
/// third sample comes to all of them; ways whose cuts are alike stand apart (van der Corput's order, parts being a power of two).
inline int32_t wayOf(const Layout &layout, int64_t sample) {
  int64_t turn = sample / layout.turn, place = (turn + turn / layout.parts) % layout.parts;
  int32_t way = 0;
  for (int32_t bit = 1; bit < layout.parts; bit *= 2, place /= 2)
    way = 2 * way + static_cast<int32_t>(place % 2);
  return way;
}

} // namespace zorse::planning
