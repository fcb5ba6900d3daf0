// Reductions of gradients and gathers of parameters.
//
// The gradients of a group are summed along a tree: members of a node, nodes of a site, sites. The
// sum of every part of the tree is one uneven reduce-scatter (collectives::LevelReduction), whose
// results take the place of their device's term until the owners have theirs:
//
//     accumulator of a0
//       | a0 .......... |  ->  | a0 + a1 | a0 ... |  ->  | a0 + a1 + b0 + b1 | ...
//
// An exchange begins when its members' terms are complete, so nodes do not wait for each other
// before they sum their members' gradients.
//
// A gather is the same list backwards, with copies in place of sums. Devices that all exchange
// directly gather at once, because NCCL's own algorithm passes as few bytes.

#include "LowerCollectives.h"
#include "Tables.h"

#include <algorithm>
#include <map>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;
using zorse::collectives::Extent;

/// Adds a shard, cut where parts of readers end.
void addShards(Shard shard, const std::vector<int64_t> &cuts, std::vector<Shard> &shards) {
  for (auto cut = std::upper_bound(cuts.begin(), cuts.end(), shard.begin);
       cut != cuts.end() && *cut < shard.end; ++cut) {
    shards.push_back({shard.device, shard.begin, *cut});
    shard.begin = *cut;
  }
  shards.push_back(shard);
}

/// Returns the exchanges of a group's elements between its owners and `members`; null: one is
/// enough.
const std::vector<LevelExchange> *levelsOf(PlanLowering &x, uint32_t g,
                                           const std::vector<uint32_t> &members) {
  if (members.empty() || !x.readCuts(g).empty())
    return nullptr;
  std::vector<Shard> owners;
  for (uint32_t d : x.ownersOf[g])
    for (const Compact::Run &run : x.findGroupState(d, g)->owned.runs())
      owners.push_back({d, run.begin, run.end});
  std::sort(owners.begin(), owners.end());
  const auto &levels = x.tables.reductions.of(members, owners);
  return levels ? &*levels : nullptr;
}

/// Returns the owned run that contains the first element of a range.
const Compact::Run &runWith(const GroupState &h, int64_t begin) {
  const Compact::Runs runs = h.owned.runs();
  return *std::find_if(runs.begin(), runs.end(), [&](const Compact::Run &run) {
    return run.begin <= begin && begin < run.end;
  });
}

/// Running statistics are summed like gradients, but never rounded.
void describe(PlanLowering &x, Work work, Collective collective) {
  collective.bf16Terms = work == Work::Scatter &&
                         !x.summary.groups(static_cast<int>(collective.value.id)).running_stat() &&
                         x.tables.reductions.roundsTerms(x.plan.gradientWire, collective);
  x.describeCollective(work, std::move(collective));
}

/// Makes the op added last a collective of a group's state.
void describeExchange(PlanLowering &x, Work work, const Value &value, bundle::Phase phase,
                      bundle::ElementType type, const std::vector<uint32_t> &members) {
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
  describe(x, work, std::move(collective));
}

/// The same for one exchange of a tree.
void describeLevel(PlanLowering &x, Work work, const Value &value, bundle::Phase phase,
                   bundle::ElementType type, const LevelExchange &exchange) {
  Collective collective;
  collective.value = value;
  collective.phase = phase;
  collective.type = type;
  collective.members = exchange.members;
  collective.parts = exchange.terms;
  collective.shards = exchange.results;
  describe(x, work, std::move(collective));
}

class ReductionLowering {
public:
  ReductionLowering(PlanLowering &x, uint32_t g)
      : x(x), g(g), info(x.summary.groups(static_cast<int>(g))), size(elementBytes(info.type())) {}

  CollectiveOps run() {
    const auto *levels = size < elementBytes(bundle::F32) ? nullptr // partial sums would be rounded
                                                          : levelsOf(x, g, x.contributorsOf[g]);
    if (levels)
      for (const LevelExchange &exchange : *levels)
        addLevel(exchange);
    else
      addExchange();
    ops.sort();
    return std::move(ops);
  }

private:
  uint32_t addOp() { return x.addOp(0, kShortPriority, 0, x.completionRank(g)); }

  /// Adds the sum of all contributors as one exchange.
  void addExchange() {
    const uint32_t op = addOp();
    describeExchange(x, Work::Scatter, Value::gradients(g, {0, info.elements()}), bundle::REDUCE,
                     info.type(), x.contributorsOf[g]);
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
      ops.add(d, op, true, h.owns());
    }
  }

  /// Adds one exchange of a tree. Earlier exchanges of its members precede it.
  void addLevel(const LevelExchange &exchange) {
    const uint32_t op = addOp();
    const Elements whole{0, info.elements()};
    describeLevel(x, Work::Scatter,
                  exchange.toOwner ? Value::reducedGradients(g, whole)
                                   : Value::partialGradients(g, exchange.group, whole),
                  bundle::REDUCE, info.type(), exchange);
    for (const LevelExchange::Participant &participant : exchange.participants)
      addParticipant(exchange, op, participant);
  }

  void addParticipant(const LevelExchange &exchange, uint32_t op,
                      const LevelExchange::Participant &participant) {
    const auto &[d, term, result, sum] = participant;
    const GroupState &h = *x.findGroupState(d, g);
    const bool inPlace = !exchange.toOwner || (h.contributes && h.reduced == h.gradients);
    const bool replaces = result.length() && inPlace;
    if (term.length() || replaces)
      x.addAccess(op, h.gradients,
                  replaces ? PlanLowering::AccessSide::Both : PlanLowering::AccessSide::Before);
    if (result.length() && !inPlace)
      x.addAccess(op, h.reduced, PlanLowering::AccessSide::After);
    Value summed;
    if (term.length())
      summed = sum == LevelExchange::kGradients
                   ? Value::gradients(g, {term.begin, term.end})
                   : Value::partialGradients(g, sum, {term.begin, term.end});
    x.addPart(
        d, term.length() ? elementRegion(h.gradients, term.begin, term.length(), size) : Region(),
        result.length() ? resultRegion(exchange, h, result) : Region(), summed);
    ops.add(d, op, summed.kind == bundle::Value::GRADIENTS, result.length() && exchange.toOwner);
    std::vector<Sum> &sums = sumsOf[d];
    for (const Sum &earlier : sums)
      if (std::max(earlier.result.begin, term.begin) < std::min(earlier.result.end, term.end))
        x.addEdge(earlier.op, op);
    if (result.length() && !exchange.toOwner)
      sums.push_back({result, op});
  }

  Region resultRegion(const LevelExchange &exchange, const GroupState &h, const Extent &result) {
    if (!exchange.toOwner)
      return elementRegion(h.gradients, result.begin, result.length(), size);
    const Compact::Run &run = runWith(h, result.begin);
    return elementRegion(h.reduced, h.reducedPosition(run) + result.begin - run.begin,
                         result.length(), size);
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
  CollectiveOps ops;
  std::map<uint32_t, std::vector<Sum>> sumsOf; ///< by device
};

