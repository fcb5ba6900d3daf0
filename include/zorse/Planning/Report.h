// Reports about a plan: tables, an HTML page with charts, JSON, explanations, and comparisons of
// two plans.
#pragma once

#include "zorse/Planning/LowerBound.h"
#include "zorse/Planning/Strategy.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace zorse::planning {

/// Time and memory of a plan on a cluster, from its full expansion. Times are seconds of one step,
/// sizes are bytes, shares are fractions of 1.
struct Report {
  struct Stage {
    uint32_t pipeline = 0; ///< devices that exchange samples are in one pipeline
    int32_t unitBegin = 0, unitEnd = 0;
    std::string units; ///< "embedding ... block 7 attention"
    std::vector<uint32_t> devices;
    std::string deviceTypes; ///< "4 x A100-40, 2 x T4"
    int64_t samples = 0;
    int64_t minRows = 0, maxRows = 0; ///< of the stage's micro-batches
    /// Shares of its samples for which the stage executes its first and its last unit; less than 1
    /// if stages share units.
    double firstFraction = 1, lastFraction = 1;
    double meanBusy = 0, maxBusy = 0;   ///< shares of the step
    uint64_t memory = 0, available = 0; ///< of the stage's fullest device; available 0: unlimited
  };
  /// Devices that divide units.
  struct Group {
    std::string name;
    std::vector<uint32_t> devices;
    std::vector<double> shares;         ///< by device, relative
    int32_t unitBegin = 0, unitEnd = 0; ///< from its first to its last unit
    double exchangeSeconds = 0;         ///< of the collectives of its first device in a step
    bool acrossSites = false;           ///< its devices are in several sites
  };
  struct Device {
    std::string name, type, node;
    int64_t cells = 0;
    int64_t samples = 0; ///< number of distinct samples the device works on
    double forward = 0, backward = 0, weights = 0, other = 0; ///< seconds of compute
    uint64_t memory = 0, available = 0; ///< without the reserve; available 0: unlimited
    step::MemoryUse use;
    double busy() const { return forward + backward + weights + other; }
  };
  struct Type {
    std::string name;
    uint32_t devices = 0, used = 0;
    double utilisation = 0; ///< mean busy share of the used devices
    double work = 0;        ///< share of all FLOPs on these devices
  };
  struct BusyLink {
    std::string name;
    double bytes = 0, bandwidth = 0;
    double fraction = 0; ///< share of the step in which the link is busy
  };

  std::string model, cluster, schedule;
  int64_t batch = 0, tokensPerSample = 0; ///< tokensPerSample 0: the model has no token ids
  double step = 0;
  bool givenDurations = false; ///< the plan has durations: they determine `step`; the efficiency is
                               ///< that of modeled times
  Efficiency efficiency;
  std::vector<Stage> stages;   ///< by first unit
  std::vector<Group> groups;   ///< as in the plan
  std::vector<Device> devices; ///< as in the plan
  std::vector<Type> types;
  std::vector<BusyLink> links;      ///< the busiest first
  std::vector<std::string> sources; ///< sources of times, and assumptions, per type of the devices
                                    ///< in use: "A100-40: modeled: ..."
  std::vector<std::string> assumptions; ///< about model and memory: Problem::assumptions
  double price = 0,
         egress = 0; ///< per hour of the devices in use; per step for bytes that leave sites
  std::string currency;
  uint32_t instructions = 0;

  double samplesPerSecond() const { return step > 0 ? double(batch) / step : 0; }
  double tokensPerSecond() const { return samplesPerSecond() * double(tokensPerSample); }
};

/// Expands and simulates a plan and summarizes it.
/// \param graph  receives the expansion, for charts, if not null
Result<Report> makeReport(const Problem &problem, const step::Plan &plan,
                          step::StepGraph *graph = nullptr);

/// Prints tables for a terminal: stages, device types, devices (those of the first stages if there
/// are more than `maxDevices`), links, time and its factors.
/// \param folded  three or more equal stages, and devices with equal values, share a row
std::string printReport(const Report &report, size_t maxDevices = 32, bool folded = true);

/// {"format": 1, ...}: docs/reference/report-json.md.
std::string writeReportJson(const Report &report);

/// A bottleneck of the plan, or the effect of a change of the cluster, in one line. Changes of
/// links are simulated with the same plan. For others (one more device of a type, more memory) the
/// planner runs again; without a callback they are omitted. If planning again finds nothing better,
/// the same plan on the changed cluster is used.
struct Reason {
  std::string what; ///< "memory of a100:0 is 98 % full"
  double gain = 0;  ///< gain in step time, or in the price of a sample, as a fraction; negative:
                    ///< slower or more expensive; 0: a remark
  bool price = false;
};
/// Returns "the step would take 12.5 % less" or "a sample would cost 3.0 % more"; empty for a
/// remark.
std::string showGain(const Reason &reason);
/// Result of planning again: seconds of a step, and the price per hour.
struct Replanned {
  double step = 0, price = 0;
};
/// Plans for another cluster; nullopt: there is no plan.
using PlanAgain = std::function<std::optional<Replanned>(const Cluster &)>;
/// \param byPrice  new plans are compared by the price of a sample
/// \param given    the plan was read, not found by the search: other plans on the same cluster are
/// tried, too
std::vector<Reason> explain(const Problem &problem, const step::Plan &plan, const Report &report,
                            const PlanAgain &planAgain, bool byPrice = false, bool given = false);
std::string printReasons(const std::vector<Reason> &reasons);

/// Writes a self-contained HTML page: the tables, the timeline, memory over the step, the tiling,
/// the reasons.
std::string writeReportPage(const Report &report, const step::Plan &plan,
                            const step::StepGraph &graph, const std::vector<Reason> &reasons);

/// Prints two reports of one model next to each other.
std::string compareReports(const Report &a, const std::string &nameA, const Report &b,
                           const std::string &nameB);

/// Result of one planner. printOutcomes lists the fastest first, and the message of planners
/// without a plan.
struct PlannerOutcome {
  std::string name, title;
  double step = 0; ///< seconds by the full expansion; 0: none
  std::string why; ///< message if there is no plan
};
std::string printOutcomes(std::vector<PlannerOutcome> outcomes, int64_t batch,
                          int64_t tokensPerSample);

/// Positions of the model's token input; 0: the model has none.
int64_t tokensPerSample(const bundle::ModelSummary &summary);

/// Draws the rectangle of units x samples, one letter per device, and the legend:
///
///     samples      0       8       16      24     32
///     units 0-2    aaaaaaaabbbbbbbbaaaaaaaabbbbbbbb
///     units 2-6    cccccccccccccccccccccccccccccccc
///
/// Equal neighboring rows are merged; samples are scaled to at most `width` columns.
std::string drawPlan(const step::Plan &plan, int32_t units, int width = 64);

} // namespace zorse::planning
