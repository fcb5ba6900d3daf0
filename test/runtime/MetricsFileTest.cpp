// Tests the metrics file: while a previous run may still have it open, and when it is read again.
#include "Must.h"
#include "TemporaryDirectory.h"

#include "zorse/runtime/Report.h"
#include "zorse/runtime/Training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
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

TEST(MetricsFile, WhatWasWrittenIsReadAgain) {
  TemporaryDirectory directory;
  const std::string path = directory.path("metrics");
  auto file = must(MetricsFile::open(path));
  StepReport step;
  step.step = 1;
  step.loss = 2.5;
  step.gradientNorm = std::numeric_limits<double>::quiet_NaN();
  step.learningRate = 1e-3;
  step.tokensPerSecond = 100;
  file->step(step);
  file->generated(1, {1, 2, 3}, 1);
  file->changed(1, R"({"devices": ["a", "b"], "left": ["c"], "joined": [], "reason": "why"})",
                0.25);
  StepReport evaluation;
  evaluation.step = 1;
  evaluation.evaluation = true;
  evaluation.loss = 3;
  file->step(evaluation);
  ASSERT_FALSE(file->close().failed());
  std::vector<StepReport> steps;
  std::vector<MetricsChange> changes;
  readMetrics(
      path, [&](const StepReport &report) { steps.push_back(report); },
      [&](const MetricsChange &change) { changes.push_back(change); });
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].step, 1u);
  EXPECT_FALSE(steps[0].evaluation);
  EXPECT_EQ(steps[0].loss, 2.5);
  EXPECT_TRUE(std::isnan(steps[0].gradientNorm));
  EXPECT_EQ(steps[0].learningRate, 1e-3);
  EXPECT_EQ(steps[0].tokensPerSecond, 100);
  EXPECT_TRUE(steps[1].evaluation);
  EXPECT_EQ(steps[1].loss, 3);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].step, 1u);
  EXPECT_EQ(changes[0].devices, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(changes[0].left, std::vector<std::string>{"c"});
  EXPECT_TRUE(changes[0].joined.empty());
  EXPECT_EQ(changes[0].reason, "why");
  EXPECT_EQ(changes[0].seconds, 0.25);
}

} // namespace
