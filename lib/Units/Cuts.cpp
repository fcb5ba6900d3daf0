#include "Cuts.h"

#include "Classes.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

/// A range of the order between adjacent cuts.
struct Segment {
  int begin, end;
  bool heavy = false;
  bool startsWithNorm = false;
};

class CutFinder {
public:
  CutFinder(const ModelGraph &graph, int longSpan)
      : graph(graph), longSpan(longSpan), size(graph.order.size()) {
    measure();
  }

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
  /// Measures the distance from the definition or a use of each spine value to its next use.
  void measure() {
    heavyBefore.assign(size + 1, 0);
    for (int i = 0; i < size; ++i)
      heavyBefore[i + 1] = heavyBefore[i] + isComputeIntensive(graph.order[i]);
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

  /// Positions p for which exactly one of the values selected by `counts` is defined before p and
  /// read at or after p.
  template <typename Predicate>
  std::vector<int> crossings(int begin, int end, Predicate counts) const {
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

  /// Positions that exactly one value with a near next use crosses. Values with a distant next use
  /// are carried across and ignored.
  std::vector<int> carriedCuts(int begin, int end) const {
    return crossings(begin, end, [&](int from, int to) {
      return heavyBefore[to] - heavyBefore[from + 1] < longSpan;
    });
  }

  std::vector<int> merge(const std::vector<int> &ends) const {
    std::vector<Segment> segments;
    int begin = 0;
    for (int end : ends) {
      segments.push_back(
          {begin, end, heavyBefore[end] > heavyBefore[begin], isNorm(graph.order[begin])});
      begin = end;
    }
    int count = segments.size(), firstHeavy = 0, lastHeavy = count - 1;
    while (firstHeavy < count && !segments[firstHeavy].heavy)
      ++firstHeavy;
    while (lastHeavy >= 0 && !segments[lastHeavy].heavy)
      --lastHeavy;
    if (lastHeavy < 0) // no heavy operation: one unit
      return {size};

    std::vector<int> units; // ends of units
    if (int cut = embeddingEnd(segments, firstHeavy); cut > 0)
      units.push_back(cut);
    for (int i = firstHeavy; i < lastHeavy;) {
      int next = i + 1;
      while (!segments[next].heavy)
        ++next;
      int split = i + 1; // light segments before the first norm belong to i
      while (split < next && !segments[split].startsWithNorm)
        ++split;
      units.push_back(segments[split - 1].end);
      i = next;
    }
    return withHead(units, segments, lastHeavy);
  }

  /// Returns the end of the light prefix without a trailing norm. That norm belongs to the first
  /// block, like the norms between blocks.
  int embeddingEnd(ArrayRef<Segment> segments, int firstHeavy) const {
    int end = firstHeavy;
    while (end > 0 && segments[end - 1].startsWithNorm)
      --end;
    return end == 0 ? 0 : segments[end - 1].end;
  }

  std::vector<int> withHead(std::vector<int> units, ArrayRef<Segment> segments,
                            int lastHeavy) const {
    int begin = units.empty() ? 0 : units.back(), end = segments[lastHeavy].end;
    // If a loss is computed before the last unit, everything after it becomes part of the head.
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

  /// Whether the operations from `lossBegin` on read class scores.
  bool isClassifier(int lossBegin) const {
    for (int i = lossBegin; i < size; ++i)
      if (isa<CrossEntropyOp, LogSoftmaxOp, SoftmaxOp, TakeAlongDimOp>(graph.order[i]))
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

std::vector<int> units::findUnits(const ModelGraph &graph, int longSpan) {
  return CutFinder(graph, longSpan).find();
}
