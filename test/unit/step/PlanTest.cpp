// Tests reading, checking and writing plans, with one small plan per error.

#include "SummaryFunctions.h"
#include "SyntheticModel.h"

#include "RandomPlan.h"
#include "zorse/Base/Apportion.h"
#include "zorse/Step/AssignMicroBatches.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::step;
using namespace zorse::test;

namespace {

/// The message of the first error in `json`, from reading or validation; empty if there is none.
std::string mistake(const std::string &json) {
  auto summary = syntheticModel();
  auto plan = readPlan(json, summary);
  return plan.failed() ? plan.message() : validatePlan(*plan, summary).message();
}

std::string withCells(const std::string &cells, const std::string &more = "") {
  return R"({"global_batch_size": 8, "devices": ["a", "b"], "cells": [)" + cells + "]" + more + "}";
}

const char *const kWhole = R"({"units": [0, 6], "samples": [0, 8], "device": "a"})";

#define EXPECT_MISTAKE(json, text)                                                                 \
  EXPECT_NE(mistake(json).find(text), std::string::npos) << mistake(json)

TEST(PlanText, Valid) { EXPECT_EQ(mistake(withCells(kWhole)), ""); }

TEST(PlanText, NotJson) {
  EXPECT_MISTAKE("{\"global_batch_size\": 8,\n \"devices\" [", "line 2, column");
  EXPECT_MISTAKE("", "not valid JSON");
  EXPECT_MISTAKE("[]", "expected an object");
}

TEST(PlanText, WrongTypesAndKeys) {
  EXPECT_MISTAKE(R"({"global_batch_size": "8", "devices": ["a"], "cells": []})",
                 "global_batch_size: expected a whole number, got \"8\"");
  EXPECT_MISTAKE(R"({"global_batch_size": 0, "devices": ["a"], "cells": []})",
                 "global_batch_size: expected at least 1");
  EXPECT_MISTAKE(R"({"global_batch_size": 8, "devices": ["a"], "cell": []})",
                 "unknown key \"cell\"; known are");
  EXPECT_MISTAKE(R"({"global_batch_size": 8, "devices": ["a", "a"], "cells": []})",
                 "device 'a' is listed twice");
  EXPECT_MISTAKE(R"({"global_batch_size": 8, "devices": ["a"]})", "missing key \"cells\"");
  EXPECT_MISTAKE(withCells(R"({"units": [0], "samples": [0, 8], "device": "a"})"),
                 "cells[0].units: expected [begin, end]");
  EXPECT_MISTAKE(withCells(R"({"units": [0, 99999999999], "samples": [0, 8], "device": "a"})"),
                 "number too large");
}

TEST(PlanText, Format1IsConverted) {
  auto summary = syntheticModel();
  auto old = readPlan(
      R"({"format": 1, "batch": 8, "devices": [{"name": "a", "speed": 2e9}, "b"], "communication": "blocking",
      "stages": [{"units": [0, 3], "microbatch": 2, "devices": ["a"]}, {"units": [3, 6], "devices": [{"device": "b", "samples": 8, "microbatch": 4}]}],
      "state": {"default": "equal", "groups": [{"group": 0, "owners": [{"device": "a", "share": 25}, {"device": "b", "share": 75}]}]},
      "residency": [{"moments": "host", "update": "device"}, {"groups": [0], "gather": "phase"}, {"devices": ["a"], "images": 3}],
      "schedule": {"name": "timed", "in_flight": 1.5, "weight_delay": 2, "interleave": 4}})",
      summary);
  ASSERT_FALSE(old.failed()) << old.message();
  auto now = readPlan(
      R"({"format": 2, "global_batch_size": 8, "devices": [{"name": "a", "flops_per_second": 2e9}, "b"], "overlap_communication": false,
      "stages": [{"units": [0, 3], "micro_batch_size": 2, "devices": ["a"]}, {"units": [3, 6], "devices": [{"device": "b", "samples": 8, "micro_batch_size": 4}]}],
      "state": {"default_sharding": "equal", "groups": [{"group": 0, "owners": [{"device": "a", "fraction": 0.25}, {"device": "b", "fraction": 0.75}]}]},
      "offload": [{"optimizer_states": "host", "optimizer": "device"}, {"groups": [0], "reshard_after_forward": true}, {"devices": ["a"], "buffer_count": 3}],
      "schedule": {"name": "steady_state", "in_flight_factor": 1.5, "max_weight_grad_delay": 2, "microbatch_group_size": 4}})",
      summary);
  ASSERT_FALSE(now.failed()) << now.message();
  EXPECT_EQ(writePlan(*old, summary), writePlan(*now, summary));
  EXPECT_EQ(writePlan(*now, summary).find("\"format\": 2"), 4u);
  for (auto [name, renamed] : {std::pair{"folded", "wave"}, {"ministages", "breadth_first"}}) {
    auto plan = readPlan(
        std::string(
            R"({"format": 1, "batch": 8, "devices": ["a"], "stages": [{"units": [0, 6], "devices": ["a"]}], "schedule": ")") +
            name + "\"}",
        summary);
    ASSERT_FALSE(plan.failed()) << plan.message();
    EXPECT_NE(writePlan(*plan, summary).find(renamed), std::string::npos);
  }
}

