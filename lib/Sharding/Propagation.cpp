#include "Propagation.h"

#include "DivideByIds.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::sharding;

const OpFactors &Propagation::factorsOf(Operation *op) {
  std::unique_ptr<OpFactors> &rule = rules[op];
  if (!rule)
    rule = std::make_unique<OpFactors>(cast<FactorsOpInterface>(op).getFactors());
  return *rule;
}

/// Whether attributes of an op tell where its points begin in the undivided op.
static bool countsItself(Operation *op) { return isa<AttentionOp, AttentionGradOp, DropoutOp>(op); }

/// Returns why a factor cannot be divided, or "".
static std::string whyIndivisible(Operation *op, const OpFactors &rule, unsigned index,
                                  const GranuleMap &map) {
  const OpFactors::Factor &factor = rule.factors[index];
  if (factor.kind == FactorKind::Indivisible)
    return "needs all points together";
  if (factor.combiner != Combiner::Sum && !(factor.combiner == Combiner::LogSumExp && combines(op)))
    return "combines its parts by other means than a sum";
  for (const OpFactors::Offset &offset : rule.offsets)
    if (offset.factor == index && !(countsItself(op) && map.segments.size() == 1))
      return !offset.operand || map.segments.size() != 1 ? "counts its points" : whyNotByIds(op);
  return "";
}

void Propagation::run(Operation *op, unsigned factor) {
  GranuleMap map{{{0, factorsOf(op).factors[factor].size / granules}}};
  if (std::string reason = whyIndivisible(op, factorsOf(op), factor, map); !reason.empty())
    return refuse(op, std::move(reason));
  splits[op].factors.push_back({factor, std::move(map)});
  work.insert(op);
  while (!work.empty())
    update(work.pop_back_val());
  dropIncomplete();
}

void Propagation::enqueue(Value value) {
  if (Operation *producer = value.getDefiningOp())
    work.insert(producer);
  for (Operation *user : value.getUsers())
    work.insert(user);
}

void Propagation::refuse(Operation *op, std::string reason) {
  splits.erase(op);
  refused[op] = std::move(reason);
}

void Propagation::update(Operation *op) {
  if (refused.contains(op) || taken.contains(op) || !isa<FactorsOpInterface>(op))
    return;
  const OpFactors &rule = factorsOf(op);
  OpSplit split = splits.lookup(op);
  std::string problem = addOperandsAndResults(op, rule, split);
  for (const auto &[factor, map] : split.factors)
    if (problem.empty())
      problem = whyIndivisible(op, rule, factor, map);
  if (!problem.empty())
    return refuse(op, problem);
  if (split.factors.empty())
    return;
  problem = projectAll(op, rule, split);
  if (!problem.empty())
    return refuse(op, problem);
  splits[op] = std::move(split);
}

std::string Propagation::addOperandsAndResults(Operation *op, const OpFactors &rule,
                                               OpSplit &split) {
  auto addAll = [&](ValueRange values, ArrayRef<OpFactors::Value> dimensions) {
    for (auto [value, dims] : llvm::zip(values, dimensions))
      if (auto it = maps.find(value); it != maps.end())
        if (addToSplit(rule, dims[it->second.dim], it->second.map, granules, split, coarser) ==
            MapStatus::Conflict)
          return false;
    return true;
  };
  return addAll(op->getOperands(), rule.operands) && addAll(op->getResults(), rule.results)
             ? ""
             : "regroups points across granules";
}

/// Divides the op's values as the op is divided.
std::string Propagation::projectAll(Operation *op, const OpFactors &rule, const OpSplit &split) {
  SmallVector<std::pair<Value, ShardedDim>> changed;
  auto projectInto = [&](ValueRange values, ArrayRef<OpFactors::Value> dimensions) {
    for (auto [value, dims] : llvm::zip(values, dimensions)) {
      ShardedDim sharded;
      const MapStatus status = projectSplit(rule, dims, split, granules, sharded);
      if (status == MapStatus::None)
        continue;
      if (status == MapStatus::Conflict)
        return false;
      auto it = maps.find(value);
      if (it != maps.end()) {
        if (it->second.dim != sharded.dim || !sharded.map.add(it->second.map, granules))
          return false;
        if (it->second == sharded)
          continue;
      }
      changed.push_back({value, std::move(sharded)});
    }
    return true;
  };
  if (!projectInto(op->getOperands(), rule.operands) ||
      !projectInto(op->getResults(), rule.results))
    return "divides two dimensions of one value";
  for (auto &[value, sharded] : changed) {
    maps[value] = std::move(sharded);
    enqueue(value);
  }
  return "";
}

/// Removes ops whose maps do not contain all points of a factor or of a divided dimension of a
/// result: no device would compute the rest.
void Propagation::dropIncomplete() {
  SmallVector<Operation *> incomplete;
  for (const auto &[op, split] : splits) {
    const OpFactors &rule = factorsOf(op);
    bool complete = llvm::all_of(split.factors, [&](const auto &entry) {
      return entry.second.covers(rule.factors[entry.first].size, granules);
    });
    for (auto [result, dims] : llvm::zip(op->getResults(), rule.results)) {
      ShardedDim sharded;
      if (projectSplit(rule, dims, split, granules, sharded) == MapStatus::Found)
        complete &=
            sharded.map.covers(cast<RankedTensorType>(result.getType()).getDimSize(sharded.dim),
                               granules) &&
            maps.lookup(result) == sharded;
    }
    if (!complete)
      incomplete.push_back(op);
  }
  for (Operation *op : incomplete)
    refuse(op, "has points outside of all granules");
}
