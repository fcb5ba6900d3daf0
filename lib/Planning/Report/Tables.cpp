// Prints reports as tables and as JSON, and compares two reports.
#include "zorse/Planning/Report.h"

#include "Text.h"
#include "zorse/Base/Format.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace zorse;
using namespace zorse::planning;
using nlohmann::ordered_json;

namespace {

std::string memoryOf(uint64_t used, uint64_t available) {
  std::string text = showBytes(double(used));
  if (available)
    text += " of " + showBytes(double(available)) +
            format(" %3.0f %%", 100 * double(used) / double(available));
  return text;
}

std::string range(int64_t min, int64_t max) {
  return min == max ? std::to_string(max) : std::to_string(min) + "-" + std::to_string(max);
}

std::string factors(const Efficiency &e) {
  std::string text = format("idle %.3f x kernel %.3f x balance %.3f", e.idle, e.kernel, e.balance);
  if (e.recompute < 0.9995)
    text += format(" x recompute %.3f", e.recompute);
  return text + format(" x bubble %.3f x exposed %.3f", e.bubble, e.exposed);
}

/// "embedding ... block 7 mlp (last for 25 % of the samples)"
std::string unitsOf(const Report::Stage &s) {
  std::string shares;
  if (s.firstFraction < 1)
    shares += "first for " + format("%.0f %%", 100 * s.firstFraction);
  if (s.lastFraction < 1)
    shares += (shares.empty() ? "last for " : ", last for ") +
              format("%.0f %%", 100 * s.lastFraction);
  return shares.empty() ? s.units : s.units + " (" + shares + " of the samples)";
}

/// Whether two stages are rows of one folded row: they differ only in their units, their devices of
/// equal types, and what follows from these.
bool foldsWith(const Report::Stage &a, const Report::Stage &b) {
  return a.unitEnd - a.unitBegin == b.unitEnd - b.unitBegin && a.deviceTypes == b.deviceTypes &&
         a.samples == b.samples && a.minRows == b.minRows && a.maxRows == b.maxRows &&
         a.firstFraction == 1 && b.firstFraction == 1 && a.lastFraction == 1 &&
         b.lastFraction == 1 && std::abs(a.meanBusy - b.meanBusy) < 0.1 &&
         a.available == b.available;
}

constexpr size_t kFewestFolded = 3; ///< fewer equal rows are printed one by one

/// One row for several equal stages: "60 stages of 1 unit: block 0 ... block 59".
std::vector<std::string> foldedRow(const std::vector<const Report::Stage *> &stages,
                                   bool pipelines) {
  const Report::Stage &first = *stages.front();
  int32_t begin = first.unitBegin, end = first.unitEnd;
  uint32_t firstPipeline = first.pipeline, lastPipeline = first.pipeline;
  double min = first.meanBusy, max = first.meanBusy;
  uint64_t memory = 0;
  const Report::Stage *top = &first, *bottom = &first;
  for (const Report::Stage *stage : stages) {
    top = stage->unitBegin < top->unitBegin ? stage : top;
    bottom = stage->unitEnd > bottom->unitEnd ? stage : bottom;
    begin = std::min(begin, stage->unitBegin);
    end = std::max(end, stage->unitEnd);
    firstPipeline = std::min(firstPipeline, stage->pipeline);
    lastPipeline = std::max(lastPipeline, stage->pipeline);
    min = std::min(min, stage->meanBusy);
    max = std::max(max, stage->meanBusy);
    memory = std::max(memory, stage->memory);
  }
  const int32_t units = first.unitEnd - first.unitBegin;
  const std::string where = pipelines
                                ? (firstPipeline == lastPipeline ? "pipeline " : "pipelines ") +
                                      range(firstPipeline, lastPipeline) + ": "
                                : "";
  const std::string busy =
      format("%.0f", 100 * min) == format("%.0f", 100 * max) ? "" : format("%.0f-", 100 * min);
  return {where + std::to_string(begin) + "-" + std::to_string(end),
          std::to_string(stages.size()) + " stages of " + std::to_string(units) +
              (units == 1 ? " unit" : " units") + ": " + top->units +
              (top == bottom ? "" : " to " + bottom->units),
          first.deviceTypes,
          std::to_string(first.samples),
          range(first.minRows, first.maxRows),
          busy + format("%.0f %%", 100 * max),
          memoryOf(memory, first.available)};
}

/// \param folded  prints equal stages as one row
std::string printStages(const Report &r, bool folded) {
  TextTable table;
  table.add({"units", "names", "devices", "samples", "micro-batch", "busy",
             "memory of the fullest device"});
  const bool pipelines =
      std::any_of(r.stages.begin(), r.stages.end(), [](const auto &s) { return s.pipeline > 0; });
  std::vector<bool> printed(r.stages.size());
  for (size_t i = 0; i < r.stages.size(); ++i) {
    if (printed[i])
      continue;
    const Report::Stage &s = r.stages[i];
    std::vector<const Report::Stage *> equal{&s};
    for (size_t k = i + 1; folded && k < r.stages.size(); ++k)
      if (!printed[k] && foldsWith(s, r.stages[k]))
        equal.push_back(&r.stages[k]);
    if (equal.size() >= kFewestFolded) {
      for (const Report::Stage *stage : equal)
        printed[static_cast<size_t>(stage - r.stages.data())] = true;
      table.add(foldedRow(equal, pipelines));
      continue;
    }
    table.add({(pipelines ? "pipeline " + std::to_string(s.pipeline) + ": " : "") +
                   std::to_string(s.unitBegin) + "-" + std::to_string(s.unitEnd),
               unitsOf(s), s.deviceTypes, std::to_string(s.samples), range(s.minRows, s.maxRows),
               format("%.0f %%", 100 * s.meanBusy), memoryOf(s.memory, s.available)});
  }
  return table.print({1, 2});
}

/// \param folded  prints groups of equal devices with equal shares and units as one row, with the
///   time of the slowest
/// \returns nothing for a plan without groups
std::string printGroups(const Report &r, bool folded) {
  if (r.groups.empty())
    return {};
  std::map<std::vector<std::string>, size_t> rowOf;
  std::vector<std::pair<const Report::Group *, double>> rows; // the first, and the longest time
  std::vector<size_t> counts;
  for (const Report::Group &group : r.groups) {
    std::vector<std::string> key{folded ? "" : group.name, std::to_string(group.unitBegin),
                                 std::to_string(group.unitEnd)};
    for (size_t m = 0; m < group.devices.size(); ++m)
      key.push_back(r.devices[group.devices[m]].type + format(" %.6g", group.shares[m]));
    const auto [known, isNew] = rowOf.try_emplace(key, rows.size());
    if (isNew) {
      rows.push_back({&group, 0});
      counts.push_back(0);
    }
    ++counts[known->second];
    double &slowest = rows[known->second].second;
    slowest = std::max(slowest, group.exchangeSeconds);
  }
  TextTable table;
  table.add({"group", "devices", "shares", "units", "exchanges"});
  for (size_t i = 0; i < rows.size(); ++i) {
    const Report::Group &group = *rows[i].first;
    std::string devices, shares;
    const double sum = std::accumulate(group.shares.begin(), group.shares.end(), 0.0);
    for (size_t m = 0; m < group.devices.size(); ++m) {
      devices += (m ? ", " : "") + r.devices[group.devices[m]].name;
      shares += (m ? ", " : "") + format("%.0f %%", 100 * group.shares[m] / sum);
    }
    table.add(
        {group.name + (counts[i] > 1 ? " and " + std::to_string(counts[i] - 1) + " like it" : ""),
         devices, shares, std::to_string(group.unitBegin) + "-" + std::to_string(group.unitEnd),
         showSeconds(rows[i].second) +
             format(", %.0f %% of the step", r.step > 0 ? 100 * rows[i].second / r.step : 0)});
  }
  std::string text = "\nGroups (tensor parallelism)\n" + table.print({1, 2});
  for (const Report::Group &group : r.groups)
    if (group.acrossSites)
      text += "  warning: group " + group.name + " spans sites, and its exchanges take " +
              format("%.0f %%", r.step > 0 ? 100 * group.exchangeSeconds / r.step : 0) +
              " of the step: use groups of devices of one node\n";
  return text;
}

/// \param folded  prints devices with equal values as one row
std::string printDevices(const Report &r, bool folded) {
  TextTable table;
  table.add({"device", "type", "samples", "busy", "state", "gathered", "gradients", "activations",
             "workspace", "memory"});
  /// Devices, and the values that they share.
  std::vector<std::pair<std::vector<size_t>, std::vector<std::string>>> rows;
  for (size_t i = 0; i < r.devices.size(); ++i) {
    const Report::Device &d = r.devices[i];
    std::vector<std::string> values = {d.type,
                                       std::to_string(d.samples),
                                       format("%.0f %%", r.step > 0 ? 100 * d.busy() / r.step : 0),
                                       showBytes(double(d.use.state)),
                                       showBytes(double(d.use.gathered)),
                                       showBytes(double(d.use.gradients)),
                                       showBytes(double(d.use.activations)),
                                       showBytes(double(d.use.workspace)),
                                       memoryOf(d.memory, d.available)};
    const auto same = std::find_if(rows.begin(), rows.end(),
                                   [&](const auto &row) { return folded && row.second == values; });
    if (same != rows.end())
      same->first.push_back(i);
    else
      rows.push_back({{i}, std::move(values)});
  }
  for (auto &[devices, values] : rows) {
    std::vector<std::string> cells = values;
    const std::string &name = r.devices[devices.front()].name;
    cells.insert(cells.begin(),
                 devices.size() == 1
                     ? name
                     : name + " and " + std::to_string(devices.size() - 1) + " like it");
    table.add(std::move(cells));
  }
  return table.print({1});
}

} // namespace

