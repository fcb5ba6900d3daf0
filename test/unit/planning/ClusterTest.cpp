// Tests cluster files: their meaning, error messages, and writing.
#include "ClusterFiles.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::planning;
using namespace zorse::test;

namespace {

const char *kEverything = R"(
name: everything
currency: EUR
templates:
  devices:
    fast: {type: A100-40, reserved_memory: 3 GB, price: 1.5}
  nodes:
    four:
      site: east
      device_link: {bandwidth: 250 GB/s, latency: 3 us}
      bus: {bandwidth: 400 GB/s, latency: 1 us}
      nic: {bandwidth: 50 Gbit/s, latency: 5 us, per_flow_bandwidth: 2.4 GB/s, half_bandwidth_bytes: 22795}
      host_memory: 512 GiB
      pcie: 20 GB/s
      nvme: {size: 2 TB, bandwidth: 3 GB/s}
      price: 2
      devices:
        - {name: a, template: fast, count: 4}
sites:
  - {name: east, fabric: {bandwidth: 1 Tbit/s, latency: 20 us}, uplink: {bandwidth: 10 Gbit/s, per_flow_bandwidth: 1 GB/s}, egress_price: 0.05}
  - {name: west}
  - {name: south}
nodes:
  - {name: p, template: four, count: 3}
  - {name: q, template: four, price: 1, devices: [{name: b, template: fast, memory: 38 GB}]}
  - name: r
    site: west
    count: 2
    devices:
      - {name: t, type: T4, count: 2}
      - {name: v, type: V100-16, flops_per_second: {f16: 80 TFLOP/s}, half_peak_rows: 70, launch_overhead: 8 us, memory_bandwidth: 800 GB/s}
  - name: s
    site: south
    devices:
      - {name: c, type: cpu-thread, threads: 8, memory: 16 GiB}
      - {name: own, kind: sim, flops_per_second: 3 TFLOP/s, memory: 0}
links:
  inter_node: {bandwidth: 25 Gbit/s, latency: 90 us, per_flow_bandwidth: 2 GB/s}
  inter_site: {bandwidth: 1 GB/s, latency: 30 ms, per_flow_bandwidth: 100 MB/s}
  site_pairs:
    - {sites: [west, south], bandwidth: 2 GB/s, latency: 1 ms, per_flow_bandwidth: unlimited}
  collectives: exchange
)";

