// Tests profile files: reading, error messages, and writing.
#include "PlanningTestSupport.h"

#include "zorse/Planning/Profile.h"

#include <cstring>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

using namespace zorse;
using namespace zorse::planning;

namespace {

const char *kEverything = R"({
  // comments are allowed
  "format": 1, "model": "c0ffee", "comment": "on a Tuesday",
  "devices": [
    {"device": "F1", "memory": 1000,
     "update": {"per_element": 1e-9, "fixed": 1e-5}, "norm": {"per_element": 2e-9}, "copy": {"per_byte": 3e-9, "fixed": 0}, "load": {"per_byte": 4e-9},
     "communication": {"per_byte": 5e-9, "per_message": 6e-5, "delay": 0.007},
     "unit_classes": {
       "block mlp": [{"batch_size": 1, "forward": 0.1, "backward": 0.2, "input_gradients": 0.12, "weight_gradients": 0.08, "memory": 77}, {"batch_size": 4, "forward": 0.4}],
       "head": [{"tensor_parallel_size": 1, "measurements": [{"batch_size": 2, "forward": 0.5}]}, {"tensor_parallel_size": 2, "measurements": [{"batch_size": 2, "forward": 0.3}]}],
       "nothing": []
     }},
    {"device": "slow"}],
  "links": [{"from": "n0", "to": "n1", "bandwidth": 1e9, "latency": 1e-4, "per_flow_bandwidth": 2e8, "half_bandwidth_bytes": 65536}, {"from": "fast:0", "to": "fast:1", "bandwidth": 5e9}]
})";

std::string mistake(const std::string &text) { return readProfile(text).message(); }

#define EXPECT_MISTAKE(text, what)                                                                 \
  EXPECT_NE(mistake(text).find(what), std::string::npos) << mistake(text)

TEST(Profile, ReadAndWritten) {
  Result<Profile> profile = readProfile(kEverything);
  ASSERT_FALSE(profile.failed()) << profile.message();
  ASSERT_EQ(profile->devices.size(), 2u);
  const DeviceProfile &device = profile->devices[0];
  EXPECT_EQ(device.memory, 1000u);
  EXPECT_EQ(device.updateFixed, 1e-5);
  EXPECT_EQ(device.loadPerByte, 4e-9);
  EXPECT_EQ(device.communicationPerByte, 5e-9);
  EXPECT_EQ(device.communicationPerMessage, 6e-5);
  EXPECT_EQ(device.communicationDelay, 0.007);
  ASSERT_EQ(device.classes.at("block mlp").size(), 1u);
  EXPECT_EQ(device.classes.at("block mlp")[0].degree, 1u);
  EXPECT_EQ(device.classes.at("block mlp")[0].points[0].weightGradients, 0.08);
  EXPECT_EQ(device.classes.at("block mlp")[0].points[0].memory, 77);
  EXPECT_EQ(device.classes.at("block mlp")[0].points[1].backward, -1);
  EXPECT_EQ(device.classes.at("head")[1].degree, 2u);
  EXPECT_EQ(profile->devices[1].updatePerElement, -1);
  EXPECT_EQ(profile->links[0].perFlowBandwidth, 2e8);
  EXPECT_EQ(profile->links[0].halfBandwidthBytes, 65536);
  EXPECT_EQ(profile->links[1].latency, 0);

  std::string text = writeProfile(*profile);
  Result<Profile> again = readProfile(text);
  ASSERT_FALSE(again.failed()) << again.message() << text;
  EXPECT_EQ(writeProfile(*again), text);
  EXPECT_EQ(again->devices[0].classes.at("head")[1].points[0].forward, 0.3);
  EXPECT_EQ(again->comment, "on a Tuesday");
}

