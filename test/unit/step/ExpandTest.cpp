// Tests the expansion of plans of every kind, and the refused ones. Whether programs compute the
// same as one device is tested with random plans of all these kinds: by valid-plans (test/mutation)
// for synthetic models and by random_tilings.py (test/e2e) for real ones.

#include "SyntheticModel.h"

#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::step;
using namespace zorse::test;

namespace {

/// Checks that ids ascend and that waits refer to earlier instructions.
void checkStructure(const StepGraph &graph, const std::string &name) {
  for (const DeviceProgram &device : graph.devices) {
    std::vector<uint32_t> seen(device.queues.size(), 0), lengths(device.queues.size(), 0);
    for (uint32_t e = device.instructions.begin; e < device.instructions.end; ++e)
      ++lengths[graph.instructions[e].queue];
    uint32_t last = 0;
    for (uint32_t e = device.instructions.begin; e < device.instructions.end; ++e) {
      const Instruction &instruction = graph.instructions[e];
      ASSERT_TRUE(e == device.instructions.begin || instruction.id > last)
          << name << ": ids ascend";
      last = instruction.id;
      for (uint32_t w = instruction.waits.begin; w < instruction.waits.end; ++w) {
        const Wait &wait = graph.waits[w];
        ASSERT_NE(wait.queue, instruction.queue) << name;
        ASSERT_LT(wait.position, lengths[wait.queue]) << name;
        if (!wait.previousStep) {
          ASSERT_LT(wait.position, seen[wait.queue]) << name << ": waits name earlier instructions";
        }
      }
      ++seen[instruction.queue];
    }
  }
}

void check(const bundle::ModelSummary &summary, const Plan &plan, const std::string &name) {
  auto graph = lowerPlan(summary, plan);
  ASSERT_FALSE(graph.failed()) << name << ": " << graph.message() << "\n"
                               << writePlan(plan, summary);
  checkStructure(*graph, name);
}

Plan read(const bundle::ModelSummary &summary, const std::string &json) {
  auto plan = readPlan(json, summary);
  EXPECT_FALSE(plan.failed()) << plan.message();
  return plan.failed() ? Plan() : std::move(*plan);
}

TEST(Expand, OneDevice) {
  auto summary = syntheticModel();
  check(
      summary,
      read(
          summary,
          R"({"global_batch_size": 3, "devices": ["a"], "cells": [{"units": [0, 6], "samples": [0, 3], "device": "a"}]})"),
      "one device");
}

TEST(Expand, StagesOfOneTwoThreeDevices) {
  auto summary = syntheticModel();
  for (const char *schedule : {"1f1b", "gpipe", "steady_state"})
    check(
        summary,
        read(summary,
             std::string(
                 R"({"global_batch_size": 16, "devices": ["a", "b", "c", "d", "e", "f"], "stages": [
      {"units": [0, 2], "devices": [{"device": "a", "samples": 10, "micro_batch_size": 2}, {"device": "b", "samples": 4, "micro_batch_size": 2}, {"device": "c", "samples": 2, "micro_batch_size": 1}]},
      {"units": [2, 3], "devices": ["d"], "micro_batch_size": 3},
      {"units": [3, 6], "devices": ["e", "f"], "micro_batch_size": 4}], "schedule": ")") +
                 schedule + "\"}"),
        schedule);
}

/// For each instruction of a device: the instructions that have ended when it starts, including
/// itself, according to queues and waits.
std::vector<std::vector<bool>> endedBefore(const StepGraph &graph, const DeviceProgram &device) {
  const uint32_t count = device.instructions.size();
  std::vector<std::vector<bool>> ended(count, std::vector<bool>(count));
  std::vector<std::vector<uint32_t>> queues(device.queues.size());
  for (uint32_t i = 0; i < count; ++i) {
    const Instruction &instruction = graph.instructions[device.instructions.begin + i];
    auto add = [&](uint32_t other) {
      for (uint32_t k = 0; k < count; ++k)
        ended[i][k] = ended[i][k] || ended[other][k];
    };
    if (!queues[instruction.queue].empty())
      add(queues[instruction.queue].back());
    for (uint32_t w = instruction.waits.begin; w < instruction.waits.end; ++w)
      if (!graph.waits[w].previousStep)
        add(queues[graph.waits[w].queue][graph.waits[w].position]);
    ended[i][i] = true;
    queues[instruction.queue].push_back(i);
  }
  return ended;
}

