// Divides the ops of a joint function: one axis after the other, each from one factor that promises
// the most.
#include "ChooseOps.h"

#include "DivideByIds.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::sharding;

namespace {

/// A factor to begin an axis with.
struct Seed {
  Operation *op;
  unsigned factor;
  StringRef name;
};

class Derivation {
public:
  Derivation(func::FuncOp joint, double flopsPerByte) : joint(joint), flopsPerByte(flopsPerByte) {}

  ClassSharding run() {
    for (const Seed &seed : seeds())
      if (!result.ops.contains(seed.op))
        addAxis(seed);
    nameAxes();
    findPartials();
    findGathers();
    count();
    return std::move(result);
  }

private:
  SmallVector<Seed> seeds();
  void addAxis(const Seed &seed);
  void nameAxes();
  void findPartials();
  void findGathers();
  void count();
  bool needsWhole(OpOperand &use) const;

  func::FuncOp joint;
  const double flopsPerByte;
  ClassSharding result;
  DenseMap<Operation *, std::string> refused;
};

/// Attention is divided by key heads, or by the query heads of its only key head. Matrix products
/// are divided by columns. Those with the most FLOPs come first, so that they are not divided as an
/// axis of a small one requires.
SmallVector<Seed> Derivation::seeds() {
  SmallVector<Seed> found;
  auto add = [&](Operation *op, const OpFactors::Segment &segment, StringRef name) {
    if (!segment.factors.empty())
      found.push_back({op, segment.factors.front(), name});
  };
  for (Operation &op : joint.getBody().front().without_terminator())
    if (isa<AttentionOp>(op))
      add(&op, cast<FactorsOpInterface>(op).getFactors().results[0][2].front(), "heads");
  SmallVector<Operation *> products;
  for (Operation &op : joint.getBody().front().without_terminator())
    if (isa<MatmulOp>(op))
      products.push_back(&op);
  llvm::stable_sort(products, [](Operation *a, Operation *b) { return flopsOf(a) > flopsOf(b); });
  for (Operation *op : products)
    add(op, cast<FactorsOpInterface>(op).getFactors().results[0].back().front(), "columns");
  return found;
}

/// Tries numbers of granules from the factor's size downwards: fewer are divided further where
/// values are regrouped, as columns that consist of heads.
void Derivation::addAxis(const Seed &seed) {
  int64_t granules = cast<FactorsOpInterface>(seed.op).getFactors().factors[seed.factor].size;
  if (granules < 2 || granules == ShapedType::kDynamic)
    return;
  std::optional<ChosenOps> best;
  std::unique_ptr<Propagation> of;
  while (granules > 1) {
    auto candidates = std::make_unique<Propagation>(granules, result.ops);
    candidates->run(seed.op, seed.factor);
    ChosenOps chosen = chooseOps(joint, *candidates, result.values, flopsPerByte);
    granules = candidates->coarser;
    if (!best || chosen.gain > best->gain) {
      best = std::move(chosen);
      of = std::move(candidates);
    }
  }
  for (auto &[op, reason] : of->refused)
    refused.try_emplace(op, std::move(reason));
  if (best->gain <= 0)
    return;
  const auto axis = static_cast<unsigned>(result.axes.size());
  result.axes.push_back({seed.name.str(), of->granules});
  for (Operation &op : joint.getBody().front()) {
    if (!best->ops.contains(&op))
      continue;
    const OpSplit &split = result.ops[&op].split = of->splits[&op];
    result.ops[&op].axis = axis;
    for (auto [value, dims] : llvm::zip(op.getResults(), of->factorsOf(&op).results))
      if (ShardedDim sharded;
          projectSplit(of->factorsOf(&op), dims, split, of->granules, sharded) == MapStatus::Found)
        result.values[value] = {axis, std::move(sharded)};
  }
  for (Value parameter : best->parameters)
    result.values[parameter] = {axis, of->maps[parameter]};
}

void Derivation::nameAxes() {
  llvm::StringMap<int> total, next;
  for (const Axis &axis : result.axes)
    ++total[axis.name];
  for (Axis &axis : result.axes)
    if (const std::string name = axis.name; total[name] > 1)
      axis.name += std::to_string(next[name]++);
}

//===----------------------------------------------------------------------===//
// Exchanges
//===----------------------------------------------------------------------===//

/// Whether an op is linear in all its operands together, and its result has no more elements than
/// they have.
static bool isLinear(Operation &op) {
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return reduce.getKind() == ReduceKind::Sum;
  return isa<arith::AddFOp, arith::SubFOp, arith::NegFOp, ReshapeOp, TransposeOp, SliceOp,
             ConcatOp>(op);
}

bool Derivation::needsWhole(OpOperand &use) const {
  Operation *user = use.getOwner();
  if (user->hasTrait<OpTrait::IsTerminator>()) {
    // Every device contributes its summand of a whole parameter's gradient.
    BlockArgument parameter = parameterOfGradient(joint, use.getOperandNumber());
    return !parameter || result.values.contains(parameter);
  }
  return result.ops.contains(user) || !result.partial.contains(user->getResult(0));
}

/// Reductions are deferred through linear ops: at first through all of them, then repeatedly not
/// through those with an operand that another op needs whole.
void Derivation::findPartials() {
  Block &block = joint.getBody().front();
  DenseSet<Operation *> deferring;
  for (Operation &op : block.without_terminator())
    if (!result.ops.contains(&op) && isLinear(op))
      deferring.insert(&op);
  bool changed = true;
  while (changed) {
    changed = false;
    result.partial.clear();
    result.reduced.clear();
    for (Operation &op : block.without_terminator())
      for (Value value : op.getResults())
        if (result.ops.contains(&op)
                ? !result.values.contains(value) && !combines(&op)
                : deferring.contains(&op) && llvm::all_of(op.getOperands(), [&](Value v) {
                    return result.partial.contains(v);
                  }))
          result.partial.insert(value);
    for (Operation &op : block.without_terminator())
      for (Value value : op.getResults())
        if (result.partial.contains(value) &&
            llvm::any_of(value.getUses(), [&](OpOperand &use) { return needsWhole(use); }))
          result.reduced.insert(value);
    for (Operation &op : block.without_terminator())
      if (deferring.contains(&op) &&
          llvm::any_of(op.getOperands(), [&](Value v) { return result.reduced.contains(v); }))
        changed |= deferring.erase(&op);
  }
}

void Derivation::findGathers() {
  for (Operation &op : joint.getBody().front().without_terminator())
    for (Value value : op.getResults()) {
      auto it = result.values.find(value);
      if (it == result.values.end())
        continue;
      for (OpOperand &use : value.getUses()) {
        auto user = result.ops.find(use.getOwner());
        const bool returned = use.getOwner()->hasTrait<OpTrait::IsTerminator>();
        if (returned ? !parameterOfGradient(joint, use.getOperandNumber())
                     : user == result.ops.end() || user->second.axis != it->second.axis)
          result.gathered.insert(value);
      }
    }
}

void Derivation::count() {
  for (Operation &op : joint.getBody().front().without_terminator()) {
    const double flops = flopsOf(&op);
    result.flops += flops;
    if (result.ops.contains(&op)) {
      result.dividedFlops += flops;
      result.combined += combines(&op);
    } else if (flops > 0) {
      result.undivided.push_back({&op, refused.lookup(&op)});
    }
  }
  llvm::stable_sort(result.undivided, [](const UndividedOp &a, const UndividedOp &b) {
    return flopsOf(a.op) > flopsOf(b.op);
  });
}

} // namespace

ClassSharding sharding::deriveSharding(func::FuncOp joint, double flopsPerByte) {
  return Derivation(joint, flopsPerByte).run();
}