TEST(PlanText, OldKeysNameTheNewOnes) {
  EXPECT_MISTAKE(R"({"batch": 8, "devices": ["a"], "cells": []})",
                 "the plan: key \"batch\" is now \"global_batch_size\"");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "residency": [])"), "key \"residency\" is now \"offload\"");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "offload": [{"moments": "host"}])"),
                 "offload[0]: key \"moments\" is now \"optimizer_states\"");
  EXPECT_MISTAKE(
      withCells(
          kWhole,
          R"(, "state": {"groups": [{"group": 0, "owners": [{"device": "a", "share": 100}]}]})"),
      "state.groups[0].owners[0]: key \"share\" is now \"fraction\"");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "schedule": "timed")"),
                 "schedule: \"timed\" is now \"steady_state\"");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "format": 3)"),
                 "format: expected 2, or 1, which is converted; got 3");
}

TEST(PlanText, Commit) {
  EXPECT_MISTAKE(withCells(kWhole, R"(, "state": {"optimizer_in_backward": "unit"})"),
                 "state.optimizer_in_backward: expected true or false, got \"unit\"");
  auto refused = [](auto change) {
    auto summary = syntheticModel();
    auto &training = *summary.mutable_training();
    training.set_clip_norm(0);
    change(training);
    auto plan =
        readPlan(withCells(kWhole, R"(, "state": {"optimizer_in_backward": true})"), summary);
    EXPECT_FALSE(plan.failed()) << plan.message();
    EXPECT_NE(writePlan(*plan, summary).find("\"optimizer_in_backward\": true"), std::string::npos);
    return validatePlan(*plan, summary).message();
  };
  EXPECT_EQ(refused([](auto &) {}), "");
  EXPECT_NE(refused([](auto &training) {
              training.set_clip_norm(1);
            }).find("compile with --max-grad-norm=0, or say \"optimizer_in_backward\": false"),
            std::string::npos);
  EXPECT_NE(
      refused([](auto &training) { training.set_loss_scale(1024); }).find("the loss is scaled"),
      std::string::npos);
}

TEST(PlanText, UnknownDevice) {
  EXPECT_MISTAKE(withCells(R"({"units": [0, 6], "samples": [0, 8], "device": "c"})"),
                 "cells[0].device: unknown device 'c'; \"devices\" lists a, b");
}

TEST(PlanText, NotSupportedYet) {
  EXPECT_MISTAKE(withCells(kWhole, R"(, "backward": [])"),
                 "a separate backward tiling is not supported yet");
}

TEST(PlanText, Groups) {
  const std::string cell = R"({"units": [0, 6], "samples": [0, 8], "device": "g"})";
  auto groups = [&](const std::string &list) {
    return withCells(cell, ", \"groups\": [" + list + "]");
  };
  EXPECT_MISTAKE(groups(R"({"name": "g"})"), "groups[0]: expected \"name\" and \"devices\"");
  EXPECT_MISTAKE(groups(R"({"name": "g", "devices": ["a", "x"]})"),
                 "groups[0].devices[1]: unknown device 'x'");
  EXPECT_MISTAKE(groups(R"({"name": "a", "devices": ["a", "b"]})"),
                 "groups[0].name: 'a' is the name of another group or of a device");
  EXPECT_MISTAKE(groups(R"({"name": "g", "devices": ["a", "b"], "shares": [1]})"),
                 "groups[0].shares: lists 1 shares, expected 2, one per device");
}