/// Blocking communication starts after all earlier work of its device has ended, and ends before
/// all later work.
TEST(Expand, BlockingCommunication) {
  auto summary = syntheticModel();
  const std::string text =
      R"({"global_batch_size": 16, "devices": [{"name": "a", "flops_per_second": 1e9}, {"name": "b", "flops_per_second": 1e9}, {"name": "c", "flops_per_second": 1e9}],
      "links": {"intra_node": {"bandwidth": 1e6, "latency": 1e-3}, "inter_node": {"bandwidth": 1e6, "latency": 1e-3}},
      "stages": [{"units": [0, 3], "devices": ["a", "b"], "micro_batch_size": 2}, {"units": [3, 6], "devices": ["c"], "micro_batch_size": 2}]})";
  Plan plan = read(summary, text);
  const auto overlapped = lowerPlan(summary, plan);
  ASSERT_FALSE(overlapped.failed()) << overlapped.message();
  plan.communication = Communication::Rendezvous;
  EXPECT_EQ(writePlan(read(summary, writePlan(plan, summary)), summary), writePlan(plan, summary));
  check(summary, plan, "blocking");
  const auto blocking = lowerPlan(summary, plan);
  ASSERT_FALSE(blocking.failed()) << blocking.message();
  EXPECT_GT(blocking->stepTime, overlapped->stepTime);
  auto unordered = [](const StepGraph &graph) {
    size_t pairs = 0;
    for (const DeviceProgram &device : graph.devices) {
      const auto ended = endedBefore(graph, device);
      auto moves = [&](uint32_t i) {
        const InstructionKind kind = graph.instructions[device.instructions.begin + i].kind;
        return kind == InstructionKind::Send || kind == InstructionKind::Receive ||
               kind == InstructionKind::AllGather || kind == InstructionKind::ReduceScatter;
      };
      auto computes = [&](uint32_t i) {
        return graph.instructions[device.instructions.begin + i].kind == InstructionKind::Compute;
      };
      for (uint32_t i = 0; i < ended.size(); ++i)
        for (uint32_t k = 0; k < i; ++k)
          pairs += !ended[i][k] &&
                   ((moves(i) && (moves(k) || computes(k))) || (computes(i) && moves(k)));
    }
    return pairs;
  };
  EXPECT_EQ(unordered(*blocking), 0u);
  EXPECT_GT(unordered(*overlapped), 0u);
}

TEST(Expand, TwoPipelinesAndForeignOwners) {
  auto summary = syntheticModel();
  check(summary,
        read(summary,
             R"({"global_batch_size": 9, "devices": ["a", "b", "c", "owner", "idle"], "pipelines": [
      {"samples": [0, 5], "stages": [{"units": [0, 3], "devices": ["a"], "micro_batch_size": 2}, {"units": [3, 6], "devices": ["b"], "micro_batch_size": 1}]},
      {"samples": [5, 9], "stages": [{"units": [0, 6], "devices": ["c"], "micro_batch_size": 2}]}],
      "state": {"groups": [{"group": "*", "owners": [{"device": "owner", "fraction": 0.6}, {"device": "a", "fraction": 0}, {"device": "c", "fraction": 0.4}]}]}})"),
        "two pipelines");
}

TEST(Expand, ExplicitOrderAndChunks) {
  auto summary = syntheticModel();
  check(summary, read(summary, R"({"global_batch_size": 2, "devices": ["a", "b"], "cells": [
      {"units": [0, 2], "samples": [0, 2], "device": "a"}, {"units": [2, 4], "samples": [0, 2], "device": "b"},
      {"units": [4, 6], "samples": [0, 2], "device": "a"}],
      "schedule": {"order": {"a": ["F0", "F2", "B2", "B0"], "b": ["F1", "B1"]}}})"),
        "chunks");
}

/// Tasks of a device, as in an explicit order.
std::vector<std::string> tasksOf(const StepGraph &graph, uint32_t device) {
  std::vector<std::string> tasks;
  for (uint32_t e = graph.devices[device].instructions.begin;
       e < graph.devices[device].instructions.end; ++e) {
    const Instruction &instruction = graph.instructions[e];
    if (instruction.kind == InstructionKind::Compute && instruction.task <= bundle::Compute::W)
      tasks.push_back(std::string(1, "?FBW"[instruction.task]) + std::to_string(instruction.cell));
  }
  return tasks;
}

