// "interleaved": every device holds several ranges of units, and micro-batches go around the ring of devices once per range (Narayanan et al., 2021). Groups of as many
// micro-batches as there are stages of devices pass a range before the next one follows: the pipeline fills in a part of the time of a whole device's units.
//
//   units 0-2 on a, 2-4 on b, 4-6 on a, 6-8 on b:
//     a   0 1 0'1'2 . a'3 b'2'a 3'b      0 1 2 3: forwards of the first range, 0' of the second; a b: backwards
//     b   . 0 1 0'1'a'2 b'3 a 2'b 3'

#include "Laps.h"

using namespace zorse::step;

namespace {

class Interleaved final : public LapsRule {
public:
  Interleaved() : LapsRule(ScheduleKind::Interleaved, "interleaved", Turn::Ring) {}

private:
  /// A group passes the whole ring while the next one enters.
  size_t frontCells(const Laps &laps) const override { return 2 * laps.stages - 1; }
};

} // namespace

std::unique_ptr<ScheduleRule> zorse::step::interleavedRule() { return std::make_unique<Interleaved>(); }
