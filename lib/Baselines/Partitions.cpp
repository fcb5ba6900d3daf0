#include "Partitions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace zorse::planning::baseline;

Partition zorse::planning::baseline::lightestCut(const Weights &weights) {
  const size_t n = weights.size();
  Weights w = weights;
  std::vector<std::vector<size_t>> merged(n); // original vertices of each contracted vertex
  std::vector<size_t> alive(n);
  for (size_t v = 0; v < n; ++v)
    merged[v] = {alive[v] = v};
  Partition best{INFINITY, std::vector<bool>(n, false)};
  while (alive.size() > 1) {
    // Maximum adjacency order: separating the last vertex is a minimum cut between it and the
    // previous one.
    std::vector<double> key(alive.size(), 0);
    std::vector<bool> added(alive.size(), false);
    size_t last = 0, before = 0;
    for (size_t i = 0; i < alive.size(); ++i) {
      size_t next = SIZE_MAX;
      for (size_t j = 0; j < alive.size(); ++j)
        if (!added[j] && (next == SIZE_MAX || key[j] > key[next]))
          next = j;
      added[next] = true;
      before = last;
      last = next;
      if (i + 1 == alive.size())
        break;
      const std::vector<double> &row = w[alive[next]];
      for (size_t j = 0; j < alive.size(); ++j)
        if (!added[j])
          key[j] += row[alive[j]];
    }
    size_t s = alive[before], t = alive[last];
    if (key[last] < best.weight) {
      best.weight = key[last];
      std::fill(best.side.begin(), best.side.end(), false);
      for (size_t v : merged[t])
        best.side[v] = true;
    }
    for (size_t v : alive) {
      w[s][v] += w[t][v];
      w[v][s] = w[s][v];
    }
    merged[s].insert(merged[s].end(), merged[t].begin(), merged[t].end());
    alive.erase(alive.begin() + static_cast<long>(last));
  }
  return best;
}

std::vector<std::vector<uint32_t>> zorse::planning::baseline::splitCuts(const Weights &weights,
                                                                        size_t max) {
  const size_t n = weights.size();
  struct Part {
    std::vector<size_t> vertices;
    Partition cut;
  };
  auto makePart = [&](std::vector<size_t> vertices) {
    Part part{std::move(vertices), {INFINITY, {}}};
    if (part.vertices.size() > 1) {
      Weights w(part.vertices.size(), std::vector<double>(part.vertices.size()));
      for (size_t i = 0; i < w.size(); ++i)
        for (size_t j = 0; j < w.size(); ++j)
          w[i][j] = weights[part.vertices[i]][part.vertices[j]];
      part.cut = lightestCut(w);
    }
    return part;
  };
  std::vector<size_t> all(n);
  std::iota(all.begin(), all.end(), 0);
  std::vector<Part> parts;
  if (n > 0)
    parts.push_back(makePart(all));
  std::vector<std::vector<uint32_t>> result;
  while (result.size() < std::min(max, n)) {
    std::sort(parts.begin(), parts.end(),
              [](const Part &a, const Part &b) { return a.vertices.front() < b.vertices.front(); });
    result.emplace_back(n);
    for (size_t p = 0; p < parts.size(); ++p)
      for (size_t v : parts[p].vertices)
        result.back()[v] = static_cast<uint32_t>(p);
    auto lightest = std::min_element(parts.begin(), parts.end(), [](const Part &a, const Part &b) {
      return a.cut.weight < b.cut.weight;
    });
    if (lightest == parts.end() || lightest->vertices.size() < 2)
      break;
    std::vector<size_t> sides[2];
    for (size_t i = 0; i < lightest->vertices.size(); ++i)
      sides[lightest->cut.side[i]].push_back(lightest->vertices[i]);
    *lightest = makePart(sides[0]);
    parts.push_back(makePart(sides[1]));
  }
  return result;
}

