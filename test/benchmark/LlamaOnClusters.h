// Llama shapes on the clusters A to F of models/clusters, as in the planner's tables: 2^20 tokens
// per step, with a sequence length that suits the cluster.
#pragma once

#include "LlamaShape.h"
#include "zorse/Planning/Strategy.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace zorse::planning {

struct ClusterSetting {
  char letter;
  const char *file;
  int64_t sequence; ///< tokens per sample
};
inline constexpr ClusterSetting kClusterSettings[] = {
    {'a', "a-4h100-16a100", 4096},    {'b', "b-8a100-16a10g-16v100-24t4", 1024},
    {'c', "c-two-regions", 512},      {'d', "d-32a100-96v100", 2048},
    {'e', "e-128a100-384v100", 2048}, {'f', "f-five-zones", 2048}};
inline constexpr int64_t kTokensPerStep = 1 << 20;

struct LlamaOnCluster {
  LlamaShape shape;
  bundle::ModelSummary summary;
  Cluster cluster;
  std::optional<CostModel> costs;
  int64_t batch = 0; ///< samples

  Problem problem() const { return {summary, cluster, *costs, batch}; }
};

/// \param model  "7b", "13b", ...; ends the program with a message if the model or its file does
/// not exist
inline std::unique_ptr<LlamaOnCluster> llamaOnCluster(const ClusterSetting &setting,
                                                      const std::string &model) {
  auto fail = [](const std::string &message) {
    std::fprintf(stderr, "%s\n", message.c_str());
    std::exit(2);
  };
  auto made = std::make_unique<LlamaOnCluster>();
  Result<Cluster> cluster =
      readClusterFile(std::string(ZORSE_SOURCE_DIR "/models/clusters/") + setting.file + ".yaml");
  if (cluster.failed())
    fail(cluster.message());
  made->cluster = std::move(*cluster);
  std::optional<LlamaShape> shape = findLlamaShape("llama-" + model);
  if (!shape)
    fail("no model 'llama-" + model + "'; known are " + knownLlamaShapes());
  shape->sequence = setting.sequence;
  shape->computeType = bundle::F16; // V100 and T4 do not support bfloat16
  Result<bundle::ModelSummary> summary = makeSummary(*shape);
  if (summary.failed())
    fail(summary.message());
  made->shape = std::move(*shape);
  made->summary = std::move(*summary);
  Result<CostModel> costs = CostModel::make(made->summary, made->cluster, nullptr, {});
  if (costs.failed())
    fail(costs.message());
  made->costs = std::move(*costs);
  made->batch = kTokensPerStep / setting.sequence;
  return made;
}

} // namespace zorse::planning
