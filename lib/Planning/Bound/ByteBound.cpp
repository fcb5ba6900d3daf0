// The lower bound of byteBound: what network cards of nodes and uplinks of sites carry limits what
// is computed behind them.
//
// In T seconds a card carries Y = bandwidth * T bytes in each direction. A unit that the node
// computes for some samples but not for all costs half of the bytes of its parameters and gradients
// per direction, for any owner: one of both passes in, the other out. If the node leaves some unit
// out, the activations of its m samples and their gradients cross its border: a bytes per sample
// and direction at the thinnest cut. With the prices of the linear program as the value of a unit's
// run, the node therefore does at most the larger of
// - m * W(Y - a * m) for the best m, where W(y) is the value of one sample of the units whose
//   parameters cost at most y bytes, and
// - what its devices can do, if Y carries all parameters, or a times the samples beyond their
// reach. The same holds for a site and its uplink, over the sum of its nodes. The bound is the
// shortest T in which all nodes together do all of the work.
#include "UnitKinds.h"

#include "../Layout/UnitTables.h"

#include "zorse/Planning/LowerBound.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Work is counted in prices of the linear program, with which devices compute at most 1 a second
/// each and all of the work takes the linear program's time.
struct WorkBytes {
  /// Units by price per byte of their parameters, the most expensive first: sums over the first
  /// ones. `bytes` is that of one direction.
  std::vector<double> bytes{0}, work{0};
  double freeWork = 0; ///< of all samples of units without parameters
  double border = 0;   ///< bytes of a sample in one direction at the thinnest cut
  double samples = 0;  ///< of a step
  double total = 0;    ///< work of a step

  /// The most work on all samples of units with at most `budget` bytes of parameters.
  double workWithin(double budget) const {
    const auto after = std::upper_bound(bytes.begin(), bytes.end(), budget);
    if (after == bytes.end())
      return freeWork + work.back();
    const size_t i = static_cast<size_t>(after - bytes.begin());
    const double part = (budget - bytes[i - 1]) / (bytes[i] - bytes[i - 1]);
    return freeWork + work[i - 1] + part * (work[i] - work[i - 1]);
  }
};

/// The bytes of a unit's parameters that no other unit reads, in one direction: for any owner of
/// an element, the parameter passes in one direction and the gradient in the other.
/// \param rounds  gradients may travel as bf16
double parameterBytes(const UnitTables &tables, const std::vector<int> &readers, int32_t unit,
                      bool rounds) {
  double bytes = 0;
  for (uint32_t g : tables.groupsOfUnit(unit)) {
    const GroupTable &group = tables.groups()[g];
    if (group.trainable && readers[g] == 1)
      bytes += static_cast<double>(group.elements) *
               static_cast<double>(group.computeSize +
                                   (rounds ? elementBytes(bundle::BF16) : group.elementSize)) /
               2;
  }
  return bytes;
}

/// The bytes of a sample in one direction between adjacent units of which a node computes only one:
/// of values that the second one reads from the first, and of their gradients.
double thinnestCut(const bundle::ModelSummary &summary) {
  std::vector<double> bytes(static_cast<size_t>(summary.units_size()), 0);
  for (const bundle::ValueInfo &value : summary.values())
    if (std::find(value.users().begin(), value.users().end(), value.producer() + 1) !=
        value.users().end())
      bytes[value.producer()] += static_cast<double>(value.bytes_per_row()) *
                                 (value.needs_gradient() ? 2 : 1) / 2;
  bytes.pop_back();
  return bytes.empty() ? 0 : *std::min_element(bytes.begin(), bytes.end());
}

WorkBytes workBytesOf(const Problem &problem, const Kinds &kinds,
                      const std::vector<double> &prices) {
  const UnitTables tables(problem.summary);
  std::vector<int> readers(tables.groups().size(), 0);
  for (int32_t u = 0; u < tables.units(); ++u)
    for (uint32_t g : tables.groupsOfUnit(u))
      ++readers[g];
  const bool rounds = problem.gradientWire != step::GradientWire::Unrounded;
  WorkBytes made;
  made.samples = static_cast<double>(problem.batch);
  made.border = thinnestCut(problem.summary);
  std::vector<std::pair<double, double>> units; // bytes, work
  for (int32_t u = 0; u < tables.units(); ++u) {
    const double work = prices[kinds.of[static_cast<size_t>(u)]] * made.samples,
                 bytes = parameterBytes(tables, readers, u, rounds);
    made.total += work;
    if (bytes > 0)
      units.emplace_back(bytes, work);
    else
      made.freeWork += work;
  }
  std::sort(units.begin(), units.end(),
            [](const auto &a, const auto &b) { return a.second * b.first > b.second * a.first; });
  for (const auto &[bytes, work] : units) {
    made.bytes.push_back(made.bytes.back() + bytes);
    made.work.push_back(made.work.back() + work);
  }
  return made;
}

