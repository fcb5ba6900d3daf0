// A plan for people and for machines: tables, a page with pictures, JSON, why it is as it is, and how two plans differ.
#pragma once

#include "zorse/Planning/Bound.h"
#include "zorse/Planning/Layout.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace zorse::planning {

/// What a plan does to a cluster, from its full expansion. Times are seconds of one step, sizes bytes, shares of 1.
struct Report {
  struct Stage {
    uint32_t pipeline = 0; ///< devices that exchange samples are in one
    int32_t unitBegin = 0, unitEnd = 0;
    std::string units; ///< "embedding ... block 7 attention"
    std::vector<uint32_t> devices;
    std::string deviceTypes; ///< "4 x A100-40, 2 x T4"
    int64_t samples = 0;
    int64_t leastRows = 0, mostRows = 0; ///< of its micro-batches
    /// Parts of its samples that have its first and its last unit here; less than 1 where stages share out units.
    double firstShare = 1, lastShare = 1;
    double meanBusy = 0, mostBusy = 0;  ///< shares of the step
    uint64_t memory = 0, available = 0; ///< of its fullest device; available 0: not limited
  };
  struct Device {
    std::string name, type, node;
    int64_t cells = 0;
    int64_t samples = 0;                                      ///< distinct ones it works on
    double forward = 0, backward = 0, weights = 0, other = 0; ///< seconds of compute
    uint64_t memory = 0, available = 0; ///< of what programs may use (the reserve is left out of both); available 0: not limited
    step::MemoryUse use;
    double busy() const { return forward + backward + weights + other; }
  };
  struct Type {
    std::string name;
    uint32_t devices = 0, used = 0;
    double utilisation = 0; ///< mean busy share of the used ones
    double work = 0;        ///< their share of all FLOPs
  };
  struct BusyLink {
    std::string name;
    double bytes = 0, bandwidth = 0;
    double share = 0; ///< of the step that it is busy
  };

  std::string model, cluster, schedule;
  int64_t batch = 0, tokensPerSample = 0; ///< tokens 0: the model has no token ids
  double step = 0;
  Efficiency efficiency;
  std::vector<Stage> stages;   ///< by first unit
  std::vector<Device> devices; ///< as in the plan
  std::vector<Type> types;
  std::vector<BusyLink> links;          ///< the busiest first
  std::vector<std::string> sources;     ///< where times come from, by type of the devices in use: "A100-40: modelled: ...", and what is assumed
  std::vector<std::string> assumptions; ///< about model and memory: Problem::assumptions
  double price = 0, egress = 0;         ///< per hour of the devices in use; per step for bytes that leave sites
  std::string currency;
  uint32_t entries = 0;

  double samplesPerSecond() const { return step > 0 ? double(batch) / step : 0; }
  double tokensPerSecond() const { return samplesPerSecond() * double(tokensPerSample); }
};

/// Expands, simulates and accounts for a plan; keeps the expansion for pictures if `graph` is given.
Result<Report> makeReport(const Problem &problem, const step::Plan &plan, step::StepGraph *graph = nullptr);

/// Tables for a terminal: stages, device types, devices (those of the first stages if there are many), links, time and its factors.
std::string printReport(const Report &report, size_t mostDevices = 32);

/// {"format": 1, ...}: docs/planning.md.
std::string writeReportJson(const Report &report);

/// What binds, and what changes would bring: each as one line. What-ifs are simulated with the same plan (links) or planned again (one more device of
/// a type, more memory; no callback: left out); the same plan on the changed cluster stands in where planning again finds nothing better.
struct Reason {
  std::string what; ///< "memory of a100:0 is 98 % full"
  double gain = 0;  ///< of the step's time or the price of a sample, as a share; negative: slower or dearer; 0: a remark
  bool price = false;
};
/// "the step would take 12.5 % less", "a sample would cost 3.0 % more"; empty for a remark.
std::string showGain(const Reason &reason);
/// What planning again comes to: seconds of a step, and the price per hour.
struct Replanned {
  double step = 0, price = 0;
};
using PlanAgain = std::function<std::optional<Replanned>(const Cluster &)>; ///< with another cluster; nothing: there is no plan
/// \param byPrice  what is planned again is judged by the price of a sample
std::vector<Reason> explain(const Problem &problem, const step::Plan &plan, const Report &report, const PlanAgain &planAgain, bool byPrice = false);
std::string printReasons(const std::vector<Reason> &reasons);

/// One self-contained page: the tables, the timeline, memory over the step, the tiling, the reasons.
std::string writeReportPage(const Report &report, const step::Plan &plan, const step::StepGraph &graph, const std::vector<Reason> &reasons);

/// Two reports of one model side by side.
std::string compareReports(const Report &a, const std::string &nameA, const Report &b, const std::string &nameB);

/// What planners make of one problem, the quickest first; those without a plan say why.
struct PlannerOutcome {
  std::string name, title;
  double step = 0; ///< seconds by the full expansion; 0: none
  std::string why; ///< where there is none
};
std::string printOutcomes(std::vector<PlannerOutcome> outcomes, int64_t batch, int64_t tokensPerSample);

/// Positions of the model's token input; 0: it has none.
int64_t tokensPerSample(const bundle::ModelSummary &summary);

/// The rectangle of units x samples, one letter per device, and the legend:
///
///     samples      0       8       16      24     32
///     units 0-2    aaaaaaaabbbbbbbbaaaaaaaabbbbbbbb
///     units 2-6    cccccccccccccccccccccccccccccccc
///
/// Rows are merged where neighbours are equal; samples are scaled to at most `width` columns.
std::string drawPlan(const step::Plan &plan, int32_t units, int width = 64);

} // namespace zorse::planning