TEST(PlanText, Activations) {
  EXPECT_MISTAKE(withCells(kWhole, R"(, "activations": "drop")"),
                 "activations: expected \"keep\", \"recompute\" or \"offload\", got \"drop\"");
  EXPECT_MISTAKE(
      withCells(R"({"units": [0, 6], "samples": [0, 8], "device": "a", "activations": true})"),
      "cells[0].activations: expected a text");
}

TEST(PlanText, Communication) {
  EXPECT_MISTAKE(withCells(kWhole, R"(, "overlap_communication": "async")"),
                 "overlap_communication: expected true or false, got \"async\"");
  EXPECT_MISTAKE(
      withCells(kWhole, R"(, "overlap_communication": false, "send_protocol": "buffered")"),
      "send_protocol: expected \"rendezvous\" or \"eager\", got \"buffered\"");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "send_protocol": "eager")"),
                 "send_protocol: it applies to devices that do not compute while they send: add "
                 "\"overlap_communication\": false, or leave it out");
  auto communication = [](const char *keys) {
    const auto summary = syntheticModel();
    const Result<Plan> plan = readPlan(withCells(kWhole, keys), summary);
    EXPECT_FALSE(plan.failed()) << plan.message();
    const Result<Plan> again = readPlan(writePlan(*plan, summary), summary);
    EXPECT_EQ(again->communication, plan->communication);
    return plan->communication;
  };
  EXPECT_EQ(communication(""), Communication::Overlapped);
  EXPECT_EQ(communication(R"(, "overlap_communication": false)"), Communication::Rendezvous);
  EXPECT_EQ(communication(R"(, "overlap_communication": false, "send_protocol": "rendezvous")"),
            Communication::Rendezvous);
  EXPECT_EQ(communication(R"(, "overlap_communication": false, "send_protocol": "eager")"),
            Communication::Eager);
}

TEST(PlanText, Residency) {
  EXPECT_MISTAKE(withCells(kWhole, R"(, "offload": {})"), "offload: expected an array");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "offload": [{"optimizer_states": "disk"}])"),
                 "offload[0].optimizer_states: expected \"device\" or \"host\", got \"disk\"");
  EXPECT_MISTAKE(
      withCells(kWhole, R"(, "offload": [{"optimizer_states": "host"}, {"devices": ["a"]}])"),
      "offload[1]: expected at least one of");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "offload": [{"devices": [], "optimizer_states": "host"}])"),
                 "offload[0].devices: is empty");
  EXPECT_MISTAKE(
      withCells(kWhole, R"(, "offload": [{"devices": ["a", "a"], "optimizer_states": "host"}])"),
      "offload[0].devices: names one of them twice");
  EXPECT_MISTAKE(
      withCells(kWhole, R"(, "offload": [{"devices": ["z"], "optimizer_states": "host"}])"),
      "offload[0].devices[0]: unknown device 'z'");
  EXPECT_MISTAKE(
      withCells(kWhole, R"(, "offload": [{"groups": [999], "optimizer_states": "host"}])"),
      "offload[0].groups[0]: state group 999 does not exist");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "offload": [{"reshard_after_forward": "unit"}])"),
                 "offload[0].reshard_after_forward: expected true or false, got \"unit\"");
  EXPECT_MISTAKE(
      withCells(kWhole, R"(, "offload": [{"reshard_after_forward": true, "devices": ["a"]}])"),
      "offload[0]: has \"reshard_after_forward\" and \"devices\"");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "offload": [{"buffer_count": 0}])"),
                 "offload[0].buffer_count: expected 1 to 65536, got 0");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "offload": [{"buffer_count": 2, "groups": [0]}])"),
                 "offload[0]: has \"buffer_count\" and \"groups\"");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "offload": [{"tier": "host"}])"), "unknown key \"tier\"");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "offload": [{"optimizer": "cpu"}])"),
                 "offload[0].optimizer: expected \"device\" or \"host\", got \"cpu\"");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "offload": [{"optimizer": "host"}])"),
                 "of device a is updated on the host, and its parameters are kept on the device");
  EXPECT_EQ(
      mistake(withCells(
          kWhole,
          R"(, "offload": [{"optimizer": "host"}, {"parameters": "host", "optimizer_states": "host"}])")),
      "");
  EXPECT_MISTAKE(
      withCells(
          kWhole,
          R"(, "offload": [{"optimizer": "host", "parameters": "host", "optimizer_states": "host"}, {"devices": ["b"], "optimizer_states": "device"}])"),
      "of device b is updated on the host, and its moments are kept on the device");
}

