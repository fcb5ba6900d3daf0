// Construction and changes of the parts of strategies.

#include "Stages.h"

#include "DealDevices.h"

#include "Candidates.h"

#include <algorithm>
#include <map>

using namespace zorse;
using namespace zorse::planning;

Stage zorse::planning::makeStage(const StageModel &model, const std::vector<uint32_t> &devices,
                                 int32_t unitBegin, int32_t unitEnd, int64_t samples, size_t rows) {
  Stage stage;
  stage.unitBegin = unitBegin;
  stage.unitEnd = unitEnd;
  std::vector<double> seconds;
  for (uint32_t d : devices)
    seconds.push_back(model.cell(model.deviceTypeOf(d), rows, unitBegin, unitEnd));
  std::vector<int64_t> shares = shareSamples(samples, model.rows()[rows], seconds);
  for (size_t i = 0; i < devices.size(); ++i)
    if (shares[i] > 0)
      stage.members.push_back({devices[i], shares[i], model.rows()[rows]});
  return stage;
}

Pipeline zorse::planning::makePipeline(const StageModel &model,
                                       const std::vector<DeviceSet> &deviceSets,
                                       const Partition &partition, int64_t samples) {
  Pipeline pipeline;
  pipeline.samples = samples;
  for (const PartitionStage &stage : partition.stages) {
    std::vector<uint32_t> devices;
    for (size_t i = stage.deviceSetBegin; i < stage.deviceSetEnd; ++i)
      devices.insert(devices.end(), deviceSets[i].devices.begin(), deviceSets[i].devices.end());
    pipeline.stages.push_back(
        makeStage(model, devices, stage.unitBegin, stage.unitEnd, samples, stage.rows));
  }
  return pipeline;
}

std::vector<uint32_t> zorse::planning::devicesOf(const Stage &stage) {
  std::vector<uint32_t> devices;
  devices.reserve(stage.members.size());
  for (const step::StageDevice &member : stage.members)
    devices.push_back(member.device);
  return devices;
}

std::vector<DeviceSet> zorse::planning::groupsOf(const Pipeline &pipeline) {
  std::vector<DeviceSet> groups;
  for (const Stage &stage : pipeline.stages) {
    groups.push_back({devicesOf(stage)});
    std::sort(groups.back().devices.begin(), groups.back().devices.end());
  }
  return groups;
}

size_t zorse::planning::rowsOf(const StageModel &model, const Stage &stage) {
  int64_t rows = 1;
  for (const step::StageDevice &member : stage.members)
    rows = std::max(rows, member.microBatchSize);
  const auto &choices = model.rows();
  return std::min(
      static_cast<size_t>(std::lower_bound(choices.begin(), choices.end(), rows) - choices.begin()),
      choices.size() - 1);
}

bool zorse::planning::shareAgain(const StageModel &model, Stage &stage, int64_t samples) {
  stage = makeStage(model, devicesOf(stage), stage.unitBegin, stage.unitEnd, samples,
                    rowsOf(model, stage));
  return !stage.members.empty();
}

bool zorse::planning::giveSamples(const StageModel &model, Pipeline &pipeline, int64_t by) {
  pipeline.samples += by;
  return pipeline.samples > 0 &&
         std::all_of(pipeline.stages.begin(), pipeline.stages.end(),
                     [&](Stage &stage) { return shareAgain(model, stage, pipeline.samples); });
}

bool zorse::planning::cutAgain(StagePartitioner &partitioner, const StageModel &model,
                               std::vector<DeviceSet> groups, size_t p, Candidate &candidate) {
  groups.erase(std::remove_if(groups.begin(), groups.end(),
                              [](const DeviceSet &deviceSet) { return deviceSet.devices.empty(); }),
               groups.end());
  if (groups.empty() || static_cast<int32_t>(groups.size()) > model.units())
    return false;
  Pipeline &pipeline = candidate.strategy.pipelines[p];
  PartitionOptions options;
  options.samples = pipeline.samples;
  options.replicas = static_cast<uint32_t>(candidate.strategy.pipelines.size());
  std::vector<std::vector<uint32_t>> sets;
  sets.reserve(candidate.strategy.pipelines.size());
  for (const Pipeline &replica : candidate.strategy.pipelines)
    sets.push_back(replica.stages.empty() ? std::vector<uint32_t>()
                                          : devicesOf(replica.stages.front()));
  options.replicasOnNode = replicasOnNode(model, sets);
  options.maxDeviceSets = 1;
  options.mayLeaveOut = false;
  options.split = candidate.strategy.schedule.splitBackward;
  options.inFlight = candidate.inFlight;
  Partition partition = partitioner.solve(groups, options);
  if (partition.stages.empty() && options.inFlight > 0.6) {
    candidate.inFlight = options.inFlight = options.inFlight / 2;
    partition = partitioner.solve(groups, options);
  }
  if (partition.stages.empty())
    return false;
  pipeline = makePipeline(model, groups, partition, pipeline.samples);
  candidate.estimate = partition.time;
  return true;
}

bool zorse::planning::areAlike(const StageModel &model, const Strategy &strategy) {
  const Pipeline &first = strategy.pipelines.front();
  for (const Pipeline &pipeline : strategy.pipelines) {
    if (pipeline.samples != first.samples || pipeline.stages.size() != first.stages.size())
      return false;
    for (size_t s = 0; s < first.stages.size(); ++s) {
      const Stage &a = first.stages[s], &b = pipeline.stages[s];
      if (a.unitBegin != b.unitBegin || a.unitEnd != b.unitEnd ||
          a.members.size() != b.members.size())
        return false;
      for (size_t m = 0; m < a.members.size(); ++m)
        if (model.deviceTypeOf(a.members[m].device) != model.deviceTypeOf(b.members[m].device))
          return false;
    }
  }
  return true;
}

bool zorse::planning::mirror(const Strategy &before, Strategy &strategy, size_t changed) {
  std::map<uint32_t, std::pair<size_t, size_t>> place; // stage, member
  for (size_t s = 0; s < before.pipelines[changed].stages.size(); ++s)
    for (size_t m = 0; m < before.pipelines[changed].stages[s].members.size(); ++m)
      place[before.pipelines[changed].stages[s].members[m].device] = {s, m};
  for (size_t q = 0; q < strategy.pipelines.size(); ++q) {
    if (q == changed)
      continue;
    strategy.pipelines[q] = strategy.pipelines[changed];
    for (Stage &stage : strategy.pipelines[q].stages)
      for (step::StageDevice &member : stage.members) {
        auto it = place.find(member.device);
        if (it == place.end())
          return false;
        member.device =
            before.pipelines[q].stages[it->second.first].members[it->second.second].device;
      }
  }
  return true;
}