TEST(Cluster, Everything) {
  Cluster c = read(kEverything);
  EXPECT_EQ(c.currency, "EUR");
  ASSERT_EQ(c.nodes.size(), 7u);
  EXPECT_EQ(c.nodes[2].name, "p:2");
  EXPECT_EQ(c.nodes[3].name, "q");
  EXPECT_EQ(c.nodes[0].price, 2);
  EXPECT_EQ(c.nodes[3].price, 1); // the price of the node
  EXPECT_EQ(c.nodes[0].hostMemory, 512ull << 30);
  EXPECT_EQ(c.nodes[0].pcie, 20e9);
  EXPECT_EQ(c.nodes[0].nvme, 2000000000000u);
  EXPECT_EQ(c.nodes[0].nvmeBandwidth, 3e9);
  ASSERT_EQ(c.devices.size(), 12u + 1 + 6 + 2);
  EXPECT_EQ(c.devices[11].name, "a:11"); // numbered across nodes
  EXPECT_EQ(c.devices[11].node, 2u);
  EXPECT_EQ(c.devices[11].reservedMemory, 3000000000u);
  EXPECT_EQ(c.devices[11].price, 1.5);
  EXPECT_EQ(c.devices[11].capacity(), 37000000000u);
  EXPECT_EQ(c.devices[12].name, "b");
  EXPECT_EQ(c.devices[12].memory, 38000000000u);
  EXPECT_EQ(c.devices[15].name, "v:0");
  EXPECT_EQ(c.devices[16].name, "t:2");
  const ClusterDevice &v = c.devices[18];
  EXPECT_EQ(v.name, "v:1");
  EXPECT_EQ(v.flopsPerSecond[speedIndex(bundle::F16)], 80e12);
  EXPECT_EQ(v.flopsPerSecond[speedIndex(bundle::BF16)], 0);
  EXPECT_EQ(v.flopsPerSecond[speedIndex(bundle::F32)], 14.13e12);
  EXPECT_EQ(v.halfPeakRows, 70);
  EXPECT_EQ(v.launchOverhead, 8e-6);
  EXPECT_EQ(v.memoryBandwidth, 800e9);
  EXPECT_EQ(c.devices[19].flopsPerSecond[0], 8 * findDeviceType("cpu-thread")->flopsPerSecond[0]);
  EXPECT_EQ(c.devices[20].kind, "sim");
  EXPECT_EQ(c.devices[20].memory, 0u);

  const bundle::Topology &t = c.topology;
  ASSERT_EQ(t.sites_size(), 3);
  EXPECT_EQ(t.sites(0).fabric().bandwidth(), 125e9);
  EXPECT_EQ(t.sites(0).uplink().per_flow_bandwidth(), 1e9);
  EXPECT_DOUBLE_EQ(t.sites(1).fabric().latency(), 90e-6); // links.inter_node
  EXPECT_EQ(c.egressPrice, (std::vector<double>{0.05 / 1e9, 0, 0}));
  EXPECT_EQ(t.nodes(0).nic().per_flow_bandwidth(), 2.4e9);
  EXPECT_EQ(t.nodes(0).nic().half_bandwidth_bytes(), 22795);
  EXPECT_EQ(t.nodes(0).bus().bandwidth(), 400e9);
  EXPECT_EQ(t.nodes(4).nic().bandwidth(), 25 / 8.0 * 1e9);
  EXPECT_EQ(t.nodes(4).nic().per_flow_bandwidth(), 2e9);
  EXPECT_EQ(t.nodes(4).port().bandwidth(), 12e9); // bandwidth of the slowest type
  EXPECT_EQ(t.nodes(4).site(), 1u);
  EXPECT_EQ(t.between_sites().latency(), 30e-3);
  ASSERT_EQ(t.site_pairs_size(), 1);
  EXPECT_EQ(t.site_pairs(0).link().per_flow_bandwidth(), 0);
  EXPECT_TRUE(t.pairwise_sums());
  EXPECT_EQ(t.node_of_device(20), 6u);
  expectRuntimeAgrees(c, kEverything);
}

TEST(Cluster, WrittenAndReadBack) {
  for (std::string yaml :
       {std::string(kEverything),
        std::string(
            "nodes: [{name: \"é:0\", devices: [{name: \"null\", flops_per_second: 1e9}, {name: "
            "'a:', flops_per_second: 1e9}, {name: 'x:1', "
            "flops_per_second: 1e9}, "
            "{name: 'x:2', flops_per_second: 1e9}]}]\nname: \"two\\nlines \\\"quoted\\\" \\x07\""),
        std::string("nodes: [{name: n, count: 3, devices: [{name: b, type: T4}]}, {name: m, "
                    "devices: []}, {name: 'k:0', devices: [{name: 'b:3', "
                    "type: T4}]}]"),
        std::string("nodes: [{name: n, devices: [{name: 'b:0', type: T4, gpu: GPU-1}, {name: "
                    "'b:1', type: T4, gpu: '0000:41:00.0'}, {name: 'b:2', "
                    "type: T4}]}]")}) {
    Cluster once = read(yaml);
    std::string text = writeCluster(once);
    SCOPED_TRACE(text);
    Cluster twice = read(text);
    expectSame(once, twice);
    EXPECT_EQ(writeCluster(twice), text);
    expectRuntimeAgrees(twice, text);
  }
}

TEST(Cluster, WritesCountsBack) {
  std::string text = writeCluster(read("nodes: [{name: a, count: 128, devices: [{name: g, type: "
                                       "A100-40, count: 4}]}, {name: b, count: 96, devices: "
                                       "[{name: v, type: V100-16, count: 4}]}]"));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 20) << text;
}

