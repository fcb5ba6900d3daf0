// zorse-divide-by-plan: tensor parallelism as the plan describes it.
#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Pipelines/Passes.h"
#include "zorse/Sharding/DivideUnits.h"
#include "zorse/Units/Units.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include "llvm/Support/JSON.h"

#include <set>

namespace zorse::pipelines {
#define GEN_PASS_DEF_DIVIDEBYPLAN
#include "zorse/Pipelines/Passes.h.inc"
} // namespace zorse::pipelines

using namespace mlir;
using namespace zorse;
using namespace zorse::pipelines;

namespace {

/// Reads the groups of a plan and their units. Returns none for a plan that is not valid:
/// zorse-plan reports its errors.
std::vector<sharding::UnitGroup> groupsOf(StringRef text) {
  std::vector<sharding::UnitGroup> groups;
  llvm::Expected<llvm::json::Value> parsed = llvm::json::parse(text);
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return groups;
  }
  const llvm::json::Object *root = parsed->getAsObject();
  const llvm::json::Array *list = root ? root->getArray("groups") : nullptr;
  const llvm::json::Array *cells = root ? root->getArray("cells") : nullptr;
  if (!list || !cells)
    return groups;
  for (const llvm::json::Value &value : *list) {
    const llvm::json::Object *object = value.getAsObject();
    const llvm::json::Array *devices = object ? object->getArray("devices") : nullptr;
    const auto name = object ? object->getString("name") : std::nullopt;
    if (!devices || !name)
      return {};
    sharding::UnitGroup group;
    group.name = name->str();
    group.shares.assign(devices->size(), 1);
    if (const llvm::json::Array *shares = object->getArray("shares");
        shares && shares->size() == devices->size())
      for (auto [share, given] : llvm::zip(group.shares, *shares))
        share = given.getAsNumber().value_or(0);
    std::set<int64_t> units;
    for (const llvm::json::Value &cell : *cells)
      if (const llvm::json::Object *of = cell.getAsObject();
          of && of->getString("device").value_or("") == group.name)
        if (const llvm::json::Array *range = of->getArray("units"); range && range->size() == 2)
          for (int64_t u = (*range)[0].getAsInteger().value_or(0),
                       end = std::min<int64_t>((*range)[1].getAsInteger().value_or(0), 1 << 20);
               u < end; ++u)
            units.insert(u);
    group.units.assign(units.begin(), units.end());
    groups.push_back(std::move(group));
  }
  return groups;
}

struct DivideByPlanPass : pipelines::impl::DivideByPlanBase<DivideByPlanPass> {
  void runOnOperation() final {
    std::optional<FileText> plan = fileOf(getOperation()->getAttr(units::kPlanAttr));
    if (plan && failed(sharding::divideUnits(getOperation(), groupsOf(plan->text))))
      signalPassFailure();
  }
};

} // namespace
