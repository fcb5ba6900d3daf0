// Writes the report as one self-contained HTML page. Its data is JSON; lib/Html/assets/plan.js
// draws it.
#include "zorse/Planning/Report.h"

#include "Text.h"
#include "zorse/Base/Format.h"
#include "zorse/Html/Page.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

using namespace zorse;
using namespace zorse::planning;
using html::escape;
using nlohmann::json;

namespace {

constexpr size_t kMaxDevices = 64;    ///< maximum in the timeline and the memory chart; one of each
                                      ///< stage and type first
constexpr size_t kMaxEvents = 120000; ///< maximum number of events; devices that would exceed it
                                      ///< are omitted
constexpr size_t kMaxCells = 40000;   ///< maximum in the tiling; above it, micro-batches are merged
constexpr int kMemoryPoints = 400;

/// Returns the devices to draw: the first of each type in each stage, then the stages' other
/// devices round-robin.
std::vector<uint32_t> shownDevices(const Report &report, const step::StepGraph &graph) {
  std::vector<uint32_t> order;
  std::set<uint32_t> seen;
  auto take = [&](uint32_t d) {
    if (seen.insert(d).second)
      order.push_back(d);
  };
  for (const auto &stage : report.stages) {
    std::set<std::string> types;
    for (uint32_t d : stage.devices)
      if (types.insert(report.devices[d].type).second)
        take(d);
  }
  for (size_t round = 0; order.size() < kMaxDevices && round < kMaxDevices; ++round)
    for (const auto &stage : report.stages)
      if (round < stage.devices.size() && order.size() < kMaxDevices)
        take(stage.devices[round]);
  size_t events = 0;
  std::vector<uint32_t> shown;
  for (uint32_t d : order) {
    events += graph.devices[d].instructions.size();
    if (shown.size() >= kMaxDevices || (events > kMaxEvents && !shown.empty()))
      break;
    shown.push_back(d);
  }
  std::vector<uint32_t> place(report.devices.size(),
                              UINT32_MAX); // restores the order of the stages
  uint32_t next = 0;
  for (const auto &stage : report.stages)
    for (uint32_t d : stage.devices)
      if (place[d] == UINT32_MAX)
        place[d] = next++;
  std::sort(shown.begin(), shown.end(),
            [&](uint32_t a, uint32_t b) { return place[a] < place[b]; });
  return shown;
}

/// Kinds of the script: 0 forward, 1 backward, 2 weights, 3 update and norm, 4 send, 5 receive, 6
/// gather, 7 reduce.
int kindOf(const step::Instruction &instruction) {
  switch (instruction.kind) {
  case step::InstructionKind::Compute:
    return instruction.task == bundle::Compute::F   ? 0
           : instruction.task == bundle::Compute::B ? 1
           : instruction.task == bundle::Compute::W ? 2
                                                    : 3;
  case step::InstructionKind::Send:
    return 4;
  case step::InstructionKind::Receive:
    return 5;
  case step::InstructionKind::AllGather:
    return 6;
  case step::InstructionKind::ReduceScatter:
  case step::InstructionKind::AllReduce:
    return 7;
  default:
    return -1;
  }
}

json timeline(const Report &report, const step::Plan &plan, const step::StepGraph &graph,
              const std::vector<uint32_t> &shown) {
  const double unit = report.step > 0 ? 1e6 / report.step : 0; // millionths of the step
  json rows = json::array();
  for (uint32_t d : shown) {
    json events = json::array();
    const step::Span span = graph.devices[d].instructions;
    for (uint32_t e = span.begin; e < span.end; ++e) {
      const step::Instruction &instruction = graph.instructions[e];
      const int kind = kindOf(instruction);
      const double length = instruction.plannedEnd - instruction.plannedStart;
      if (kind < 0 || length * unit < 0.5)
        continue;
      json event = {kind, std::llround(instruction.plannedStart * unit),
                    std::llround(length * unit)};
      if (instruction.cell >= 0 && instruction.kind == step::InstructionKind::Compute) {
        const step::Cell &cell = plan.cells[instruction.cell];
        event.insert(event.end(),
                     {cell.unitBegin, cell.unitEnd, cell.sampleBegin * plan.samplesPerRow,
                      cell.sampleEnd * plan.samplesPerRow});
      }
      events.push_back(std::move(event));
    }
    rows.push_back({{"d", d}, {"e", std::move(events)}});
  }
  return rows;
}

/// Returns the row of a purpose in the tables of device memory. Buffers of an update, or of a
/// window of tasks, count as gathered.
size_t placeOf(step::MemoryCategory category) {
  switch (category) {
  case step::MemoryCategory::State:
    return 0;
  case step::MemoryCategory::Gathered:
  case step::MemoryCategory::UpdateStaging:
    return 1;
  case step::MemoryCategory::Gradients:
    return 2;
  case step::MemoryCategory::Activations:
    return 3;
  case step::MemoryCategory::Workspace:
  case step::MemoryCategory::Staging:
    break;
  }
  return 4;
}

/// Returns MiB by purpose for each of kMemoryPoints intervals of the step, at the interval's peak.
/// No point sums buffers that are never alive at the same time, and the highest point is the peak
/// of the step. Values are rounded down together, so their sum never exceeds that of the tables.
json memoryCurve(const std::vector<const step::BufferLife *> &buffers, double step) {
  std::vector<std::tuple<double, bool, const step::BufferLife *>> changes; // at equal times, ends
                                                                           // sort before begins
  for (const step::BufferLife *buffer : buffers)
    if (buffer->end > buffer->begin) {
      changes.emplace_back(buffer->begin, true, buffer);
      changes.emplace_back(buffer->end, false, buffer);
    }
  std::sort(changes.begin(), changes.end(), [](const auto &a, const auto &b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  std::array<uint64_t, 5> now{};
  std::array<std::vector<uint64_t>, 5> curves;
  size_t next = 0;
  for (int point = 0; point < kMemoryPoints; ++point) {
    const double end = step * (point + 1) / kMemoryPoints;
    std::array<uint64_t, 5> fullest = now;
    auto sum = [](const std::array<uint64_t, 5> &bytes) {
      return std::accumulate(bytes.begin(), bytes.end(), uint64_t(0));
    };
    for (;
         next < changes.size() && (std::get<0>(changes[next]) < end || point + 1 == kMemoryPoints);
         ++next) {
      const auto &[moment, begins, buffer] = changes[next];
      now[placeOf(buffer->category)] += begins ? buffer->bytes : -buffer->bytes;
      if (next + 1 == changes.size() || std::get<0>(changes[next + 1]) > moment ||
          (begins && !std::get<1>(changes[next + 1])))
        if (sum(now) > sum(fullest))
          fullest = now;
    }
    uint64_t below = 0, told = 0;
    for (size_t purpose = 0; purpose < curves.size(); ++purpose) {
      below += fullest[purpose];
      curves[purpose].push_back((below >> 20) - told);
      told = below >> 20;
    }
  }
  return curves;
}

json memoryCurves(const Report &report, const step::StepGraph &graph,
                  const std::vector<uint32_t> &shown) {
  std::vector<std::vector<const step::BufferLife *>> buffers(report.devices.size());
  for (const step::BufferLife &buffer : graph.buffers)
    buffers[buffer.device].push_back(&buffer);
  json curves = json::array();
  for (uint32_t d : shown)
    curves.push_back(memoryCurve(buffers[d], report.step));
  return curves;
}

json tiling(const step::Plan &plan) {
  std::vector<const step::Cell *> cells;
  for (const step::Cell &cell : plan.cells)
    cells.push_back(&cell);
  std::sort(cells.begin(), cells.end(), [](const step::Cell *a, const step::Cell *b) {
    return std::tuple(a->unitBegin, a->unitEnd, a->sampleBegin) <
           std::tuple(b->unitBegin, b->unitEnd, b->sampleBegin);
  });
  json rows = json::array();
  const int64_t grain = cells.size() > kMaxCells ? int64_t(cells.size() / kMaxCells) + 1 : 1;
  for (size_t i = 0; i < cells.size(); i += size_t(grain)) {
    const step::Cell &cell = *cells[i];
    int64_t end = cell.sampleEnd;
    for (size_t j = i + 1; j < std::min(i + size_t(grain), cells.size()) &&
                           cells[j]->unitBegin == cell.unitBegin && cells[j]->sampleBegin == end;
         ++j)
      end = cells[j]->sampleEnd;
    rows.push_back({cell.unitBegin, cell.unitEnd, cell.sampleBegin * plan.samplesPerRow,
                    end * plan.samplesPerRow, cell.device});
  }
  return rows;
}

std::string reasonsList(const std::vector<Reason> &reasons) {
  if (reasons.empty())
    return "";
  std::string out = "<h2>Why, and what would change it</h2>\n<ul>\n";
  for (const Reason &reason : reasons) {
    out += "<li>" + escape(reason.what);
    if (reason.gain != 0)
      out += ": " + escape(showGain(reason));
    out += "</li>\n";
  }
  return out + "</ul>\n";
}

std::string factorBars(const Efficiency &e) {
  std::string out = "<table class=factors>\n";
  auto bar = [&](const char *name, double value, const char *what) {
    out += format("<tr><td>%s<td class=n>%.3f<td class=bar><i style=\"width:%.1f%%\"></i><td "
                  "class=what>%s</tr>\n",
                  name, value, 100 * std::clamp(value, 0.0, 1.0), what);
  };
  bar("&eta;", e.eta, "bound on the step time, divided by the step time");
  bar("idle", e.idle, "devices without work");
  bar("kernel", e.kernel, "speed of the kernels at the chosen micro-batch sizes");
  bar("balance", e.balance, "stages of unequal time");
  bar("recompute", e.recompute, "recomputed activations");
  bar("bubble", e.bubble, "waiting inside the pipeline");
  bar("exposed", e.exposed, "communication and updates that compute does not hide");
  return out + "</table>\n";
}

} // namespace

std::string zorse::planning::writeReportPage(const Report &report, const step::Plan &plan,
                                             const step::StepGraph &graph,
                                             const std::vector<Reason> &reasons) {
  const std::vector<uint32_t> shown = shownDevices(report, graph);
  json data;
  data["step"] = report.step;
  data["batch"] = report.batch;
  data["units"] =
      report.stages.empty()
          ? 0
          : std::max_element(report.stages.begin(), report.stages.end(), [](auto &a, auto &b) {
              return a.unitEnd < b.unitEnd;
            })->unitEnd;
  data["devices"] = json::array();
  for (const auto &d : report.devices)
    data["devices"].push_back({d.name, d.type, d.node, d.available >> 20,
                               report.step > 0 ? d.busy() / report.step : 0.0,
                               showBytes(double(d.memory)) +
                                   (d.available ? " of " + showBytes(double(d.available)) : "")});
  data["timeline"] = timeline(report, plan, graph, shown);
  data["memory"] = memoryCurves(report, graph, shown);
  data["tiling"] = tiling(plan);

  size_t used = 0;
  for (const auto &d : report.devices)
    used += d.cells > 0;
  std::string page = "<p class=lead>" + showSeconds(report.step) + " a step of " +
                     std::to_string(report.batch) + " samples, ";
  page += report.tokensPerSample ? showCount(report.tokensPerSecond()) + " tokens/s"
                                 : showCount(report.samplesPerSecond()) + " samples/s";
  page += format(", efficiency %.1f&nbsp;%%, %zu of %zu devices, ", 100 * report.efficiency.eta,
                 used, report.devices.size()) +
          escape(report.schedule) + "</p>\n";
  page += "<div class=two><div>" + factorBars(report.efficiency) + "</div><div>" +
          reasonsList(reasons) + "</div></div>\n";
  page += "<h2>Time</h2>\n<p class=hint>Wheel: zoom; drag: move; double click: all.";
  if (shown.size() < used)
    page += format(" %zu of %zu devices are drawn: of every stage, one of each type first.",
                   shown.size(), used);
  page += "</p>\n<canvas id=timeline></canvas>\n<h2>Memory over the step</h2>\n<div "
          "id=memory></div>\n<h2>Tiling: "
          "units and samples</h2>\n<div id=tilinglegend class=legend></div><canvas "
          "id=tiling></canvas>\n";
  page += "<h2>Tables</h2>\n<pre>" + escape(printReport(report, 256, /*folded=*/false)) +
          "</pre>\n";
  return html::page((report.model.empty() ? "model" : report.model) + " on " +
                        (report.cluster.empty() ? "cluster" : report.cluster),
                    page, data, html::kPlanScript);
}
