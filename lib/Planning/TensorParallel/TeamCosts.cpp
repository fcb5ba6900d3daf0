// Costs of groups of devices, each of which acts as one device.
#include "Teams.h"

#include "../Costs/CostModelTables.h"

#include "zorse/Step/UnitTasks.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace zorse;
using namespace zorse::planning;

namespace {

using Exchange = bundle::UnitFunction::Exchange;

/// Seconds of the exchanges of a group: linear in their bytes.
class ExchangeTimes {
public:
  ExchangeTimes(const CostModel &costs, const std::vector<uint32_t> &devices) {
    constexpr double kSmall = 1 << 16, kLarge = 1 << 24;
    for (bool sums : {false, true}) {
      const double small = simulate(costs, devices, kSmall, sums),
                   large = simulate(costs, devices, kLarge, sums);
      lines[sums].each = std::max(large - small, 0.0) / (kLarge - kSmall);
      lines[sums].fixed = std::max(small - lines[sums].each * kSmall, 0.0);
    }
  }

  double of(const Exchange &exchange, int64_t rows) const {
    double bytes = 0;
    for (const bundle::AffineSize &part : exchange.parts())
      bytes += double(part.fixed() + part.per_row() * rows);
    return lines[exchange.kind() == Exchange::ALL_REDUCE].at(bytes);
  }

  auto key() const {
    return std::make_tuple(lines[0].fixed, lines[0].each, lines[1].fixed, lines[1].each);
  }

private:
  static double simulate(const CostModel &costs, const std::vector<uint32_t> &devices, double bytes,
                         bool sums) {
    sim::Traffic traffic(costs.network());
    std::vector<sim::Piece> parts;
    parts.reserve(devices.size());
    for (uint32_t device : devices)
      parts.push_back({device, bytes / double(devices.size())});
    double start = 0;
    if (sums)
      start = traffic.reduceScatter(devices, parts, start).arrived;
    return traffic.allGather(parts, devices, start).arrived;
  }

  Rate lines[2]; ///< of gathers, and of sums
};

/// The tasks of one group.
struct GroupTimes {
  const Team &team;
  ExchangeTimes exchanges;

  Curve curve(int32_t unit, step::UnitTask task) const {
    const auto &list =
        step::unitFunction(team.division->model.summary, {unit, 0, 0}, task).exchanges();
    auto seconds = [costs = team.division->costs, devices = team.devices, unit, task,
                    exchanges = exchanges,
                    list = std::vector<Exchange>(list.begin(), list.end())](int64_t rows) {
      double slowest = 0, sum = 0;
      for (uint32_t m = 0; m < devices.size(); ++m)
        slowest = std::max(slowest, costs.unit(devices[m], {unit, 0, m}, task, rows));
      for (const Exchange &exchange : list)
        sum += exchanges.of(exchange, rows);
      return slowest + sum;
    };
    return seconds(1) > 0 ? Curve::estimated(std::move(seconds)) : Curve();
  }
};

/// \returns the slowest of the devices' rates, where a device has its share of the amount
Rate slowest(const std::vector<Rate> &rates, const std::vector<double> &shares) {
  Rate all;
  for (size_t m = 0; m < rates.size(); ++m) {
    all.fixed = std::max(all.fixed, rates[m].fixed);
    all.each = std::max(all.each, rates[m].each * (shares.empty() ? 1 : shares[m]));
  }
  return all;
}

} // namespace

CostModel planning::costsOfTeams(const CostModel &costs, const Grouping &grouping) {
  return CostModel::ofTeams(costs, grouping.teams);
}

CostModel CostModel::ofTeams(const CostModel &costs, const std::vector<Team> &teams) {
  const Tables &from = *costs.tables;
  auto made = std::make_shared<Tables>();
  made->unitClass = from.unitClass;
  made->unitClasses = *std::max_element(from.unitClass.begin(), from.unitClass.end()) + 1;
  made->profile = from.profile;
  made->topology = from.topology;
  made->topology.clear_node_of_device();
  made->topology.clear_direct_group_of_device();
  made->topology.clear_cpu_communication_costs();
  std::vector<int32_t> unitOf(made->unitClasses, 0); // a unit of each class
  for (size_t u = 0; u < from.unitClass.size(); ++u)
    unitOf[from.unitClass[u]] = static_cast<int32_t>(u);
  using Key = std::tuple<std::vector<uint32_t>, std::vector<double>,
                         std::tuple<double, double, double, double>>;
  std::map<Key, uint32_t> classes;
  for (const Team &team : teams) {
    const auto first = static_cast<int>(team.devices[0]);
    made->topology.add_node_of_device(from.topology.node_of_device(first));
    if (from.topology.direct_group_of_device_size())
      made->topology.add_direct_group_of_device(from.topology.direct_group_of_device(first));
    if (from.topology.cpu_communication_costs_size())
      *made->topology.add_cpu_communication_costs() = from.topology.cpu_communication_costs(first);
    std::vector<uint32_t> devices;
    devices.reserve(team.devices.size());
    for (uint32_t d : team.devices)
      devices.push_back(from.deviceClass[d]);
    const GroupTimes times{team, ExchangeTimes(costs, team.devices)};
    auto [known, isNew] =
        classes.try_emplace({devices, team.shares, times.exchanges.key()}, made->times.size());
    made->deviceClass.push_back(known->second);
    if (!isNew)
      continue;
    DeviceTimes ofTeam = from.times[devices[0]];
    ofTeam.curves.resize(made->unitClasses * kUnitTasks);
    if (team.isGroup()) {
      for (uint32_t c = 0; c < made->unitClasses; ++c)
        for (step::UnitTask task : step::kUnitTasks)
          ofTeam.curves[c * kUnitTasks + size_t(task)] = times.curve(unitOf[c], task);
      auto rate = [&](Rate DeviceTimes::*of, bool shared) {
        std::vector<Rate> rates;
        rates.reserve(devices.size());
        for (uint32_t c : devices)
          rates.push_back(from.times[c].*of);
        ofTeam.*of = slowest(rates, shared ? team.shares : std::vector<double>());
      };
      for (auto of : {&DeviceTimes::update, &DeviceTimes::norm, &DeviceTimes::hostUpdate})
        rate(of, /*shared=*/true);
      for (auto of : {&DeviceTimes::copy, &DeviceTimes::load})
        rate(of, /*shared=*/false);
    }
    made->times.push_back(std::move(ofTeam));
  }
  made->network = sim::Network(made->topology);
  CostModel model;
  model.tables = std::move(made);
  return model;
}