TEST(Tiling, Overlap) {
  EXPECT_MISTAKE(
      withCells(std::string(kWhole) + R"(, {"units": [2, 4], "samples": [6, 8], "device": "b"})"),
      "cell 1 (units 2-4, samples 6-8, device b) overlaps cell 0 (units 0-6, samples 0-8, device "
      "a) in units 2-4, samples 6-8");
}

TEST(Tiling, Gap) {
  EXPECT_MISTAKE(
      withCells(
          R"({"units": [0, 3], "samples": [0, 8], "device": "a"}, {"units": [3, 6], "samples": [0, 5], "device": "b"})"),
      "gap: units 3-6 of samples 5-8 belong to no cell");
  EXPECT_MISTAKE(withCells(""), "gap: units 0-6 of samples 0-8 belong to no cell");
}

TEST(Tiling, OutsideAndEmpty) {
  EXPECT_MISTAKE(withCells(R"({"units": [0, 7], "samples": [0, 8], "device": "a"})"),
                 "leaves the model: it has units 0-6");
  EXPECT_MISTAKE(withCells(R"({"units": [0, 6], "samples": [0, 9], "device": "a"})"),
                 "leaves the batch: it has samples 0-8");
  EXPECT_MISTAKE(withCells(R"({"units": [3, 3], "samples": [0, 8], "device": "a"})"),
                 "has no units");
  EXPECT_MISTAKE(withCells(R"({"units": [0, 6], "samples": [8, 8], "device": "a"})"),
                 "has no samples");
  EXPECT_MISTAKE(withCells(R"({"units": [-1, 6], "samples": [0, 8], "device": "a"})"),
                 "leaves the model");
}

TEST(Tiling, AnotherModel) {
  EXPECT_MISTAKE(withCells(kWhole, R"(, "model": "other")"), "made for another model");
}

TEST(Owners, Mistakes) {
  auto state = [](const std::string &groups) {
    return withCells(kWhole, ", \"state\": {\"groups\": [" + groups + "]}");
  };
  EXPECT_EQ(mistake(state(R"({"group": "g0", "owners": ["b"]})")), "");
  EXPECT_EQ(
      mistake(state(
          R"({"group": 0, "owners": [{"device": "b", "elements": [128, 384]}, {"device": "a", "elements": [0, 128]}]})")),
      "");
  EXPECT_EQ(
      mistake(state(
          R"({"group": 0, "owners": [{"device": "b", "elements": [0, 128]}, {"device": "a", "elements": [128, 256]},
                                                       {"device": "b", "elements": [256, 384]}]})")),
      "");
  EXPECT_EQ(
      mistake(state(
          R"({"group": "*", "owners": [{"device": "b", "fraction": 1}, {"device": "a", "fraction": 0}]})")),
      "");
  EXPECT_MISTAKE(state(R"({"group": "nosuch", "owners": ["b"]})"),
                 "no state group called 'nosuch'");
  EXPECT_MISTAKE(
      state(
          R"({"group": 0, "owners": [{"device": "a", "fraction": 0.4}, {"device": "b", "fraction": 0.5}]})"),
      "fractions add up to 0.9");
  EXPECT_MISTAKE(
      state(
          R"({"group": 0, "owners": [{"device": "a", "fraction": 0.5}, {"device": "a", "fraction": 0.5}]})"),
      "device a is listed twice");
  EXPECT_MISTAKE(
      state(
          R"({"group": 0, "owners": [{"device": "a", "elements": [0, 100]}, {"device": "b", "elements": [100, 384]}]})"),
      "multiples of 128");
  EXPECT_MISTAKE(state(R"({"group": 0, "owners": [{"device": "a", "elements": [0, 128]}]})"),
                 "elements 128-384 have no owner");
  EXPECT_MISTAKE(
      state(
          R"({"group": 0, "owners": [{"device": "a", "elements": [0, 256]}, {"device": "b", "elements": [128, 384]}]})"),
      "have two owners");
  EXPECT_MISTAKE(state(R"({"group": 0, "owners": []})"), "empty list of owners");
  auto summary = syntheticModel();
  int frozen = 0;
  while (summary.groups(frozen).trainable())
    ++frozen;
  EXPECT_MISTAKE(state("{\"group\": " + std::to_string(frozen) + ", \"owners\": [\"b\"]}"),
                 "is frozen");
}