std::string zorse::planning::printReport(const Report &r, size_t maxDevices, bool folded) {
  std::string out = "Stages\n" + printStages(r, folded) + printGroups(r, folded) + "\nTypes\n";

  TextTable types;
  types.add({"type", "devices", "used", "busy", "share of the FLOPs"});
  for (const auto &t : r.types)
    types.add({t.name, std::to_string(t.devices), std::to_string(t.used),
               t.used ? format("%.0f %%", 100 * t.utilisation) : "-", showPercent(t.work)});
  out += types.print();

  if (r.devices.size() <= maxDevices)
    out += "\nDevices\n" + printDevices(r, folded);
  if (!r.links.empty()) {
    TextTable links;
    links.add({"busiest links", "per step", "bandwidth", "busy"});
    for (size_t i = 0; i < std::min<size_t>(r.links.size(), 4); ++i)
      links.add({r.links[i].name, showBytes(r.links[i].bytes), showRate(r.links[i].bandwidth),
                 format("%.0f %%", 100 * r.links[i].fraction)});
    out += "\n" + links.print();
  }

  out += "\nschedule        " + r.schedule + "\npredicted step  " + showSeconds(r.step) + " for " +
         std::to_string(r.batch) + (r.batch == 1 ? " sample: " : " samples: ") +
         showCount(r.samplesPerSecond()) + " samples/s";
  if (r.tokensPerSample)
    out += ", " + showCount(r.tokensPerSecond()) + " tokens/s";
  if (r.givenDurations)
    out += ", with the plan's durations";
  out += format("\nefficiency      %.3f = ", r.efficiency.eta) + factors(r.efficiency) +
         "\n                (";
  if (r.givenDurations)
    out += "with modeled times instead of the plan's durations, a step of " +
           showSeconds(r.efficiency.step) + "; ";
  const Efficiency &e = r.efficiency;
  const bool links = e.bytes > e.bound * 1.0005;
  out += "no plan can take less than " + showSeconds(links ? e.bytes : e.bound) +
         (links ? ": the links of nodes and sites; with free links, " + showSeconds(e.bound) : "") +
         ")\n";
  bool measured = true;
  for (size_t i = 0; i < r.sources.size(); ++i) {
    out += (i ? "                " : "times           ") + r.sources[i] + "\n";
    constexpr std::string_view kMeasured = ": measured (profile)";
    measured = measured && r.sources[i].size() > kMeasured.size() &&
               std::string_view(r.sources[i]).substr(r.sources[i].size() - kMeasured.size()) ==
                   kMeasured;
  }
  if (!measured)
    out += "                (values that are not measured are assumed: measure them with "
           "zorse-profile and pass them with --profile)\n";
  for (size_t i = 0; i < r.assumptions.size(); ++i)
    out += (i ? "                " : "assumed         ") + r.assumptions[i] + "\n";
  if (r.price > 0 || r.egress > 0) {
    const double perStep = r.price * r.step / 3600 + r.egress;
    out += format("price           %.2f %s an hour", r.price, r.currency.c_str());
    if (r.egress > 0 && r.step > 0)
      out += format(" and %.2f for traffic between sites", r.egress * 3600 / r.step);
    if (r.tokensPerSample)
      out += format(", %.4g %s per million tokens",
                    perStep / (double(r.batch) * double(r.tokensPerSample)) * 1e6,
                    r.currency.c_str());
    out += "\n";
  }
  return out;
}

