// Mutations of split backwards: W is missing, repeated, too early, too late or uses the wrong
// block; both tasks add contributions.
#include "Change.h"

#include "zorse/Summary/Summary.h"

using namespace zorse;
using namespace zorse::test;

namespace {

bool isW(const Instruction &e) { return isTask(e, Compute::W); }

Place partner(const Programs &p, Place w) {
  const auto &program = p[size_t(w.program)];
  const int cell = program.instructions(w.instruction).compute().cell();
  for (int e = 0; e < program.instructions_size(); ++e)
    if (isB(program.instructions(e)) && program.instructions(e).compute().cell() == cell)
      return {w.program, e};
  return {};
}

/// The calls of a split unit in B and W of one cell.
struct Parts {
  Place b;
  bundle::Call *inBackward = nullptr, *inWeights = nullptr;
};
/// Picks the parts of a random W, which becomes the place of the change.
bool pickParts(Change &m, Parts &parts) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    parts = {};
    if (!m.pick(isW))
      return false;
    parts.b = partner(m.programs, m.place);
    if (!parts.b)
      continue;
    parts.inWeights = &m.drawCall();
    for (auto &call : *instructionAt(m.programs, parts.b).mutable_compute()->mutable_calls())
      if (call.unit() == parts.inWeights->unit() &&
          m.original.model.summary.units(call.unit()).splits())
        parts.inBackward = &call;
    if (parts.inBackward)
      return true;
  }
  return false;
}

std::optional<bundle::ArgumentBinding> findArgument(Change &m, const bundle::Call &call,
                                                    const bundle::FunctionArgument &wanted) {
  const auto &function = m.original.model.functions.functions(int(call.function()));
  for (int s = 0; s < function.arguments_size(); ++s)
    if (function.arguments(s).kind() == wanted.kind() &&
        function.arguments(s).index() == wanted.index())
      return bundle::ArgumentBindings(m.program(), call)[s];
  return {};
}

bool moveBeforeB(Change &m) {
  Parts parts;
  if (!pickParts(m, parts))
    return false;
  m.what += " before " + at(m.programs, parts.b);
  moveInstruction(m.programs, m.instruction().id(), instructionAt(m.programs, parts.b).id());
  return true;
}

bool swapParts(Change &m) {
  Parts parts;
  if (!pickParts(m, parts))
    return false;
  m.what += " and " + at(m.programs, parts.b);
  swapPayload(m.instruction(), instructionAt(m.programs, parts.b));
  return true;
}

/// Makes W use the block of another task.
Row otherBlock(const char *name, bundle::ArgumentKind kind) {
  return {name,
          argumentWhere([kind](const Instruction &e, const bundle::FunctionArgument &argument) {
            return isW(e) && argument.kind() == kind;
          }),
          [kind](Change &m) {
            auto other = otherArgument(m, ofKinds({kind}), " with that of ");
            if (!other)
              return false;
            *m.binding().mutable_region() = other->region();
            return true;
          },
          40};
}

/// Replaces B by the whole backward.
bool gradientsTwice(Change &m) {
  Parts parts;
  if (!pickParts(m, parts))
    return false;
  const auto &summary = m.original.model.summary;
  const uint32_t backward =
      functionOf(summary, summary.units(parts.inWeights->unit()), bundle::UnitFunction::BACKWARD)
          .function();
  bundle::Call whole = *parts.inBackward;
  whole.set_function(backward);
  unbind(whole);
  bundle::ArgumentBinder binder(m.program());
  for (const auto &argument : m.original.model.functions.functions(int(backward)).arguments()) {
    const auto inBackward = findArgument(m, *parts.inBackward, argument);
    const auto found = inBackward ? inBackward : findArgument(m, *parts.inWeights, argument);
    if (!found && argument.kind() != bundle::WORKSPACE)
      return false;
    bundle::Region region = found ? found->region : bundle::Region();
    const uint64_t bytes =
        uint64_t(argument.bytes().fixed() + argument.bytes().per_row() * whole.rows());
    if (region.bytes() != bytes) { // a separate workspace
      region.set_bytes(bytes);
      region.set_offset(freshBytes(m.program(), 0, bytes));
    }
    const bool adds = m.coin();
    binder.bind(whole, region, found ? found->value : bundle::Value(),
                !adds && found && found->overwrite);
  }
  *parts.inBackward = whole;
  m.what = at(m.programs, parts.b) + " and " + m.what;
  return true;
}

} // namespace

void test::addSplitMutations(MutationList &list) {
  addRows(list, "split backward",
          {
              {"W dropped", isW, dropInstruction},
              {"W doubled", isW, doubleInstruction},
              {"W before its B", nullptr, moveBeforeB},
              {"W after everything", isW, moveToEnd},
              {"B and W exchanged", nullptr, swapParts},
              otherBlock("deferred block of another task", bundle::SAVED_FOR_WEIGHT_GRAD),
              otherBlock("W with another saved block", bundle::SAVED),
              otherBlock("W with another gradient", bundle::BOUNDARY_OUT_GRADIENT),
              {"deferred block that was never written", argumentOf({bundle::SAVED_FOR_WEIGHT_GRAD}),
               freshRegion},
              {"gradients of parameters in B and in W", nullptr, gradientsTwice},
              {"call of W dropped", [](const Instruction &e) { return isW(e) && hasCalls(e); },
               dropCall},
          });
}
