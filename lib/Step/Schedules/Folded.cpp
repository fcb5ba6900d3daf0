// "folded": every device holds several ranges of units, and micro-batches go along the devices and back (the V of Qi et al., 2024; the waves of Hanayo, Liu et al., 2023).
// Where the way turns, a device hands on to itself, and the last range ends where the first began: gradients come back soon, and every device holds equally much.
//
//   units 0-2 on a, 2-4 on b, 4-6 on b, 6-8 on a:
//     a   0 1 . 0'a'1'b'2 a 3 b      0 1 2 3: forwards of the first range, 0' of the second; a b: backwards
//     b   . 0 0'1 1'a'. b'a 2 b

#include "Laps.h"

using namespace zorse::step;

namespace {

class Folded final : public LapsRule {
public:
  Folded() : LapsRule(ScheduleKind::Folded, "folded", Turn::BackAndForth) {}

private:
  /// The first backward begins where the forward ended: on the first device, if laps are even in number.
  size_t frontCells(const Laps &laps) const override { return laps.stages; }
};

} // namespace

std::unique_ptr<ScheduleRule> zorse::step::foldedRule() { return std::make_unique<Folded>(); }
