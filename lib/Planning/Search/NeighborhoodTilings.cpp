// Neighbors of the smallest problems: tilings with samples on different paths through the same
// devices.

#include "Neighborhood.h"

using namespace zorse;
using namespace zorse::planning;

/// Returns the pipeline with one stage on another device, two devices swapped, a stage split or
/// merged with the next, or a boundary moved.
std::vector<Pipeline> Neighborhood::variants(const Pipeline &from) const {
  std::vector<Pipeline> list;
  for (size_t s = 0; s < from.stages.size(); ++s) {
    const Stage &stage = from.stages[s];
    for (uint32_t d : context.devices) {
      Pipeline changed = from;
      changed.stages[s].members = {{d, from.samples, stage.members.front().microBatchSize}};
      list.push_back(changed);
      for (int32_t cut = stage.unitBegin + 1; cut < stage.unitEnd; ++cut)
        for (bool front : {false, true}) {
          changed = from;
          changed.stages[s].unitEnd = cut;
          changed.stages.insert(changed.stages.begin() + static_cast<long>(s) + 1, stage);
          changed.stages[s + 1].unitBegin = cut;
          changed.stages[front ? s : s + 1].members = {
              {d, from.samples, stage.members.front().microBatchSize}};
          list.push_back(changed);
        }
    }
    if (s + 1 == from.stages.size())
      continue;
    for (size_t kept : {s, s + 1}) {
      Pipeline changed = from;
      changed.stages[kept].unitBegin = stage.unitBegin;
      changed.stages[kept].unitEnd = from.stages[s + 1].unitEnd;
      changed.stages.erase(changed.stages.begin() + static_cast<long>(kept == s ? s + 1 : s));
      list.push_back(changed);
    }
    for (int32_t cut = stage.unitBegin + 1; cut < from.stages[s + 1].unitEnd; ++cut) {
      Pipeline changed = from;
      changed.stages[s].unitEnd = changed.stages[s + 1].unitBegin = cut;
      list.push_back(changed);
    }
  }
  for (uint32_t a : context.devices)
    for (uint32_t b : context.devices) {
      if (b <= a)
        continue;
      Pipeline changed = from;
      for (Stage &stage : changed.stages)
        for (step::StageDevice &member : stage.members)
          member.device = member.device == a ? b : member.device == b ? a : member.device;
      list.push_back(changed);
    }
  return list;
}

/// Divides samples among pipelines that may share devices, with any stage boundaries and any
/// devices for each.
void Neighborhood::tilings() {
  const Strategy &from = now->strategy;
  for (size_t p = 0; p < from.pipelines.size(); ++p) {
    const Pipeline &pipeline = from.pipelines[p];
    for (Pipeline &changed : variants(pipeline)) {
      Strategy strategy = from;
      strategy.pipelines[p] = std::move(changed);
      offer(strategy);
    }
    for (int64_t n = 1; n < pipeline.samples && !enough; ++n) {
      Pipeline rest = pipeline, part = pipeline;
      if (!giveSamples(*model, rest, -n) || !giveSamples(*model, part, n - pipeline.samples))
        continue;
      Strategy strategy = from;
      strategy.pipelines[p] = rest;
      for (Pipeline &changed : variants(part)) {
        Strategy divided = strategy;
        divided.pipelines.insert(divided.pipelines.begin() + static_cast<long>(p) + 1,
                                 std::move(changed));
        offer(divided);
      }
    }
    for (size_t q = 0; q < from.pipelines.size(); ++q) {
      Strategy strategy = from;
      if (q == p || !giveSamples(*model, strategy.pipelines[p], from.pipelines[q].samples))
        continue;
      strategy.pipelines.erase(strategy.pipelines.begin() + static_cast<long>(q));
      offer(strategy);
    }
  }
}
