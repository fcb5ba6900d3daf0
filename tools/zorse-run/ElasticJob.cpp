#include "ElasticJob.h"

#include "NewestState.h"

#include "zorse/Base/Format.h"
#include "zorse/runtime/CheckpointFiles.h"
#include "zorse/runtime/StartCommand.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>

#include <unistd.h>

using namespace zorse::run;
using namespace zorse::runtime;
using zorse::runtime::launching::startCommandLine;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Membership::Options rulesOf(const Options &o) {
  Membership::Options rules;
  rules.rejoinSeconds = o.rejoinSeconds;
  return rules;
}

/// Folder of the bundles compiled for this one.
std::string standbyFolder(const Options &o, const Bundle &bundle) {
  constexpr size_t kDigits = 12;
  return o.checkpointDirectory + "/standby-" + bundle.digest.substr(0, kDigits);
}

/// Returns the names that others does not have.
DeviceNames without(const DeviceNames &names, const DeviceNames &others) {
  DeviceNames rest;
  std::set_difference(names.begin(), names.end(), others.begin(), others.end(),
                      std::inserter(rest, rest.end()));
  return rest;
}

size_t countOf(const std::vector<bool> &members) {
  return static_cast<size_t>(std::count(members.begin(), members.end(), true));
}

std::string countText(size_t count, size_t of) {
  return std::to_string(count) + " of " + std::to_string(of) + " devices";
}

} // namespace

ElasticJob::ElasticJob(const Options &options, const Bundle &bundle)
    : o(options), bundle(bundle), membership(bundle.devices.size(), rulesOf(options)),
      bundles(options.bundle, standbyFolder(options, bundle)),
      discovery(options.discoveryScript, options.checkpointDirectory + "/discovery.txt",
                [](const std::string &text) { fprintf(stderr, "%s\n", text.c_str()); }),
      stragglers(options), members(bundle.devices.size(), true), current(options.bundle) {}

Status ElasticJob::prepare(LaunchOptions &launching) const {
  describeResumption(launching);
  launching.startCommand = o.startCommand;
  if (o.startCommand.empty())
    return Status::success();
  launching.nodeNames = nodesOf(namesOf(members));
  if (launching.nodeNames.empty())
    return userError("--start-command: " + o.bundle +
                     " does not say on which nodes its devices are: compile it again");
  Result<std::string> secret = jobSecret(o.secretFile);
  if (secret.failed())
    return secret.error();
  launching.key.secret = *secret;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  RankEnvironment here;
  here.coordinator = {{host, 0}};
  Result<std::string> address = coordinatorAddress(here, o.listen);
  if (address.failed())
    return address.error();
  launching.listenAddress = *address;
  std::error_code none; // ranks on other nodes start the same file
  launching.program = std::filesystem::read_symlink("/proc/self/exe", none).string();
  return Status::success();
}

/// A resumed job begins with all devices, whichever took part before its driver ended.
void ElasticJob::describeResumption(LaunchOptions &launching) const {
  const std::optional<EndedStart> ended = o.resume ? readEndedStart(o.metrics) : std::nullopt;
  if (!ended)
    return;
  const std::vector<std::string> all = namesOf(members),
                                 &before = ended->devices.empty() ? all : ended->devices;
  const DeviceNames now(all.begin(), all.end()), then(before.begin(), before.end());
  launching.environment["ZORSE_CHANGE"] =
      changeText("the job was resumed", ended->writtenAt, without(then, now), without(now, then));
}

void ElasticJob::removeMemoryOfOthers() const {
  if (o.memoryInterval == 0 || o.startCommand.empty())
    return;
  const std::vector<std::string> all = nodesOf(namesOf(std::vector<bool>(members.size(), true))),
                                 present = nodesOf(namesOf(members));
  const std::set<std::string> remaining(present.begin(), present.end());
  const std::string folder = memoryCheckpointFolder(o.memoryDirectory, o.checkpointDirectory);
  std::vector<std::unique_ptr<BackgroundProcess>> processes;
  for (const std::string &node : std::set<std::string>(all.begin(), all.end())) {
    if (remaining.count(node))
      continue;
    Result<std::unique_ptr<BackgroundProcess>> started = BackgroundProcess::start(
        {"/bin/sh", "-c", startCommandLine(o.startCommand, node, "/", {}, {"rm", "-rf", folder})},
        "/dev/null", /*urgent=*/true);
    if (!started.failed())
      processes.push_back(std::move(*started));
  }
  constexpr double kSeconds = 10; // a node that is gone does not answer
  const double end = now() + kSeconds;
  for (const std::unique_ptr<BackgroundProcess> &process : processes)
    while (!process->poll() && now() < end)
      ::usleep(10000);
}

