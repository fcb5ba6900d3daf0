// Tests the metrics file while a previous run may still have it open.
#include "Must.h"
#include "TemporaryDirectory.h"

#include "zorse/runtime/Report.h"
#include "zorse/runtime/Training.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

TEST(MetricsFile, AnEarlierStartDoesNotWriteIntoALaterOnesFile) {
  auto report = [](uint64_t step) {
    StepReport made;
    made.step = step;
    return made;
  };
  for (uint64_t resumed : {0, 2}) {
    TemporaryDirectory directory;
    std::string path = directory.path("link");
    directory.write("metrics", "");
    std::filesystem::create_symlink("metrics", path);
    auto first = must(MetricsFile::open(path));
    for (uint64_t step = 1; step <= 4; ++step)
      first->step(report(step));
    auto second = must(MetricsFile::open(path, resumed));
    second->step(report(resumed + 1));
    first->step(report(5)); // it was stopped in the meantime and continues
    second->step(report(resumed + 2));
    EXPECT_FALSE(second->close().failed());
    EXPECT_FALSE(first->close().failed());
    std::vector<uint64_t> expected, found;
    for (uint64_t step = 1; step <= resumed + 2; ++step)
      expected.push_back(step);
    std::istringstream lines(directory.read("metrics"));
    for (std::string line; std::getline(lines, line);)
      found.push_back(std::stoull(line.substr(line.find(':') + 1)));
    EXPECT_EQ(found, expected);
    EXPECT_TRUE(std::filesystem::is_symlink(path));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path(".")), {}), 2);
  }
}

} // namespace