TEST(Order, Mistakes) {
  auto order = [](const std::string &tasks) {
    return withCells(kWhole, ", \"schedule\": {\"order\": {" + tasks + "}}");
  };
  EXPECT_EQ(mistake(order(R"("a": ["F0", "B0"])")), "");
  EXPECT_MISTAKE(order(R"("a": ["F0"])"), "order of device a does not contain B0");
  EXPECT_MISTAKE(order(R"("a": ["F0", "B0", "F0"])"), "F0 is listed twice");
  EXPECT_MISTAKE(order(R"("a": ["F0", "B0", "F1"])"), "F1 names no cell");
  EXPECT_MISTAKE(order(R"("b": ["F0", "B0"])"), "belongs to another device");
  EXPECT_MISTAKE(order(R"("a": ["G0"])"), "expected F, B or W and the index of a cell");
  EXPECT_MISTAKE(order(R"("a": ["F0", "B0", "W0"])"),
                 "W0 is no task of this plan: add \"split_backward\": true");
  auto split = [](const std::string &tasks) {
    return withCells(kWhole,
                     ", \"split_backward\": true, \"schedule\": {\"order\": {" + tasks + "}}");
  };
  EXPECT_EQ(mistake(split(R"("a": ["F0", "B0", "W0"])")), "");
  EXPECT_MISTAKE(split(R"("a": ["F0", "B0"])"), "order of device a does not contain W0");
  EXPECT_MISTAKE(split(R"("a": ["F0", "B0", "W0", "W0"])"), "W0 is listed twice");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "split_backward": 1)"),
                 "split_backward: expected true or false");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "schedule": "zigzag")"),
                 "expected \"1f1b\", \"gpipe\", \"steady_state\", \"interleaved\""); // and more
  auto schedule = [](const std::string &text) {
    return withCells(kWhole, ", \"schedule\": " + text);
  };
  EXPECT_EQ(
      mistake(schedule(
          R"({"name": "steady_state", "in_flight_factor": 1.5, "max_weight_grad_delay": 2, "microbatch_group_size": 4})")),
      "");
  EXPECT_EQ(mistake(schedule(R"({"name": "1f1b", "warmup_forwards": {"a": 3}})")), "");
  EXPECT_MISTAKE(schedule(R"({"name": "steady_state", "in_flight_factor": 0})"),
                 "schedule.in_flight_factor: expected a number above 0, got 0");
  EXPECT_MISTAKE(schedule(R"({"name": "steady_state", "max_weight_grad_delay": -1})"),
                 "schedule.max_weight_grad_delay: expected a number from 0");
  EXPECT_MISTAKE(schedule(R"({"name": "steady_state", "warmup_forwards": {}})"),
                 "unknown key \"warmup_forwards\"");
  EXPECT_MISTAKE(schedule(R"({"name": "gpipe", "in_flight_factor": 1})"),
                 "unknown key \"in_flight_factor\"");
  EXPECT_MISTAKE(schedule(R"({"name": "1f1b", "warmup_forwards": {"z": 3}})"),
                 "unknown device 'z'");
  EXPECT_MISTAKE(schedule(R"({"name": "1f1b", "warmup_forwards": {"a": -1}})"),
                 "expected a number that is not negative");
  EXPECT_MISTAKE(schedule(R"({"name": "1f1b", "warmup_forwards": 3})"),
                 "schedule.warmup_forwards: expected {device");
  EXPECT_MISTAKE(schedule(R"({"in_flight_factor": 1})"), "expected \"1f1b\"");
}