DeviceNames ElasticJob::excludedBy(const std::vector<bool> &taking) const {
  DeviceNames excluded;
  for (size_t d = 0; d < taking.size(); ++d)
    if (!taking[d])
      excluded.insert(bundle.devices[d].name);
  return excluded;
}

/// The slowdowns of devices that do not take part do not count.
Variant ElasticJob::variantOf(const std::vector<bool> &taking, const Slowdowns &slowdowns) const {
  Variant variant{excludedBy(taking), {}};
  for (const auto &[name, times] : slowdowns)
    if (variant.excluded.count(name) == 0)
      variant.slowdowns[name] = times;
  return variant;
}

std::vector<std::string> ElasticJob::namesOf(const std::vector<bool> &taking) const {
  std::vector<std::string> names;
  for (size_t d = 0; d < taking.size(); ++d)
    if (taking[d])
      names.push_back(bundle.devices[d].name);
  return names;
}

std::vector<std::string> ElasticJob::nodesOf(const std::vector<std::string> &devices) const {
  std::vector<std::string> nodes;
  for (const std::string &name : devices)
    for (size_t d = 0; d < bundle.devices.size(); ++d)
      if (bundle.devices[d].name == name && bundle.topology.nodes_size() > 0)
        nodes.push_back(bundle.topology.nodes(int(bundle.topology.node_of_device(int(d)))).name());
  return nodes;
}

/// Compiles the bundles for the loss of each device, sequentially.
void ElasticJob::prepareStandby() {
  if (countOf(members) <= std::max<size_t>(o.minDevices, 1))
    return;
  // The compiler would slow down the first steps after a change.
  constexpr double kSeconds = 3;
  if (now() < startedAt + kSeconds && describeProgress(o.checkpointDirectory) == progressAtStart)
    return;
  for (size_t d = 0; d < members.size(); ++d) {
    if (!members[d])
      continue;
    std::vector<bool> left = members;
    left[d] = false;
    bundles.request(variantOf(left, planned), current, /*urgent=*/false);
  }
}

/// Whether the ranks should stop because a plan for the present speeds is faster.
bool ElasticJob::isOtherPlanFaster(double time) {
  stragglers.poll();
  const Variant other = variantOf(members, stragglers.observed());
  if (other.slowdowns == planned || bundles.problem(other))
    return false;
  const std::optional<std::string> path = bundles.find(other);
  if (!path) {
    bundles.request(other, current, /*urgent=*/false);
    return false;
  }
  const std::optional<std::string> reason =
      stragglers.reasonFor({*path, other.slowdowns}, {current, planned}, time);
  if (reason)
    faster = {other.slowdowns, *reason};
  return reason.has_value();
}

/// Takes the result of a compilation, and says at once if the job could not continue without some
/// devices.
void ElasticJob::pollBundles() {
  const std::optional<Variant> failed = bundles.poll();
  if (!failed || o.quiet)
    return;
  const std::string what = failed->slowdowns.empty()
                               ? "the job cannot continue without " + listed(failed->excluded)
                               : "no plan for devices with the slowdowns " +
                                     slowdownText(failed->slowdowns);
  fprintf(stderr, "warning: %s: %s\n", what.c_str(), bundles.problem(*failed)->c_str());
}

void ElasticJob::pollDiscovery(double time) {
  const std::optional<DeviceNames> listed = discovery.poll(time);
  if (!listed)
    return;
  std::vector<bool> available;
  for (const BundleDevice &device : bundle.devices) {
    const std::vector<std::string> node = nodesOf({device.name});
    available.push_back(listed->count(device.name) > 0 ||
                        (!node.empty() && listed->count(node.front()) > 0));
  }
  membership.setAvailable(available);
}

bool ElasticJob::shouldStop() {
  pollBundles();
  const double time = now();
  pollDiscovery(time);
  const std::vector<bool> wanted = membership.wanted(time);
  const Variant variant = variantOf(wanted, planned);
  if (wanted == members || countOf(wanted) < o.minDevices || bundles.problem(variant)) {
    if (isOtherPlanFaster(time))
      return true;
    prepareStandby();
    return false;
  }
  if (bundles.find(variant))
    return true;
  bundles.request(variant, current, /*urgent=*/false);
  return false;
}

std::vector<size_t> ElasticJob::devicesOf(const std::set<uint32_t> &ranks) const {
  std::vector<size_t> devices;
  uint32_t rank = 0;
  for (size_t d = 0; d < members.size(); ++d)
    if (members[d] && ranks.count(rank++))
      devices.push_back(d);
  return devices;
}

