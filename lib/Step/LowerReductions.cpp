// Reductions of gradients.
//
// The gradients of a group are summed along a tree: members of a node, nodes of a site, sites. The
// sum of every part of the tree is one uneven reduce-scatter (collectives::LevelReduction), whose
// results take the place of their device's term until the owners have theirs:
//
//     accumulator of a0   | a0 .......... |  ->  | a0 + a1 | a0 ... |  ->  | a0 + a1 + b0 + b1 |
//     ...
//
// An exchange begins when its members' terms are complete, so nodes do not wait for each other
// before they sum their members' gradients.

#include "PlanLowering.h"
#include "Tables.h"

#include <algorithm>
#include <map>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;
using zorse::collectives::Extent;
using zorse::collectives::LevelReduction;

/// Adds a shard, cut where parts of readers end.
void addShards(Shard shard, const std::vector<int64_t> &cuts, std::vector<Shard> &shards) {
  for (auto cut = std::upper_bound(cuts.begin(), cuts.end(), shard.begin);
       cut != cuts.end() && *cut < shard.end; ++cut) {
    shards.push_back({shard.device, shard.begin, *cut});
    shard.begin = *cut;
  }
  shards.push_back(shard);
}

class ReductionLowering {
public:
  ReductionLowering(PlanLowering &x, uint32_t g)
      : x(x), g(g), info(x.summary.groups(static_cast<int>(g))), size(elementBytes(info.type())) {}

