// Tests the assignment of devices to the GPUs of their hosts: assignUnits on machines described by
// the facts of ranks.
#include "zorse/runtime/Hardware.h"

#include <gtest/gtest.h>

#include <map>

using namespace zorse::runtime;

namespace {

constexpr uint64_t kGiB = uint64_t(1) << 30;

HardwareUnit gpu(const std::string &model, int capability, int bus, uint64_t gibibytes) {
  char address[16], uuid[48];
  std::snprintf(address, sizeof address, "0000:%02x:00.0", unsigned(bus));
  std::snprintf(uuid, sizeof uuid, "GPU-5f1c0000-0000-0000-0000-0000000000%02x", unsigned(bus));
  return {uuid, address, model, "sm_" + std::to_string(capability), gibibytes * kGiB};
}
HardwareUnit t4(int bus) { return gpu("Tesla T4", 75, bus, 15); }
HardwareUnit v100(int bus) { return gpu("Tesla V100-SXM2-16GB", 70, bus, 16); }
HardwareUnit a100(int bus, uint64_t gibibytes = 40) {
  return gpu("NVIDIA A100-SXM4-40GB", 80, bus, gibibytes);
}
HardwareUnit h100(int bus) { return gpu("NVIDIA H100 80GB HBM3", 90, bus, 80); }

/// Devices and their hosts. Every device has a rank.
class Machines {
public:
  /// \param code  capability, \param planned  GiB on its GPU, \param named  by cluster.yaml
  void device(const std::string &host, int code, std::vector<HardwareUnit> units,
              uint64_t planned = 1, const std::string &named = "") {
    const size_t d = bundle_.devices.size();
    BundleDevice device;
    device.name = std::string(1, char('a' + d));
    device.kind = "cuda";
    const std::string arch = "sm_" + std::to_string(code);
    if (d == 0) {
      bundle_.functions.set_arch(arch);
    } else {
      zorse::bundle::FunctionLibrary library;
      library.set_arch(arch);
      bundle_.otherTargets.push_back(library);
      device.target = uint32_t(d);
    }
    bundle_.devices.push_back(device);
    zorse::bundle::Program program;
    zorse::bundle::Arena &own = *program.add_arenas(), &pinned = *program.add_arenas();
    own.set_kind(zorse::bundle::DEVICE);
    own.set_bytes(planned * kGiB);
    pinned.set_kind(zorse::bundle::PINNED_HOST);
    pinned.set_bytes(kGiB);
    bundle_.programs.push_back(program);
    RankHardware hardware;
    hardware.host = host;
    hardware.cores = 8;
    hardware.memory = 8 * kGiB;
    hardware.units = std::move(units);
    ranks.push_back(hardware);
    cluster_ += (d ? "      - " : "nodes:\n  - name: n\n    devices:\n      - ") +
                std::string("{ name: ") + device.name + ", kind: cuda" +
                (named.empty() ? "" : ", gpu: \"" + named + "\"") + " }\n";
    bundle_.cluster = cluster_;
  }

  /// "T4@41 A100@81": the GPU of every device, or the error.
  std::string places(bool share = false) {
    if (Status status = assignUnits(bundle_, ranks, share); status.failed())
      return status.message();
    std::string text;
    for (const RankHardware &hardware : ranks)
      text += (text.empty() ? "" : " ") +
              (hardware.unit() ? hardware.unit()->address.substr(5, 2) : "none");
    return text;
  }
  std::string check() {
    std::string note;
    Status status = checkHardware(bundle_, ranks, &note);
    return status.failed() ? status.message() : "";
  }

