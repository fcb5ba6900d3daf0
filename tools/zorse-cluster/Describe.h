// Describes the machine that this process runs on as a cluster of one node.
#pragma once

#include "zorse/Planning/Cluster.h"
#include "zorse/runtime/Status.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::cluster {

struct DescribeOptions {
  std::string root;     ///< directory that contains proc and sys; empty except in tests
  std::string nvml;     ///< path of NVML; empty: the system's library
  std::string node;     ///< node name; empty: the host name
  bool cpu = false;     ///< list the CPUs as a device even if there are GPUs
  bool pinGpus = false; ///< name every GPU by its UUID; runs then fail if it is not found
  std::optional<std::string> visible; ///< CUDA_VISIBLE_DEVICES
  bool measure = false; ///< measure the speed of matrix products on the CPUs instead of estimating
                        ///< it
};

struct Description {
  planning::Cluster cluster;
  std::vector<std::string> notes; ///< messages for the user, one line each: "2 x AMD EPYC", devices
                                  ///< that were not found
};

runtime::Result<Description> describe(const DescribeOptions &options);

/// Merges several descriptions into one cluster. Nodes keep their names. Nodes with the same name
/// are ranks of one host and are added once.
planning::Cluster merge(const std::vector<planning::Cluster> &parts, const std::string &name);

/// Measures FLOP/s of f32 matrix products on a CPU device with `threads` threads, using the
/// runtime's driver.
runtime::Result<double> measureMatmuls(int threads);

} // namespace zorse::cluster
