// Strategies near a plan, for a cluster that has lost or gained devices:
//
// - the plan without the lost devices: stages without devices give their units to a neighbor
// - the same with samples divided and units partitioned again
// - lost devices replaced: by equal ones that have joined, by those of the fastest pipelines, or by
//   those of a pipeline that is dissolved; or all damaged pipelines dissolved
// - joined devices in stages of equal devices, as a further stage, or as a further pipeline
// - the same number of pipelines, or one or two more or fewer, with all devices dealt again

#include "Draft.h"
#include "NearPlan.h"

#include "../Search/DealDevices.h"

#include "zorse/Base/Apportion.h"
#include "zorse/Step/Schedules.h"

#include <algorithm>
#include <set>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr uint32_t kLost = UINT32_MAX;

class Repairs {
public:
  /// \param old    devices are those of the search or kLost
  /// \param types  device type per member of the old strategy, in order
  Repairs(SearchContext &context, const Strategy &old, const std::vector<uint32_t> &types)
      : context(context), model(context.model), whole(shrunkFrom(old)) {
    takeDraft(old, types);
    like = whole;
    like.pipelines.clear();
    keepSearchedSchedule(like);
  }

  std::vector<Candidate> run() {
    if (whole.pipelines.empty())
      return std::move(found);
    addShrunk();
    addCut(draft);
    std::vector<Draft> drafts{draft};
    if (!draft.holes.empty())
      drafts = addLosses();
    if (!joined.empty())
      addJoins(drafts);
    addDealtAgain();
    return std::move(found);
  }

private:
  /// Removes lost members. Their samples go to the others of their stage, and the units of a stage
  /// without members to the faster neighbor. \returns no pipelines if nothing is left
  Strategy shrunkFrom(Strategy old) const {
    const StageModel &cutModel = context.modelOf(old);
    std::vector<double> weights;
    for (Pipeline &pipeline : old.pipelines) {
      for (Stage &stage : pipeline.stages)
        stage.members.erase(
            std::remove_if(stage.members.begin(), stage.members.end(),
                           [](const auto &member) { return member.device == kLost; }),
            stage.members.end());
      for (size_t s = 0; s < pipeline.stages.size();)
        if (pipeline.stages[s].members.empty())
          removeStage(pipeline, s);
        else
          ++s;
    }
    old.pipelines.erase(
        std::remove_if(old.pipelines.begin(), old.pipelines.end(),
                       [](const Pipeline &pipeline) { return pipeline.stages.empty(); }),
        old.pipelines.end());
    if (old.pipelines.empty())
      return old;
    // Samples of pipelines without devices are divided among the others.
    weights.reserve(old.pipelines.size());
    for (const Pipeline &pipeline : old.pipelines)
      weights.push_back(static_cast<double>(pipeline.samples));
    const std::vector<int64_t> samples = apportion(context.problem.batch, weights);
    for (size_t p = 0; p < samples.size(); ++p) {
      Pipeline &pipeline = old.pipelines[p];
      for (Stage &stage : pipeline.stages) {
        int64_t sum = 0;
        for (const step::StageDevice &member : stage.members)
          sum += member.samples;
        if (sum != samples[p] && !shareAgain(cutModel, stage, samples[p]))
          return {};
      }
      pipeline.samples = samples[p];
      if (samples[p] == 0)
        return {};
    }
    return old;
  }

  static void removeStage(Pipeline &pipeline, size_t s) {
    auto &stages = pipeline.stages;
    const bool forward = s + 1 < stages.size() && !stages[s + 1].members.empty() &&
                         (s == 0 || stages[s + 1].members.size() > stages[s - 1].members.size());
    if (s > 0 && !forward)
      stages[s - 1].unitEnd = stages[s].unitEnd;
    else if (s + 1 < stages.size())
      stages[s + 1].unitBegin = stages[s].unitBegin;
    stages.erase(stages.begin() + static_cast<long>(s));
  }

