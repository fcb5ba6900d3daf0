// Starts for large clusters of equal nodes: the best plan of a fraction of the cluster, with the
// same fraction of the samples, repeated on the rest. A search of the whole cluster cannot simulate
// enough candidates to find such plans; of equal pipelines, only the first is simulated
// (Replicas.h).

#include "Candidates.h"

#include <algorithm>
#include <map>
#include <string>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// The usable devices of nodes that are equal in their links and their devices, and are in the same
/// site or in equal ones.
class EqualNodes {
public:
  /// \param acrossSites  whether nodes of equal sites are equal. A copy can then be a whole site;
  ///                     otherwise it has a part of every site.
  EqualNodes(const SearchContext &context, bool acrossSites) {
    const Problem &problem = context.problem;
    const bundle::Topology &topology = problem.cluster.topology;
    std::vector<std::vector<uint32_t>> devicesOf(problem.cluster.nodes.size());
    for (uint32_t d : context.devices)
      devicesOf[problem.cluster.devices[d].node].push_back(d);
    for (uint32_t n = 0; n < devicesOf.size(); ++n) {
      if (devicesOf[n].empty())
        continue;
      const auto &node = topology.nodes(static_cast<int>(n));
      MemoKey key;
      const auto &site = topology.sites(static_cast<int>(node.site()));
      key.add(acrossSites ? 0 : node.site()).add(problem.cluster.nodes[n].hostMemory);
      for (const bundle::LinkSpec *link :
           {&node.port(), &node.bus(), &node.nic(), &site.fabric(), &site.uplink()})
        key.add(link->bandwidth()).add(link->latency()).add(link->per_flow_bandwidth());
      for (uint32_t d : devicesOf[n])
        key.add(context.model.deviceTypeOf(d)).add(problem.cluster.devices[d].capacity());
      classes[key.text()].push_back(std::move(devicesOf[n]));
    }
  }

  /// Whether every class has equal numbers of nodes for all copies.
  bool divideBy(size_t copies) const {
    return std::all_of(classes.begin(), classes.end(),
                       [&](const auto &one) { return one.second.size() % copies == 0; });
  }

  /// The devices of a copy, in an order that is the same for all copies.
  std::vector<uint32_t> devicesOfCopy(size_t copy, size_t copies) const {
    std::vector<uint32_t> devices;
    for (const auto &[key, nodes] : classes)
      for (size_t i = 0; i < nodes.size() / copies; ++i) {
        const std::vector<uint32_t> &node = nodes[copy * (nodes.size() / copies) + i];
        devices.insert(devices.end(), node.begin(), node.end());
      }
    return devices;
  }

private:
  std::map<std::string, std::vector<std::vector<uint32_t>>> classes; ///< devices of each node
};

/// Searches for a plan of one copy.
std::optional<Strategy> planOf(const SearchContext &context, const std::vector<uint32_t> &devices,
                               size_t copies) {
  Problem part = context.problem;
  part.batch /= int64_t(copies);
  SearchOptions options = context.options;
  options.progress = nullptr;
  options.memoryHints = false;
  options.pipelines = options.pipelines / uint32_t(copies);
  options.candidates = context.effort().copiedCandidates;
  options.wholeUnits = !context.fractionalModel;
  options.starts.clear();
  options.excluded.clear();
  for (uint32_t d = 0; d < part.cluster.devices.size(); ++d)
    if (std::find(devices.begin(), devices.end(), d) == devices.end())
      options.excluded.push_back(d);
  const Result<SearchResult> found = searchInOrder(part, options);
  return found.failed() ? std::nullopt : std::optional(found->strategy);
}

/// Repeats the plan of the first copy.
Strategy repeat(const SearchContext &context, const EqualNodes &nodes, size_t copies,
                const Strategy &one) {
  const std::vector<uint32_t> first = nodes.devicesOfCopy(0, copies);
  std::vector<uint32_t> place(context.problem.cluster.devices.size(), 0);
  for (uint32_t i = 0; i < first.size(); ++i)
    place[first[i]] = i;
  Strategy all = one;
  all.memoryOptimizations = {};
  all.memoryOptimizations.defaultOptimization = one.memoryOptimizations.defaultOptimization;
  all.memoryOptimizations.reshardAfterForward = one.memoryOptimizations.reshardAfterForward;
  all.pipelines.clear();
  for (size_t copy = 0; copy < copies; ++copy) {
    const std::vector<uint32_t> devices = nodes.devicesOfCopy(copy, copies);
    for (Pipeline pipeline : one.pipelines) {
      for (Stage &stage : pipeline.stages)
        for (step::StageDevice &member : stage.members)
          member.device = devices[place[member.device]];
      all.pipelines.push_back(std::move(pipeline));
    }
    for (const auto &[device, optimization] : one.memoryOptimizations.overrides)
      all.memoryOptimizations.set(devices[place[device]], optimization);
  }
  return all;
}

/// Adds the best plans of fractions of one kind, the largest fractions first.
/// \returns whether there are any
bool addCopiesOf(SearchContext &context, const EqualNodes &nodes, std::vector<Candidate> &pool) {
  const SearchEffort effort = context.effort();
  const size_t count = context.devices.size();
  size_t tried = 0;
  for (size_t copies = std::max<size_t>(2, count / effort.copiedMax);
       tried < effort.copiedTries && copies <= count / effort.copiedMin; ++copies) {
    if (!nodes.divideBy(copies) || context.problem.batch % int64_t(copies) != 0 ||
        context.options.pipelines % copies != 0)
      continue;
    ++tried;
    const std::optional<Strategy> one = planOf(context, nodes.devicesOfCopy(0, copies), copies);
    if (!one)
      continue;
    Candidate candidate;
    candidate.strategy = repeat(context, nodes, copies, *one);
    candidate.id = context.nextId();
    pool.push_back(std::move(candidate));
  }
  return tried > 0;
}

} // namespace

void zorse::planning::addSymmetricCopies(SearchContext &context, std::vector<Candidate> &pool) {
  if (context.effort().copiedTries > 0 && !addCopiesOf(context, EqualNodes(context, true), pool))
    addCopiesOf(context, EqualNodes(context, false), pool);
}
