#include "AssignBodies.h"

#include "llvm/ADT/StringMap.h"

namespace zorse::pipelines {

void assignBodies(units::UnitModel &model, codegen::CompiledBodies &bodies) {
  codegen::appendBuiltinBodies(bodies.library, model.summary.compute_type(), model.summary.loss_size());
  llvm::StringMap<uint32_t> index;
  for (int i = 0; i < bodies.library.bodies_size(); ++i)
    index[bodies.library.bodies(i).name()] = i;
  units::assignBodies(model, [&](llvm::StringRef function) {
    units::BodyFacts facts;
    auto found = index.find(function);
    assert(found != index.end() && "every function has a body");
    facts.body = found->second;
    if (facts.body < bodies.facts.size())
      facts.workspace = bodies.facts[facts.body].workspace;
    return facts;
  });
}

} // namespace zorse::pipelines