  /// Fills `draft`, `joined` and `damaged`. A device of several stages counts in the first.
  void takeDraft(const Strategy &old, const std::vector<uint32_t> &types) {
    std::set<uint32_t> used;
    size_t member = 0;
    for (size_t p = 0; p < old.pipelines.size(); ++p) {
      draft.pipelines.emplace_back();
      for (size_t s = 0; s < old.pipelines[p].stages.size(); ++s) {
        DeviceSet group;
        for (const step::StageDevice &of : old.pipelines[p].stages[s].members) {
          const uint32_t type = types[member++];
          if (of.device == kLost)
            draft.holes.push_back({p, s, type});
          else if (used.insert(of.device).second)
            group.devices.push_back(of.device);
        }
        std::sort(group.devices.begin(), group.devices.end());
        draft.pipelines.back().push_back(std::move(group));
      }
    }
    for (uint32_t d : context.devices)
      if (!used.count(d))
        joined.push_back(d);
  }

  /// The walks vary only schedules that the search chooses.
  void keepSearchedSchedule(Strategy &strategy) const {
    const std::vector<step::Schedule> choices = scheduleChoices(context, false);
    if (std::any_of(choices.begin(), choices.end(), [&](const step::Schedule &schedule) {
          return schedule.kind == strategy.schedule.kind &&
                 schedule.splitBackward == strategy.schedule.splitBackward;
        })) {
      strategy.schedule.warmupForwards.clear(); // per device of the old plan
      return;
    }
    if (!choices.empty())
      strategy.schedule = choices.front();
  }

  void addShrunk() {
    Candidate candidate;
    candidate.strategy = whole;
    if (whole.schedule.kind == step::ScheduleKind::Explicit || !isSearched(whole.schedule.kind))
      keepSearchedSchedule(candidate.strategy);
    candidate.strategy.schedule.warmupForwards.clear();
    candidate.id = context.nextId();
    found.push_back(std::move(candidate));
  }

  bool isSearched(step::ScheduleKind kind) const {
    const auto &kinds = searchedSchedules();
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  }

  void addCut(const Draft &changed) {
    if (found.size() >= context.effort().repairs)
      return;
    if (std::optional<Candidate> candidate = cut(context, changed, like))
      found.push_back(std::move(*candidate));
    if (like.boundaryDenominator == 1)
      return;
    Strategy wholeUnits = like;
    wholeUnits.boundaryDenominator = 1;
    wholeUnits.samplesPerVariant = 1;
    if (std::optional<Candidate> candidate = cut(context, changed, wholeUnits))
      found.push_back(std::move(*candidate));
  }

  /// Adds drafts in which lost devices are replaced or their pipelines are dissolved, and returns
  /// them.
  std::vector<Draft> addLosses() {
    std::vector<Draft> drafts{draft};
    std::vector<size_t> lost(draft.pipelines.size(), 0);
    for (const Hole &hole : draft.holes)
      ++lost[hole.pipeline];
    Draft moved = draft;
    if (draft.pipelines.size() > 1 && fillFromFastest(model, moved))
      drafts.push_back(std::move(moved));
    // A pipeline that has lost most, or the last one, is dissolved and repairs the others.
    const auto most =
        static_cast<size_t>(std::max_element(lost.begin(), lost.end()) - lost.begin());
    for (size_t victim : std::set<size_t>{most, draft.pipelines.size() - 1}) {
      Draft repaired = draft;
      const std::vector<uint32_t> freed = dissolve(victim, repaired);
      if (repaired.pipelines.empty())
        continue;
      const std::vector<uint32_t> rest = fillHoles(model, freed, repaired);
      spread(model, rest, repaired);
      drafts.push_back(std::move(repaired));
    }
    Draft without = draft;
    std::vector<uint32_t> freed;
    for (size_t p = lost.size(); p-- > 0;)
      if (lost[p] > 0 && without.pipelines.size() > 1) {
        const std::vector<uint32_t> more = dissolve(p, without);
        freed.insert(freed.end(), more.begin(), more.end());
      }
    if (!without.pipelines.empty()) {
      std::sort(freed.begin(), freed.end());
      spread(model, freed, without);
      drafts.push_back(std::move(without));
    }
    for (size_t i = 1; i < drafts.size(); ++i)
      addCut(drafts[i]);
    return drafts;
  }

  void addJoins(const std::vector<Draft> &drafts) {
    Draft filled = draft;
    const std::vector<uint32_t> rest = fillHoles(model, joined, filled);
    if (rest.size() < joined.size()) {
      addCut(filled);
      addTogether(filled, rest);
    }
    for (const Draft &base : drafts)
      addTogether(base, joined);
  }

