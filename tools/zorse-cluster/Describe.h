// The machine this process runs on, as a cluster of one node.
#pragma once

#include "zorse/Planning/Cluster.h"
#include "zorse/runtime/Status.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::cluster {

struct DescribeOptions {
  std::string root;                   ///< "" but in tests: where /proc and /sys are
  std::string nvml;                   ///< the library; empty: the system's
  std::string node;                   ///< the node's name; empty: the host's
  bool cpu = false;                   ///< the processors are a device even where there are GPUs
  bool pinGpus = false;               ///< every GPU is named by its UUID, so that runs insist on it
  std::optional<std::string> visible; ///< CUDA_VISIBLE_DEVICES
  bool measure = false;               ///< the speed of matrix products on the processors, instead of an estimate
};

struct Description {
  planning::Cluster cluster;
  std::vector<std::string> notes; ///< for people, one line each: "2 x AMD EPYC", what was not found
};

runtime::Result<Description> describe(const DescribeOptions &options);

/// Several descriptions in one cluster: nodes of one name count once; without nodes of the same name all keep their names.
planning::Cluster merge(const std::vector<planning::Cluster> &parts, const std::string &name);

/// FLOP/s of f32 matrix products of a CPU device with so many threads, through the runtime's driver.
runtime::Result<double> measureProducts(int threads);

} // namespace zorse::cluster