TEST(Cluster, OldFilesStayValid) {
  const char *yaml = R"(
name: four
nodes:
  - name: n0
    devices:
      - {name: a, kind: cpu, flops_per_second: 40 GFLOP/s, memory: 2 GiB, threads: 2}
      - {name: t4, type: T4, count: 2}
  - name: n1
    devices:
      - {name: c, type: cpu-thread, threads: 4}
links:
  intra_node: {bandwidth: 8 GB/s, latency: 3 us}
)";
  Cluster cluster = read(yaml);
  ASSERT_EQ(cluster.devices.size(), 4u);
  EXPECT_EQ(cluster.devices[0].flopsPerSecond[0], 40e9);
  // Defaults of devices without a type: per thread of a CPU, and for others
  // (docs/reference/cluster-yaml.md).
  EXPECT_EQ(cluster.devices[0].memoryBandwidth, 2 * 10e9);
  EXPECT_EQ(cluster.devices[0].launchOverhead, 5e-6);
  EXPECT_EQ(cluster.devices[3].memoryBandwidth, 4 * 10e9);
  Cluster others = read("nodes: [{name: n, devices: [{name: s, kind: sim, flops_per_second: 1e12}, "
                        "{name: u, flops_per_second: 1e12, "
                        "memory_bandwidth: unlimited, launch_overhead: 0}]}]");
  EXPECT_EQ(others.devices[0].memoryBandwidth, 500e9);
  EXPECT_EQ(others.devices[0].launchOverhead, 1e-5);
  EXPECT_EQ(others.devices[1].memoryBandwidth, 0);
  EXPECT_EQ(others.devices[1].launchOverhead, 0);
  expectSame(others, read(writeCluster(others)));
  EXPECT_EQ(cluster.devices[0].memory, 2ull << 30);
  EXPECT_EQ(cluster.devices[1].name, "t4:0");
  EXPECT_EQ(cluster.devices[2].kind, "cuda");
  EXPECT_EQ(cluster.devices[3].flopsPerSecond[0], 200e9);
  EXPECT_EQ(cluster.nodes[cluster.devices[3].node].name, "n1");
  EXPECT_EQ(cluster.topology.nodes(0).port().bandwidth(), 8e9);
  EXPECT_EQ(cluster.topology.nodes(0).nic().bandwidth(), 1.25e9);
  EXPECT_EQ(cluster.topology.sites(0).fabric().latency(), 1e-4);
  expectRuntimeAgrees(cluster, yaml);
}

TEST(Cluster, KeysOfTheSameMeaningAreNamed) {
  auto links = [](const std::string &text) {
    return "nodes: [{name: n, devices: [{name: a, type: T4}]}]\nlinks: " + text;
  };
  EXPECT_MISTAKE(links("{between-nodes: {bandwidth: 1 GB/s}}"),
                 "unknown key 'between-nodes'; did you mean 'inter_node'?");
  EXPECT_MISTAKE(links("{within-nodes: {bandwidth: 1 GB/s}}"), "did you mean 'intra_node'?");
  EXPECT_MISTAKE(
      links("[{bandwidth: 1 GB/s}]"),
      "links: expected a mapping, such as {intra_node: {bandwidth: 50 GB/s}, inter_node:");
  EXPECT_MISTAKE("nodes: [{name: n, gpus: [{name: a, type: T4}]}]", "did you mean 'devices'?");
  EXPECT_MISTAKE("nodes: [{name: n, devices: [{name: a, tflops: 10}]}]",
                 "did you mean 'flops_per_second'?");
  EXPECT_MISTAKE("nodes: {n: {devices: [{name: a, type: T4}]}}",
                 "cluster: expected 'nodes', a list such as");
}

TEST(Cluster, OldKeysNameTheNewOnes) {
  EXPECT_MISTAKE(device("speed: 1e9"), "key 'speed' is now 'flops_per_second'");
  EXPECT_MISTAKE(device("type: T4, direct: false"), "key 'direct' is now 'device_to_device'");
  EXPECT_MISTAKE("nodes: [{name: n, devices: [{name: a, type: T4}]}]\nlinks: {direct: node}",
                 "links: key 'direct' is now 'device_to_device_scope'");
  EXPECT_MISTAKE("nodes: [{name: n, port: {bandwidth: 1e9}, devices: [{name: a, type: T4}]}]",
                 "key 'port' is now 'device_link'");
  EXPECT_MISTAKE(
      "nodes: [{name: n, nic: {bandwidth: 1e9, flow: 1e8}, devices: [{name: a, type: T4}]}]",
      "key 'flow' is now 'per_flow_bandwidth'");
}