namespace {

/// Side 1 gets about `share` of the vertex weight; then pairs are swapped while that reduces
/// the cut.
std::vector<bool> bisect(const Weights &w, const std::vector<double> &vertexWeights, double share) {
  const size_t n = w.size();
  std::vector<bool> side(n, false);
  double total = std::accumulate(vertexWeights.begin(), vertexWeights.end(), 0.0), grown = 0;
  // Grow side 1 by the strongest connection, from the vertex with the smallest total weight to the
  // others.
  std::vector<double> pull(n, 0);
  std::vector<bool> taken(n, false);
  for (size_t size = 0; size + 1 < n; ++size) {
    size_t next = SIZE_MAX;
    for (size_t v = 0; v < n; ++v)
      if (!taken[v] && (next == SIZE_MAX || pull[v] > pull[next] * (1 + 1e-12)))
        next = v;
    if (size > 0 && grown + vertexWeights[next] / 2 > share * total)
      break;
    taken[next] = side[next] = true;
    grown += vertexWeights[next];
    for (size_t v = 0; v < n; ++v)
      if (v != next)
        pull[v] += w[next][v];
  }
  // Kernighan and Lin: each pass makes tentative best swaps and keeps the best prefix. Swaps pair
  // vertices of equal weight, so the shares are constant.
  for (int pass = 0; pass < 8; ++pass) {
    std::vector<double> gain(n);
    for (size_t v = 0; v < n; ++v) {
      gain[v] = 0;
      for (size_t u = 0; u < n; ++u)
        if (u != v)
          gain[v] += side[u] != side[v] ? w[u][v] : -w[u][v];
    }
    std::vector<bool> locked(n, false);
    std::vector<std::pair<size_t, size_t>> swaps;
    double sum = 0, bestSum = 0;
    size_t bestLength = 0;
    while (swaps.size() < std::min<size_t>(n / 2, 64)) {
      double best = -INFINITY;
      size_t a = 0, b = 0;
      for (size_t u = 0; u < n; ++u)
        for (size_t v = 0; !locked[u] && side[u] && v < n; ++v)
          if (!locked[v] && !side[v] && vertexWeights[u] == vertexWeights[v] &&
              gain[u] + gain[v] - 2 * w[u][v] > best) {
            best = gain[u] + gain[v] - 2 * w[u][v];
            a = u;
            b = v;
          }
      if (best == -INFINITY)
        break;
      locked[a] = locked[b] = true;
      swaps.push_back({a, b});
      sum += best;
      for (size_t v = 0; v < n; ++v)
        if (!locked[v])
          gain[v] += side[v] ? 2 * w[v][a] - 2 * w[v][b] : 2 * w[v][b] - 2 * w[v][a];
      if (sum > bestSum + 1e-12 * std::fabs(bestSum)) {
        bestSum = sum;
        bestLength = swaps.size();
      }
    }
    if (bestLength == 0)
      break;
    for (size_t i = 0; i < bestLength; ++i) {
      side[swaps[i].first] = false;
      side[swaps[i].second] = true;
    }
  }
  return side;
}

void divide(const Weights &weights, const std::vector<double> &vertexWeights,
            const std::vector<size_t> &vertices, uint32_t parts, uint32_t &next,
            std::vector<uint32_t> &result) {
  if (parts <= 1 || vertices.size() <= 1) {
    for (size_t v : vertices)
      result[v] = next;
    ++next;
    return;
  }
  Weights w(vertices.size(), std::vector<double>(vertices.size()));
  std::vector<double> own;
  for (size_t i = 0; i < vertices.size(); ++i) {
    own.push_back(vertexWeights[vertices[i]]);
    for (size_t j = 0; j < vertices.size(); ++j)
      w[i][j] = weights[vertices[i]][vertices[j]];
  }
  uint32_t right = parts / 2;
  std::vector<bool> side = bisect(w, own, static_cast<double>(right) / parts);
  std::vector<size_t> sides[2];
  for (size_t i = 0; i < vertices.size(); ++i)
    sides[side[i]].push_back(vertices[i]);
  divide(weights, vertexWeights, sides[0], parts - right, next, result);
  divide(weights, vertexWeights, sides[1], right, next, result);
}

} // namespace

std::vector<uint32_t> zorse::planning::baseline::bisectRecursively(
    const Weights &weights, const std::vector<double> &vertexWeights, uint32_t parts) {
  std::vector<size_t> all(weights.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<uint32_t> result(weights.size(), 0);
  uint32_t next = 0;
  divide(weights, vertexWeights, all, parts, next, result);
  return result;
}
