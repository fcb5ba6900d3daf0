// Tests the memory measurements of a profile: of devices and of the tasks of a class.
#include "LlamaShape.h"
#include "zorse/Planning/Profile.h"

#include "PlanningTestSupport.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::planning;

namespace {

Profile profileOf(const std::string &devices) {
  Result<Profile> profile = readProfile("{\"devices\": " + devices + "}");
  EXPECT_FALSE(profile.failed()) << profile.message();
  return profile.failed() ? Profile() : *profile;
}

TEST(MeasuredMemory, LimitsDevicesOfWhichTheClusterSaysNoneOrMore) {
  Cluster cluster = test::twoNodes();
  ASSERT_EQ(cluster.devices.size(), 3u);
  cluster.devices[0].memory = 0;
  cluster.devices[1].memory = 3 << 20;
  cluster.devices[2].memory = 1 << 20;
  const std::string first = cluster.devices[0].name, second = cluster.devices[1].name,
                    third = cluster.devices[2].name;
  Profile profile =
      profileOf("[{\"device\": \"" + first + "\", \"memory\": 2097152}, {\"device\": \"" + second +
                "\", \"memory\": 2097152}, {\"device\": \"" + third + "\", \"memory\": 2097152}]");
  EXPECT_EQ(
      limitMemory(profile, cluster),
      (std::vector<std::string>{
          "memory of '" + first +
              "' is limited to the 2.0 MiB that the profile found; the cluster says nothing",
          "memory of '" + second +
              "' is limited to the 2.0 MiB that the profile found; the cluster says 3.0 MiB"}));
  EXPECT_EQ(cluster.devices[0].memory, uint64_t(2) << 20);
  EXPECT_EQ(cluster.devices[1].memory, uint64_t(2) << 20);
  EXPECT_EQ(cluster.devices[2].memory, uint64_t(1) << 20); // a smaller value stays
  EXPECT_TRUE(limitMemory(profile, cluster).empty());
}

TEST(MeasuredMemory, RaisesWorkspaceThatIsLess) {
  const Cluster cluster = test::twoNodes();
  bundle::ModelSummary summary = test::chain();
  using Function = bundle::UnitFunction;
  for (int u = 0; u < summary.units_size(); ++u) {
    test::mutableFunction(summary, u, Function::FORWARD).mutable_workspace()->set_per_row(100);
    test::mutableFunction(summary, u, Function::BACKWARD).mutable_workspace()->set_per_row(1000000);
  }
  auto workspace = [&](int u, Function::Task task) {
    return functionOf(summary, summary.units(u), task).workspace();
  };
  const std::string name = cluster.devices[0].name;
  // The slope is largest between 2 and 4 rows: 200 per row; the first point needs 300 more.
  Profile profile = profileOf("[{\"device\": \"" + name + R"(", "unit_classes": {
      "block mlp": [{"batch_size": 1, "forward": 1, "memory": 500}, {"batch_size": 2, "forward": 1, "memory": 600}, {"batch_size": 4, "forward": 1, "memory": 1000}],
      "head": [{"batch_size": 1, "forward": 1, "memory": 99}]}}, {"device": "absent", "unit_classes": {"head": [{"batch_size": 1, "forward": 1, "memory": 999}]}}])");
  EXPECT_EQ(raiseWorkspace(profile, cluster, summary).size(),
            2u); // the parts of the head's backward have none
  for (int u : {1, 2}) {
    EXPECT_EQ(workspace(u, Function::FORWARD).fixed(), 300);
    EXPECT_EQ(workspace(u, Function::FORWARD).per_row(), 200);
    EXPECT_EQ(workspace(u, Function::BACKWARD).fixed(), 0);
    EXPECT_EQ(workspace(u, Function::BACKWARD).per_row(), 1000000);
    EXPECT_EQ(workspace(u, Function::INPUT_GRADIENTS).per_row(), 200);
  }
  EXPECT_EQ(workspace(3, Function::FORWARD).per_row(), 100);
  EXPECT_EQ(workspace(3, Function::WEIGHT_GRADIENTS).per_row(), 99);
  EXPECT_TRUE(raiseWorkspace(profile, cluster, summary).empty());
}

} // namespace