TEST(Expand, SplitBackward) {
  auto summary = syntheticModel();
  Plan plan = read(summary, R"({"global_batch_size": 4, "devices": ["a", "b"], "stages": [
      {"units": [0, 3], "devices": ["a"], "micro_batch_size": 1}, {"units": [3, 6], "devices": ["b"], "micro_batch_size": 1}], "split_backward": true})");
  check(summary, plan, "1f1b");
  auto graph = lowerPlan(summary, plan);
  ASSERT_FALSE(graph.failed()) << graph.message();
  // W fills gaps: a ready forward runs first, but at most two cells, the number of the first stage,
  // wait for their W.
  EXPECT_EQ(tasksOf(*graph, 1), (std::vector<std::string>{"F4", "B4", "F5", "B5", "W4", "F6", "B6",
                                                          "W5", "F7", "B7", "W6", "W7"}));
  // The part of a unit's backward in each task.
  for (const Instruction &instruction : graph->instructions) {
    std::vector<int32_t> units;
    for (uint32_t c = instruction.calls.begin; c < instruction.calls.end; ++c)
      units.push_back(graph->calls[c].unit);
    if (instruction.kind == InstructionKind::Compute && instruction.task == bundle::Compute::B)
      EXPECT_EQ(units, instruction.cell < 4 ? (std::vector<int32_t>{2, 1})
                                            : (std::vector<int32_t>{5, 4, 3}))
          << "the first unit has no gradient of inputs";
    if (instruction.kind == InstructionKind::Compute && instruction.task == bundle::Compute::W)
      EXPECT_EQ(units, instruction.cell < 4 ? (std::vector<int32_t>{2, 1, 0})
                                            : (std::vector<int32_t>{5, 4}))
          << "unit 3 does not split";
  }
  plan.schedule.kind = ScheduleKind::GPipe;
  check(summary, plan, "gpipe");
}

/// Number of copies of saved blocks of a unit to and from the host.
size_t blockCopies(const StepGraph &graph, uint32_t unit) {
  size_t copies = 0;
  for (const Instruction &instruction : graph.instructions)
    copies += instruction.kind == InstructionKind::Copy &&
              instruction.value.kind == bundle::Value::SAVED_BLOCK && instruction.value.id == unit;
  return copies;
}

TEST(Expand, OffloadedActivationsAreFewAtOnce) {
  auto summary = syntheticModel();
  std::string cells;
  for (int c = 0; c < 8; ++c)
    cells += (c ? "," : "") + std::string(R"({"units": [0, 6], "samples": [)") + std::to_string(c) +
             "," + std::to_string(c + 1) + R"(], "device": "a"})";
  auto expand = [&](const std::string &more) {
    Plan plan = read(summary, R"({"global_batch_size": 8, "devices": ["a"], "cells": [)" + cells +
                                  "]" + more + "}");
    auto graph = lowerPlan(summary, plan);
    EXPECT_FALSE(graph.failed()) << graph.message();
    checkStructure(*graph, more);
    return std::move(*graph);
  };
  const StepGraph kept = expand(R"(, "schedule": "gpipe")"),
                  left = expand(R"(, "schedule": "gpipe", "activations": "offload")");
  EXPECT_EQ(blockCopies(kept, 1), 0u);
  EXPECT_EQ(blockCopies(left, 1),
            2u * (8 - 2)); // blocks of the first two backwards stay on the device
  EXPECT_LT(left.devices[0].memory.activations, kept.devices[0].memory.activations);
  EXPECT_GT(left.devices[0].memory.host, 0u);
  EXPECT_EQ(
      blockCopies(
          expand(
              R"(, "schedule": "gpipe", "activations": "offload", "offload": [{"buffer_count": 5}])"),
          1),
      2u * (8 - 5));
  // If every backward follows its forward, all blocks stay on the device.
  EXPECT_EQ(blockCopies(expand(R"(, "schedule": "1f1b", "activations": "offload")"), 1), 0u);
}

