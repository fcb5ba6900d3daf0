// Tests finding devices that become slow, with noise and with steps that are longer for all.
#include "zorse/runtime/SlowDevices.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

using namespace zorse::runtime;

namespace {

using Finding = SlowDeviceFinder::Finding;

/// \param seconds  computing time of a device in a step
std::vector<Finding> findings(uint32_t devices, uint64_t steps,
                              const std::function<double(uint32_t device, uint64_t step)> &seconds,
                              const std::vector<double> &slow = {}) {
  SlowDeviceFinder finder(std::vector<double>(devices, 0.5), slow);
  std::vector<Finding> out;
  constexpr uint64_t kWindow = SlowDeviceFinder::kWindowSteps;
  for (uint64_t step = kWindow; step <= steps; step += kWindow)
    for (uint32_t d = 0; d < devices; ++d) {
      double sum = 0;
      for (uint64_t s = step - kWindow + 1; s <= step; ++s)
        sum += seconds(d, s);
      if (const std::optional<Finding> found = finder.add(d, step, kWindow, sum / double(kWindow)))
        out.push_back(*found);
    }
  return out;
}

TEST(SlowDevicesTest, ASlowDeviceIsNamedWithinTenStepsAndThenRecovers) {
  for (uint32_t devices : {2u, 3u, 8u}) {
    const auto found = findings(devices, 200, [](uint32_t d, uint64_t step) {
      return d == 1 && step > 60 && step <= 120 ? 2.1 : 1.0;
    });
    ASSERT_EQ(found.size(), 2u) << devices;
    EXPECT_EQ(found[0].device, 1u);
    EXPECT_FALSE(found[0].recovered);
    EXPECT_EQ(found[0].since, 60u);
    EXPECT_DOUBLE_EQ(found[0].earlier, 2.1);
    EXPECT_DOUBLE_EQ(found[0].planned, 4.2);
    EXPECT_TRUE(found[1].recovered);
    EXPECT_EQ(found[1].since, 120u);
  }
}

TEST(SlowDevicesTest, ADeviceThatIsSlowAtTheStartRecovers) {
  const auto found =
      findings(3, 200, [](uint32_t d, uint64_t step) { return d == 1 && step <= 100 ? 2.5 : 1.0; },
               {1, 2.2, 1});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].device, 1u);
  EXPECT_TRUE(found[0].recovered);
  EXPECT_EQ(found[0].since, 100u);
}

TEST(SlowDevicesTest, ASlowDeviceIsNamedAgainWhenItsSpeedChanges) {
  const auto found = findings(3, 400, [](uint32_t d, uint64_t step) {
    return d == 0 && step > 60 ? (step <= 120   ? 2.0
                                  : step <= 200 ? 5.0
                                  : step <= 300 ? 2.0
                                                : 1.1)
                               : 1.0;
  });
  ASSERT_EQ(found.size(), 4u);
  const std::vector<double> times = {2, 5, 2, 1.1};
  const std::vector<uint64_t> since = {60, 120, 200, 300};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(found[i].times, times[i]);
    EXPECT_EQ(found[i].since, since[i]);
    EXPECT_EQ(found[i].recovered, i == 3);
  }
}

TEST(SlowDevicesTest, NoiseIsNoFinding) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> noise(0.9, 1.1);
    EXPECT_TRUE(findings(5, 1000, [&](uint32_t, uint64_t) { return noise(random); }).empty());
  }
}

TEST(SlowDevicesTest, OneSlowStepIsNoFinding) {
  EXPECT_TRUE(findings(3, 400, [](uint32_t d, uint64_t step) {
                return d == 0 && step % 40 == 0 ? 6.0 : 1.0;
              }).empty());
}

TEST(SlowDevicesTest, StepsThatAreLongerForAllAreNoFinding) {
  EXPECT_TRUE(
      findings(4, 300, [](uint32_t, uint64_t step) { return step > 100 ? 2.0 : 1.0; }).empty());
}

/// The first steps, with page faults and cold caches, are not the standard.
TEST(SlowDevicesTest, TheStartIsNotTheStandard) {
  const auto found = findings(3, 100, [](uint32_t d, uint64_t step) {
    return step <= 5 ? 8.0 : d == 2 && step > 50 ? 1.8 : 1.0;
  });
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].device, 2u);
  EXPECT_EQ(found[0].since, 50u);
}

} // namespace
