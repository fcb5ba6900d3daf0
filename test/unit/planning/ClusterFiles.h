// Reads cluster files for tests of their keys.
#pragma once

#include "zorse/Planning/Cluster.h"
#include "zorse/Summary/Summary.h"
#include "zorse/runtime/Bundle.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

namespace zorse::test {

using planning::Cluster;
using planning::ClusterDevice;
using planning::ClusterNode;
using planning::readCluster;

inline Cluster read(const std::string &yaml) {
  Result<Cluster> cluster = readCluster(yaml);
  EXPECT_FALSE(cluster.failed()) << cluster.message();
  return cluster.failed() ? Cluster() : *cluster;
}

inline std::string mistake(const std::string &yaml) { return readCluster(yaml).message(); }

#define EXPECT_MISTAKE(yaml, text)                                                                 \
  EXPECT_NE(mistake(yaml).find(text), std::string::npos) << mistake(yaml)

/// Expects that two clusters are equal in everything that affects programs and times.
inline void expectSame(const Cluster &a, const Cluster &b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.currency, b.currency);
  EXPECT_EQ(a.topology.SerializeAsString(), b.topology.SerializeAsString());
  EXPECT_EQ(a.egressPrice, b.egressPrice);
  ASSERT_EQ(a.devices.size(), b.devices.size());
  for (size_t d = 0; d < a.devices.size(); ++d) {
    const ClusterDevice &x = a.devices[d], &y = b.devices[d];
    auto all = [](const ClusterDevice &v) {
      return std::make_tuple(v.name, v.kind, v.arch, v.gpu, v.type, v.node, v.flopsPerSecond[0],
                             v.flopsPerSecond[1], v.flopsPerSecond[2], v.multiprocessors,
                             v.halfPeakRows, v.executionMode, v.memoryBandwidth, v.launchOverhead,
                             v.memory, v.reservedMemory, v.threads, v.price);
    };
    EXPECT_EQ(all(x), all(y)) << x.name;
  }
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (size_t n = 0; n < a.nodes.size(); ++n) {
    auto all = [](const ClusterNode &v) {
      return std::make_tuple(v.name, v.hostMemory, v.pcie, v.nvme, v.nvmeBandwidth, v.price);
    };
    EXPECT_EQ(all(a.nodes[n]), all(b.nodes[n])) << a.nodes[n].name;
  }
}

/// Expects that the runtime's simple reader finds the same devices.
inline void expectRuntimeAgrees(const Cluster &cluster, const std::string &yaml) {
  runtime::Bundle bundle;
  bundle.directory = "bundle";
  for (const ClusterDevice &device : cluster.devices)
    bundle.devices.push_back({device.name, device.kind, 1, 0});
  runtime::Status status = runtime::checkCluster(
      bundle, runtime::MappedFile::view("cluster.yaml", yaml.data(), yaml.size()));
  EXPECT_FALSE(status.failed()) << status.message();
  bundle.cluster = yaml;
  auto nodes = runtime::nodesOfDevices(bundle);
  ASSERT_FALSE(nodes.failed());
  for (size_t d = 0; d < cluster.devices.size(); ++d)
    EXPECT_EQ((*nodes)[d], cluster.devices[d].node);
}

/// A cluster of one device with these keys.
inline std::string device(const std::string &fields) {
  return "nodes:\n  - name: n\n    devices:\n      - {name: a, " + fields + "}\n";
}

} // namespace zorse::test
