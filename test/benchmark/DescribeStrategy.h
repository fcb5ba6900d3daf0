// Describes a layout in one line per pipeline: units, rows and devices of each stage, the busiest
// device's fraction of the step, and the fullest device's fraction of its memory.
#pragma once

#include "zorse/Planning/Strategy.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace zorse::planning {

/// \param busy    seconds of compute per device
/// \param memory  bytes per device
inline std::string describeStrategy(const Problem &problem, const Strategy &strategy, double step,
                                    const std::vector<double> &busy,
                                    const std::vector<uint64_t> &memory) {
  std::string text;
  for (const Pipeline &pipeline : strategy.pipelines) {
    text += "    " + std::to_string(pipeline.samples) + " samples:";
    for (const Stage &stage : pipeline.stages) {
      std::map<std::string, int> types;
      std::map<uint32_t, int> nodes;
      double busiest = 0, fullest = 0;
      for (const step::StageDevice &member : stage.members) {
        const ClusterDevice &device = problem.cluster.devices[member.device];
        ++types[device.type];
        ++nodes[device.node];
        busiest = std::max(busiest, busy[member.device]);
        fullest = std::max(fullest, static_cast<double>(memory[member.device]) /
                                        static_cast<double>(std::max<uint64_t>(1, device.memory)));
      }
      char line[120];
      text += " [" + std::to_string(stage.unitEnd - stage.unitBegin) + "u r" +
              std::to_string(stage.members.front().microBatchSize);
      for (auto &[type, count] : types)
        text += " " + std::to_string(count) + type;
      std::snprintf(line, sizeof line, " on %zu busy %.3f mem %.2f]", nodes.size(), busiest / step,
                    fullest);
      text += line;
    }
    text += "\n";
  }
  return text;
}

} // namespace zorse::planning