TEST(Shorthand, StagesAndPipelines) {
  auto summary = syntheticModel();
  auto plan = readPlan(R"({"global_batch_size": 32, "devices": ["a", "b", "c", "d"], "stages": [
      {"units": [0, 3], "devices": [{"device": "a", "samples": 20, "micro_batch_size": 4}, {"device": "b", "samples": 8, "micro_batch_size": 2},
                                    {"device": "c", "samples": 4, "micro_batch_size": 2}]},
      {"units": [3, 6], "devices": ["d"], "micro_batch_size": 8}]})",
                       summary);
  ASSERT_FALSE(plan.failed()) << plan.message();
  EXPECT_EQ(validatePlan(*plan, summary).message(), "");
  EXPECT_EQ(plan->cells.size(), 5u + 4u + 2u + 4u);
  // Shares are proportional at all times: after half of the samples, device a has got about half of
  // its share.
  int64_t a = 0;
  for (const Cell &cell : plan->cells)
    if (cell.device == 0 && cell.sampleEnd <= 16)
      a += cell.rows();
  EXPECT_GE(a, 8);
  EXPECT_LE(a, 12);

  EXPECT_MISTAKE(
      R"({"global_batch_size": 8, "devices": ["a"], "stages": [{"units": [0, 6], "devices": [{"device": "a", "samples": 7}]}]})",
      "add up to 7, expected 8");
  EXPECT_MISTAKE(
      R"({"global_batch_size": 8, "devices": ["a"], "pipelines": [{"samples": [0, 9], "stages": []}]})",
      "expected a range inside 0-8");
  EXPECT_MISTAKE(
      R"({"global_batch_size": 8, "devices": ["a"], "pipelines": [{"samples": [0, 4], "stages": [{"units": [0, 6], "devices": ["a"]}]}]})",
      "gap: units 0-6 of samples 4-8");
}

TEST(Writing, RoundTrip) {
  auto summary = syntheticModel();
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Plan plan = randomPlan(summary, 11, 5, seed);
    if (seed % 3 == 0) {
      plan.schedule.kind = ScheduleKind::Explicit;
      plan.order.assign(plan.devices.size(), {});
      for (TaskKind kind : {TaskKind::Forward, TaskKind::Backward, TaskKind::Weights})
        for (uint32_t c = 0;
             c < plan.cells.size() && (kind != TaskKind::Weights || plan.schedule.splitBackward);
             ++c)
          plan.order[plan.cells[c].device].push_back({kind, c});
      plan.durations = CellDurations{std::vector<double>(plan.cells.size(), 0.125),
                                     std::vector<double>(plan.cells.size(), 0.25),
                                     {}};
      if (plan.schedule.splitBackward && seed % 2)
        plan.durations->weights.assign(plan.cells.size(), 0.0625);
    }
    plan.gradientWire = GradientWire(seed % kGradientWireNames.size());
    std::string text = writePlan(plan, summary);
    auto again = readPlan(text, summary);
    ASSERT_FALSE(again.failed()) << again.message() << "\n" << text;
    EXPECT_EQ(validatePlan(*again, summary).message(), "");
    EXPECT_EQ(writePlan(*again, summary), text);
    EXPECT_EQ(again->gradientWire, plan.gradientWire);
    EXPECT_EQ(text.find("gradient_wire") == std::string::npos,
              plan.gradientWire == GradientWire::Unrounded);
  }
}

TEST(PlanText, GradientWire) {
  EXPECT_MISTAKE(withCells(kWhole, R"(, "gradient_wire": "f16")"),
                 "gradient_wire: expects bf16 (in sums between nodes), bf16:sites (in sums between "
                 "sites) or f32 (off), got 'f16': gradients overflow in f16");
  EXPECT_MISTAKE(withCells(kWhole, R"(, "gradient_wire": true)"), "gradient_wire: expected");
  auto summary = syntheticModel();
  auto plan = readPlan(withCells(kWhole, R"(, "gradient_wire": "bf16:sites")"), summary);
  ASSERT_FALSE(plan.failed()) << plan.message();
  EXPECT_EQ(validatePlan(*plan, summary).message(), "");
  for (auto &group : *summary.mutable_groups())
    group.set_type(bundle::F64);
  EXPECT_NE(validatePlan(*plan, summary).message().find("rounds f32 gradients"), std::string::npos);
  plan->gradientWire = GradientWire::Unrounded;
  EXPECT_EQ(validatePlan(*plan, summary).message(), "");
}

