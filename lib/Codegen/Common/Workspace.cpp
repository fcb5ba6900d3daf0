#include "Workspace.h"

#include "Prepare.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include "llvm/ADT/MapVector.h"

#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

namespace {
struct Lifetime {
  int first = std::numeric_limits<int>::max(), last = -1;
  void include(int launch) {
    first = std::min(first, launch);
    last = std::max(last, launch);
  }
};

struct Block {
  int64_t begin, end;
  int last;
};

/// First-fit allocator over live blocks. Positions are bytes (per row, or fixed).
class Allocator {
public:
  int64_t allocate(int64_t bytes, const Lifetime &life) {
    llvm::erase_if(alive, [&](const Block &block) { return block.last < life.first; });
    llvm::sort(alive, [](const Block &a, const Block &b) { return a.begin < b.begin; });
    int64_t begin = 0;
    for (const Block &block : alive) {
      if (block.begin - begin >= bytes)
        break;
      begin = std::max(begin, block.end);
    }
    alive.push_back({begin, begin + bytes, life.last});
    total = std::max(total, begin + bytes);
    return begin;
  }
  int64_t total = 0;

private:
  std::vector<Block> alive;
};
} // namespace

Workspace
zorse::codegen::allocateWorkspace(const FusionPlan &plan, const BufferAliases &aliases,
                                  llvm::function_ref<int64_t(const FusionGroup &)> scratch) {
  llvm::MapVector<Value, Lifetime> lives;
  auto containerOf = [&](Value root) -> Value {
    auto alias = aliases.find(root);
    return alias == aliases.end() ? root : alias->second.container;
  };
  for (auto [index, fusionGroup] : llvm::enumerate(plan.fusionGroups)) {
    for (Operation *op : fusionGroup.ops) {
      for (Value result : op->getResults())
        if (Value container = containerOf(result);
            container &&
            (fusionGroup.kind == FusionGroup::Attention || plan.isMaterialised(result, aliases) ||
             fusionGroup.kind == FusionGroup::Matmul || fusionGroup.kind == FusionGroup::Scatter))
          lives[container].include(index);
      for (Value operand : op->getOperands()) {
        Value root = rootOf(operand);
        Operation *producer = root.getDefiningOp();
        if (!producer || isa<arith::ConstantOp>(producer) || isMadeAgain(producer))
          continue;
        auto found = plan.fusionGroupOf.find(producer);
        if (found != plan.fusionGroupOf.end() && found->second == static_cast<int>(index))
          continue;
        if (Value container = containerOf(root))
          lives[container].include(index);
      }
    }
  }
  struct Request {
    Value value; ///< null: scratch of `cluster`
    int cluster;
    Lifetime life;
    bundle::AffineSize bytes;
  };
  std::vector<Request> order;
  for (auto &[value, life] : lives)
    order.push_back({value, -1, life, tensorBytes(value.getType())});
  for (auto [index, fusionGroup] : llvm::enumerate(plan.fusionGroups))
    if (const int64_t bytes = scratch(fusionGroup)) {
      Request &request = order.emplace_back();
      request.cluster = int(index);
      request.life.include(int(index));
      request.bytes.set_per_row(bytes);
    }
  llvm::stable_sort(order,
                    [](const Request &a, const Request &b) { return a.life.first < b.life.first; });
  Allocator fixed, sampled;
  Workspace workspace;
  for (const Request &request : order) {
    const bool carries = request.bytes.per_row() != 0;
    Place place =
        carries ? Place{0, 0, sampled.allocate(roundUp64(request.bytes.per_row()), request.life)}
                : Place{0, fixed.allocate(roundUp64(request.bytes.fixed()), request.life), 0};
    if (request.value)
      workspace.places[request.value] = place;
    else
      workspace.scratch[request.cluster] = place;
  }
  for (auto &[value, place] : workspace.places)
    if (carriesSamples(value.getType()))
      place.fixed = fixed.total;
  for (auto &[cluster, place] : workspace.scratch)
    place.fixed = fixed.total;
  workspace.bytes.set_fixed(fixed.total);
  workspace.bytes.set_per_row(sampled.total);
  return workspace;
}
