#include "Extents.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace zorse::collectives;

int64_t zorse::collectives::lengthOf(const Cover &cover) {
  return std::accumulate(cover.begin(), cover.end(), int64_t(0),
                         [](int64_t sum, const Extent &extent) { return sum + extent.length(); });
}

Cover zorse::collectives::takeFront(Cover &list, int64_t amount) {
  Cover taken;
  size_t used = 0;
  while (amount > 0 && used < list.size()) {
    Extent &front = list[used];
    const int64_t border =
        amount >= front.length()
            ? front.end
            : std::min(front.end, (front.begin + amount + kGrain - 1) / kGrain * kGrain);
    amount -= border - front.begin;
    taken.push_back({front.begin, border, front.device});
    front.begin = border;
    used += front.begin == front.end;
  }
  list.erase(list.begin(), list.begin() + long(used));
  return taken;
}

namespace {

/// Returns the end of an extent, counted from the start of the list, that is nearest to a cut, or
/// the cut itself if none is as near as rounding moves it.
int64_t snap(const Cover &list, int64_t cut, int64_t rounding) {
  int64_t nearest = cut, distance = rounding, end = 0;
  for (const Extent &extent : list) {
    end += extent.length();
    if (std::abs(end - cut) < distance) {
      distance = std::abs(end - cut);
      nearest = end;
    }
  }
  return nearest;
}

} // namespace

std::vector<Cover> zorse::collectives::divideByWeights(const Cover &list,
                                                       const std::vector<double> &weights,
                                                       int64_t rounding) {
  const double whole = std::accumulate(weights.begin(), weights.end(), 0.0);
  const int64_t length = lengthOf(list);
  std::vector<Cover> parts(weights.size());
  Cover left = list;
  int64_t taken = 0;
  double passed = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    passed += weights[i];
    const bool rest = i + 1 == weights.size() || !(whole > 0);
    const int64_t until =
        rest ? length : snap(list, std::llround(double(length) * passed / whole), rounding);
    if (until > taken)
      parts[i] = takeFront(left, until - taken);
    taken += lengthOf(parts[i]);
  }
  return parts;
}

void zorse::collectives::normalize(Cover &cover) {
  std::sort(cover.begin(), cover.end(),
            [](const Extent &a, const Extent &b) { return a.begin < b.begin; });
  Cover joined;
  for (const Extent &extent : cover) {
    if (extent.length() == 0)
      continue;
    if (!joined.empty() && joined.back().end == extent.begin &&
        joined.back().device == extent.device)
      joined.back().end = extent.end;
    else
      joined.push_back(extent);
  }
  cover = std::move(joined);
}

namespace {

/// The interval of elements that every child may sum within a time.
class ShareIntervals {
public:
  ShareIntervals(const std::vector<ChildLinks> &children, double terms, double whole)
      : low(children.size()), high(children.size()), children(children), terms(terms),
        whole(whole) {}

  /// Computes the intervals for a time. Returns whether sums of all elements fit.
  bool fit(double time) {
    double least = 0, most = 0;
    for (size_t c = 0; c < children.size(); ++c) {
      const auto owned = double(children[c].owned);
      const double room = time * children[c].in;
      low[c] = std::max(0.0, whole - time * children[c].out);
      high[c] = room / terms >= owned ? room / terms
                : terms > 1           ? (room - owned) / (terms - 1)
                : room >= owned       ? owned
                                      : -1;
      high[c] = std::min(high[c], whole);
      if (high[c] < low[c])
        return false;
      least += low[c];
      most += high[c];
    }
    return least <= whole && most >= whole;
  }

  /// Bisects the least time, and leaves its intervals.
  void minimize() {
    double slowest = children.front().in;
    for (const ChildLinks &child : children)
      slowest = std::min({slowest, child.in, child.out});
    double bad = 0, good = (terms + 2) * whole / slowest;
    while (!fit(good))
      good *= 2;
    for (int step = 0; step < 60; ++step) {
      const double middle = (bad + good) / 2;
      (fit(middle) ? good : bad) = middle;
    }
    constexpr double kRounding = 1e-4;
    fit(good * (1 + kRounding));
  }

  std::vector<double> low, high;

private:
  const std::vector<ChildLinks> &children;
  const double terms, whole;
};

} // namespace

std::vector<int64_t> zorse::collectives::shareSums(const std::vector<ChildLinks> &children,
                                                   double terms, int64_t whole, int64_t rounding) {
  const size_t count = children.size();
  if (count == 1 || whole == 0)
    return count == 1 ? std::vector<int64_t>{whole} : std::vector<int64_t>(count, 0);
  ShareIntervals intervals(children, terms, double(whole));
  intervals.minimize();
  // What a child owns, or the next number inside its interval; the rest in proportion to the room.
  std::vector<double> share(count), room(count);
  for (size_t c = 0; c < count; ++c)
    share[c] = std::clamp(double(children[c].owned), intervals.low[c], intervals.high[c]);
  const double missing = double(whole) - std::accumulate(share.begin(), share.end(), 0.0);
  for (size_t c = 0; c < count; ++c)
    room[c] = missing > 0 ? intervals.high[c] - share[c] : share[c] - intervals.low[c];
  const double rooms = std::accumulate(room.begin(), room.end(), 0.0);
  std::vector<int64_t> result(count);
  int64_t given = 0;
  for (size_t c = 0; c < count; ++c) {
    if (rooms > 0)
      share[c] += missing * room[c] / rooms;
    const bool own = std::abs(share[c] - double(children[c].owned)) < double(rounding);
    given += result[c] = own ? children[c].owned : int64_t(share[c]);
  }
  *std::max_element(result.begin(), result.end()) += whole - given;
  return result;
}