TEST(Cluster, Mistakes) {
  EXPECT_MISTAKE("nodes: [", "line 1: not valid YAML");
  EXPECT_MISTAKE("", "expected a mapping, got nothing");
  EXPECT_MISTAKE("nodes: 3", "line 1: cluster: expected 'nodes', a list");
  EXPECT_MISTAKE("name: x", "expected 'nodes', a list");
  EXPECT_MISTAKE("nodes: []", "the cluster has no devices");
  EXPECT_MISTAKE("nodes:\n  - name: n0\n    devices: []\n", "the cluster has no devices");
  EXPECT_MISTAKE(device("memry: 1"),
                 "line 4: device: unknown key 'memry'; did you mean 'memory'? known are name");
  EXPECT_MISTAKE(device("memory: 1 GB"),
                 "its speed is not known; give 'flops_per_second' (FLOP/s) or a 'type'");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, kind: abacus"),
                 "expected a kind out of cpu, null, cuda, sim, got 'abacus'");
  EXPECT_MISTAKE(device("type: A100-4"), "line 4: device 'a': type 'A100-4' is not known; did you "
                                         "mean 'A100-40'?; known are cpu-thread");
  EXPECT_MISTAKE(device("type: a100"), "did you mean 'A100-40' or 'A100-80'?");
  EXPECT_MISTAKE(device("type: TPUv9"),
                 "another type needs at least 'flops_per_second', 'memory' and 'kind'");
  read(device("type: TPUv9, flops_per_second: 1e12, kind: sim"));
  EXPECT_MISTAKE("nodes:\n  - name: n0\n    devices:\n      - {name: a, flops_per_second: 1e9}\n   "
                 "   - {name: a, flops_per_second: 1e9}\n",
                 "line 5: device 'a' is named twice");
  EXPECT_MISTAKE("nodes:\n  - {name: n, count: 2, devices: [{name: a, flops_per_second: 1e9}]}\n  "
                 "- {name: m, devices: [{name: 'a:1', "
                 "flops_per_second: 1e9}]}\n",
                 "line 3: device 'a:1' is named twice");
  EXPECT_MISTAKE("nodes:\n  - {name: n, devices: [{name: a, flops_per_second: 1e9}]}\n  - {name: "
                 "n, devices: [{name: b, flops_per_second: 1e9}]}\n",
                 "line 3: node 'n' is listed twice");
  EXPECT_MISTAKE(device("template: x, flops_per_second: 1e9"),
                 "line 4: device: there is no template 'x'; the file has no such templates");
  EXPECT_MISTAKE("templates: {devices: {fast: {type: T4}}}\n" + device("template: fats"),
                 "there is no template 'fats'; did you mean 'fast'?");
  EXPECT_MISTAKE("templates: {devices: {fast: {typ: T4}}}\n" + device("template: fast"),
                 "line 1: template 'fast': unknown key 'typ'");
  EXPECT_MISTAKE("nodes: [{name: 'a b', devices: []}]", "expected a name without spaces");
  EXPECT_MISTAKE("nodes: [{name: " + std::string(300, 'a') + ", devices: []}]",
                 "at most 200 bytes");
}

TEST(Cluster, Figures) {
  EXPECT_MISTAKE(device("flops_per_second: fast"),
                 "line 4: device 'a': flops_per_second: expected a number, plain or with one of "
                 "MFLOP/s, GFLOP/s");
  EXPECT_MISTAKE(device("flops_per_second: 4 GFLOPs"), "got '4 GFLOPs'; did you mean 'GFLOP/s'?");
  for (const char *speed : {"0", "-1", "1e31", "12", "1e-300", "4e9 PFLOP/s"})
    EXPECT_MISTAKE(
        device(std::string("flops_per_second: ") + speed),
        std::string("device 'a': flops_per_second: expected a value from 1e+06 to 1e+18, got '") +
            speed + "'; a speed is");
  for (const char *speed : {"nan", "inf", ".inf", "0x10000000", "1e", "", "[1]", "~"})
    EXPECT_MISTAKE(device(std::string("flops_per_second: ") + speed), "flops_per_second: expected");
  EXPECT_MISTAKE(device("flops_per_second: {f32: 0}"), "its speed is not known");
  EXPECT_MISTAKE(device("flops_per_second: {f64: 1e9}"), "unknown key 'f64'");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, memory: 16"),
                 "memory: expected 0 or a value from 65536 to 1.1259e+15, got '16'; a size is "
                 "bytes, or 16 GB");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, memory: -16 GB"),
                 "memory: expected 0 or a value from");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, memory: 16 gb"), "got '16 gb'; did you mean 'GB'?");
  EXPECT_MISTAKE(device("type: T4, memory: 1 GB"),
                 "its memory of 953.7 MiB is no more than the reserve of 1.9 GiB; give a smaller "
                 "'reserved_memory'");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, threads: 0"),
                 "threads: expected a value from 1 to 4096, got '0'");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, threads: 1.5"),
                 "threads: expected a whole number, got '1.5'");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, launch_overhead: -1 us"),
                 "launch_overhead: expected 0 or a value from 0 to 100");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, price: -1"), "price: expected 0 or a value");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, half_peak_rows: nan"),
                 "half_peak_rows: expected a number, got 'nan'");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, memory_bandwidth: 0"),
                 "memory_bandwidth: expected a value from 1000 to 1e+15, got '0'; write "
                 "'unlimited' for no limit");
  std::string two = device("flops_per_second: 1e9");
  EXPECT_MISTAKE(two + "links: {inter_node: {bandwidth: 0}}",
                 "line 5: links.inter_node.bandwidth: expected a value from 1000 to 1e+15, got "
                 "'0'; devices without a link");
  EXPECT_MISTAKE(two + "links: {intra_node: {latency: 1 h}}",
                 "expected a number, plain or with one of ns, us, ms, s, got '1 h'");
  EXPECT_MISTAKE(two + "links: {inter_site: 3}",
                 "links.inter_site: expected {bandwidth, latency, per_flow_bandwidth}, got '3'");
  EXPECT_MISTAKE(two + "    host_memory: 0\n",
                 "node 'n': host_memory: expected a value from 65536");
  EXPECT_MISTAKE(two + "    nvme: {bandwidth: 1 GB/s}\n", "nvme: expected {size, bandwidth}");
}

