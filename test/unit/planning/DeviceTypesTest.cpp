// Tests device types and architectures of cluster files, and the speeds that follow from them.
#include "ClusterFiles.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::planning;
using namespace zorse::test;

namespace {

TEST(Cluster, KindsAndArchitectures) {
  for (const char *fields :
       {"flops_per_second: 1e9, arch: x86-64-v2", "flops_per_second: 1e9, kind: \"null\"",
        "type: cpu-thread, kind: cpu, arch: x86-64-v4, count: 3"}) {
    Cluster cluster = read(device(fields));
    Result<Cluster> again = readCluster(writeCluster(cluster));
    ASSERT_FALSE(again.failed()) << again.message() << writeCluster(cluster);
    expectSame(cluster, *again);
    expectRuntimeAgrees(cluster, device(fields));
  }
  EXPECT_EQ(read(device("flops_per_second: 1e9, arch: x86-64-v2")).devices[0].arch, "x86-64-v2");
  EXPECT_EQ(read(device("flops_per_second: 1e9, kind: \"null\"")).devices[0].kind, "null");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, kind: null"),
                 "device 'a': expected a kind out of cpu, null, cuda, sim, got nothing; a null "
                 "device is asked for by kind: \"null\", in quotes");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, kind:"), "in quotes");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, arch: x86-64-v9"),
                 "device 'a': arch: expected x86-64, x86-64-v2, x86-64-v3");
  EXPECT_EQ(read(device("type: T4")).devices[0].arch, "sm_75");
  EXPECT_EQ(read(device("type: T4, arch: sm_60")).devices[0].arch, "sm_60");
  for (const auto &[offered, code] : {std::pair("sm_61", "sm_60"),
                                      {"sm_87", "sm_86"},
                                      {"sm_103", "sm_100"},
                                      {"sm_121", "sm_120"}})
    EXPECT_EQ(read(device(std::string("flops_per_second: 1e12, memory: 8 GiB, kind: cuda, arch: ") +
                          offered))
                  .devices[0]
                  .arch,
              code);
  EXPECT_MISTAKE(device("type: T4, arch: sm_76"), "device 'a': arch: expected sm_60, sm_70, sm_75");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, memory: 1 GiB, kind: sim, arch: sm_75"),
                 "there are none to choose from for devices of kind sim; leave it out");
}

TEST(Cluster, GpusWithoutBf16) {
  for (const char *arch : {"sm_60", "sm_70", "sm_75", "sm_61"}) {
    const std::string by = std::string("memory: 8 GiB, kind: cuda, arch: ") + arch;
    EXPECT_EQ(read(device("flops_per_second: 1e12, " + by)).devices[0].flopsPerSecond[2], 0)
        << arch;
    EXPECT_EQ(
        read(device("flops_per_second: {f32: 1e12, bf16: 0}, " + by)).devices[0].flopsPerSecond[2],
        0)
        << arch;
    EXPECT_EQ(read(device("flops_per_second: {f32: 1e12, bf16: 1e12}, " + by))
                  .devices[0]
                  .flopsPerSecond[2],
              1e12)
        << "stored so, computed in f32: " << arch;
  }
  EXPECT_EQ(read(device("flops_per_second: 1e12, memory: 8 GiB, kind: cuda, arch: sm_80"))
                .devices[0]
                .flopsPerSecond[2],
            1e12);
}

TEST(Cluster, AGpuIsNamedOnce) {
  EXPECT_EQ(read(device("type: T4, gpu: \"0000:41:00.0\"")).devices[0].gpu, "0000:41:00.0");
  EXPECT_MISTAKE(device("type: T4, gpu: GPU-12, count: 2"),
                 "device 'a': gpu: names one GPU, and 'count' makes several devices");
  EXPECT_MISTAKE(device("flops_per_second: 1e9, gpu: GPU-12"),
                 "expected a device that is a GPU, found one of kind cpu; leave it out");
}

