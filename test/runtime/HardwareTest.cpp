// Tests the check of the hardware that ranks find against the hardware the bundle was compiled for.
#include "zorse/runtime/Hardware.h"
#include "TemporaryDirectory.h"
#include "TwoDevices.h"

#include <gtest/gtest.h>

#include <functional>

using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

class HardwareTest : public ::testing::Test {
protected:
  HardwareTest() : two(directory.path("two.zorse")) {
    RankHardware hardware;
    hardware.host = "h1";
    hardware.cpu = "x86-64-v3";
    hardware.units = {{"", "", "", "x86-64-v3", 0}};
    hardware.cores = 4;
    hardware.memory = uint64_t(1) << 30;
    hardware.bundle = "b";
    hardware.run = "steps=3";
    ranks = {hardware, hardware};
    two.bundle.functions.set_arch("x86-64-v3");
  }

  std::string check() {
    Status status = checkHardware(two.bundle, ranks, &note);
    return status.failed() ? status.message() : "";
  }

  TemporaryDirectory directory;
  TwoDevices two;
  std::vector<RankHardware> ranks;
  std::string note;
};

TEST_F(HardwareTest, WhatFitsIsAccepted) {
  EXPECT_EQ(check(), "");
  EXPECT_EQ(note, "");
}

TEST_F(HardwareTest, FactsOfThisProcessSurviveTheWire) {
  RankHardware hardware = hardwareOfThisProcess();
  EXPECT_GT(hardware.cores, 0);
  EXPECT_GT(hardware.memory, uint64_t(64) << 20);
  EXPECT_FALSE(hardware.host.empty());
  Result<RankHardware> back = decodeHardware(encodeHardware(hardware));
  ASSERT_FALSE(back.failed());
  EXPECT_EQ(encodeHardware(*back), encodeHardware(hardware));
  EXPECT_TRUE(decodeHardware("{\"host\": 3}").failed());
  EXPECT_TRUE(decodeHardware("").failed());
  EXPECT_TRUE(
      decodeHardware(
          R"({"host": "h", "units": [], "visible": "", "cores": 1e300, "memory": 1, "bundle": "b", "run": "r"})")
          .failed());
  EXPECT_TRUE(
      decodeHardware(
          R"({"host": "h", "units": [{"memory": -1}], "visible": "", "cores": 1, "memory": 1, "bundle": "b", "run": "r"})")
          .failed());
}

// GPUs exchange directly only if all ranks have equal versions and every GPU is used once.
TEST_F(HardwareTest, DirectTransfersNeedOneVersionAndGpusOfTheirOwn) {
  two.bundle.hostStaged = two.bundle.programs;
  EXPECT_EQ(whyNotDirect(two.bundle, ranks), "") << "no device has direct transfers";
  for (zorse::bundle::Program &program : two.bundle.programs)
    program.add_queues()->set_kind(zorse::bundle::DEVICE_TO_DEVICE);
  for (size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].nccl = "2.28.3";
    ranks[r].driver = "13.0";
    ranks[r].units[0].address = "0000:0" + std::to_string(r) + ":00.0";
  }
  EXPECT_EQ(whyNotDirect(two.bundle, ranks), "");
  auto why = [&](const std::function<void(RankHardware &)> &change) {
    std::vector<RankHardware> changed = ranks;
    change(changed[1]);
    return whyNotDirect(two.bundle, changed);
  };
  auto has = [](const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
  };
  const std::string nccl = why([](RankHardware &f) { f.nccl = "2.21.5"; });
  EXPECT_TRUE(has(nccl, "rank 0") && has(nccl, "has NCCL 2.28.3") && has(nccl, "rank 1") &&
              has(nccl, "2.21.5; install one version"))
      << nccl;
  const std::string driver = why([](RankHardware &f) { f.driver = "12.4"; });
  EXPECT_TRUE(has(driver, "a driver for CUDA 13.0") && has(driver, "12.4")) << driver;
  const std::string none = why([](RankHardware &f) { f.nccl = "", f.noNccl = "no libnccl.so.2"; });
  EXPECT_TRUE(has(none, "rank 1") && has(none, "no libnccl.so.2")) << none;
  const std::string unit = why([&](RankHardware &f) { f.units = ranks[0].units; });
  EXPECT_TRUE(has(unit, "share the GPU 0000:00:00.0")) << unit;
  EXPECT_EQ(why([&](RankHardware &f) { f.units = ranks[0].units, f.host = "h2"; }), "")
      << "another host's";
  EXPECT_TRUE(has(why([](RankHardware &f) { f.throttled = true; }), "throttled"));
  EXPECT_TRUE(has(stagedCost(two.bundle), " ms instead of "));
}

TEST_F(HardwareTest, EveryMismatchIsListed) {
  ranks[1].cpu = "x86-64-v2";
  ranks[1].bundle = "c";
  ranks[1].run = "steps=4";
  std::string message = check();
  for (const char *part :
       {"rank 1 (device beta, host h1)", "are for x86-64-v3, this processor is x86-64-v2",
        "has bundle c, rank 0 has b", "with steps=4, rank 0 with steps=3"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in:\n" << message;
}

TEST_F(HardwareTest, ProcessorsOfAnotherFamilyDoNotRunX86) {
  ranks[0].cpu = "aarch64";
  EXPECT_NE(check().find("this processor is aarch64"), std::string::npos);
}

TEST_F(HardwareTest, WhereThereIsNoGpuOneMessageSaysSo) {
  two.bundle.functions.set_arch("sm_89");
  for (size_t r = 0; r < ranks.size(); ++r) {
    two.bundle.devices[r].kind = "cuda";
    ranks[r].cpu = "none";
  }
  std::string message = check();
  EXPECT_NE(message.find("rank 0 (device alpha, host h1) and 1 more: the bundle's kernels are for "
                         "GPUs (sm_89), and no GPU is found there"),
            std::string::npos)
      << message;
  EXPECT_EQ(message.find("arch: none"), std::string::npos) << message;
  EXPECT_EQ(message.find("rank 1"), std::string::npos) << message;
}

TEST_F(HardwareTest, MemoryCountsByHost) {
  uint64_t planned[2] = {0, 0};
  for (int r = 0; r < 2; ++r)
    for (const zorse::bundle::Arena &arena : two.bundle.programs[r].arenas())
      planned[r] += arena.bytes();
  ranks[0].memory = ranks[1].memory = std::max(planned[0], planned[1]);
  EXPECT_NE(check().find("plan"), std::string::npos);
  ranks[1].host = "h2";
  EXPECT_EQ(check(), "");
}

TEST_F(HardwareTest, RanksMustBeAsManyAsDevices) {
  ranks.pop_back();
  EXPECT_NE(check().find("for 2 devices, the job has 1 ranks"), std::string::npos);
}

TEST_F(HardwareTest, MoreThreadsThanCoresIsANote) {
  ranks[0].cores = ranks[1].cores = 1;
  EXPECT_EQ(check(), "");
  EXPECT_NE(note.find("has 1 cores for devices with 3 threads"), std::string::npos) << note;
}

} // namespace