TEST(Profile, Format1IsRead) {
  std::string old = kEverything;
  for (auto [now, before] : {std::pair{"\"unit_classes\"", "\"classes\""},
                             {"\"batch_size\"", "\"rows\""},
                             {"\"measurements\"", "\"points\""},
                             {"\"tensor_parallel_size\"", "\"degree\""},
                             {"\"per_flow_bandwidth\"", "\"flow\""},
                             {"\"half_bandwidth_bytes\"", "\"half_size\""}})
    for (size_t at; (at = old.find(now)) != std::string::npos;)
      old.replace(at, std::strlen(now), before);
  Result<Profile> profile = readProfile(old);
  ASSERT_FALSE(profile.failed()) << profile.message();
  EXPECT_EQ(writeProfile(*profile), writeProfile(*readProfile(kEverything)));
}

TEST(Profile, Mistakes) {
  EXPECT_MISTAKE("", "not valid JSON");
  EXPECT_MISTAKE("[]", "the profile: expected an object, got []");
  EXPECT_MISTAKE("{}", "expected \"devices\" or \"links\", found neither");
  EXPECT_MISTAKE(R"({"format": 3})", "format: expected a whole number from 1 to 2, got 3");
  EXPECT_MISTAKE(R"({"devises": []})", "unknown key \"devises\"; known are format, model");
  EXPECT_MISTAKE(R"({"devices": {}})", "devices: expected an array of at most 65536, got {}");
  EXPECT_MISTAKE(R"({"devices": [{"device": "a", "communication": {"delay": 1}}]})",
                 "devices[0].communication: missing key \"per_byte\"");
  EXPECT_MISTAKE(R"({"devices": [{"device": "a", "communication": {"per_byte": 2}}]})",
                 "devices[0].communication.per_byte: expected");
  EXPECT_MISTAKE(R"({"devices": [{}]})", "devices[0]: missing key \"device\"");
  EXPECT_MISTAKE(R"({"devices": [{"device": ""}]})",
                 "devices[0].device: expected a text that is not empty, got \"\"");
  EXPECT_MISTAKE(R"({"devices": [{"device": "a"}, {"device": "a"}]})",
                 "devices[1].device: \"a\" is given twice");
  auto point = [](const std::string &fields) {
    return R"({"devices": [{"device": "a", "unit_classes": {"head": [{)" + fields + "}]}}]}";
  };
  EXPECT_MISTAKE(point(R"("forward": 1)"),
                 "devices[0].unit_classes[\"head\"][0]: missing key \"batch_size\"");
  EXPECT_MISTAKE(point(R"("batch_size": 0, "forward": 1)"),
                 "devices[0].unit_classes[\"head\"][0].batch_size: expected a whole number from 1 "
                 "to 2147483648, got 0");
  EXPECT_MISTAKE(point(R"("batch_size": 1.5, "forward": 1)"), "got 1.5");
  EXPECT_MISTAKE(point(R"("batch_size": 18446744073709551615, "forward": 1)"),
                 "got 18446744073709551615");
  EXPECT_MISTAKE(point(R"("batch_size": 1)"), "expected at least one of forward");
  EXPECT_MISTAKE(point(R"("batch_size": 1, "forward": -1)"),
                 "forward: expected seconds from 0 to 1e+06, got -1");
  EXPECT_MISTAKE(point(R"("batch_size": 1, "forward": 1e300)"),
                 "forward: expected seconds from 0 to 1e+06, got 1e+300");
  EXPECT_MISTAKE(point(R"("batch_size": 1, "forward": null)"), "got null");
  EXPECT_MISTAKE(point(R"("batch_size": 2, "forward": 1}, {"batch_size": 2, "forward": 1)"),
                 "[1].batch_size: expected more than the 2 of the measurement before, got 2; "
                 "measurements are in ascending order");
  EXPECT_MISTAKE(point(R"("measurements": [], "tensor_parallel_size": 0)"),
                 "tensor_parallel_size: expected a whole number from 1 to 1024, got 0");
  EXPECT_MISTAKE(point(R"("measurements": []}, {"measurements": [])"), "size 1 is given twice");
  EXPECT_MISTAKE(R"({"devices": [{"device": "a", "update": {"fixed": 1}}]})",
                 "devices[0].update: missing key \"per_element\"");
  EXPECT_MISTAKE(R"({"devices": [{"device": "a", "update": {"per_element": 2}}]})",
                 "devices[0].update.per_element: expected seconds from 0 to 1, got 2");
  EXPECT_MISTAKE(R"({"links": [{"from": "a", "to": "b"}]})", "links[0]: missing key \"bandwidth\"");
  EXPECT_MISTAKE(R"({"links": [{"from": "a", "to": "b", "bandwidth": 0}]})",
                 "links[0].bandwidth: expected bytes/s from 1000 to 1e+15, got 0");
  EXPECT_MISTAKE(std::string(size_t(65) << 20, ' '), "at most 64 MiB");
  EXPECT_MISTAKE(std::string(1000000, '['), "nested lists and objects");
  std::string deep;
  for (int i = 0; i < 100000; ++i)
    deep += "[";
  EXPECT_MISTAKE("{\"devices\": " + deep + std::string(100000, ']') + "}",
                 "the profile: expected at most 64 nested lists and objects, got more");
  const std::string error = readProfileFile("/nonexistent/profile.json").message();
  EXPECT_EQ(error, "/nonexistent/profile.json: cannot be read: No such file or directory");
}

