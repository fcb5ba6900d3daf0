#include "zorse/Collectives/Levels.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace zorse::collectives;

namespace {

constexpr size_t kMaxPerContributor = 8;

/// Elements that one device sums, or passes on, and the devices with a term.
struct Piece {
  int64_t begin, end;
  uint32_t device;
  std::vector<uint32_t> sources; ///< in the order of the group's children
};

/// Joins devices that have pieces in common.
class Components {
public:
  explicit Components(size_t devices) : parent(devices) {
    std::iota(parent.begin(), parent.end(), 0u);
  }
  uint32_t of(uint32_t device) {
    while (parent[device] != device)
      device = parent[device] = parent[parent[device]];
    return device;
  }
  void join(uint32_t a, uint32_t b) { parent[of(a)] = of(b); }

private:
  std::vector<uint32_t> parent;
};

/// Makes the exchanges of pieces of one group: pieces of a component in ascending order, while the
/// runs of all its devices stay contiguous.
class ExchangeMaker {
public:
  ExchangeMaker(LevelReduction like, size_t devices) : like(std::move(like)), components(devices) {}

  void add(const std::vector<Piece> &pieces, std::vector<LevelReduction> &made) {
    for (const Piece &piece : pieces)
      for (uint32_t source : piece.sources)
        components.join(piece.device, source);
    std::map<uint32_t, std::vector<const Piece *>> byComponent;
    std::vector<uint32_t> order; // components by their first piece
    for (const Piece &piece : pieces) {
      std::vector<const Piece *> &list = byComponent[components.of(piece.device)];
      if (list.empty())
        order.push_back(components.of(piece.device));
      list.push_back(&piece);
    }
    for (uint32_t component : order) {
      for (const Piece *piece : byComponent[component]) {
        if (!continues(*piece))
          finish(made);
        take(*piece);
      }
      finish(made);
    }
  }

private:
  struct Run {
    int64_t begin, end;
  };

  static bool continues(const std::map<uint32_t, Run> &runs, uint32_t device, int64_t begin) {
    const auto run = runs.find(device);
    return run == runs.end() || run->second.end == begin;
  }
  bool continues(const Piece &piece) const {
    return continues(results, piece.device, piece.begin) &&
           std::all_of(piece.sources.begin(), piece.sources.end(),
                       [&](uint32_t source) { return continues(terms, source, piece.begin); });
  }

  void take(const Piece &piece) {
    auto extend = [&](std::map<uint32_t, Run> &runs, uint32_t device) {
      runs.try_emplace(device, Run{piece.begin, piece.end}).first->second.end = piece.end;
    };
    extend(results, piece.device);
    for (size_t i = 0; i < piece.sources.size(); ++i) {
      extend(terms, piece.sources[i]);
      childOf.try_emplace(piece.sources[i], i);
    }
    taken.push_back(&piece);
  }

  void finish(std::vector<LevelReduction> &made) {
    if (taken.empty())
      return;
    LevelReduction exchange = like;
    for (const auto &[device, run] : terms)
      exchange.members.push_back(device);
    std::stable_sort(exchange.members.begin(), exchange.members.end(), [&](uint32_t a, uint32_t b) {
      return std::pair(childOf[a], terms.at(a).begin) < std::pair(childOf[b], terms.at(b).begin);
    });
    for (uint32_t member : exchange.members)
      exchange.terms.push_back({terms.at(member).begin, terms.at(member).end, member});
    for (const Piece *piece : taken)
      exchange.results.push_back({piece->begin, piece->end, piece->device});
    made.push_back(std::move(exchange));
    taken.clear();
    terms.clear();
    results.clear();
    childOf.clear();
  }

  const LevelReduction like;
  Components components;
  std::vector<const Piece *> taken;
  std::map<uint32_t, Run> terms, results; ///< of `taken`, by device
  std::map<uint32_t, size_t> childOf;     ///< by device with a term
};

/// The pieces of every group of a tree. Those of the root are divided by what becomes of them.
class PieceLister {
public:
  PieceLister(const Tree &tree, const Schedule &schedule)
      : schedule(schedule), byGroup(tree.size()) {
    const auto root = uint32_t(tree.size() - 1);
    for (const Part &part : schedule.parts)
      if (part.group != root && part.group != Part::kForward)
        byGroup[part.group].push_back(pieceOf(part, part.begin, part.end));
    for (const Owned &owned : schedule.owned) {
      const Part &last = schedule.parts[owned.part];
      const int64_t begin = owned.extent.begin, end = owned.extent.end;
      if (last.group != Part::kForward) {
        final.push_back(pieceOf(last, begin, end));
        continue;
      }
      const Term &from = schedule.terms[last.firstTerm];
      byGroup[root].push_back(pieceOf(schedule.parts[from.part], begin, end));
      forwarded.push_back({begin, end, owned.extent.device, {from.device}});
    }
  }

private:
  Piece pieceOf(const Part &part, int64_t begin, int64_t end) const {
    Piece piece{begin, end, part.device, {}};
    piece.sources.reserve(part.terms);
    for (uint32_t t = part.firstTerm; t < part.firstTerm + part.terms; ++t)
      piece.sources.push_back(schedule.terms[t].device);
    return piece;
  }