/// Notes which devices failed or leave. If there is no newer checkpoint than at the last failure,
/// the job has not progressed.
void ElasticJob::takeEnd(const LaunchOutcome &outcome, double time) {
  membership.left(devicesOf({outcome.leaving.begin(), outcome.leaving.end()}), time);
  if (!outcome.failed)
    return;
  const std::string now = describeProgress(o.checkpointDirectory);
  if (now != progress)
    membership.progressed();
  progress = now;
  // The ranks of a node that is gone cannot end.
  std::set<uint32_t> failing(outcome.lost.begin(), outcome.lost.end());
  failing.insert(outcome.rank);
  membership.failed(devicesOf(failing), time);
}

/// Waits for devices, which may be available or tried again later. \param reason  why those that
/// are there are not enough
Reconfiguration::Next ElasticJob::waitForDevices(double time, const std::string &reason) {
  const bool never = o.discoveryScript.empty() && std::isinf(membership.nextTry());
  if (!waitingSince && !never) {
    waitingSince = time;
    return {Next::Action::Wait, "zorse-run: " + reason + "\nzorse-run: waiting at most " +
                                    format("%g s", o.waitSeconds) + " for devices"};
  }
  if (!never && time < *waitingSince + o.waitSeconds)
    return {};
  return {Next::Action::End, "error: " + reason +
                                 (never ? "" : "; no other devices came within --wait-seconds") +
                                 ". Resume with --resume when they are there"};
}

/// Describes the change for the metrics of rank 0 (JobOutput::begin).
std::string ElasticJob::changeText(const std::string &reason, double since, const DeviceNames &left,
                                   const DeviceNames &joined) const {
  const nlohmann::ordered_json change = {
      {"devices", namesOf(members)}, {"left", left},     {"joined", joined},
      {"slowdowns", planned},        {"reason", reason}, {"since", since}};
  return change.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string ElasticJob::describeStart(const std::string &reason, const DeviceNames &left,
                                      const DeviceNames &joined) const {
  const std::string from = newestState(o);
  return "zorse-run: " + (reason.empty() ? "" : reason + "; ") +
         (left.empty() ? "" : "without " + listed(left) + ", ") +
         (joined.empty() ? "" : "with " + listed(joined) + " again, ") + "going on with " +
         countText(countOf(members), members.size()) + " from " +
         (from.empty() ? "the beginning" : from);
}

Reconfiguration::Next ElasticJob::start(const LaunchOutcome &outcome,
                                        const std::vector<bool> &wanted, const Variant &variant,
                                        LaunchOptions &launching) {
  const DeviceNames before = excludedBy(members);
  const std::string reason = !outcome.why.empty() ? outcome.why : faster ? faster->reason : "";
  faster.reset();
  members = wanted;
  current = *bundles.find(variant);
  planned = variant.slowdowns;
  startedAt = now();
  progressAtStart = describeProgress(o.checkpointDirectory);
  waitingSince.reset();
  launching.deviceNames = namesOf(members);
  launching.worldSize = launching.localRanks = static_cast<uint32_t>(launching.deviceNames.size());
  launching.environment["ZORSE_BUNDLE"] = current;
  launching.nodeNames = nodesOf(launching.deviceNames);
  const DeviceNames after = excludedBy(members), left = without(after, before),
                    joined = without(before, after);
  const double wall =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  launching.environment["ZORSE_CHANGE"] =
      changeText(reason, wall - outcome.seconds - (now() - endedAt), left, joined);
  return {Next::Action::Start, o.quiet ? "" : describeStart(reason, left, joined)};
}

Reconfiguration::Next ElasticJob::next(const LaunchOutcome &outcome, LaunchOptions &launching) {
  pollBundles();
  const double time = now();
  if (outcome.start != endedStart) {
    endedStart = outcome.start;
    endedAt = time;
    takeEnd(outcome, time);
  }
  if (membership.isHopeless())
    return {Next::Action::End, "error: " + outcome.why +
                                   "; the fifth failure without a new checkpoint in between: the "
                                   "cause is not a device"};
  pollDiscovery(time);
  const std::vector<bool> wanted = membership.wanted(time);
  if (outcome.failed)
    faster.reset();
  Variant variant = variantOf(wanted, faster ? faster->slowdowns : planned);
  if (bundles.problem(variant)) // perhaps the devices' present speeds are the reason
    variant.slowdowns.clear();
  if (const size_t least = std::max<size_t>(o.minDevices, 1); countOf(wanted) < least)
    return waitForDevices(time, (outcome.why.empty() ? "" : outcome.why + "; ") +
                                    countText(countOf(wanted), wanted.size()) +
                                    " are available, fewer than --min-devices " +
                                    std::to_string(least));
  if (bundles.find(variant))
    return start(outcome, wanted, variant, launching);
  if (const std::optional<std::string> problem = bundles.problem(variant))
    return waitForDevices(time, (outcome.why.empty() ? "" : outcome.why + "; ") +
                                    "the devices that are left cannot continue without " +
                                    listed(variant.excluded) + ":\n" + *problem);
  bundles.request(variant, current, /*urgent=*/true);
  return {};
}
