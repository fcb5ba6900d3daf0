// Mutations of loss scales: the factor of the first gradients of a step, and the decision about the
// next scale.
#include "Change.h"

using namespace zorse;
using namespace zorse::test;

namespace {

bool isScaling(const Instruction &e) { return isTask(e, Compute::SCALE_LOSS_GRADIENT); }

/// Moves the argument of `kind` by `by` bytes, backwards if possible.
bool moveArgument(Change &m, bundle::ArgumentKind kind, uint64_t by) {
  auto *region = m.regionOf(kind);
  region->set_offset(region->offset() >= by ? region->offset() - by : region->offset() + by);
  return true;
}

bool dropCalls(Change &m) {
  m.compute().clear_calls();
  return true;
}

bool scaleTwice(Change &m) {
  spreadIds(m.programs);
  if (!m.pick(isScaling))
    return false;
  Instruction copy = m.instruction();
  copy.set_id(copy.id() + 1);
  copy.clear_waits();
  insertInstruction(m.program(), m.place.instruction + 1, copy);
  return true;
}

bool scaleOtherBytes(Change &m) {
  const bundle::ArgumentKind kind = m.coin() ? bundle::SCALARS : bundle::OPTIMIZER_STEP;
  const uint64_t by = kind == bundle::SCALARS ? 64 * (1 + m.draw(uint64_t(4)))
                                              : 8 * (1 + m.draw(uint64_t(3)));
  return m.pick(isScaling) && moveArgument(m, kind, by);
}

bool dropScale(Change &m) {
  auto &program = m.program();
  for (int s = program.state_size() - 1; s >= 0; --s)
    if (program.state(s).value().kind() == bundle::Value::OPTIMIZER_STEP)
      program.mutable_state()->DeleteSubrange(s, 1);
  return true;
}

bool dropLastDecision(Change &m) {
  auto &program = m.program();
  for (int e = program.instructions_size() - 1; e >= 0; --e)
    if (isDecision(program.instructions(e))) {
      eraseInstruction(program, e);
      break;
    }
  return true;
}

bool decideByOtherBytes(Change &m) {
  return pickInstruction(m.programs, m.random, isScaling) && m.pick(isDecision) &&
         moveArgument(m, m.coin() ? bundle::OPTIMIZER_STEP : bundle::LOCAL_METRICS, 32);
}

} // namespace

void test::addScaleMutations(MutationList &list) {
  addRows(
      list, "scales",
      {
          {"seeds not scaled", isScaling, dropHalf},
          {"a scaling without its call", isScaling, dropCalls},
          {"seeds scaled twice", nullptr, scaleTwice},
          {"seeds scaled behind a backward", isScaling, [](Change &m) { return swapWith(m, isB); }},
          {"seeds scaled behind the decision", isScaling,
           [](Change &m) { return swapWith(m, isDecision); }},
          {"a scaling that evaluations run", isScaling,
           [](Change &m) {
             m.instruction().set_phase(bundle::FORWARD);
             return true;
           }},
          {"a scaling without waits", isScaling,
           [](Change &m) {
             m.instruction().clear_waits();
             return true;
           }},
          {"a scaling of other bytes", nullptr, scaleOtherBytes},
          {"a scale that is not kept", isScaling, dropScale},
          {"a device that scales and does not decide", isScaling, dropLastDecision},
          {"a decision from other bytes", nullptr, decideByOtherBytes},
      });
}