  const Schedule &schedule;

public:
  std::vector<std::vector<Piece>> byGroup; ///< sums that stay in accumulators
  std::vector<Piece> final, forwarded;     ///< sums of the root that arrive at their owners
};

} // namespace

/// Returns the exchanges of a schedule; nothing if there are too many.
static std::optional<std::vector<LevelReduction>>
exchangesOf(const Placement &placement, const Tree &tree, const Schedule &schedule) {
  const PieceLister pieces(tree, schedule);
  const auto root = uint32_t(tree.size() - 1);
  const size_t most = kMaxPerContributor * tree.back().contributors.size();
  std::vector<LevelReduction> made;
  auto add = [&](uint32_t group, bool toOwner, bool forwards, const std::vector<Piece> &list) {
    LevelReduction like;
    like.group = group;
    like.toOwner = toOwner;
    like.forwards = forwards;
    if (made.size() <= most)
      ExchangeMaker(std::move(like), placement.nodeOf.size()).add(list, made);
  };
  for (uint32_t g = 0; g < tree.size(); ++g)
    add(g, false, false, pieces.byGroup[g]);
  add(root, true, false, pieces.final);
  add(root, true, true, pieces.forwarded);
  return made.size() <= most ? std::optional(std::move(made)) : std::nullopt;
}

/// Returns all elements in equal parts of the contributors.
static Cover equalParts(const Placement &placement, const Tree &tree, const Cover &owners) {
  const std::vector<uint32_t> order =
      zorse::collectives::ownerOrder(placement, tree.back().contributors);
  const int64_t begin = owners.front().begin, elements = owners.back().end - begin,
                grains = (elements + kGrain - 1) / kGrain;
  Cover parts;
  for (size_t i = 0; i < order.size(); ++i) {
    auto border = [&](size_t k) {
      return begin + std::min(elements, grains * int64_t(k) / int64_t(order.size()) * kGrain);
    };
    if (border(i) < border(i + 1))
      parts.push_back({border(i), border(i + 1), order[i]});
  }
  return parts;
}

std::optional<std::vector<LevelReduction>>
zorse::collectives::levelReductions(const Placement &placement, const Tree &tree,
                                    const Cover &owners) {
  if (tree.size() == 1)
    return std::nullopt;
  auto along = [&](const std::vector<Cover> &covers) {
    return exchangesOf(placement, tree, makeSchedule(tree, covers, owners));
  };
  for (Lanes lanes : {Lanes::Balanced, Lanes::LikeOwners})
    if (auto exchanges = along(chooseCovers(placement, tree, owners, lanes)))
      return exchanges;
  // Contributors hold equal parts, and pass on what others own.
  return along(chooseCovers(placement, tree, equalParts(placement, tree, owners)));
}

std::vector<uint32_t> zorse::collectives::ownerOrder(const Placement &placement,
                                                     const std::vector<uint32_t> &devices) {
  if (devices.size() < 2)
    return devices;
  const Tree tree = makeTree(placement, devices);
  std::map<uint32_t, std::vector<size_t>> digits; // by device, from its node upwards
  for (const Group &group : tree)
    for (size_t c = 0; c < group.children.size(); ++c) {
      const Child child = group.children[c];
      const std::vector<uint32_t> below = child.isContributor()
                                              ? std::vector<uint32_t>{child.device()}
                                              : tree[child.index()].contributors;
      for (uint32_t device : below) {
        std::vector<size_t> &of = digits[device];
        of.resize(std::max<size_t>(of.size(), group.level), 0); // levels that it does not have
        of.push_back(c);
      }
    }
  std::vector<uint32_t> sorted = devices;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](uint32_t a, uint32_t b) { return digits[a] < digits[b]; });
  return sorted;
}