  /// Adds devices that no hole needs.
  void addTogether(const Draft &base, const std::vector<uint32_t> &devices) {
    if (devices.empty())
      return;
    Draft more = base;
    spread(model, devices, more);
    addCut(more);
    if (std::optional<Draft> equal = withEqualPipeline(model, devices, base))
      addCut(*equal);
    for (StagePlace place : {StagePlace::Beside, StagePlace::Back, StagePlace::Front})
      if (std::optional<Draft> longer = withFurtherStage(model, devices, place, base))
        addCut(*longer);
    // A pipeline with a stage per node.
    Draft further = base;
    further.pipelines.emplace_back();
    std::vector<uint32_t> nodes;
    for (uint32_t d : devices) {
      if (nodes.empty() || nodes.back() != model.nodeOf(d)) {
        nodes.push_back(model.nodeOf(d));
        further.pipelines.back().emplace_back();
      }
      further.pipelines.back().back().devices.push_back(d);
    }
    addCut(further);
  }

  /// Deals all devices again, in about the same number of pipelines.
  void addDealtAgain() {
    if (context.options.pipelines > 0 || context.options.stages > 0)
      return;
    const auto now = static_cast<int64_t>(draft.pipelines.size());
    const auto most =
        std::min<int64_t>(static_cast<int64_t>(context.devices.size()), context.problem.batch);
    for (int64_t count : {now, now - 1, now + 1, now - 2, now + 2}) {
      if (count < 2 || count > most)
        continue;
      const auto copies = static_cast<uint32_t>(count);
      std::vector<std::vector<uint32_t>> sets;
      for (Dealing dealing : {Dealing::WholeNodes, Dealing::AcrossNodes})
        if (sets.empty())
          sets = dealCopies(model, context.devices, copies, dealing);
      if (sets.empty())
        sets = dealBySpeed(model, context.devices, copies);
      for (Candidate &candidate : solutionsFor(context, sets)) {
        if (found.size() >= context.effort().repairs)
          return;
        const Strategy partitioned = std::move(candidate.strategy);
        candidate.strategy = like;
        candidate.strategy.pipelines = partitioned.pipelines;
        candidate.strategy.boundaryDenominator = partitioned.boundaryDenominator;
        candidate.strategy.samplesPerVariant = partitioned.samplesPerVariant;
        found.push_back(std::move(candidate));
      }
    }
  }

  SearchContext &context;
  const StageModel &model;
  const Strategy whole; ///< without lost devices
  Strategy like;        ///< its properties other than pipelines
  Draft draft;
  std::vector<uint32_t> joined;
  std::vector<Candidate> found;
};

} // namespace

std::vector<Candidate> NearPlan::repairs(SearchContext &context) const {
  const Cluster &cluster = context.problem.cluster;
  if (!read || (read->boundaryDenominator > 1 && !context.fractionalModel))
    return {};
  const std::vector<uint32_t> old = oldIndices(cluster);
  std::vector<uint32_t> now(plan.devices.size(), kLost);
  for (uint32_t d : context.devices)
    if (old[d] != kNew)
      now[old[d]] = d;
  // Equal devices have equal speed and memory in the plan.
  const std::vector<step::PlanDevice> described =
      planDevices(cluster, productType(context.problem.summary));
  auto typeOf = [&](uint32_t device) {
    if (now[device] != kLost)
      return context.model.deviceTypeOf(now[device]);
    const step::PlanDevice &lost = plan.devices[device];
    for (uint32_t d : context.devices)
      if (described[d].flopsPerSecond == lost.flopsPerSecond && described[d].memory == lost.memory)
        return context.model.deviceTypeOf(d);
    return kLost;
  };
  Strategy strategy = *read;
  std::vector<uint32_t> types;
  for (Pipeline &pipeline : strategy.pipelines)
    for (Stage &stage : pipeline.stages)
      for (step::StageDevice &member : stage.members) {
        types.push_back(typeOf(member.device));
        member.device = now[member.device];
      }
  MemoryOptimizations optimizations = read->memoryOptimizations;
  optimizations.overrides.clear();
  for (uint32_t d = 0; d < now.size(); ++d)
    if (now[d] != kLost)
      optimizations.set(now[d], read->memoryOptimizations.of(d));
  strategy.memoryOptimizations = std::move(optimizations);
  return Repairs(context, strategy, types).run();
}