/// The most work that a node or site does whose link carries `budget` bytes in one direction, and
/// whose devices can do at most `reach`.
double workBehindLink(const WorkBytes &model, double budget, double reach) {
  reach = std::min(reach, model.total);
  // If it computes a part of every unit, all parameters cross the link; if it computes some unit
  // for all samples and another one for fewer, the activations of the difference do, and on average
  // it has no more samples than its reach.
  if (budget >= model.bytes.back() ||
      budget >= model.border * model.samples * (1 - reach / model.total))
    return reach;
  // Otherwise it computes at most m samples of some units, with bytes for m borders and for their
  // parameters. The work is log-concave in m.
  auto with = [&](double m) {
    return m / model.samples * model.workWithin(budget - m * model.border);
  };
  double low = 0, high = std::min(model.samples, budget / model.border);
  for (int i = 0; i < 100; ++i) {
    const double third = (high - low) / 3;
    if (with(low + third) < with(high - third))
      low += third;
    else
      high -= third;
  }
  return std::min(reach, with(high));
}

/// Equal nodes of a site: their link, and the work that they do in a second without it.
struct Nodes {
  double count, bandwidth, rate;
};
struct Site {
  double bandwidth = 0; ///< bytes/s; 0: unlimited
  std::vector<Nodes> nodes;
};

/// The bytes/s that enter or leave a site: of its uplink, and of its links to all others.
double siteBandwidth(const bundle::Topology &topology, uint32_t site) {
  if (static_cast<int>(site) >= topology.sites_size())
    return 0;
  const double uplink = topology.sites(static_cast<int>(site)).uplink().bandwidth();
  double pairs = 0;
  for (int other = 0; other < topology.sites_size(); ++other) {
    if (other == static_cast<int>(site))
      continue;
    double bandwidth = topology.between_sites().bandwidth();
    for (const bundle::Topology::SitePair &pair : topology.site_pairs())
      if ((pair.a() == site && pair.b() == static_cast<uint32_t>(other)) ||
          (pair.b() == site && pair.a() == static_cast<uint32_t>(other)))
        bandwidth = pair.link().bandwidth();
    pairs += bandwidth > 0 ? bandwidth : INFINITY;
  }
  const double bandwidth = std::min(uplink > 0 ? uplink : INFINITY, pairs);
  return std::isfinite(bandwidth) ? bandwidth : 0;
}

std::vector<Site> sitesOf(const Problem &problem, const std::vector<double> &rates) {
  const bundle::Topology &topology = problem.cluster.topology;
  std::vector<double> rateOfNode(static_cast<size_t>(topology.nodes_size()), 0);
  for (size_t d = 0; d < rates.size(); ++d)
    rateOfNode[problem.cluster.devices[d].node] += rates[d];
  std::map<uint32_t, std::map<std::pair<double, double>, double>> counts; // by site
  for (int n = 0; n < topology.nodes_size(); ++n)
    ++counts[topology.nodes(n).site()]
            [{topology.nodes(n).nic().bandwidth(), rateOfNode[static_cast<size_t>(n)]}];
  std::vector<Site> sites;
  for (const auto &[index, nodes] : counts) {
    Site &site = sites.emplace_back();
    site.bandwidth = counts.size() > 1 ? siteBandwidth(topology, index) : 0;
    for (const auto &[node, count] : nodes)
      site.nodes.push_back({count, node.first, node.second});
  }
  return sites;
}

/// The most work that is done within `seconds`.
double workWithin(const WorkBytes &model, const std::vector<Site> &sites, double seconds) {
  double sum = 0;
  for (const Site &site : sites) {
    double here = 0;
    for (const Nodes &node : site.nodes) {
      const double reach = node.rate * seconds;
      here += node.count *
              (node.bandwidth > 0 ? workBehindLink(model, node.bandwidth * seconds, reach) : reach);
    }
    sum += site.bandwidth > 0 ? workBehindLink(model, site.bandwidth * seconds, here) : here;
  }
  return sum;
}

} // namespace

double planning::byteBound(const Problem &problem, const std::set<int64_t> &rowCounts) {
  const Kinds kinds(problem);
  const std::vector<std::vector<double>> seconds =
      minSeconds(problem, kinds, allDevices(problem), rowCounts);
  const PricedTime priced = pricedTime(machinesOf(seconds), kinds.amounts(problem.batch));
  const WorkBytes model = workBytesOf(problem, kinds, priced.prices);
  if (model.total <= 0 || problem.cluster.topology.nodes_size() < 2)
    return priced.seconds;
  std::vector<double> rates;
  rates.reserve(seconds.size());
  for (const std::vector<double> &ofDevice : seconds) {
    double rate = 0;
    for (size_t l = 0; l < ofDevice.size(); ++l)
      if (priced.prices[l] > 0)
        rate = std::max(rate, priced.prices[l] / ofDevice[l]);
    rates.push_back(rate);
  }
  const std::vector<Site> sites = sitesOf(problem, rates);
  constexpr double kRounding = 1e-9;
  auto suffices = [&](double time) {
    return workWithin(model, sites, time) >= model.total * (1 - kRounding);
  };
  double low = priced.seconds, high = low;
  if (suffices(low))
    return low;
  while (!suffices(high))
    high *= 2;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (suffices(middle) ? high : low) = middle;
  }
  return low;
}
