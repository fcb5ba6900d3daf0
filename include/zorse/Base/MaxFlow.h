// Maximum flow and the minimum cut nearest to the sink (Dinic, 1970). For small graphs: one class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zorse {

class MaxFlow {
public:
  static constexpr int64_t kInfinite = int64_t(1) << 60;

  explicit MaxFlow(int nodes) : first(nodes) {}

  void addEdge(int from, int to, int64_t capacity);
  int64_t solve(int source, int sink);

  /// After `solve`: for every node, whether it is on the sink's side of the minimum cut nearest to
  /// the sink.
  std::vector<bool> sinkSide(int sink) const;

private:
  struct Edge {
    int to;
    int64_t left;
  };
  bool levels(int source, int sink);
  int64_t push(int node, int sink, int64_t limit);

  std::vector<Edge> edges; ///< edge i and its reverse i ^ 1
  std::vector<std::vector<int>> first;
  std::vector<int> level;
  std::vector<std::size_t> next;
};

} // namespace zorse