std::string zorse::planning::writeReportJson(const Report &r) {
  ordered_json root = {{"format", 2},
                       {"model", r.model},
                       {"cluster", r.cluster},
                       {"schedule", r.schedule},
                       {"global_batch_size", r.batch},
                       {"tokens_per_sample", r.tokensPerSample},
                       {"step_seconds", r.step},
                       {"samples_per_second", r.samplesPerSecond()},
                       {"tokens_per_second", r.tokensPerSecond()}};
  const Efficiency &e = r.efficiency;
  root["efficiency"] = {{"eta", e.eta},
                        {"bound_seconds", e.bound},
                        {"bound_with_links_seconds", e.bytes},
                        {"idle", e.idle},
                        {"kernel", e.kernel},
                        {"balance", e.balance},
                        {"recompute", e.recompute},
                        {"bubble", e.bubble},
                        {"exposed", e.exposed}};
  root["stages"] = ordered_json::array();
  for (const auto &s : r.stages) {
    ordered_json names = ordered_json::array();
    for (uint32_t d : s.devices)
      names.push_back(r.devices[d].name);
    root["stages"].push_back({{"pipeline", s.pipeline},
                              {"units", {s.unitBegin, s.unitEnd}},
                              {"names", s.units},
                              {"devices", names},
                              {"samples", s.samples},
                              {"first_unit_share", s.firstFraction},
                              {"last_unit_share", s.lastFraction},
                              {"micro_batch_size", {s.minRows, s.maxRows}},
                              {"mean_utilization", s.meanBusy},
                              {"max_utilization", s.maxBusy},
                              {"memory", s.memory},
                              {"available", s.available}});
  }
  for (const auto &g : r.groups) {
    ordered_json names = ordered_json::array();
    for (uint32_t d : g.devices)
      names.push_back(r.devices[d].name);
    root["groups"].push_back({{"name", g.name},
                              {"devices", names},
                              {"shares", g.shares},
                              {"units", {g.unitBegin, g.unitEnd}},
                              {"exchange_seconds", g.exchangeSeconds}});
  }
  root["types"] = ordered_json::array();
  for (const auto &t : r.types)
    root["types"].push_back({{"type", t.name},
                             {"devices", t.devices},
                             {"used", t.used},
                             {"utilization", t.utilisation},
                             {"flops_fraction", t.work}});
  root["devices"] = ordered_json::array();
  for (const auto &d : r.devices)
    root["devices"].push_back({{"name", d.name},
                               {"type", d.type},
                               {"node", d.node},
                               {"cells", d.cells},
                               {"samples", d.samples},
                               {"seconds",
                                {{"forward", d.forward},
                                 {"backward", d.backward},
                                 {"weights", d.weights},
                                 {"other", d.other}}},
                               {"memory",
                                {{"total", d.memory},
                                 {"available", d.available},
                                 {"state", d.use.state},
                                 {"gathered", d.use.gathered},
                                 {"gradients", d.use.gradients},
                                 {"activations", d.use.activations},
                                 {"workspace", d.use.workspace}}}});
  root["links"] = ordered_json::array();
  for (const auto &l : r.links)
    root["links"].push_back({{"name", l.name},
                             {"bytes", l.bytes},
                             {"bandwidth", l.bandwidth},
                             {"utilization", l.fraction}});
  root["time_sources"] = r.sources;
  root["assumptions"] = r.assumptions;
  root["price_per_hour"] = r.price;
  root["egress_per_step"] = r.egress;
  root["currency"] = r.currency;
  return root.dump(1) + "\n";
}