// The devices with direct transfers: GPUs of a site, unless the file restricts them.
TEST(Cluster, DirectGroups) {
  const std::string gpus =
      "count: 2, devices: [{name: g, type: T4}, {name: c, type: cpu-thread}]}\n";
  const std::string sites =
      "sites: [{name: east}, {name: west}]\nnodes:\n  - {name: x, site: east, " + gpus +
      "  - {name: y, site: west, devices: [{name: h, type: T4}, "
      "{name: i, type: T4, device_to_device: false}]}\nlinks:\n  inter_site: {bandwidth: 1e9}\n";
  using Groups = std::vector<int32_t>;
  EXPECT_EQ(d2dGroups(read(sites)), (Groups{0, -1, 0, -1, 1, -1}));
  EXPECT_EQ(d2dGroups(read(sites + "  device_to_device_scope: node\n")),
            (Groups{0, -1, 1, -1, 2, -1}));
  EXPECT_EQ(d2dGroups(read(sites + "  device_to_device_scope: nowhere\n")),
            (Groups{-1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(d2dGroups(read(writeCluster(read(sites + "  device_to_device_scope: node\n")))),
            (Groups{0, -1, 1, -1, 2, -1}));
  EXPECT_MISTAKE(sites + "  device_to_device_scope: [x]\n",
                 "links.device_to_device_scope: expected site, node, nowhere or ");
  EXPECT_MISTAKE(sites + "  device_to_device_scope: always\n", "got 'always'");
  EXPECT_MISTAKE("nodes: [{name: x, devices: [{name: g, type: T4, device_to_device: maybe}]}]",
                 "device 'g': device_to_device: expected true or false, got 'maybe'");
}

TEST(Cluster, Sites) {
  const std::string nodes = "nodes:\n  - {name: x, site: east, devices: [{name: a, "
                            "flops_per_second: 1e9}]}\n  - {name: y, site: west, devices: "
                            "[{name: b, flops_per_second: 1e9}]}\n";
  const std::string sites = "sites: [{name: east}, {name: west}]\n";
  EXPECT_MISTAKE(sites + nodes, "line 1: sites 'east' and 'west' are not connected: expected a "
                                "bandwidth between them, found none; give links.inter_site");
  EXPECT_MISTAKE(sites + nodes + "links: {site_pairs: [{sites: [east, west], latency: 1 ms}]}",
                 "expected 'bandwidth' between 'east' and 'west'");
  EXPECT_MISTAKE(sites + nodes + "links: {site_pairs: [{sites: [east, west], bandwidth: 0}]}",
                 "devices without a link cannot train together");
  EXPECT_MISTAKE(sites + nodes + "links: {site_pairs: [{sites: [east, wset], bandwidth: 1e9}]}",
                 "there is no site 'wset'; did you mean 'west'?; the file has east, west");
  EXPECT_MISTAKE(sites + nodes + "links: {site_pairs: [{sites: [east, east], bandwidth: 1e9}]}",
                 "two different sites");
  EXPECT_MISTAKE(sites + nodes +
                     "links: {site_pairs: [{sites: [east, west], bandwidth: 1e9}, {sites: [west, "
                     "east], bandwidth: 1e9}]}",
                 "are listed twice");
  EXPECT_MISTAKE(sites + nodes + "links: {site_pairs: {a: b}}",
                 "expected a list of {sites: [a, b]");
  EXPECT_MISTAKE(sites + nodes + "links: {inter_site: {latency: 1 ms}}", "got no bandwidth");
  EXPECT_MISTAKE(sites + "nodes: [{name: x, devices: [{name: a, flops_per_second: 1e9}]}]",
                 "node 'x': expected 'site', one of east, west");
  EXPECT_MISTAKE(sites + nodes + "links: {collectives: ring}",
                 "links.collectives: expected levels (inside of nodes and sites first, the "
                 "default) or exchange (every device sends its gradients to all owners), got "
                 "'ring'");
  EXPECT_MISTAKE("sites: []\n" + nodes, "expected a list of 1 to 256 sites, got 0");
  EXPECT_MISTAKE("sites: [{name: e}, {name: e}]\n" + nodes, "site 'e' is listed twice");
  read(sites + nodes + "links: {inter_site: {bandwidth: 1 Gbit/s, latency: 10 ms}}");
  read(sites + nodes + "links: {site_pairs: [{sites: [west, east], bandwidth: unlimited}]}");
  // No device at the other site.
  read(sites + "nodes: [{name: x, site: west, devices: [{name: a, flops_per_second: 1e9}]}]");
}

TEST(Cluster, Limits) {
  EXPECT_MISTAKE("nodes: [{name: n, devices: [{name: a, flops_per_second: 1e9, count: 65536}, "
                 "{name: b, flops_per_second: 1e9}]}]",
                 "more than 65536 devices");
  EXPECT_MISTAKE(
      "nodes: [{name: n, count: 60000, devices: [{name: a, flops_per_second: 1e9, count: 60000}]}]",
      "more than 65536 devices");
  EXPECT_MISTAKE("nodes: [{name: n, count: 65536, devices: []}, {name: m, devices: []}]",
                 "more than 65536 nodes");
  EXPECT_MISTAKE(
      "nodes: [{name: n, devices: [{name: a, flops_per_second: 1e9, count: 5000000000}]}]",
      "count: expected a value from 1 to 65536, got '5000000000'");
  EXPECT_MISTAKE(
      "nodes: [{name: n, count: 4294967297, devices: [{name: a, flops_per_second: 1e9}]}]",
      "count: expected a value from 1 to 65536");
  EXPECT_MISTAKE(std::string(17 << 20, ' '), "at most 16 MiB");
  EXPECT_MISTAKE(std::string(100000, '['), "not valid YAML");
  Cluster max = read(
      "nodes: [{name: n, count: 256, devices: [{name: a, flops_per_second: 1e9, count: 256}]}]");
  EXPECT_EQ(max.devices.size(), 65536u);
  EXPECT_EQ(max.devices.back().name, "a:65535");
}

/// Damaged files are refused or valid, and never cause a crash (run with sanitizers). Accepted ones
/// are equal after writing and reading.
TEST(Cluster, Damaged) {
  const std::string whole = kEverything;
  uint64_t state = 7;
  auto next = [&](uint64_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % below;
  };
  int accepted = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    std::string text = whole;
    for (uint64_t edits = 1 + next(4) / 3; edits > 0 && !text.empty(); --edits) {
      size_t at = next(text.size());
      switch (next(3)) {
      case 0:
        text.erase(at, 1 + next(8));
        break;
      case 1:
        text[at] = "0129-,[]{}:.e \n&*!"[next(19)];
        break;
      default:
        text.insert(at, 1, "0129-,[]{}:.e \n&*!"[next(19)]);
      }
    }
    Result<Cluster> cluster = readCluster(text);
    if (cluster.failed()) {
      EXPECT_FALSE(cluster.message().empty()) << text;
      continue;
    }
    ++accepted;
    expectSame(*cluster, read(writeCluster(*cluster)));
    expectRuntimeAgrees(*cluster, text);
  }
  EXPECT_GT(accepted, 50);
}

} // namespace