TEST(Profile, SeveralFiles) {
  std::string directory = ::testing::TempDir();
  auto write = [&](const std::string &name, const std::string &text) {
    std::ofstream(directory + name) << text;
    return directory + name;
  };
  std::string a = write("a.json", kEverything);
  std::string b = write(
      "b.json",
      R"({"devices": [{"device": "F1", "unit_classes": {"head": [{"batch_size": 1, "forward": 9}]}}, {"device": "H9", "norm": {"per_element": 0}}],
                                      "links": [{"from": "n0", "to": "n1", "bandwidth": 7e8}]})");
  Result<Profile> both = readProfileFiles({a, b});
  ASSERT_FALSE(both.failed()) << both.message();
  ASSERT_EQ(both->devices.size(), 3u);
  EXPECT_EQ(both->devices[0].classes.at("head")[0].points[0].forward, 9); // the later one
  EXPECT_EQ(both->devices[0].classes.at("block mlp")[0].points.size(), 2u);
  EXPECT_EQ(both->devices[0].updatePerElement, 1e-9);
  EXPECT_EQ(both->links.size(), 2u);
  EXPECT_EQ(both->links[1].bandwidth, 7e8);
  std::string c = write("c.json", R"({"model": "beef", "devices": [{"device": "F1"}]})");
  std::string error = readProfileFiles({a, c}).message();
  EXPECT_NE(error.find("was measured for another model (beef)"), std::string::npos) << error;
  std::string d = write("d.json", R"({"precision": "f32", "devices": [{"device": "F1"}]})"),
              e = write("e.json", R"({"precision": "tf32", "devices": [{"device": "F1"}]})");
  error = readProfileFiles({d, e}).message();
  EXPECT_NE(error.find("was measured in tf32, and "), std::string::npos) << error;
}

/// Handwritten points for a device type determine the times of a cluster of this type.
TEST(Profile, ImportedType) {
  Result<Profile> profile = readProfile(
      R"({"devices": [{"device": "Z9", "unit_classes": {"block mlp": [{"batch_size": 1, "forward": 0.25, "backward": 0.5}, {"batch_size": 2, "forward": 0.3, "backward": 0.6}]}}]})");
  ASSERT_FALSE(profile.failed()) << profile.message();
  Result<Cluster> cluster = readCluster("nodes: [{name: n, devices: [{name: z, type: Z9, kind: "
                                        "sim, flops_per_second: 1 TFLOP/s, count: 2}]}]");
  ASSERT_FALSE(cluster.failed()) << cluster.message();
  Result<CostModel> costs = CostModel::make(test::chain(), *cluster, &*profile, {});
  ASSERT_FALSE(costs.failed()) << costs.message();
  EXPECT_DOUBLE_EQ(costs->unit(1, 2, step::UnitTask::Forward, 2), 0.3);
  EXPECT_DOUBLE_EQ(costs->unit(1, 2, step::UnitTask::Backward, 4), 1.2);
}

} // namespace