std::string zorse::planning::printReasons(const std::vector<Reason> &reasons) {
  std::string out;
  for (const Reason &reason : reasons)
    out += "  - " + reason.what + (reason.gain != 0 ? ": " + showGain(reason) : "") + "\n";
  return out;
}

std::string zorse::planning::compareReports(const Report &a, const std::string &nameA,
                                            const Report &b, const std::string &nameB) {
  TextTable table;
  table.add({"", nameA, nameB, "ratio"});
  auto row = [&](const char *what, double x, double y, std::string (*show)(double)) {
    table.add({what, show(x), show(y), x > 0 ? format("%.3f", y / x) : "-"});
  };
  auto plain = [](double x) { return format("%.3f", x); };
  auto count = [](double x) { return format("%.0f", x); };
  row("predicted step", a.step, b.step, showSeconds);
  row("samples/s", a.samplesPerSecond(), b.samplesPerSecond(), showCount);
  if (a.tokensPerSample)
    row("tokens/s", a.tokensPerSecond(), b.tokensPerSecond(), showCount);
  row("efficiency", a.efficiency.eta, b.efficiency.eta, plain);
  const std::pair<const char *, double Efficiency::*> parts[] = {
      {"  idle", &Efficiency::idle},       {"  kernel", &Efficiency::kernel},
      {"  balance", &Efficiency::balance}, {"  recompute", &Efficiency::recompute},
      {"  bubble", &Efficiency::bubble},   {"  exposed", &Efficiency::exposed}};
  for (auto &[what, part] : parts)
    row(what, a.efficiency.*part, b.efficiency.*part, plain);
  auto used = [](const Report &r) {
    return double(std::count_if(r.devices.begin(), r.devices.end(),
                                [](const auto &d) { return d.cells > 0; }));
  };
  auto fullest = [](const Report &r) {
    uint64_t max = 0;
    for (const auto &d : r.devices)
      max = std::max(max, d.memory);
    return double(max);
  };
  row("devices used", used(a), used(b), count);
  row("stages", double(a.stages.size()), double(b.stages.size()), count);
  row("most memory of a device", fullest(a), fullest(b), showBytes);
  row("instructions", a.instructions, b.instructions, showCount);
  if (a.price > 0 || b.price > 0)
    row("price per hour", a.price, b.price, plain);
  table.add({"schedule", a.schedule, b.schedule, ""});
  std::string out = table.print();

  TextTable devices;
  devices.add({"device", nameA + " busy", nameB + " busy", nameA + " memory", nameB + " memory"});
  size_t shown = 0;
  for (const auto &d : a.devices) {
    auto other = std::find_if(b.devices.begin(), b.devices.end(),
                              [&](const auto &o) { return o.name == d.name; });
    if (other == b.devices.end() || (d.cells == 0 && other->cells == 0) || ++shown > 32)
      continue;
    devices.add({d.name, format("%.0f %%", a.step > 0 ? 100 * d.busy() / a.step : 0),
                 format("%.0f %%", b.step > 0 ? 100 * other->busy() / b.step : 0),
                 showBytes(double(d.memory)), showBytes(double(other->memory))});
  }
  return out + "\n" + devices.print();
}

std::string zorse::planning::printOutcomes(std::vector<PlannerOutcome> outcomes, int64_t batch,
                                           int64_t tokensPerSample) {
  std::stable_sort(outcomes.begin(), outcomes.end(), [](const auto &a, const auto &b) {
    return (a.step > 0 ? a.step : INFINITY) < (b.step > 0 ? b.step : INFINITY);
  });
  const double tokens = static_cast<double>(tokensPerSample);
  TextTable table;
  table.add(
      {"planner", "", "predicted step", tokens > 0 ? "tokens/s" : "samples/s", "of the fastest"});
  std::string none;
  for (const PlannerOutcome &o : outcomes) {
    if (o.step > 0)
      table.add({o.name, o.title, showSeconds(o.step),
                 showCount(static_cast<double>(batch) / o.step * std::max(tokens, 1.0)),
                 format("%.3f", outcomes.front().step / o.step)});
    else
      none += (o.why.rfind(o.name + ": ", 0) == 0 ? "" : o.name + ": ") +
              o.why.substr(0, o.why.find('\n')) + "\n";
  }
  return table.print({1}) + none;
}
