// Checks that the clusters in models/clusters agree with their names and documentation.
#include "zorse/Planning/Cluster.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

using namespace zorse::planning;

namespace {

std::string directory() { return std::string(ZORSE_SOURCE_DIR) + "/models/clusters/"; }

TEST(ClusterExamples, AreRead) {
  int files = 0;
  for (const auto &entry : std::filesystem::directory_iterator(directory())) {
    if (entry.path().extension() != ".yaml")
      continue;
    ++files;
    zorse::Result<Cluster> cluster = readClusterFile(entry.path().string());
    ASSERT_FALSE(cluster.failed()) << cluster.message();
    EXPECT_EQ(readCluster(writeCluster(*cluster)).message(), "");
  }
  EXPECT_GE(files, 10);
}

struct Facts {
  std::map<std::string, int> types;
  int nodes, sites;
};

TEST(ClusterExamples, OfTheIssue) {
  const std::map<std::string, Facts> expected = {
      {"a-4h100-16a100", {{{"H100-SXM", 4}, {"A100-40", 16}}, 5, 1}},
      {"b-8a100-16a10g-16v100-24t4",
       {{{"A100-40", 8}, {"A10G", 16}, {"V100-16", 16}, {"T4", 24}}, 16, 1}},
      {"c-two-regions", {{{"A10G", 16}, {"V100-16", 16}, {"T4", 96}}, 32, 2}},
      {"d-32a100-96v100", {{{"A100-40", 32}, {"V100-16", 96}}, 32, 1}},
      {"e-128a100-384v100", {{{"A100-40", 128}, {"V100-16", 384}}, 128, 1}},
      {"f-five-zones", {{{"A100-40", 640}}, 160, 5}},
  };
  for (const auto &[name, facts] : expected) {
    zorse::Result<Cluster> cluster = readClusterFile(directory() + name + ".yaml");
    ASSERT_FALSE(cluster.failed()) << cluster.message();
    std::map<std::string, int> types;
    for (const ClusterDevice &device : cluster->devices) {
      ++types[device.type];
      EXPECT_GT(device.memory, 0u);
    }
    EXPECT_EQ(types, facts.types) << name;
    EXPECT_EQ(int(cluster->nodes.size()), facts.nodes) << name;
    EXPECT_EQ(cluster->topology.sites_size(), facts.sites) << name;
    for (const ClusterNode &node : cluster->nodes) {
      EXPECT_GT(node.hostMemory, 0u) << name;
      EXPECT_GT(node.pcie, 0) << name;
    }
    for (const auto &node : cluster->topology.nodes()) {
      EXPECT_GT(node.nic().bandwidth(), 0) << name;
      EXPECT_GT(node.nic().per_flow_bandwidth(), 0) << name;
    }
    // The file contains all values itself: a change of the table of types does not change a
    // published result.
    std::ifstream file(directory() + name + ".yaml");
    std::stringstream text;
    text << file.rdbuf();
    for (const char *key :
         {"memory:", "nic:", "host_memory:", "fabric:", "flops_per_second:", "half_peak_rows:"})
      EXPECT_NE(text.str().find(key), std::string::npos) << name << ": missing key " << key;
  }
}

} // namespace
