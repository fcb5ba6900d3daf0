#include "zorse/runtime/Membership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

using namespace zorse::runtime;

namespace {

Membership::Options after(double seconds) {
  Membership::Options options;
  options.rejoinSeconds = seconds;
  return options;
}

size_t count(const std::vector<bool> &members) {
  return size_t(std::count(members.begin(), members.end(), true));
}

TEST(Membership, AllDevicesTakePartAtFirst) {
  Membership membership(4, after(60));
  EXPECT_EQ(membership.wanted(0), std::vector<bool>(4, true));
  EXPECT_TRUE(std::isinf(membership.nextTry()));
}

TEST(Membership, AFailedDeviceIsTriedAgainAfterItsDelay) {
  Membership membership(2, after(60));
  membership.failed({1}, 100);
  EXPECT_EQ(membership.wanted(159.9), (std::vector<bool>{true, false}));
  EXPECT_EQ(membership.nextTry(), 160);
  EXPECT_EQ(membership.wanted(160), (std::vector<bool>{true, true}));
}

TEST(Membership, TheDelayDoublesIfItFailsAgainSoon) {
  Membership membership(2, after(60));
  membership.failed({0}, 100); // again at 160
  membership.failed({0}, 200); // soon: again after 120
  EXPECT_EQ(membership.nextTry(), 320);
  membership.failed({0}, 900); // it worked for long
  EXPECT_EQ(membership.nextTry(), 960);
}

TEST(Membership, TheDelayHasALimit) {
  Membership::Options options = after(60);
  options.maxRejoinSeconds = 200;
  Membership membership(1, options);
  for (double time : {0.0, 61.0, 182.0, 383.0})
    membership.failed({0}, time);
  EXPECT_EQ(membership.nextTry(), 583);
}

TEST(Membership, ADeviceThatLeavesIsTriedAgainWithoutDoublingAndIsNoFailure) {
  Membership membership(2, after(60));
  for (double time : {100.0, 161.0, 222.0, 283.0, 344.0, 405.0}) {
    membership.left({0}, time);
    EXPECT_EQ(membership.nextTry(), time + 60);
    EXPECT_EQ(membership.wanted(time), (std::vector<bool>{false, true}));
    EXPECT_FALSE(membership.isHopeless());
  }
}

TEST(Membership, ZeroSecondsMeanNever) {
  Membership membership(2, after(0));
  membership.failed({0}, 1);
  EXPECT_EQ(membership.wanted(1e9), (std::vector<bool>{false, true}));
  EXPECT_TRUE(std::isinf(membership.nextTry()));
}

TEST(Membership, DevicesThatAreNotAvailableDoNotTakePart) {
  Membership membership(3, after(10));
  membership.failed({1}, 0);
  membership.setAvailable({true, true, false});
  EXPECT_EQ(membership.wanted(5), (std::vector<bool>{true, false, false}));
  membership.setAvailable({true, false, true});
  EXPECT_EQ(membership.wanted(20), (std::vector<bool>{true, false, true}));
  EXPECT_TRUE(std::isinf(membership.nextTry())); // the one that failed is not available
}

TEST(Membership, RepeatedFailuresWithoutProgressAreTheJobs) {
  Membership::Options options = after(60);
  options.maxFailures = 3;
  Membership membership(8, options);
  membership.failed({0}, 1);
  membership.failed({}, 1);
  EXPECT_FALSE(membership.isHopeless());
  membership.progressed();
  membership.failed({1}, 2);
  membership.failed({2}, 3);
  EXPECT_FALSE(membership.isHopeless());
  membership.failed({3}, 4);
  EXPECT_TRUE(membership.isHopeless());
}

/// The rules again, from the history of one device.
class History {
public:
  void failed(double time, const Membership::Options &options) {
    double delay = options.rejoinSeconds;
    if (!failures.empty() && time < failures.back() + 3 * delays.back())
      delay = std::min(options.maxRejoinSeconds, 2 * delays.back());
    failures.push_back(time);
    delays.push_back(delay);
  }
  bool barred(double time) const {
    return !failures.empty() && time < failures.back() + delays.back();
  }

private:
  std::vector<double> failures, delays;
};

/// ZORSE_TEST_SCHEDULES: number of random schedules.
TEST(Membership, RandomSchedules) {
  const char *given = std::getenv("ZORSE_TEST_SCHEDULES");
  const int schedules = given ? std::atoi(given) : 20000;
  for (int seed = 0; seed < schedules; ++seed) {
    std::mt19937 random{uint32_t(seed)};
    const size_t devices = 1 + random() % 6;
    Membership::Options options = after(double(1 + random() % 50));
    options.maxRejoinSeconds = 400;
    Membership membership(devices, options);
    std::vector<History> histories(devices);
    std::vector<bool> available(devices, true);
    uint32_t failures = 0;
    double time = 0;
    for (int event = 0; event < 40; ++event) {
      time += double(random() % 60);
      const size_t device = random() % devices;
      switch (random() % 5) {
      case 0:
      case 1:
        membership.failed({device}, time);
        histories[device].failed(time, options);
        ++failures;
        break;
      case 2:
        available[device] = !available[device];
        membership.setAvailable(available);
        break;
      case 3:
        membership.progressed();
        failures = 0;
        break;
      default:
        membership.failed({}, time);
        ++failures;
      }
      const std::vector<bool> wanted = membership.wanted(time);
      for (size_t d = 0; d < devices; ++d)
        ASSERT_EQ(wanted[d], available[d] && !histories[d].barred(time)) << "seed " << seed;
      ASSERT_EQ(membership.isHopeless(), failures >= options.maxFailures) << "seed " << seed;
      // Every available device takes part again in the end.
      ASSERT_EQ(count(membership.wanted(time + 400)), count(available)) << "seed " << seed;
    }
  }
}

} // namespace