TEST(PlanText, Limits) {
  EXPECT_MISTAKE(R"({"global_batch_size": 9000000000000000000, "devices": ["a"], "cells": []})",
                 "global_batch_size: expected at most");
  EXPECT_MISTAKE(
      R"({"global_batch_size": 2000000000, "devices": ["a"], "stages": [{"units": [0, 6], "devices": ["a"], "micro_batch_size": 1}]})",
      "use larger micro-batches");
  EXPECT_MISTAKE(
      R"({"global_batch_size": 8, "devices": [{"name": "a", "memory": -1}], "cells": []})",
      "devices[0].memory: expected a number that is not negative");
  EXPECT_MISTAKE(
      R"({"global_batch_size": 8, "devices": ["a"], "stages": [{"units": [0, 6], "devices": [{"device": "a", "share": 1e300}]}]})",
      "from 0 to 1e+30");
  EXPECT_MISTAKE(
      R"({"global_batch_size": 8, "devices": ["a"], "stages": [{"units": [0, 6], "devices": ["a"], "micro_batch_size": 0}]})",
      "expected at least 1, got 0");
}

TEST(PlanText, DeepNestingIsRefused) {
  std::string open(500000, '['), close(500000, ']');
  EXPECT_MISTAKE(open + close, "the plan: expected at most 64 nested lists and objects, got more");
  EXPECT_MISTAKE("// \"\n/* \" */" + open + close, "nested lists and objects");
  EXPECT_MISTAKE(R"({"global_batch_size": )" + open + close + "}", "nested lists and objects");
  EXPECT_MISTAKE(
      R"({"global_batch_size": 8, "devices": ["a"], "stages": [{"units": [0, 6], "devices": ["a"]}], "schedule": )" +
          open + close + "}",
      "nested lists and objects");
  EXPECT_MISTAKE(R"({"global_batch_size": [[[[[[1]]]]]], "comment": "[[[["})",
                 "global_batch_size: expected a whole number, got [[[[[...]]]]]");
}

TEST(PlanText, OwnersAreAtMostTheDevices) {
  EXPECT_MISTAKE(
      R"({"global_batch_size": 8, "devices": ["a"], "stages": [{"units": [0, 6], "devices": ["a"]}], "state": {"groups": [{"group": "*",
                   "owners": [{"device": "a", "fraction": 0.5}, {"device": "a", "fraction": 0.5}]}]}})",
      "lists 2 owners, expected at most one extent for each of the 1 devices");
}

/// Damaged plans are refused or valid, and never cause a crash (run with sanitizers).
TEST(PlanText, DamagedPlans) {
  auto summary = syntheticModel();
  uint64_t state = 1;
  auto next = [&](uint64_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % below;
  };
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::string text = writePlan(randomPlan(summary, 5, 3, seed % 20), summary);
    for (uint64_t edits = 1 + next(3); edits > 0; --edits) {
      size_t at = next(text.size());
      switch (next(4)) {
      case 0:
        text.erase(at, 1 + next(6));
        break;
      case 1:
        text[at] = "0123456789-,[]{}\":.e"[next(20)];
        break;
      case 2:
        text.insert(at, 1, "0123456789-,[]{}\":.e"[next(20)]);
        break;
      default:
        text.resize(text.size() - next(text.size() / 8 + 1));
      }
    }
    auto plan = readPlan(text, summary);
    if (plan.failed()) {
      EXPECT_FALSE(plan.message().empty());
      continue;
    }
    if (Status status = validatePlan(*plan, summary); status.failed()) {
      EXPECT_FALSE(status.message().empty());
      continue;
    }
    (void)lowerPlan(summary, *plan);
  }
}