  ReductionOps run() {
    const auto *levels = levelsOfTree();
    if (levels)
      for (const LevelReduction &exchange : *levels)
        addLevel(exchange);
    else
      addExchange();
    for (auto *list : {&ops.begins, &ops.ends}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    return std::move(ops);
  }

private:
  const std::vector<LevelReduction> *levelsOfTree() {
    if (size < elementBytes(bundle::F32) || x.contributorsOf[g].empty() || !x.readCuts(g).empty())
      return nullptr;
    std::vector<Shard> owners;
    for (uint32_t d : x.ownersOf[g])
      for (const Compact::Run &run : x.findGroupState(d, g)->owned.runs())
        owners.push_back({d, run.begin, run.end});
    std::sort(owners.begin(), owners.end());
    const auto &levels = x.tables.reductions.of(x.contributorsOf[g], owners);
    return levels ? &*levels : nullptr;
  }

  uint32_t addOp() { return x.addOp(0, kShortPriority, 0, x.completionRank(g)); }

  /// Adds the sum of all contributors as one exchange.
  void addExchange() {
    const uint32_t op = addOp();
    describeStateCollective(x, Work::Scatter, Value::gradients(g, {0, info.elements()}),
                            bundle::REDUCE, info.type(), x.contributorsOf[g]);
    for (uint32_t d : x.participants(g, x.contributorsOf[g])) {
      const GroupState &h = *x.findGroupState(d, g);
      if (h.contributes)
        x.addAccess(op, h.gradients,
                    h.reduced == h.gradients ? PlanLowering::AccessSide::Both
                                             : PlanLowering::AccessSide::Before);
      if (h.owns() && (!h.contributes || h.reduced != h.gradients))
        x.addAccess(op, h.reduced, PlanLowering::AccessSide::After);
      x.addPart(d,
                h.contributes ? elementRegion(h.gradients, 0, h.read.elements(), size) : Region(),
                h.owns() ? elementRegion(h.reduced, h.reducedPosition(h.owned.runs()[0]),
                                         h.owned.elements(), size)
                         : Region());
      ops.begins.push_back({d, op});
      if (h.owns())
        ops.ends.push_back({d, op});
    }
  }

  /// Adds one exchange of a tree. Earlier exchanges of its members precede it.
  void addLevel(const LevelReduction &exchange) {
    const uint32_t op = addOp();
    describeLevel(exchange);
    std::vector<uint32_t> devices = exchange.members;
    for (const Extent &result : exchange.results)
      devices.push_back(result.device);
    std::sort(devices.begin(), devices.end());
    devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
    for (uint32_t d : devices)
      addMember(exchange, op, d);
  }

  void describeLevel(const LevelReduction &exchange) {
    const Elements whole{0, info.elements()};
    Collective collective;
    collective.value = exchange.toOwner ? Value::reducedGradients(g, whole)
                                        : Value::partialGradients(g, exchange.group, whole);
    collective.phase = bundle::REDUCE;
    collective.type = info.type();
    collective.members = exchange.members;
    for (const Extent &term : exchange.terms)
      collective.parts.push_back({term.device, term.begin, term.end});
    for (const Extent &result : exchange.results)
      collective.shards.push_back({result.device, result.begin, result.end});
    x.describeCollective(Work::Scatter, std::move(collective));
  }

  /// Returns the run of a device in a list; empty if it has none.
  static Extent runOf(const std::vector<Extent> &list, uint32_t device) {
    Extent run{0, 0, device};
    for (const Extent &extent : list)
      if (extent.device == device)
        run = {run.length() ? run.begin : extent.begin, extent.end, device};
    return run;
  }

  void addMember(const LevelReduction &exchange, uint32_t op, uint32_t d) {
    const GroupState &h = *x.findGroupState(d, g);
    const Extent term = runOf(exchange.terms, d), result = runOf(exchange.results, d);
    const bool inPlace = !exchange.toOwner || (h.contributes && h.reduced == h.gradients);
    const bool replaces = result.length() && inPlace;
    if (term.length() || replaces)
      x.addAccess(op, h.gradients,
                  replaces ? PlanLowering::AccessSide::Both : PlanLowering::AccessSide::Before);
    if (result.length() && !inPlace)
      x.addAccess(op, h.reduced, PlanLowering::AccessSide::After);
    const Value summed = term.length() ? termOf(exchange, term) : Value();
    x.addPart(
        d, term.length() ? elementRegion(h.gradients, term.begin, term.length(), size) : Region(),
        result.length() ? resultRegion(exchange, h, result) : Region(), summed);
    if (summed.kind == bundle::Value::GRADIENTS)
      ops.begins.push_back({d, op});
    std::vector<Sum> &sums = sumsOf[d];
    for (const Sum &earlier : sums)
      if (std::max(earlier.result.begin, term.begin) < std::min(earlier.result.end, term.end))
        x.addEdge(earlier.op, op);
    if (result.length() && exchange.toOwner)
      ops.ends.push_back({d, op});
    else if (result.length())
      sums.push_back({result, op});
  }

  /// Returns what a device adds: its gradients, a sum of a group below, or the sum that it passes
  /// on.
  Value termOf(const LevelReduction &exchange, const Extent &term) {
    const Elements elements{term.begin, term.end};
    if (exchange.forwards)
      return Value::partialGradients(g, exchange.group, elements);
    const auto &tree = x.tables.reductions.treeOf(x.contributorsOf[g]);
    for (const zorse::collectives::Child child : tree[exchange.group].children) {
      if (child.isContributor() && child.device() == term.device)
        return Value::gradients(g, elements);
      if (child.isContributor())
        continue;
      const auto &below = tree[child.index()].contributors;
      if (std::find(below.begin(), below.end(), term.device) != below.end())
        return Value::partialGradients(g, static_cast<uint32_t>(child.index()), elements);
    }
    return Value();
  }

  Region resultRegion(const LevelReduction &exchange, const GroupState &h, const Extent &result) {
    if (!exchange.toOwner)
      return elementRegion(h.gradients, result.begin, result.length(), size);
    for (const Compact::Run &run : h.owned.runs())
      if (run.begin <= result.begin && result.begin < run.end)
        return elementRegion(h.reduced, h.reducedPosition(run) + result.begin - run.begin,
                             result.length(), size);
    return Region();
  }

  /// A sum that is in the accumulator of a device, and its op.
  struct Sum {
    Extent result;
    uint32_t op;
  };

  PlanLowering &x;
  const uint32_t g;
  const bundle::FlatGroupInfo &info;
  const uint64_t size; ///< bytes of an element
  ReductionOps ops;
  std::map<uint32_t, std::vector<Sum>> sumsOf; ///< by device
};

} // namespace

void zorse::step::describeStateCollective(PlanLowering &x, Work work, const Value &value,
                                          bundle::Phase phase, bundle::ElementType type,
                                          const std::vector<uint32_t> &members) {
  Collective collective;
  collective.value = value;
  collective.phase = phase;
  collective.type = type;
  collective.members = members;
  const std::vector<int64_t> cuts = x.readCuts(value.id);
  for (uint32_t d : x.ownersOf[value.id])
    for (const Compact::Run &run : x.findGroupState(d, value.id)->owned.runs())
      addShards({d, run.begin, run.end}, cuts, collective.shards);
  std::sort(collective.shards.begin(), collective.shards.end());
  for (uint32_t d : members)
    for (const Compact::Run &run : x.findGroupState(d, value.id)->read.runs())
      if (!cuts.empty())
        collective.parts.push_back({d, run.begin, run.end});
  x.describeCollective(work, std::move(collective));
}

ReductionOps zorse::step::addReduction(PlanLowering &x, uint32_t group) {
  return ReductionLowering(x, group).run();
}