  std::vector<RankHardware> ranks;

private:
  Bundle bundle_;
  std::string cluster_;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Units, EveryHostCountsItsOwnGpus) {
  Machines m; // node one: a T4; node two: an A100 and a T4. Counting across nodes would assign the
              // A100's program to the T4.
  m.device("one", 75, {t4(0x41)});
  m.device("two", 80, {a100(0x81), t4(0xc1)});
  m.device("two", 75, {a100(0x81), t4(0xc1)});
  EXPECT_EQ(m.places(), "41 81 c1");
}

TEST(Units, CodeGoesToTheGpuItIsFor) {
  for (bool turned : {false, true}) {
    std::vector<HardwareUnit> units = {a100(0x81), t4(0xc1)};
    if (turned)
      std::swap(units[0], units[1]);
    Machines m; // the T4's program also runs on the A100, but the A100's program does not run on
                // the T4
    m.device("h", 75, units);
    m.device("h", 80, units);
    EXPECT_EQ(m.places(), "c1 81");
    EXPECT_EQ(m.check(), "");
  }
}

TEST(Units, TheSmallestGpuThatHasTheMemory) {
  const std::vector<HardwareUnit> units = {a100(0x01, 80), a100(0x02, 40), a100(0x03, 40),
                                           a100(0x04, 80)};
  Machines m;
  m.device("h", 80, units, 30);
  m.device("h", 80, units, 70);
  m.device("h", 80, units, 60);
  m.device("h", 80, units, 39);
  EXPECT_EQ(m.places(), "02 01 04 03");
}

TEST(Units, AllGetOneWhereThatIsPossible) {
  // A greedy assignment would give b the only GPU that a can use.
  Machines m;
  m.device("h", 70, {v100(0x01)});
  m.device("h", 70, {v100(0x01), h100(0x02)});
  EXPECT_EQ(m.places(), "01 02");
}

TEST(Units, AlikeOnesInTheOrderOfTheBus) {
  const std::vector<HardwareUnit> units = {t4(0x07), t4(0x03), t4(0x05)};
  Machines m;
  for (int i = 0; i < 3; ++i)
    m.device("h", 75, units);
  EXPECT_EQ(m.places(), "03 05 07");
}

TEST(Units, AlikeOnesInTheOrderOfRanksWhateverTheyPlan) {
  const std::vector<HardwareUnit> units = {t4(0x07), t4(0x03), t4(0x05)};
  Machines m;
  for (uint64_t planned : {2, 9, 5})
    m.device("h", 75, units, planned);
  EXPECT_EQ(m.places(), "03 05 07");
}

TEST(Units, ARankThatSeesOneGpuGetsIt) { // launchers that set CUDA_VISIBLE_DEVICES for every rank
  Machines m;
  for (int bus : {0x07, 0x03, 0x05})
    m.device("h", 75, {t4(bus)});
  EXPECT_EQ(m.places(), "07 03 05");
}

TEST(Units, FewerGpusThanDevicesIsAnErrorUnlessTheyShare) {
  Machines m;
  for (int i = 0; i < 3; ++i)
    m.device("h", 75, {t4(0x41), t4(0x42)});
  m.ranks[2].visible = "0,1";
  const std::string why = m.places();
  EXPECT_HAS(why, "devices a, b, c are 3, and the GPUs that run them are 2 (Tesla T4 at "
                  "0000:41:00.0, 15360 MiB, sm_75, ");
  EXPECT_HAS(why, "(CUDA_VISIBLE_DEVICES=0,1 there)");
  EXPECT_HAS(why, "--share-gpus");
  EXPECT_EQ(m.places(/*share=*/true), "41 42 41");
  EXPECT_EQ(m.check(), "");
}

TEST(Units, SharedGpusHoldWhatAllTheirDevicesPlan) {
  Machines m;
  for (int i = 0; i < 2; ++i)
    m.device("h", 75, {t4(0x41)}, 8);
  EXPECT_EQ(m.places(/*share=*/true), "41 41");
  EXPECT_HAS(m.check(), "GPU Tesla T4 at 0000:41:00.0, 15360 MiB, sm_75 of host h: has 15360 MiB "
                        "of memory, devices a, b plan 16384 MiB on it");
}

TEST(Units, MemoryOfGpusIsNotTheHosts) {
  Machines m; // four GPUs of 40 GB on a host of 8
  for (int i = 0; i < 4; ++i)
    m.device("h", 80, {a100(0x01), a100(0x02), a100(0x03), a100(0x04)}, 30);
  EXPECT_EQ(m.places(), "01 02 03 04");
  EXPECT_EQ(m.check(), "");
  m.ranks[0].memory = 3 * kGiB; // 4 GiB are pinned
  EXPECT_HAS(m.check(),
             "host h: has 3072 MiB of memory, devices a, b, c, d plan 4096 MiB together");
}

TEST(Units, AGpuThatIsSmallerThanPlanned) {
  Machines m;
  m.device("h", 75, {t4(0x41)}, 20);
  EXPECT_HAS(m.places(), "device 'a' plans 20480 MiB on a GPU that runs sm_75, and host h has "
                         "Tesla T4 at 0000:41:00.0, 15360 MiB");
}

TEST(Units, TheGpuThatTheClusterFileNames) {
  const std::vector<HardwareUnit> units = {t4(0x03), t4(0x05), t4(0x07)};
  for (const char *name :
       {"0000:07:00.0", "00000000:07:00.0", "GPU-5f1c0000-0000-0000-0000-000000000007",
        "MIG-5F1C0000-0000-0000-0000-000000000007"}) {
    Machines m;
    m.device("h", 75, units);
    m.device("h", 75, units, 1, name);
    EXPECT_EQ(m.places(), "03 07") << name;
  }
  Machines m;
  m.device("h", 75, units, 1, "GPU-00");
  EXPECT_HAS(
      m.places(),
      "device 'a' is GPU GPU-00 by the cluster file, and host h has Tesla T4 at 0000:03:00.0");
  Machines twice; // a GPU named in the cluster file is reserved for its device
  twice.device("h", 75, units);
  twice.device("h", 75, units, 1, "0000:03:00.0");
  EXPECT_EQ(twice.places(), "05 03");
}

TEST(Units, SlicesOfOneGpuAreDifferentUnits) {
  HardwareUnit one = a100(0x01, 5), two = a100(0x01, 5);
  one.id = "GPU-11", two.id = "GPU-22";
  Machines m;
  m.device("h", 80, {one});
  m.device("h", 80, {two});
  EXPECT_EQ(m.places(), "01 01");
  EXPECT_EQ(m.ranks[0].unit()->id, "GPU-11");
  EXPECT_EQ(m.ranks[1].unit()->id, "GPU-22");
}

TEST(Units, GpusThatRunNoneOfTheCodeAreTold) {
  Machines m;
  m.device("h", 80, {t4(0x41)});
  EXPECT_EQ(m.places(), "41");
  EXPECT_HAS(
      m.check(),
      "are for sm_80, this GPU is sm_75; set 'arch: sm_75' of the device in the cluster file");
  Machines none;
  none.device("h", 80, {});
  EXPECT_EQ(none.places(), "none");
  EXPECT_HAS(none.check(), "no GPU is found there");
}

TEST(Units, GpusBetweenTheListedOnesRunOlderCode) {
  Machines m;
  m.device("h", 60, {gpu("Tesla P40", 61, 0x01, 24)});
  m.device("h2", 100, {gpu("NVIDIA B300", 103, 0x01, 200)});
  EXPECT_EQ(m.places(), "01 01");
  EXPECT_EQ(m.check(), "");
}

} // namespace