class GatherLowering {
public:
  GatherLowering(PlanLowering &x, uint32_t w)
      : x(x), w(w), interval(x.unshardIntervals[w]), g(interval.group),
        size(elementBytes(x.computeType(g))) {}

  CollectiveOps run() {
    const auto *levels = isDirect() ? nullptr : levelsOf(x, g, interval.readers);
    if (levels)
      for (auto exchange = levels->rbegin(); exchange != levels->rend(); ++exchange)
        addLevel(*exchange);
    else
      addExchange();
    ops.sort();
    return std::move(ops);
  }

private:
  bool isDirect() const {
    const zorse::sim::Network &network = x.costs->network();
    const int32_t group = network.directGroup(interval.readers.front());
    auto isIn = [&](uint32_t d) { return network.directGroup(d) == group; };
    return group >= 0 && std::all_of(interval.readers.begin(), interval.readers.end(), isIn) &&
           std::all_of(x.ownersOf[g].begin(), x.ownersOf[g].end(), isIn);
  }

  uint32_t addOp() { return x.addOp(0, kShortPriority, 0, x.gatherRank(w)); }
  Value whole() const {
    return Value::parametersToRead(x.hasMaster(g), g,
                                   {0, x.summary.groups(static_cast<int>(g)).elements()});
  }
  bool reads(uint32_t d) const {
    return std::binary_search(interval.readers.begin(), interval.readers.end(), d);
  }

  void addExchange() {
    const uint32_t op = addOp();
    describeExchange(x, Work::Gather, whole(), x.gatherPhase(w), x.computeType(g),
                     interval.readers);
    for (uint32_t d : x.participants(g, interval.readers)) {
      const GroupState &h = *x.findGroupState(d, g);
      const uint32_t image = x.unshardedParamOf(h, w);
      x.addAccess(op, image);
      x.addPart(d, reads(d) ? elementRegion(image, 0, h.read.elements(), size) : Region(),
                h.owns()
                    ? elementRegion(image, h.position(h.owned.runs()[0]), h.owned.elements(), size)
                    : Region());
      ops.add(d, op, h.owns(), reads(d));
    }
  }

  /// Adds an exchange backwards: devices with results have these parameters, and those with terms
  /// read them.
  void addLevel(const LevelExchange &exchange) {
    const uint32_t op = addOp();
    describeLevel(x, Work::Gather, whole(), x.gatherPhase(w), x.computeType(g), exchange);
    for (const auto &[d, term, result, sum] : exchange.participants) {
      const GroupState &h = *x.findGroupState(d, g);
      const uint32_t image = x.unshardedParamOf(h, w);
      x.addAccess(op, image);
      x.addPart(d, term.length() ? elementRegion(image, term.begin, term.length(), size) : Region(),
                result.length() ? elementRegion(image, placeOf(h, d, result, exchange.toOwner),
                                                result.length(), size)
                                : Region());
      std::vector<Got> &got = gotBy[d];
      for (const Got &earlier : got)
        if (std::max(earlier.run.begin, result.begin) < std::min(earlier.run.end, result.end))
          x.addEdge(earlier.op, op);
      ops.add(d, op, result.length(), term.length());
      if (term.length())
        got.push_back({term, op});
    }
  }

  /// Returns the position in its image of what a device passes on.
  int64_t placeOf(const GroupState &h, uint32_t d, const Extent &run, bool owned) const {
    if (!owned)
      return run.begin;
    const Compact::Run &own = runWith(h, run.begin);
    return x.offsetInUnsharded(d, h, w, own) + run.begin - own.begin;
  }

  /// Elements that a device has received, and the op.
  struct Got {
    Extent run;
    uint32_t op;
  };

  PlanLowering &x;
  const uint32_t w;
  const UnshardInterval &interval;
  const uint32_t g;
  const uint64_t size; ///< bytes of an element
  CollectiveOps ops;
  std::map<uint32_t, std::vector<Got>> gotBy; ///< by device
};

} // namespace

CollectiveOps zorse::step::addReduction(PlanLowering &x, uint32_t group) {
  return ReductionLowering(x, group).run();
}

CollectiveOps zorse::step::addGather(PlanLowering &x, uint32_t window) {
  return GatherLowering(x, window).run();
}
