// Tests descriptions of other machines, with trees of /proc and /sys and a stub of NVML.
#include "Describe.h"
#include "Nvml.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <unistd.h>

using namespace zorse;
using namespace zorse::cluster;

namespace {

class DescribeMachine : public ::testing::Test {
protected:
  std::filesystem::path root = std::filesystem::path(::testing::TempDir()) /
                               ("machine-" + std::to_string(::getpid()) + "-" +
                                ::testing::UnitTest::GetInstance()->current_test_info()->name());
  DescribeOptions options;

  void SetUp() override {
    options.root = root.string();
    options.nvml = (root / "no-nvml.so").string();
    write("proc/sys/kernel/hostname", "gpu-07.cluster.example\n");
    write("proc/meminfo", "MemTotal:       1000000 kB\nMemFree: 5 kB\n");
    std::string cpus;
    for (int i = 0; i < 16; ++i)
      cpus += "processor\t: " + std::to_string(i) + "\nmodel name\t: Fast Processor 16\n\n";
    write("proc/cpuinfo", cpus);
    write("sys/class/net/lo/operstate", "unknown\n");
    write("sys/class/net/eth0/speed", "25000\n");
    write("sys/class/net/eth0/operstate", "up\n");
    write("sys/class/net/eth0/device/vendor", "x");
    write("sys/class/net/eth1/speed", "100000\n");
    write("sys/class/net/eth1/operstate", "down\n");
    write("sys/class/net/eth1/device/vendor", "x");
    write("sys/class/net/bridge/speed", "400000\n"); // no hardware device
    write("sys/block/nvme0n1/size", "2000000000\n");
    write("sys/block/sda/size", "9000000000\n");
  }
  void TearDown() override { std::filesystem::remove_all(root); }
  void write(const std::string &path, const std::string &text) const {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  planning::Cluster described() {
    runtime::Result<Description> found = describe(options);
    EXPECT_FALSE(found.failed()) << found.message();
    notes.clear();
    for (const std::string &note : found->notes)
      notes += note + "\n";
    // The description can be read as a cluster file.
    Result<planning::Cluster> again = planning::readCluster(planning::writeCluster(found->cluster));
    EXPECT_FALSE(again.failed()) << again.message();
    return found->cluster;
  }
  std::string notes;
};

TEST_F(DescribeMachine, Processors) {
  planning::Cluster cluster = described();
  ASSERT_EQ(cluster.devices.size(), 1u);
  EXPECT_EQ(cluster.nodes[0].name, "gpu-07");
  EXPECT_EQ(cluster.devices[0].name, "gpu-07-cpu");
  EXPECT_EQ(cluster.devices[0].kind, "cpu");
  EXPECT_EQ(cluster.devices[0].threads, 16u);
  EXPECT_EQ(cluster.devices[0].flopsPerSecond[0], 16 * 50e9);
  EXPECT_EQ(cluster.devices[0].memory, 1024000000u);
  EXPECT_EQ(cluster.devices[0].capacity(), 896000000u);
  EXPECT_EQ(cluster.nodes[0].hostMemory, 1024000000u);
  EXPECT_EQ(cluster.nodes[0].nvme, 1024000000000u);
  EXPECT_EQ(cluster.topology.nodes(0).nic().bandwidth(),
            25e9 / 8); // the only NIC that is up and has a hardware device
  EXPECT_NE(notes.find("Fast Processor 16, 16 processors"), std::string::npos) << notes;
  EXPECT_NE(notes.find("no-nvml.so: cannot be loaded"), std::string::npos) << notes;
}

TEST_F(DescribeMachine, ControlGroups) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "250000 100000\n");
  write("sys/fs/cgroup/memory.max", "524288000\n");
  planning::Cluster cluster = described();
  EXPECT_EQ(cluster.devices[0].threads, 3u);
  EXPECT_EQ(cluster.devices[0].flopsPerSecond[0], 2.5 * 50e9);
  EXPECT_EQ(cluster.nodes[0].hostMemory, 524288000u);
  EXPECT_NE(notes.find("leaves 2.5 of 16 processors"), std::string::npos) << notes;
  EXPECT_NE(notes.find("leaves 0.524 GB of 1.02 GB of memory"), std::string::npos) << notes;
}

TEST_F(DescribeMachine, InfiniBandCountsTogether) {
  for (const char *card : {"mlx5_0", "mlx5_1"}) {
    write(std::string("sys/class/infiniband/") + card + "/ports/1/rate", "200 Gb/sec (4X HDR)\n");
    write(std::string("sys/class/infiniband/") + card + "/ports/1/state", "4: ACTIVE\n");
  }
  write("sys/class/infiniband/mlx5_2/ports/1/rate", "200 Gb/sec (4X HDR)\n");
  write("sys/class/infiniband/mlx5_2/ports/1/state", "1: DOWN\n");
  EXPECT_EQ(described().topology.nodes(0).nic().bandwidth(), 50e9);
}

