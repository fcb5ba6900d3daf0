#include "Cuts.h"

#include "Classes.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

/// A range of the order between neighbouring cuts.
struct Segment {
  int begin, end;
  bool heavy = false;
  bool startsWithNorm = false;
};

class CutFinder {
public:
  CutFinder(const ModelGraph &graph, int longSpan) : graph(graph), longSpan(longSpan), size(graph.order.size()) { measure(); }

  std::vector<int> find() {
    std::vector<int> ends;
    int begin = 0;
    for (int end : narrowCuts()) {
      if (heavyBefore[end] - heavyBefore[begin] >= 2 * longSpan)
        for (int inner : carriedCuts(begin, end))
          ends.push_back(inner);
      ends.push_back(end);
      begin = end;
    }
    return merge(ends);
  }

private:
  /// Waits of spine values in the order: from where a value is made or read to where it is read next.
  void measure() {
    heavyBefore.assign(size + 1, 0);
    for (int i = 0; i < size; ++i)
      heavyBefore[i + 1] = heavyBefore[i] + isHeavy(graph.order[i]);
    for (int i = 0; i < size; ++i)
      for (Value result : graph.order[i]->getResults()) {
        std::vector<int> uses{i};
        for (Operation *user : result.getUsers())
          if (auto it = graph.position.find(user); it != graph.position.end())
            uses.push_back(it->second);
        llvm::sort(uses);
        for (size_t use = 1; use < uses.size(); ++use)
          if (uses[use] > uses[use - 1])
            waits.push_back({uses[use - 1], uses[use]});
      }
  }

  /// Positions p where exactly one of the values chosen by `counts` is made before p and read at or after p.
  template <typename Predicate> std::vector<int> crossings(int begin, int end, Predicate counts) const {
    std::vector<int> delta(size + 2, 0), found;
    for (auto &[from, to] : waits)
      if (counts(from, to)) {
        ++delta[from + 1];
        --delta[to + 1];
      }
    int width = 0;
    for (int p = 0; p < end; ++p) {
      width += delta[p];
      if (p > begin && width == 1)
        found.push_back(p);
    }
    return found;
  }

  std::vector<int> narrowCuts() const {
    std::vector<int> cuts = crossings(0, size, [](int, int) { return true; });
    cuts.push_back(size);
    return cuts;
  }

  /// Where one value crosses that is read again soon; those that wait long are carried past.
  std::vector<int> carriedCuts(int begin, int end) const {
    return crossings(begin, end, [&](int from, int to) { return heavyBefore[to] - heavyBefore[from + 1] < longSpan; });
  }

  std::vector<int> merge(const std::vector<int> &ends) const {
    std::vector<Segment> segments;
    int begin = 0;
    for (int end : ends) {
      segments.push_back({begin, end, heavyBefore[end] > heavyBefore[begin], isNorm(graph.order[begin])});
      begin = end;
    }
    int count = segments.size(), firstHeavy = 0, lastHeavy = count - 1;
    while (firstHeavy < count && !segments[firstHeavy].heavy)
      ++firstHeavy;
    while (lastHeavy >= 0 && !segments[lastHeavy].heavy)
      --lastHeavy;
    if (lastHeavy < 0) // nothing heavy at all: one unit
      return {size};

    std::vector<int> units; // ends
    if (int cut = embeddingEnd(segments, firstHeavy); cut > 0)
      units.push_back(cut);
    for (int i = firstHeavy; i < lastHeavy;) {
      int next = i + 1;
      while (!segments[next].heavy)
        ++next;
      int split = i + 1; // light segments up to the first norm belong to i
      while (split < next && !segments[split].startsWithNorm)
        ++split;
      units.push_back(segments[split - 1].end);
      i = next;
    }
    return withHead(units, segments, lastHeavy);
  }

  /// The light prefix, without a norm at its end: that norm joins the first block, as the norms between blocks join theirs.
  int embeddingEnd(ArrayRef<Segment> segments, int firstHeavy) const {
    int end = firstHeavy;
    while (end > 0 && segments[end - 1].startsWithNorm)
      --end;
    return end == 0 ? 0 : segments[end - 1].end;
  }

  std::vector<int> withHead(std::vector<int> units, ArrayRef<Segment> segments, int lastHeavy) const {
    int begin = units.empty() ? 0 : units.back(), end = segments[lastHeavy].end;
    // A loss computed earlier than in the last unit pulls everything after it into the head.
    int firstLoss = size;
    for (const Numerator &numerator : graph.numerators)
      if (graph.onSpine(numerator.value))
        firstLoss = std::min(firstLoss, graph.position.lookup(numerator.value.getDefiningOp()));
    while (!units.empty() && firstLoss < units.back())
      units.pop_back();
    bool pulled = (units.empty() ? 0 : units.back()) != begin;
    if (!pulled && end < size && !isClassifier(end) && repeats(units, begin, end))
      units.push_back(end);
    units.push_back(size);
    return units;
  }

  /// Whether what follows reads class scores.
  bool isClassifier(int lossBegin) const {
    for (int i = lossBegin; i < size; ++i)
      if (isa<CrossEntropyOp, LogSoftmaxOp, SoftmaxOp, TakeOp>(graph.order[i]))
        return true;
    return false;
  }

  bool repeats(ArrayRef<int> units, int begin, int end) const {
    std::string key = outlineUnit(graph, begin, end).key;
    int from = 0;
    for (int to : units) {
      if (outlineUnit(graph, from, to).key == key)
        return true;
      from = to;
    }
    return false;
  }

  const ModelGraph &graph;
  int longSpan, size;
  std::vector<int> heavyBefore;
  std::vector<std::pair<int, int>> waits;
};

} // namespace

std::vector<int> units::findUnits(const ModelGraph &graph, int longSpan) { return CutFinder(graph, longSpan).find(); }
