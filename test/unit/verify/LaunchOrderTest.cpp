// Tests the findings about incompatible orders of launches of direct transfers.
#include "VerifyTestSupport.h"

#include "Device.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::test;

namespace {

/// Findings if every device launches these ids in the order of its list.
std::vector<verify::Finding> findingsOf(const std::vector<std::vector<int64_t>> &launches) {
  SerialPlan plan = oneDevice();
  plan.devices = int(launches.size());
  const SyntheticModel made = makeModel({});
  const verify::PlanView view = viewOf(plan);
  std::vector<verify::Finding> findings;
  const verify::Model model(made.summary, made.functions, view, findings);
  EXPECT_TRUE(findings.empty());
  std::vector<verify::DeviceResult> results(launches.size());
  for (size_t d = 0; d < launches.size(); ++d) {
    results[d].device = int32_t(d);
    results[d].launches = launches[d];
  }
  verify::checkLaunches(model, results, findings);
  return findings;
}

void expectFinding(const std::vector<std::vector<int64_t>> &launches, int32_t device,
                   const std::string &message) {
  const std::vector<verify::Finding> findings = findingsOf(launches);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].code, verify::Code::Launch);
  EXPECT_EQ(findings[0].device, device);
  EXPECT_EQ(findings[0].message, message);
}

} // namespace

TEST(LaunchOrder, OrdersThatFit) {
  EXPECT_TRUE(findingsOf({{}, {}}).empty());
  EXPECT_TRUE(findingsOf({{1, 2, 3}, {1, 3}, {2, 3}}).empty());
  EXPECT_TRUE(findingsOf({{9, 2, 3}, {9, 3}, {2, 3}}).empty()); // ids do not have to ascend
}

TEST(LaunchOrder, TwoDevices) {
  expectFinding({{1, 5, 7}, {1, 7, 5}}, 0,
                "instruction 5: d0 launches it where d1 launches instruction 7: expects both to "
                "launch what they share in one order, or they wait "
                "for each other");
  // The finding is about the launches that form the deadlock, not about others that wait for them.
  expectFinding({{2, 9}, {2, 5, 7}, {7, 5, 9}}, 1,
                "instruction 5: d1 launches it where d2 launches instruction 7: expects both to "
                "launch what they share in one order, or they wait "
                "for each other");
}

TEST(LaunchOrder, Circle) {
  expectFinding({{1, 3}, {2, 1}, {3, 2}}, 0,
                "instruction 1: d0 launches it and waits for d1, which launches instruction 2 "
                "before and waits for d2, which launches instruction 3 "
                "before and waits for "
                "d0: the orders of the devices go round in a circle, expects one that all follow");
}

TEST(LaunchOrder, Twice) {
  expectFinding({{4, 4}, {4}}, 0, "instruction 4: d0 launches it twice: expects once");
}