TEST_F(DescribeMachine, Gpus) {
  options.nvml = ZORSE_STUB_NVML;
  planning::Cluster cluster = described();
  ASSERT_EQ(cluster.devices.size(), 3u);
  EXPECT_EQ(cluster.devices[1].name, "gpu-07-A100-40:1");
  EXPECT_EQ(cluster.devices[1].type, "A100-40");
  EXPECT_EQ(cluster.devices[1].kind, "cuda");
  EXPECT_EQ(cluster.devices[1].arch, "sm_80");
  EXPECT_EQ(cluster.devices[2].arch, "sm_86"); // its own architecture, sm_87, is not supported
  EXPECT_EQ(cluster.devices[1].memory, 42505273344u);
  EXPECT_EQ(cluster.devices[1].flopsPerSecond[planning::speedIndex(bundle::BF16)], 253e12);
  EXPECT_EQ(cluster.devices[2].flopsPerSecond[0], 10e12);
  EXPECT_NE(notes.find("Mystery 9000 is not in the table of GPU types"), std::string::npos)
      << notes;
  EXPECT_NE(notes.find("PCIe 4 x16, 12 NVLinks"), std::string::npos) << notes;
  // The slowest device: the GPU without NVLink, PCIe 4 x8.
  EXPECT_NEAR(cluster.topology.nodes(0).port().bandwidth(), 0.8 * 1.97e9 * 8, 1);
  EXPECT_NEAR(cluster.nodes[0].pcie, 0.8 * 1.97e9 * 8, 1);
  options.cpu = true;
  EXPECT_EQ(described().devices.size(), 4u);
  ::setenv("ZORSE_STUB_NVML", "broken", 1);
  options.cpu = false;
  EXPECT_EQ(described().devices[0].kind, "cpu");
  EXPECT_NE(notes.find("NVML initialization failed (error 9)"), std::string::npos) << notes;
  ::unsetenv("ZORSE_STUB_NVML");
}

TEST_F(DescribeMachine, GpusThatProgramsSee) {
  options.nvml = ZORSE_STUB_NVML;
  EXPECT_EQ(described().devices[0].gpu, "");
  options.pinGpus = true;
  EXPECT_EQ(described().devices[2].gpu, "GPU-5f1c0000-0000-0000-0000-000000000002");
  for (const auto &[visible, count] :
       std::map<std::string, size_t>{{"2,0", 2},
                                     {"GPU-5f1c0000-0000-0000-0000-000000000001", 1},
                                     {"0,7,1", 1},
                                     {"0,1,2", 3}}) {
    options.visible = visible;
    EXPECT_EQ(described().devices.size(), count) << visible;
    EXPECT_EQ(described().devices[0].kind, "cuda") << visible;
  }
  options.visible = "2,0";
  EXPECT_EQ(described().devices[0].arch, "sm_86") << "in the order that the variable gives";
  EXPECT_NE(notes.find("CUDA_VISIBLE_DEVICES=2,0 leaves 2 of 3 GPUs"), std::string::npos) << notes;
  options.visible = "";
  EXPECT_EQ(described().devices[0].kind, "cpu");
  options.visible.reset();
  ::setenv("ZORSE_STUB_NVML", "sliced", 1);
  EXPECT_EQ(described().devices.size(), 2u);
  EXPECT_NE(notes.find("000001) is divided into MIG slices"), std::string::npos) << notes;
  ::unsetenv("ZORSE_STUB_NVML");
}

TEST_F(DescribeMachine, NothingOrNonsense) {
  std::filesystem::remove_all(root);
  planning::Cluster cluster = described();
  EXPECT_EQ(cluster.devices.size(), 1u);
  EXPECT_EQ(cluster.devices[0].threads, 1u);
  write("proc/meminfo", "MemTotal: many\n");
  write("proc/sys/kernel/hostname", "--/ \x01\n");
  write("sys/class/net/eth0/speed", "-1\n");
  write("sys/class/net/eth0/device/x", "");
  write("sys/block/nvme0n1/size", "99999999999999999999999\n");
  write("sys/class/infiniband/x/ports/1/state", "ACTIVE");
  write("sys/class/infiniband/x/ports/1/rate", "nan Gb/sec");
  described();
  EXPECT_NE(notes.find("no NIC reports its speed"), std::string::npos) << notes;
}

TEST(Merge, RanksOfOneHostCountOnce) {
  auto one = [](const std::string &name) {
    return *planning::readCluster("nodes: [{name: " + name + ", devices: [{name: " + name +
                                  "-cpu, type: cpu-thread}]}]");
  };
  planning::Cluster all = merge({one("a"), one("b"), one("a")}, "both");
  ASSERT_EQ(all.nodes.size(), 2u);
  ASSERT_EQ(all.devices.size(), 2u);
  EXPECT_EQ(all.devices[1].node, 1u);
  EXPECT_EQ(all.topology.node_of_device_size(), 2);
  EXPECT_EQ(planning::readCluster(planning::writeCluster(all)).message(), "");
}

TEST(Measure, MatrixProducts) {
  runtime::Result<double> speed = measureMatmuls(1);
  ASSERT_FALSE(speed.failed()) << speed.message();
  EXPECT_GT(*speed, 1e6);
  EXPECT_LT(*speed, 1e13);
}

} // namespace
