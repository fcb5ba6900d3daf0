// Tests the command zorse-plan.

#include "SyntheticModel.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

using namespace zorse::test;

namespace {

struct Result {
  int code;
  std::string output;
};

class PlanTool : public testing::Test {
protected:
  void SetUp() override {
    char name[] = "/tmp/zorse-plan-test-XXXXXX";
    directory = mkdtemp(name);
    std::ofstream summary(directory + "/summary.pb", std::ios::binary);
    syntheticModel().SerializeToOstream(&summary);
    write("cluster.yaml", "nodes:\n  - name: n0\n    devices:\n      - {name: a, flops_per_second: "
                          "4e9}\n      - {name: b, flops_per_second: 2e9}\n  "
                          "    - {name: c, flops_per_second: 1e9}\n");
  }
  void TearDown() override { std::system(("rm -r " + directory).c_str()); }

  void write(const std::string &file, const std::string &text) {
    std::ofstream(directory + "/" + file) << text;
  }

  Result run(const std::string &arguments) {
    std::string command = "cd " + directory + " && " ZORSE_BINARY_DIR "/bin/zorse-plan " +
                          arguments + " 2>&1";
    FILE *pipe = popen(command.c_str(), "r");
    Result result;
    char buffer[4096];
    while (size_t n = fread(buffer, 1, sizeof buffer, pipe))
      result.output.append(buffer, n);
    result.code = WEXITSTATUS(pclose(pipe));
    return result;
  }

  std::string directory;
};

TEST_F(PlanTool, ChoosesWritesAndReads) {
  Result chosen = run("--summary=summary.pb --cluster=cluster.yaml --global-batch-size=14 "
                      "--pipeline-stages=2 -o plan.json");
  EXPECT_EQ(chosen.code, 0) << chosen.output;
  EXPECT_NE(chosen.output.find("units 0-"), std::string::npos) << chosen.output;
  Result again = run("--summary=summary.pb --plan=plan.json --cluster cluster.yaml");
  EXPECT_EQ(again.output, chosen.output.substr(0, chosen.output.find("found ")));
}

TEST_F(PlanTool, Errors) {
  auto expect = [&](const std::string &arguments, const std::string &text) {
    Result result = run(arguments);
    EXPECT_EQ(result.code, 1);
    EXPECT_NE(result.output.find("error: " + text), std::string::npos) << result.output;
  };
  expect("", "expected one model");
  expect("--summary=none.pb", "none.pb: cannot be read");
  expect("--summary=cluster.yaml --global-batch-size=3",
         "cluster.yaml: expected an ONNX file (*.onnx), a bundle, a table of layers (*.json) or a "
         "model summary");
  expect("--summary=summary.pb --global-batch-size=x",
         "Could not convert: --global-batch-size = x");
  expect("--summary=summary.pb --global-batch-size=3", "--cluster is missing");
  expect("--summary=summary.pb --global-batch-size=3 --bath=4",
         "The following argument was not expected: --bath=4");
  write(
      "bad.json",
      R"({"global_batch_size": 4, "devices": ["a", "z"], "cells": [{"units": [0, 6], "samples": [0, 3], "device": "a"}]})");
  expect("--summary=summary.pb --plan=bad.json", "bad.json: gap: units 0-6 of samples 3-4");
  expect("--summary=summary.pb --plan=bad.json --cluster=cluster.yaml",
         "bad.json: device 'z' of the plan is not in the cluster");
}

} // namespace
