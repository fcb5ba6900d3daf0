// Tests cells of one chunk that read different state: the backward of a cell that recomputes reads
// parameters that only the forwards of other cells read.
#include "ProgramCases.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::test;

namespace {

/// A model in which the backward of the first unit does not read its parameters, as for an
/// embedding.
SyntheticModel modelWithEmbedding() {
  SyntheticOptions options;
  options.tied = false;
  SyntheticModel model = makeModel(options);
  for (bundle::CompiledFunction &function : *model.functions.mutable_functions())
    if (function.name().find(model.summary.units(0).name() + ".backward") == 0) {
      auto &arguments = *function.mutable_arguments();
      arguments.erase(std::remove_if(arguments.begin(), arguments.end(),
                                     [](const bundle::FunctionArgument &argument) {
                                       return argument.kind() == bundle::PARAMETER;
                                     }),
                      arguments.end());
    }
  return model;
}

/// A plan with one stage and one micro-batch per item of `activations`, assigned to the devices
/// round-robin. Parameters are on hosts and are gathered by phase.
std::string oneStage(const std::vector<const char *> &activations, int devices,
                     const std::string &schedule, bool split) {
  std::string cells, names;
  for (size_t c = 0; c < activations.size(); ++c)
    cells += std::string(c ? ", " : "") + R"({"units": [0, 4], "samples": [)" +
             std::to_string(2 * c) + ", " + std::to_string(2 * c + 2) + R"(], "device": "d)" +
             std::to_string(c % static_cast<size_t>(devices)) + R"(", "activations": ")" +
             activations[c] + "\"}";
  for (int d = 0; d < devices; ++d)
    names += std::string(d ? ", " : "") + "\"d" + std::to_string(d) + "\"";
  return R"({"global_batch_size": )" + std::to_string(2 * activations.size()) +
         R"(, "devices": [)" + names + R"(], "cells": [)" + cells +
         R"(], "offload": [{"parameters": "host", "reshard_after_forward": true}], "schedule": ")" +
         schedule + R"(", "split_backward": )" + (split ? "true" : "false") + "}";
}

TEST(UnlikeCells, OfOneStageRecomputeOrNot) {
  ProgramCase made;
  made.model = modelWithEmbedding();
  for (const std::vector<const char *> &activations :
       std::vector<std::vector<const char *>>{{"keep", "recompute"},
                                              {"recompute", "keep"},
                                              {"keep", "recompute", "offload", "keep"},
                                              {"keep", "keep", "keep", "recompute"}})
    for (int devices : {1, 2})
      for (const char *schedule : {"breadth_first", "1f1b", "gpipe", "steady_state"})
        for (bool split : {false, true}) {
          const std::string json = oneStage(activations, devices, schedule, split);
          auto plan = step::readPlan(json, made.model.summary);
          ASSERT_FALSE(plan.failed()) << plan.message() << json;
          made.plan = *plan;
          made.programs.clear();
          writePrograms(made);
          for (const verify::Finding &finding : check(made, made.programs))
            ADD_FAILURE() << json << ": " << verify::toString(finding, made.view);
          expectTimedAlikeWithoutInstructions(made, json);
        }
}

} // namespace