TEST(Summary, ContradictionsAreRefused) {
  Plan plan;
  std::string error;
  auto refused = [&](auto damage) {
    auto summary = syntheticModel();
    plan = randomPlan(summary, 4, 2, 1);
    damage(summary);
    error = lowerPlan(summary, plan).message();
    return error.find("the model summary contradicts itself") == 0;
  };
  EXPECT_TRUE(refused([](auto &s) { s.mutable_units(1)->add_parameters(999); })) << error;
  EXPECT_TRUE(refused([](auto &s) {
    s.mutable_units(1)->add_parameters(s.units(1).parameters(0));
  })) << error;
  EXPECT_TRUE(refused([](auto &s) { s.mutable_parameters(0)->set_group(77); })) << error;
  EXPECT_TRUE(refused([](auto &s) { s.mutable_parameters(0)->set_offset(1000); })) << error;
  EXPECT_TRUE(refused([](auto &s) { s.mutable_values(0)->set_producer(5); })) << error;
  EXPECT_TRUE(refused([](auto &s) { s.mutable_values(0)->add_users(3); })) << error;
  EXPECT_TRUE(refused([](auto &s) {
    s.mutable_units(0)->set_class_id(uint32_t(s.classes_size()));
  })) << error;
  EXPECT_TRUE(refused([](auto &s) { s.mutable_classes(0)->mutable_saved_bytes()->set_fixed(-5); }))
      << error;
}

/// Functions of all tasks are checked. Without the check, a cost of NaN stopped the simulated
/// clock, and a negative cost of recomputation shortened steps.
TEST(Summary, FunctionsAreChecked) {
  using Function = bundle::UnitFunction;
  std::string error;
  auto refused = [&](auto damage) {
    auto summary = syntheticModel();
    Plan plan = randomPlan(summary, 4, 2, 1);
    damage(summary);
    error = lowerPlan(summary, plan).message();
    return error.find("the model summary contradicts itself") == 0;
  };
  for (auto task : {Function::FORWARD, Function::BACKWARD, Function::INPUT_GRADIENTS,
                    Function::WEIGHT_GRADIENTS, Function::RECOMPUTE}) {
    auto damaged = [&](auto damage) {
      return refused([&](auto &s) { damage(s, test::mutableFunction(s, 1, task)); });
    };
    ASSERT_TRUE(findFunction(syntheticModel().classes(1), task));
    for (double cost : {-1.0, double(NAN), double(INFINITY), 1e300}) {
      EXPECT_TRUE(damaged([&](auto &, auto &f) { f.set_flops_per_row(cost); })) << cost;
      EXPECT_NE(error.find("function 'class1."), std::string::npos) << error;
      EXPECT_TRUE(damaged([&](auto &, auto &f) { f.set_bytes_per_row(cost); })) << cost;
    }
    EXPECT_TRUE(damaged([&](auto &, auto &f) { f.mutable_workspace()->set_per_row(-1); })) << error;
    EXPECT_TRUE(damaged([&](auto &s, auto &f) {
      *test::mutableClass(s, 1).add_functions() = Function(f);
    })) << error; // twice
    EXPECT_TRUE(damaged([&](auto &, auto &f) { f.set_task(Function::Task(77)); })) << error;
    EXPECT_TRUE(damaged([&](auto &, auto &f) { f.set_task(Function::TASK_UNSPECIFIED); })) << error;

    auto worked = [&](auto damage) {
      return damaged([&](auto &s, auto &f) {
        s.add_gpu_targets("sm_80");
        damage(f, *f.add_costs());
      });
    };
    EXPECT_FALSE(worked([](auto &, auto &) {})) << error;
    EXPECT_TRUE(worked([](auto &f, auto &) { f.add_costs(); })) << error;
    for (double cost : {-1.0, double(NAN), double(INFINITY)})
      EXPECT_TRUE(worked([&](auto &, auto &work) { work.set_attention_flops_per_row(cost); }))
          << error;
    EXPECT_TRUE(worked([](auto &, auto &work) { work.mutable_bytes()->set_fixed(-1); })) << error;
    EXPECT_TRUE(worked([](auto &, auto &work) {
      work.add_matmuls()->mutable_m()->set_per_row(-1);
    })) << error;
  }
}

TEST(Deal, SplitInProportion) {
  EXPECT_EQ(apportion(10, {1, 1, 1}), (std::vector<int64_t>{4, 3, 3}));
  EXPECT_EQ(apportion(1, {1, 5}), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(apportion(7, {0, 2, 0}), (std::vector<int64_t>{0, 7, 0}));
  EXPECT_EQ(apportion(0, {1}), (std::vector<int64_t>{0}));
}

} // namespace
