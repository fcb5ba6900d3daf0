// Fuzzes cluster.yaml: the compiler's reader, planning for accepted clusters, and the runtime's
// comparison with a bundle.
#include "Fuzz.h"
#include "SyntheticModel.h"

#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/Search.h"
#include "zorse/runtime/Bundle.h"

using namespace zorse;

bool fuzz::readOne(std::string_view bytes) {
  static const bundle::ModelSummary summary = test::makeModel({}).summary;
  static const runtime::Bundle compiled = [] {
    runtime::Bundle bundle;
    bundle.devices = {{"a", "cpu", 1, 0}, {"b:0", "cpu", 2, 0}, {"b:1", "cpu", 2, 0}};
    return bundle;
  }();
  if (isOneIn(2, bytes)) // the second reader takes the same time
    (void)runtime::checkCluster(
        compiled, runtime::MappedFile::view("cluster.yaml", bytes.data(), bytes.size()))
        .failed();

  Result<planning::Cluster> cluster = planning::readCluster(std::string(bytes));
  ZORSE_FUZZ_EXPECT(!cluster.failed() || !cluster.message().empty());
  if (cluster.failed())
    return false;
  if (cluster->devices.size() <= 100 && isOneIn(8, bytes)) {
    // Writing and reading gives the same cluster, and the runtime finds the same devices.
    const std::string text = planning::writeCluster(*cluster);
    Result<planning::Cluster> again = planning::readCluster(text);
    ZORSE_FUZZ_EXPECT(!again.failed());
    ZORSE_FUZZ_EXPECT(planning::writeCluster(*again) == text);
    runtime::Bundle same;
    for (const planning::ClusterDevice &device : cluster->devices)
      same.devices.push_back({device.name, device.kind, 1, 0});
    ZORSE_FUZZ_EXPECT(!runtime::checkCluster(same, runtime::MappedFile::view(
                                                       "cluster.yaml", bytes.data(), bytes.size()))
                           .failed());
  }
  if (cluster->devices.size() > 12 || !isOneIn(8, bytes)) // planning is too slow for every input
                                                          // and for more devices
    return true;
  Result<planning::CostModel> costs = planning::CostModel::make(summary, *cluster, nullptr, {});
  planning::SearchOptions options;
  options.candidates = 32;
  options.threads = 1;
  if (costs.failed()) {
    ZORSE_FUZZ_EXPECT(!costs.message().empty());
    return true;
  }
  Result<planning::SearchResult> found =
      planning::searchPlan({summary, *cluster, *costs, 4}, options);
  ZORSE_FUZZ_EXPECT(!found.failed() || !found.message().empty());
  if (!found.failed()) {
    ZORSE_FUZZ_EXPECT(step::validatePlan(found->plan, summary).succeeded());
    ZORSE_FUZZ_EXPECT(planning::applyCluster(found->plan, *cluster, bundle::F32).succeeded());
  }
  return true;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  static const std::vector<const char *> words = {
      "templates",
      "template",
      "sites",
      "site",
      "fabric",
      "uplink",
      "egress_price",
      "device_link",
      "nic",
      "bus",
      "host_memory",
      "pcie",
      "nvme",
      "size",
      "price",
      "currency",
      "per_flow_bandwidth",
      "inter_site",
      "site_pairs",
      "reserved_memory",
      "memory_bandwidth",
      "half_peak_rows",
      "launch_overhead",
      "f32",
      "f16",
      "bf16",
      "unlimited",
      "A100-40",
      "cpu-thread",
      "Gbit/s",
      "TFLOP/s",
      "name",
      "nodes",
      "links",
      "devices",
      "kind",
      "type",
      "flops_per_second",
      "memory",
      "threads",
      "count",
      "bandwidth",
      "latency",
      "intra_node",
      "inter_node",
      "cpu",
      "cuda",
      "sim",
      "H200",
      "T4",
      "A10G",
      "1e12",
      "2GiB",
      "16 GB",
      "MB/s",
      "us",
      ": ",
      "- ",
      "\n",
      "\n  ",
      "\n    - ",
      "{",
      "}",
      "[",
      "]",
      ", ",
      "&a ",
      "*a",
      "<<: *a",
      "#",
      "---\n",
      "...\n",
      "|\n",
      ">\n",
      "? ",
      "!!str ",
      "!tag ",
      "'",
      "\"",
      "~",
      "null",
      "nan",
      "inf",
      "1e308",
      "-1",
      "65536",
      "\t",
      "%YAML 1.2\n",
      "\\x41",
      "\xc3\xa9",
      "\xef\xbb\xbf",
  };
  fuzz::Random random(seed);
  return fuzz::put(fuzz::mutateText({reinterpret_cast<char *>(data), size}, words, random), data,
                   maxSize);
}
