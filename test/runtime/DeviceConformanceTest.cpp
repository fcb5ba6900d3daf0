// Runs the device contract on all drivers. ZORSE_DEVICE_FAULT=NAME inserts a mistake between the
// suite and every device, to check that the suite finds it.
#include "DeviceConformance.h"
#include "device/null/NullDevice.h"
#include "zorse/runtime/CpuDevice.h"
#include "zorse/runtime/Drivers.h"
#include "zorse/runtime/ThrottledDevice.h"

#include <cstdlib>

namespace zorse::runtime::test {
namespace {

/// A device with one mistake.
class FaultyDevice final : public QueuedDevice {
public:
  FaultyDevice(std::unique_ptr<QueuedDevice> inner, std::string fault)
      : inner_(std::move(inner)), fault_(std::move(fault)) {}

  std::string description() const override { return inner_->description(); }
  Result<std::unique_ptr<DeviceMemory>> allocate(bundle::MemoryKind kind, size_t bytes,
                                                 const AllocationOptions &options) override {
    auto memory = inner_->allocate(fault_ == "any-memory" ? bundle::DEVICE : kind, bytes, options);
    if (!memory.failed() && fault_ == "dirty-memory" && !options.poison)
      (void)inner_->fill((*memory)->base(), std::byte(1), bytes);
    return memory;
  }
  Status read(void *to, DeviceAddress from, size_t bytes) override {
    return inner_->read(to, from, bytes);
  }
  Status write(DeviceAddress to, const void *from, size_t bytes) override {
    return inner_->write(to, from, bytes);
  }
  Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) override {
    Status status;
    for (size_t i = 0; i < bytes && fault_ == "copies-forward"; ++i)
      status = inner_->copy(to + i, from + i, 1);
    return fault_ == "copies-forward" ? status : inner_->copy(to, from, bytes);
  }
  Status fill(DeviceAddress to, std::byte value, size_t bytes) override {
    return inner_->fill(to, value, fault_ == "fills-too-much" ? bytes + 1 : bytes);
  }
  Result<void *> expose(DeviceAddress address, const std::string &transport) override {
    return inner_->expose(address, fault_ == "any-transport" ? "local" : transport);
  }
  Status loadFunctions(const bundle::FunctionLibrary &library,
                       const KernelObjects &objects) override {
    Status status = inner_->loadFunctions(library, objects);
    return fault_ == "any-functions" ? Status::success() : status;
  }
  Status runFunction(uint32_t index, const FunctionArguments &arguments) override {
    Status status = inner_->runFunction(index, arguments);
    return fault_ == "functions-never-fail" ? Status::success() : status;
  }
  uint64_t launches() const override { return inner_->launches(); }
  Status openQueues(const std::vector<uint32_t> &workers, QueueObserver &observer) override {
    return inner_->openQueues(
        fault_ == "queue-of-its-own" ? std::vector<uint32_t>(workers.size(), 0) : workers,
        observer);
  }
  Event enqueue(uint32_t queue, const Event *waits, size_t count, const Work &work, uint64_t tag,
                bool notify) override {
    Work mine = work;
    if (auto *calls = std::get_if<CallWork>(&mine); calls && fault_ == "forgets-hooks")
      calls->before = nullptr;
    if (fault_ == "loses-work" && std::holds_alternative<CopyWork>(mine))
      mine = NoWork{};
    return inner_->enqueue(queue, waits, fault_ == "ignores-waits" ? 0 : count, mine, tag,
                           fault_ == "notifies-always" || notify);
  }
  void flush() override { inner_->flush(); }
  bool isDone(Event event) const override {
    return fault_ == "always-done" || inner_->isDone(event);
  }
  uint64_t done(uint32_t queue) const override { return inner_->done(queue); }
  Status wait(Event event) override {
    Status status = fault_ == "does-not-wait" ? Status::success() : inner_->wait(event);
    return fault_ == "loses-errors" ? Status::success() : status;
  }
  void abort(const Error &why) override { inner_->abort(why); }
  void closeQueues() override { inner_->closeQueues(); }

private:
  std::unique_ptr<QueuedDevice> inner_;
  const std::string fault_;
};

std::unique_ptr<QueuedDevice> asked(std::unique_ptr<QueuedDevice> device) {
  const char *fault = std::getenv("ZORSE_DEVICE_FAULT");
  return fault && *fault ? std::make_unique<FaultyDevice>(std::move(device), fault)
                         : std::move(device);
}

DeviceUnderTest driven(const Driver &driver) {
  return {driver.kind, [&driver] { return asked(std::move(*driver.make({"unit", 2, false, 0}))); },
          deviceKindOf(driver.kind).computes,
          deviceKindOf(driver.kind).architectures.empty() ? ""
                                                          : driver.units().front().architecture};
}

std::vector<DeviceUnderTest> all() {
  std::vector<DeviceUnderTest> devices;
  for (const Driver &driver : drivers()) {
    const bool isGpu = driver.kind == std::string("cuda");
    if (isGpu && driver.units().empty())
      continue; // no GPU and no stand-in (test/emulator)
    devices.push_back(driven(driver));
    if (isGpu)
      devices.back().computes = false; // the suite's kernels run on CPUs; test/unit/codegen and
                                       // e2e-cuda compute on GPUs
  }
  DeviceUnderTest throttled = devices[0];
  throttled.name = "throttled";
  throttled.make = [] { return asked(std::move(*drivers()[0].make({"unit", 1, false, 0, 0.5}))); };
  devices.push_back(throttled);
  return devices;
}

std::string nameOf(const ::testing::TestParamInfo<DeviceUnderTest> &info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Drivers, DeviceConformance, ::testing::ValuesIn(all()), nameOf);
INSTANTIATE_TEST_SUITE_P(Drivers, DeviceComputing, ::testing::ValuesIn(all()), nameOf);

TEST(Drivers, AreInTheTableOfKinds) {
  for (const DeviceKind &kind : deviceKinds())
    EXPECT_EQ(kind.driven, !findDriver(kind.name, "d").failed()) << kind.name;
  Result<const Driver *> unknown = findDriver("abacus", "d");
  ASSERT_TRUE(unknown.failed());
  EXPECT_NE(unknown.message().find(
                "device 'd' is of kind 'abacus'; this runtime has drivers for: cpu, null"),
            std::string::npos)
      << unknown.message();
}

TEST(Drivers, ANullDeviceSaysThatItsResultsMeanNothing) {
  EXPECT_EQ(makeNullDevice("x")->description(),
            "x (null: computes nothing, its results mean nothing)");
  EXPECT_FALSE(findDeviceKind("null")->computes);
}

TEST(DeviceKinds, RunTheCodeOfTheirArchitectures) {
  const DeviceKind &cpu = *findDeviceKind("cpu");
  EXPECT_TRUE(cpu.runs("x86-64-v3", "x86-64-v2"));
  EXPECT_TRUE(cpu.runs("x86-64-v3", "x86-64-v3"));
  EXPECT_TRUE(cpu.runs("x86-64-v3", ""));
  EXPECT_FALSE(cpu.runs("x86-64-v3", "x86-64-v4"));
  EXPECT_FALSE(cpu.runs("aarch64", "x86-64-v2"));
  EXPECT_FALSE(cpu.runs("x86-64-v4", "znver4"));
  EXPECT_TRUE(cpu.runs("aarch64", "aarch64"));
  EXPECT_EQ(cpu.codeFor("x86-64-v3"), "x86-64-v3");
  EXPECT_EQ(cpu.codeFor("aarch64"), "");
}

TEST(DeviceKinds, GpusThatTheTableLacksRunCodeForOlderOnes) {
  const DeviceKind &gpu = *findDeviceKind("cuda");
  for (const auto &[offered, code] : {std::pair("sm_61", "sm_60"),
                                      {"sm_62", "sm_60"},
                                      {"sm_72", "sm_70"},
                                      {"sm_87", "sm_86"},
                                      {"sm_103", "sm_100"},
                                      {"sm_110", "sm_100"},
                                      {"sm_121", "sm_120"},
                                      {"sm_90", "sm_90"}}) {
    EXPECT_EQ(gpu.codeFor(offered), code) << offered;
    EXPECT_TRUE(gpu.runs(offered, code)) << offered;
  }
  EXPECT_FALSE(gpu.runs("sm_61", "sm_70"));
  EXPECT_FALSE(gpu.runs("sm_75", "sm_80"));
  EXPECT_FALSE(gpu.runs("none", "sm_80"));
  EXPECT_EQ(gpu.codeFor("sm_52"), "");
  EXPECT_EQ(gpu.codeFor("sm_"), "");
  EXPECT_EQ(gpu.codeFor("emu"), "emu");
  EXPECT_FALSE(gpu.runs("emu", "sm_80")) << "the emulator takes bitcode";
  for (const char *offered : {"sm_61", "sm_87", "sm_90", "sm_103", "sm_121", "sm_140"})
    EXPECT_TRUE(gpu.exists(offered)) << offered;
  for (const char *offered : {"sm_68", "sm_76", "sm_52", "sm_", "x86-64"})
    EXPECT_FALSE(gpu.exists(offered)) << offered;
  EXPECT_TRUE(DeviceKind::hasBf16("sm_87"));
  EXPECT_FALSE(DeviceKind::hasBf16("sm_75"));
  EXPECT_TRUE(DeviceKind::hasBf16("x86-64-v3"));
}

} // namespace
} // namespace zorse::runtime::test
