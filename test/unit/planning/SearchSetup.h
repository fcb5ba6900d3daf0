// Problems of the search's tests: nodes of equal devices and a Llama model.
#pragma once

#include "LlamaShape.h"
#include "Must.h"

#include "zorse/Planning/Search.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zorse::planning {

struct Setup {
  bundle::ModelSummary summary;
  Cluster cluster;
  std::optional<CostModel> costs;
  std::optional<Problem> problem;
};

/// Makes nodes of `each` devices with `speeds` in TFLOP/s, one per node, and a Llama model of
/// `layers` layers.
inline std::unique_ptr<Setup> setUp(std::vector<double> speeds, int each, int64_t layers,
                                    int64_t batch, uint64_t memory = 0, double card = 6e9) {
  auto made = std::make_unique<Setup>();
  made->summary = *makeSummary({"shape", layers, 512, 1408, 8, 8, 4096, 256, bundle::BF16});
  made->cluster.topology.add_sites()->mutable_fabric()->set_latency(2e-5);
  for (size_t n = 0; n < speeds.size(); ++n) {
    made->cluster.nodes.emplace_back();
    made->cluster.nodes.back().name = "n" + std::to_string(n);
    auto *node = made->cluster.topology.add_nodes();
    node->mutable_port()->set_bandwidth(1e11);
    node->mutable_nic()->set_bandwidth(card);
    for (int d = 0; d < each; ++d) {
      ClusterDevice device;
      device.name = "d" + std::to_string(made->cluster.devices.size());
      device.type = "T" + std::to_string(int(speeds[n]));
      device.node = static_cast<uint32_t>(n);
      std::fill(std::begin(device.flopsPerSecond), std::end(device.flopsPerSecond),
                speeds[n] * 1e12);
      device.halfPeakRows = 100;
      device.memoryBandwidth = 1e12;
      device.launchOverhead = 1e-6;
      device.memory = memory;
      made->cluster.devices.push_back(device);
      made->cluster.topology.add_node_of_device(static_cast<uint32_t>(n));
    }
  }
  made->costs = must(CostModel::make(made->summary, made->cluster, nullptr, {}));
  made->problem.emplace(Problem{made->summary, made->cluster, *made->costs, batch});
  return made;
}

} // namespace zorse::planning