TEST(Expand, TasksWithoutWorkMayBeLeftOut) {
  auto summary = syntheticModel(); // unit 0 has no gradient of inputs, unit 3 does not split
  std::string cells =
      R"({"global_batch_size": 2, "devices": ["a"], "cells": [{"units": [0, 1], "samples": [0, 2], "device": "a"}, {"units": [1, 3], "samples": [0, 2], "device": "a"},
      {"units": [3, 4], "samples": [0, 2], "device": "a"}, {"units": [4, 6], "samples": [0, 2], "device": "a"}], "split_backward": true, "schedule": {"order": {"a": )";
  check(summary,
        read(summary, cells + R"(["F0", "F1", "F2", "F3", "B3", "B2", "B1", "W3", "W0", "W1"]}}})"),
        "left out");
  check(summary,
        read(summary,
             cells +
                 R"(["F0", "F1", "F2", "F3", "B3", "B2", "B1", "B0", "W3", "W2", "W0", "W1"]}}})"),
        "listed");
  const std::string error =
      lowerPlan(
          summary,
          read(summary, cells + R"(["F0", "F1", "F2", "F3", "B3", "B2", "B1", "W3", "W1"]}}})"))
          .message();
  EXPECT_NE(error.find("does not contain W0"), std::string::npos) << error;
}

/// All W run after all B: saved tensors are live until then, and their memory is counted.
TEST(Expand, SplitBackwardInAnOrder) {
  auto summary = syntheticModel();
  std::string cells =
      R"({"global_batch_size": 4, "devices": ["a"], "cells": [{"units": [0, 6], "samples": [0, 2], "device": "a"}, {"units": [0, 6], "samples": [2, 4], "device": "a"}],
      "split_backward": true, "schedule": {"order": {"a": )";
  Plan late = read(summary, cells + R"(["F0", "B0", "F1", "B1", "W1", "W0"]}}})"),
       early = read(summary, cells + R"(["F0", "B0", "W0", "F1", "B1", "W1"]}}})");
  check(summary, late, "late");
  check(summary, early, "early");
  auto a = lowerPlan(summary, late), b = lowerPlan(summary, early);
  ASSERT_FALSE(a.failed() || b.failed());
  EXPECT_EQ(a->devices[0].memory.peakInFlightCells, 2u);
  EXPECT_EQ(b->devices[0].memory.peakInFlightCells, 1u);
  EXPECT_GT(a->devices[0].memory.activations, b->devices[0].memory.activations);
}

TEST(Expand, OrderThatCannotRunPrintsTheCycle) {
  auto summary = syntheticModel();
  Plan plan = read(summary, R"({"global_batch_size": 2, "devices": ["a", "b"], "cells": [
      {"units": [0, 2], "samples": [0, 2], "device": "a"}, {"units": [2, 4], "samples": [0, 2], "device": "b"},
      {"units": [4, 6], "samples": [0, 2], "device": "a"}],
      "schedule": {"order": {"a": ["F0", "B0", "F2", "B2"], "b": ["F1", "B1"]}}})");
  const std::string error = lowerPlan(summary, plan).message();
  EXPECT_NE(error.find("cannot run"), std::string::npos) << error;
  EXPECT_NE(error.find("B of cell 0 (units 0-2, samples 0-2, device a)"), std::string::npos)
      << error;
}

TEST(Expand, TooLittleMemoryIsItemised) {
  auto summary = syntheticModel();
  Plan plan =
      read(summary,
           R"({"global_batch_size": 8, "devices": [{"name": "a", "memory": 4096}, "b"], "stages": [
      {"units": [0, 3], "devices": ["a"], "micro_batch_size": 2}, {"units": [3, 6], "devices": ["b"], "micro_batch_size": 2}]})");
  const std::string error = lowerPlan(summary, plan).message();
  EXPECT_NE(error.find("device a needs"), std::string::npos) << error;
  EXPECT_NE(error.find("state"), std::string::npos) << error;
}

TEST(Expand, ManyDevicesInSeconds) {
  auto summary = syntheticModel();
  std::string json = R"({"global_batch_size": 8192, "devices": [)";
  for (int d = 0; d < 512; ++d)
    json += (d ? ", \"d" : "\"d") + std::to_string(d) + "\"";
  json += R"(], "stages": [)";
  for (int stage = 0; stage < 6; ++stage) {
    json += std::string(stage ? ", " : "") + "{\"units\": [" + std::to_string(stage) + ", " +
            std::to_string(stage + 1) + "], \"micro_batch_size\": 4, \"devices\": [";
    for (int d = stage * 85; d < (stage + 1) * 85; ++d)
      json += std::string(d % 85 ? ", " : "") + "\"d" + std::to_string(d) + "\"";
    json += "]}";
  }
  Plan plan = read(summary, json + "]}");
  auto graph = lowerPlan(summary, plan);
  ASSERT_FALSE(graph.failed()) << graph.message();
  EXPECT_GT(plan.cells.size(), 12000u);
  checkStructure(*graph, "many devices");
}

} // namespace
