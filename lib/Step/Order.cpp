#include "PlanLowering.h"

using namespace zorse::step;

void zorse::step::linkEdges(const std::vector<std::pair<uint32_t, uint32_t>> &edges, size_t count,
                            IndexLists &next) {
  next.items.resize(edges.size());
  if (edges.empty())
    return;
  next.begins.assign(count + 1, 0);
  for (auto [before, after] : edges)
    ++next.begins[before + 1];
  for (size_t i = 0; i < count; ++i)
    next.begins[i + 1] += next.begins[i];
  std::vector<uint32_t> fill(next.begins.begin(), next.begins.end() - 1);
  for (auto [before, after] : edges)
    next.items[fill[before]++] = after;
}

void Order::reset(const PlanLowering &x) {
  edges.clear();
  admission = {};
  priority.resize(x.ops.size());
  for (size_t op = 0; op < x.ops.size(); ++op)
    priority[op] = x.ops[op].priority;
}
