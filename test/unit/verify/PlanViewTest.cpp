// Tests the verifier's reader of plans: accepted plans and error messages.
#include "zorse/Verify/PlanView.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

using namespace zorse;

TEST(Plans, AreRead) {
  auto plan = verify::readPlanView(
      R"({"global_batch_size": 4, "devices": [{"name": "a", "memory": 100}, {"name": "b"}],
    "cells": [{"units": [0, 2], "samples": [0, 4], "device": "a"}, {"units": [2, 3], "samples": [0, 4], "device": 1}],
    "state": {"groups": [{"group": 3, "owners": [{"device": "b", "elements": [0, 256]}, {"device": "a", "fraction": 0}]}]}})");
  ASSERT_FALSE(plan.failed()) << plan.message();
  EXPECT_EQ(plan->devices[0].memoryBytes, 100);
  EXPECT_EQ(plan->cells[1].device, 1u);
  ASSERT_EQ(plan->owners.size(), 2u);
  EXPECT_EQ(plan->owners[0].end, 256);
  EXPECT_FALSE(plan->splitBackward);
  plan = verify::readPlanView(
      R"({"global_batch_size": 1, "devices": ["a"], "cells": [], "split_backward": true})");
  EXPECT_TRUE(!plan.failed() && plan->splitBackward) << plan.message();
  for (
      const char *bad :
      {"", "[]", "{", R"({"global_batch_size": 1})",
       R"({"global_batch_size": "x", "devices": [], "cells": []})",
       R"({"global_batch_size": 1, "devices": ["a", "a"], "cells": []})",
       R"({"global_batch_size": 1, "devices": ["a"], "cells": [], "split_backward": 1})",
       R"({"global_batch_size": 1, "devices": ["a"], "cells": [{"units": [0], "samples": [0, 1], "device": "a"}]})",
       R"({"global_batch_size": 1, "devices": ["a"], "cells": [{"units": [0, 1], "samples": [0, 1], "device": "c"}]})"}) {
    plan = verify::readPlanView(bad);
    EXPECT_TRUE(plan.failed()) << bad;
    EXPECT_FALSE(plan.message().empty()) << bad;
  }
}

/// Messages contain the position, the expected and the found value. If a key is repeated, the last
/// one applies, as in lib/Step.
TEST(Plans, CellsAreReadOrRefused) {
  auto read = [&](const std::string &cells, const std::string &rest = "") {
    auto plan = verify::readPlanView(
        R"({"note": {"cells": [1, {"units": "none"}]}, "cells": )" + cells +
        R"(, "global_batch_size": 4, "devices": ["a", {"name": "b"}])" + rest + "}");
    std::string text = plan.message();
    for (const auto &c : plan.failed() ? std::vector<verify::PlanView::Cell>() : plan->cells)
      text += std::to_string(c.firstUnit) + "-" + std::to_string(c.endUnit) + " x " +
              std::to_string(c.firstSample) + "-" + std::to_string(c.endSample) + " on " +
              std::to_string(c.device) + "; ";
    return text;
  };
  const std::string expected = "0-2 x 0-4 on 0; 2-3 x -1-4 on 1; ";
  EXPECT_EQ(
      read(
          R"([{"units": [0, 2], "samples": [0, 4], "device": "a"}, {"device": 1, "samples": [-1, 4], "units": [2, 3]}])"),
      expected);
  EXPECT_EQ(
      read(
          R"([{"units": [0, 2], "samples": [0, 4], "device": "a", "note": [{}]}, {"device": 1, "samples": [-1, 4], "units": [2, 3]}])"),
      expected);
  EXPECT_EQ(
      read(
          R"([{"units": [7, 8], "units": [0, 2], "samples": [0, 4], "device": "a"}, {"device": "b", "samples": [-1, 4], "units": [2, 3]}])"),
      expected);
  EXPECT_EQ(read(R"([{"units": [7, 8], "samples": [0, 4], "device": "a"}])", R"(, "cells": [])"),
            "");
  EXPECT_EQ(read(R"([])", R"(, "cells": 3)"), "cells: expected an array, got 3");
  EXPECT_EQ(read(R"([{"units": [0, 2], "samples": [0, 4], "device": "c"}])"),
            "cells[0].device: expected one of \"devices\", got \"c\"");
  EXPECT_EQ(read(R"([{"units": [0, 2], "samples": [0, 4], "device": 2}])"),
            "cells[0].device: expected a whole number from 0 to 1, got 2");
  EXPECT_EQ(read(R"([{"units": [0, 2], "samples": [0, 4, 5], "device": 0}])"),
            "cells[0].samples: expected [begin, end], got [0,4,5]");
  EXPECT_EQ(read(R"([{"units": [0, 2], "samples": [0, 1.5], "device": 0}])"),
            "cells[0].samples[1]: expected a whole number, got 1.5");
  EXPECT_EQ(read(R"([{"units": [0, 2], "device": 0}])"),
            R"(cells[0]: expected units, samples and device, got {"device":0,"units":[0,2]})");
  EXPECT_EQ(read(R"([[]])"), "cells[0]: expected units, samples and device, got []");
  EXPECT_EQ(read("[]", R"(, "activations": "drop")"),
            R"(activations: expected "keep", "recompute" or "offload", got "drop")");
  EXPECT_EQ(
      read(
          "[]",
          R"(, "state": {"groups": [{"group": 0, "owners": []}, {"group": 1, "owners": [{"device": 0}, {"device": "c"}]}]})"),
      R"(state.groups[1].owners[1].device: expected one of "devices", got "c")");
  EXPECT_EQ(read("[]", R"(, "offload": [{"optimizer_states": "disk"}])"),
            R"(offload[0].optimizer_states: expected "device" or "host", got "disk")");
  EXPECT_EQ(read("[]", R"(, "offload": [{"groups": [-1]}])"),
            "offload[0].groups[0]: expected a whole number from 0 to 4294967295, got -1");
}

/// Text from other programs may be truncated, continue after its end, or be nested so deeply that a
/// recursive reader overflows its stack.
TEST(Plans, HostileTextIsRefused) {
  auto refuse = [](const std::string &text) {
    const auto plan = verify::readPlanView(text);
    EXPECT_TRUE(plan.failed());
    return plan.message();
  };
  const std::string plan = R"({"global_batch_size": 4, "devices": ["a"], "cells": []})";
  EXPECT_FALSE(verify::readPlanView(plan + " // a comment\n").failed());
  EXPECT_EQ(refuse(plan + " {}"), "line 1, column 57: not valid JSON");
  EXPECT_EQ(refuse(plan.substr(0, plan.size() - 1)), "line 1, column 55: not valid JSON");
  const std::string deep(1000000, '['), ends(1000000, ']');
  EXPECT_NE(refuse(deep), "");
  EXPECT_EQ(refuse(deep + ends),
            "the plan: expected at most 64 nested lists and objects, got more");
  EXPECT_EQ(refuse(R"({"global_batch_size": )" + deep + ends + R"(, "devices": [], "cells": []})"),
            "the plan: expected at most 64 nested lists and objects, got more");
}
