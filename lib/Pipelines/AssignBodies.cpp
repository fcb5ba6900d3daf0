#include "AssignBodies.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace zorse::pipelines {

namespace {

void nameBodies(units::UnitModel &model, const codegen::CompiledBodies &bodies) {
  llvm::StringMap<uint32_t> index;
  for (int i = 0; i < bodies.library.bodies_size(); ++i)
    index[bodies.library.bodies(i).name()] = i;
  units::assignBodies(model, [&](llvm::StringRef function) {
    units::BodyFacts facts;
    auto found = index.find(function);
    facts.body = found == index.end() ? UINT32_MAX : found->second;
    if (facts.body < bodies.facts.size())
      facts.workspace = bodies.facts[facts.body].workspace;
    return facts;
  });
}

} // namespace

void assignBodies(units::UnitModel &model, codegen::CompiledBodies &bodies) {
  codegen::appendBuiltinBodies(bodies.library, model.summary.compute_type(), model.summary.loss_size());
  nameBodies(model, bodies);
}

void dropSplitBodies(units::UnitModel &model, codegen::CompiledBodies &bodies) {
  llvm::StringSet<> parts;
  for (const units::UnitClass &unitClass : model.classes)
    parts.insert_range(std::initializer_list<llvm::StringRef>{unitClass.backwardInputs, unitClass.backwardWeights});
  for (int i = bodies.library.bodies_size() - 1; i >= 0; --i)
    if (parts.contains(bodies.library.bodies(i).name())) {
      bodies.library.mutable_bodies()->DeleteSubrange(i, 1);
      bodies.facts.erase(bodies.facts.begin() + i);
    }
  nameBodies(model, bodies);
}

} // namespace zorse::pipelines
