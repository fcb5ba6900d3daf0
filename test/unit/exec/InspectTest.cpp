// Tests that zorse-inspect prints every view of a bundle and reports what is wrong with an invalid
// one.
#include "RandomPlan.h"
#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Step/WriteProgram.h"

#include "SyntheticModel.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace fs = std::filesystem;
using namespace zorse;

namespace {

/// Writes a bundle of a synthetic model with a random plan.
void writeSynthetic(const std::string &directory, int seed) {
  test::SyntheticOptions options;
  options.units = 6;
  test::SyntheticModel model = test::makeModel(options);
  step::Plan plan = step::randomPlan(model.summary, 32, 4, seed);
  step::LoweringOptions expand;
  expand.functions = &model.functions;
  auto graph = step::lowerPlan(model.summary, plan, expand);
  ASSERT_FALSE(graph.failed()) << graph.message();
  bundle::BundleContents c;
  c.model = "synthetic";
  c.batch = 32;
  c.summary = model.summary;
  c.functions = model.functions;
  c.plan = step::writePlan(plan, model.summary);
  for (const step::PlanDevice &device : plan.devices)
    c.devices.push_back({device.name, "cpu", 1, 1 << 20});
  for (uint32_t device = 0; device < plan.devices.size(); ++device) {
    auto program = step::writeProgram(*graph, device, model.functions);
    ASSERT_FALSE(program.failed()) << program.message();
    c.programs.push_back(bundle::serialize(*program));
  }
  ASSERT_EQ(bundle::writeBundle(c, directory).message(), "");
}

struct Done {
  int code;
  std::string output;
};

Done inspect(const std::string &arguments) {
  std::string command = std::string(ZORSE_BINARY_DIR) + "/bin/zorse-inspect " + arguments + " 2>&1";
  FILE *pipe = popen(command.c_str(), "r");
  Done done{-1, ""};
  char buffer[4096];
  while (size_t got = fread(buffer, 1, sizeof buffer, pipe))
    done.output.append(buffer, got);
  int status = pclose(pipe);
  done.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return done;
}

TEST(Inspect, EveryViewOfManyPlans) {
  for (int seed = 0; seed < 12; ++seed) {
    std::string path = fs::path(::testing::TempDir()) / "inspect.zorse";
    ASSERT_NO_FATAL_FAILURE(writeSynthetic(path, seed));
    for (const char *view : {"", "--plan", "--timeline", "--functions", "--program=d0",
                             "--program=3", "--memory=d1"}) {
      Done done = inspect(path + " " + view);
      EXPECT_EQ(done.code, 0) << view << "\n" << done.output;
      EXPECT_FALSE(done.output.empty());
      if (seed == 0 && getenv("SHOW"))
        puts(done.output.c_str());
    }
    EXPECT_NE(inspect(path + " --program=d0").output.find("exec.program @d0"), std::string::npos);
    std::string svg = path + ".svg";
    EXPECT_EQ(inspect(path + " --memory=d0 --svg " + svg).code, 0);
    fs::remove(svg);
    fs::remove_all(path);
  }
}

TEST(Inspect, BrokenBundlesAreErrors) {
  std::string path = fs::path(::testing::TempDir()) / "inspect-broken.zorse";
  ASSERT_NO_FATAL_FAILURE(writeSynthetic(path, 1));
  Done unknown = inspect(path + " --program=unknown");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_NE(
      unknown.output.find("error: expected a device of the bundle, got 'unknown'. Devices: d0"),
      std::string::npos)
      << unknown.output;
  {
    std::ofstream(path + "/programs/2.pb", std::ios::app) << "x";
  }
  Done damaged = inspect(path);
  EXPECT_EQ(damaged.code, 1);
  EXPECT_NE(damaged.output.find("programs/2.pb: its SHA-256 is"), std::string::npos)
      << damaged.output;
  fs::remove(path + "/manifest.json");
  EXPECT_EQ(inspect(path).code, 1);
  fs::remove_all(path);
  EXPECT_EQ(inspect(path).code, 1);
  EXPECT_EQ(inspect("").code, 1);
}

} // namespace
