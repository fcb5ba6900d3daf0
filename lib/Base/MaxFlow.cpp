#include "zorse/Base/MaxFlow.h"

#include <algorithm>

using namespace zorse;

void MaxFlow::addEdge(int from, int to, int64_t capacity) {
  first[from].push_back(edges.size());
  edges.push_back({to, capacity});
  first[to].push_back(edges.size());
  edges.push_back({from, 0});
}

bool MaxFlow::levels(int source, int sink) {
  level.assign(first.size(), -1);
  level[source] = 0;
  std::vector<int> queue{source};
  for (size_t head = 0; head < queue.size(); ++head)
    for (int e : first[queue[head]])
      if (edges[e].left > 0 && level[edges[e].to] < 0) {
        level[edges[e].to] = level[queue[head]] + 1;
        queue.push_back(edges[e].to);
      }
  return level[sink] >= 0;
}

// The recursion depth is at most the number of levels, a few hundred for the longest class.
int64_t MaxFlow::push(int node, int sink, int64_t limit) {
  if (node == sink)
    return limit;
  for (size_t &i = next[node]; i < first[node].size(); ++i) {
    int e = first[node][i], to = edges[e].to;
    if (edges[e].left <= 0 || level[to] != level[node] + 1)
      continue;
    if (int64_t pushed = push(to, sink, std::min(limit, edges[e].left))) {
      edges[e].left -= pushed;
      edges[e ^ 1].left += pushed;
      return pushed;
    }
  }
  return 0;
}

int64_t MaxFlow::solve(int source, int sink) {
  int64_t total = 0;
  while (levels(source, sink)) {
    next.assign(first.size(), 0);
    while (int64_t pushed = push(source, sink, kInfinite))
      total += pushed;
  }
  return total;
}

std::vector<bool> MaxFlow::sinkSide(int sink) const {
  std::vector<bool> reaches(first.size(), false);
  reaches[sink] = true;
  std::vector<int> queue{sink};
  for (size_t head = 0; head < queue.size(); ++head)
    for (int e : first[queue[head]]) // the reverse edge comes from a predecessor
      if (int from = edges[e].to; edges[e ^ 1].left > 0 && !reaches[from]) {
        reaches[from] = true;
        queue.push_back(from);
      }
  return reaches;
}