TEST(Cluster, WhereTimesOfGpusComeFrom) {
  Cluster c = read("nodes: [{name: a, devices: [{name: known, type: A100-80}, {name: roofline, "
                   "type: A100-80, half_peak_rows: 100}, {name: zero, type: A100-80, "
                   "half_peak_rows: 0}, {name: own, kind: cuda, flops_per_second: 1e13, sm_count: "
                   "40, execution_mode: eager}, {name: plain, kind: cuda, "
                   "flops_per_second: 1e13, "
                   "execution_mode: compiled}, {name: cpu, type: cpu-thread}, {name: tuned, type: "
                   "A100-80, execution_mode: tuned}]}]");
  const uint32_t multiprocessors[] = {108, 0, 0, 40, 0, 0, 108};
  const double halfRows[] = {0, 100, 0, 0, 0, 0, 0};
  for (size_t d = 0; d < c.devices.size(); ++d) {
    EXPECT_EQ(c.devices[d].multiprocessors, multiprocessors[d]) << c.devices[d].name;
    EXPECT_EQ(c.devices[d].halfPeakRows, halfRows[d]) << c.devices[d].name;
    EXPECT_EQ(c.devices[d].executionMode, c.devices[d].name == "own"     ? ExecutionMode::Eager
                                          : c.devices[d].name == "tuned" ? ExecutionMode::Tuned
                                                                         : ExecutionMode::Compiled)
        << c.devices[d].name;
  }
  expectSame(c, read(writeCluster(c)));
  auto device = [](const std::string &keys) {
    return "nodes: [{name: a, devices: [{name: x, " + keys + "}]}]";
  };
  EXPECT_MISTAKE(device("type: A100-80, half_peak_rows: 1, sm_count: 108"),
                 "expected 'half_peak_rows', for times that follow a roofline, or 'sm_count'");
  EXPECT_MISTAKE(device("type: A100-80, sm_count: 0"), "sm_count: expected a value from 1 to 4096");
  EXPECT_MISTAKE(device("type: cpu-thread, sm_count: 4"),
                 "expected a device that is a GPU, found one of kind cpu; leave it out");
  EXPECT_MISTAKE(device("type: A100-80, execution_mode: fast"),
                 "execution_mode: expected compiled (kernels as Zorse makes them), tuned (a "
                 "framework with tuned kernels) or eager");
}

// Names as reported by drivers and as written by users.
TEST(Cluster, TypesAreFoundByTheirUsualNames) {
  auto type = [](const std::string &name, uint64_t memory = 0) {
    const DeviceType *found = findDeviceType(name, memory);
    return std::string(found ? found->name : "");
  };
  EXPECT_EQ(type("NVIDIA H100 80GB HBM3", 85520809984), "H100-SXM");
  EXPECT_EQ(type("NVIDIA H100 PCIe", 85520809984), "H100-PCIe");
  EXPECT_EQ(type("NVIDIA H200", 150754820096), "H200");
  EXPECT_EQ(type("NVIDIA A100 80GB PCIe", 85899345920), "A100-80");
  EXPECT_EQ(type("NVIDIA A100-SXM4-40GB", 42505273344), "A100-40");
  EXPECT_EQ(type("Tesla V100-SXM2-16GB", 16945512448), "V100-16");
  EXPECT_EQ(type("Tesla V100-SXM2-32GB", 34089730048), "V100-32");
  EXPECT_EQ(type("Tesla P100-PCIE-16GB", 17071734784), "P100");
  EXPECT_EQ(type("Tesla T4", 15843721216), "T4");
  EXPECT_EQ(type("NVIDIA L4", 24152899584), "L4");
  EXPECT_EQ(type("NVIDIA L40S", 48305799168), "L40S");
  EXPECT_EQ(type("NVIDIA A10G", 24146608128), "A10G");
  EXPECT_EQ(type("NVIDIA RTX A6000", 51527024640), "A6000");
  EXPECT_EQ(type("NVIDIA RTX 6000 Ada Generation", 51527024640), "RTX6000Ada");
  EXPECT_EQ(type("NVIDIA GeForce RTX 3090", 25438126080), "RTX3090");
  EXPECT_EQ(type("NVIDIA GeForce RTX 4060 Ti", 17171480576), "RTX4060Ti-16");
  EXPECT_EQ(type("NVIDIA GH200 480GB", 102625181696), "GH200-96");
  EXPECT_EQ(type("NVIDIA B200", 192265846784), "B200");
  EXPECT_EQ(type("AMD Instinct MI300X"), "MI300X");
  for (const char *name :
       {"RTX 4090", "rtx4090", "GeForce RTX 4090", "4090", "NVIDIA GeForce RTX 4090 24GB"})
    EXPECT_EQ(type(name), "RTX4090") << name;
  EXPECT_EQ(type("RTX 2080 Ti"), "RTX2080Ti");
  EXPECT_EQ(type("a100 80gb"), "A100-80");
  EXPECT_EQ(type("H800 PCIe"), "H800-PCIe");
  EXPECT_EQ(type("H800"), "H800");
  // Several matches, none, or a part of a device.
  for (const char *name :
       {"V100", "H100", "A100", "NVIDIA H100 NVL", "NVIDIA GeForce GT 710", "RTX", ""})
    EXPECT_EQ(type(name), "") << name;
  EXPECT_EQ(type("NVIDIA H100 80GB HBM3", 42e9), ""); // a part of a device (MIG)
  // Other types with names that contain a name of the table, or are contained in one.
  for (const char *name : {"NVIDIA RTX A4000",
                           "NVIDIA RTX A4500",
                           "NVIDIA RTX A2000 12GB",
                           "Quadro RTX 6000",
                           "Quadro RTX 4000",
                           "Quadro P4000",
                           "Quadro T1000",
                           "NVIDIA T400 4GB",
                           "NVIDIA T1000",
                           "NVIDIA A2",
                           "NVIDIA A16",
                           "NVIDIA A10M",
                           "NVIDIA GeForce RTX 4090 Laptop GPU",
                           "NVIDIA GeForce RTX 4090 D",
                           "NVIDIA GeForce RTX 3080 Laptop GPU",
                           "NVIDIA GeForce RTX 3080 Ti Laptop GPU",
                           "NVIDIA GeForce GTX 1080 Ti",
                           "NVIDIA GeForce GTX 1650",
                           "NVIDIA TITAN V",
                           "NVIDIA TITAN RTX",
                           "Tesla P4",
                           "Tesla P40",
                           "Tesla M40",
                           "Tesla K80",
                           "NVIDIA RTX 4000 Ada Generation",
                           "NVIDIA RTX 5000 Ada Generation",
                           "NVIDIA RTX 4000 SFF Ada Generation",
                           "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
                           "NVIDIA L2",
                           "NVIDIA L400",
                           "NVIDIA H100 NVL",
                           "NVIDIA A100X",
                           "NVIDIA A30X",
                           "NVIDIA DGX Display",
                           "NVIDIA CMP 170HX",
                           "Orin",
                           "NVIDIA GB10",
                           "NVIDIA Thor",
                           "NVIDIA GeForce RTX 4070 Ti SUPER Laptop GPU",
                           "NVIDIA GeForce RTX 5090 D",
                           "NVIDIA GeForce RTX 5090 Laptop GPU",
                           "NVIDIA RTX 3000 Ada Generation Laptop GPU"})
    EXPECT_EQ(type(name), "") << name;

  Cluster cluster =
      read("nodes: [{name: n, devices: [{name: a, type: RTX 4090}, {name: b, type: MI300X}]}]");
  EXPECT_EQ(cluster.devices[0].type, "RTX4090");
  EXPECT_EQ(cluster.devices[1].kind, "sim");
  for (const DeviceType &known : deviceTypes()) {
    EXPECT_EQ(type(known.name), known.name);
    EXPECT_NE(std::string(known.source), "") << known.name;
    for (size_t t = 0; t < kSpeeds && std::string(known.kind) != "cpu"; ++t) {
      EXPECT_EQ(known.peak[t] > 0, known.flopsPerSecond[t] > 0) << known.name;
      EXPECT_LT(known.flopsPerSecond[t], known.peak[t] + 1) << known.name;
    }
  }
}

