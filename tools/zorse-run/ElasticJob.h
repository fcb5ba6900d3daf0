// An elastic job: it continues with the devices that are left after a failure, and with those that
// join.
#pragma once

#include "DeviceDiscovery.h"
#include "Options.h"
#include "StandbyBundles.h"
#include "StragglerPolicy.h"

#include "zorse/runtime/Launch.h"
#include "zorse/runtime/Membership.h"

namespace zorse::run {

/// - A device whose rank fails is left out. The others go on from the newest checkpoint, with a
///   bundle that was compiled during training (StandbyBundles).
/// - A device that the discovery script does not list any more, or whose rank is asked to end
///   (SIGTERM), leaves after the current step, and one that joins takes part from the next step on:
///   no step is lost.
/// - If a device has become slow, the job continues with a plan for its speed if that pays
///   (StragglerPolicy).
class ElasticJob final : public runtime::Reconfiguration {
public:
  /// Both must outlive the object. \param bundle  with all devices that may take part
  ElasticJob(const Options &options, const runtime::Bundle &bundle);

  /// Sets how ranks are started, if --start-command is given, and what the metrics tell about a job
  /// that resumes. Fails if the bundle does not say on which nodes its devices are.
  runtime::Status prepare(runtime::LaunchOptions &launching) const;

  /// After the end of the job: removes the checkpoints in memory of nodes that do not take part any
  /// more.
  void removeMemoryOfOthers() const;

  bool shouldStop() override;
  Next next(const runtime::LaunchOutcome &outcome, runtime::LaunchOptions &launching) override;

private:
  DeviceNames excludedBy(const std::vector<bool> &members) const;
  Variant variantOf(const std::vector<bool> &members, const Slowdowns &slowdowns) const;
  std::vector<std::string> namesOf(const std::vector<bool> &members) const;
  std::vector<std::string> nodesOf(const std::vector<std::string> &devices) const;
  std::vector<size_t> devicesOf(const std::set<uint32_t> &ranks) const;
  void takeEnd(const runtime::LaunchOutcome &outcome, double now);
  void pollBundles();
  void pollDiscovery(double now);
  void prepareStandby();
  bool isOtherPlanFaster(double now);
  Next waitForDevices(double now, const std::string &reason);
  Next start(const runtime::LaunchOutcome &outcome, const std::vector<bool> &wanted,
             const Variant &variant, runtime::LaunchOptions &launching);
  void describeResumption(runtime::LaunchOptions &launching) const;
  std::string changeText(const std::string &reason, double since, const DeviceNames &left,
                         const DeviceNames &joined) const;
  std::string describeStart(const std::string &reason, const DeviceNames &left,
                            const DeviceNames &joined) const;

  const Options &o;
  const runtime::Bundle &bundle;
  runtime::Membership membership;
  StandbyBundles bundles;
  DeviceDiscovery discovery;
  StragglerPolicy stragglers;
  std::vector<bool> members; ///< of the running start, by device of `bundle`
  std::string current;       ///< path of its bundle
  Slowdowns planned;         ///< that its plan knows
  struct FasterPlan {
    Slowdowns slowdowns;
    std::string reason;
  };
  std::optional<FasterPlan> faster;   ///< why the ranks stop
  std::optional<uint64_t> endedStart; ///< last start whose end was taken into account
  double endedAt = 0;                 ///< time of that
  std::string progress;               ///< describeProgress at the last failure
  double startedAt = 0;               ///< last change
  std::string progressAtStart;        ///< describeProgress then
  std::optional<double> waitingSince; ///< too few devices since then
};

} // namespace zorse::run