TEST(Cluster, Tf32) {
  Cluster cluster = read("nodes: [{name: n, devices: [{name: a, type: A100-80}, {name: t, type: "
                         "T4}, {name: c, type: cpu-thread, memory: 1 GB}]}]");
  const double bf16 = cluster.devices[0].flopsPerSecond[speedIndex(bundle::BF16)],
               old = cluster.devices[1].flopsPerSecond[speedIndex(bundle::F32)];
  std::string error;
  auto assumed = adaptToPrecision(cluster, *parsePrecision("tf32"));
  ASSERT_FALSE(assumed.failed()) << assumed.message();
  ASSERT_EQ(assumed->size(), 1u);
  EXPECT_NE(assumed->front().find("2 devices have no TF32 (t, c)"), std::string::npos)
      << assumed->front();
  EXPECT_EQ(cluster.devices[0].flopsPerSecond[speedIndex(bundle::F32)], bf16 / 2);
  EXPECT_EQ(cluster.devices[1].flopsPerSecond[speedIndex(bundle::F32)], old);
  cluster.devices.erase(cluster.devices.begin());
  error = adaptToPrecision(cluster, *parsePrecision("tf32")).message();
  EXPECT_NE(
      error.find("no device of the cluster has TF32 (t, c); GPUs of NVIDIA from sm_80 on have it"),
      std::string::npos)
      << error;
}

TEST(Cluster, SumsInF16) {
  Cluster cluster = read("nodes: [{name: n, devices: [{name: g, type: RTX3090}, {name: w, type: "
                         "RTX6000Ada}, {name: a, type: A100-80}]}]");
  double old[3];
  for (int i = 0; i < 3; ++i)
    old[i] = cluster.devices[i].flopsPerSecond[speedIndex(bundle::F16)];
  Precision precision = *parsePrecision("f16");
  EXPECT_TRUE(adaptToPrecision(cluster, precision)->empty());
  precision.sumsF16 = true;
  EXPECT_EQ(precision.name(), "f16, sums in f16");
  auto assumed = adaptToPrecision(cluster, precision);
  ASSERT_FALSE(assumed.failed()) << assumed.message();
  EXPECT_NE(assumed->front().find("1 of 3 devices"), std::string::npos) << assumed->front();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(cluster.devices[i].flopsPerSecond[speedIndex(bundle::F16)],
              i == 0 ? 1.5 * old[i] : old[i]);
}

} // namespace
