// zorse-profile: measures a bundle's unit functions on the devices of this machine, and the links
// between its ranks; writes profile.json (docs/reference/profile-json.md).
#include "FunctionTimer.h"
#include "ParseFlags.h"

#include "zorse/Base/Format.h"
#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Planning/Cluster.h"
#include "zorse/runtime/Control.h"
#include "zorse/runtime/DeviceFactors.h"
#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Hardware.h"
#include "zorse/runtime/Measure.h"
#include "zorse/runtime/OutputFile.h"
#include "zorse/runtime/Overwrites.h"
#include "zorse/runtime/StandardStreams.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <sstream>
#include <thread>
#include <tuple>

#include <unistd.h>

using namespace zorse;
using namespace zorse::profile;
using namespace zorse::runtime;

namespace {

struct Options {
  std::string bundle, output = "profile.json", as, secretFile, listen;
  std::vector<int64_t> rows;
  std::vector<std::string> throttle;
  double seconds = 120, linkSeconds = 1, joinSeconds = 60;
  uint64_t memory = 0;
  uint32_t nodeConnections = 1;
  bool processes = false, noLinks = false, quiet = false, shareGpus = false;
};

int exitCode(const Error &error) { return error.kind == ErrorKind::User ? 1 : 2; }

void complain(const Error &error) {
  std::fprintf(stderr, "%s: %s\n", error.kind == ErrorKind::User ? "error" : "internal error",
               error.text().c_str());
}

class Profiler {
public:
  Profiler(const Options &options, const Bundle &bundle) : o(options), bundle(bundle) {}

  /// Measures the device `index` on this machine.
  /// \param ordinal  index of its hardware unit.
  /// \param threadsHere  threads of all devices of this host
  Result<planning::DeviceProfile> device(uint32_t index, int ordinal, int threadsHere) {
    if (bundle.summary.device_groups_size())
      return userError("the bundle's units are divided by groups of devices (tensor parallelism), "
                       "whose functions cannot be measured alone: profile a bundle of this model "
                       "that was compiled with a plan without \"groups\"");
    Result<std::vector<double>> shares = deviceFactors("--throttle", o.throttle, 1, bundle);
    if (shares.failed())
      return shares.error();
    const double share = (*shares)[index];
    Result<std::unique_ptr<QueuedDevice>> device =
        makeDevice(bundle, index, ordinal, threadsHere, share);
    if (device.failed())
      return device.error();
    const bool cpus = deviceKindOf(bundle.devices[index].kind).hostCpus;
    if (Status status = (*device)->loadFunctions(bundle.functionsOf(index), bundle.kernels);
        status.failed())
      return status;
    CpuQuota quota = cpuQuota();
    TimerOptions options;
    options.rows = o.rows.empty() ? usualRows() : o.rows;
    options.budgetSeconds = o.seconds;
    RankHardware hardware = hardwareOfThisProcess();
    // Use at most half of the memory: the rest is for other processes and the profiler's own
    // copies.
    const uint64_t own = (*device)->ownMemory(), has = own ? own : hardware.memory;
    uint64_t there = bundle.devices[index].memory ? std::min(has, bundle.devices[index].memory)
                     : own                        ? own
                                                  : has / uint64_t(std::max(threadsHere, 1));
    options.memory = o.memory ? o.memory : std::min<uint64_t>(there / 2, uint64_t(4) << 30);
    std::string name = bundle.devices[index].name,
                prefix = std::getenv("ZORSE_RANK") ? "" : name + ": "; // our launcher adds the name
    if (!o.quiet)
      options.say = [prefix](const std::string &line) {
        std::fprintf(stderr, "%s%s\n", prefix.c_str(), line.c_str());
      };
    if (cpus && bundle.devices[index].threads == 1 && share == 1)
      options.cpus = quota.cpus > 0 ? std::min(quota.cpus, 1.0) : 1.0;
    if (cpus && quota.cpus > 0 && quota.cpus <= bundle.devices[index].threads && share == 1)
      options.quota = quota.cpus;
    if (quota.cpus > 0) {
      options.sampleSeconds = std::max(options.sampleSeconds, 20 * quota.period);
      conditions = format("%.3g processors by control group, filled every %.3g ms", quota.cpus,
                          quota.period * 1e3);
      if (options.say)
        options.say(conditions + format(": samples last %.3g s", options.sampleSeconds));
    }
    double had = 0;
    Result<planning::DeviceProfile> profile = timeFunctions(**device, bundle, options, had);
    if (profile.failed())
      return profile;
    if (!conditions.empty())
      conditions += format(", of which it had %.4g", had);
    profile->device = name;
    profile->memory = has;
    return profile;
  }

  /// Called before any measurement.
  Status checkOutput() const {
    if (o.output == "-")
      return Status::success();
    if (Status status = checkOverwrites({{"the bundle", o.bundle}, {"--secret-file", o.secretFile}},
                                        {{"--output", o.output}});
        status.failed())
      return status;
    return checkWritable(o.output);
  }

  /// Default batch sizes: 1, 2, 4, ... up to min(batch, 16).
  std::vector<int64_t> usualRows() const {
    std::vector<int64_t> rows;
    for (int64_t r = 1; r <= std::min<int64_t>(bundle.batch, 16); r *= 2)
      rows.push_back(r);
    return rows;
  }

  planning::Profile empty() const {
    planning::Profile profile;
    profile.model = bundle.summary.content_hash();
    profile.precision = precisionOf(bundle.summary).name();
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    profile.comment = std::string("measured by zorse-profile on ") + host +
                      (conditions.empty() ? "" : ", " + conditions);
    return profile;
  }

  Status write(const planning::Profile &profile) const {
    const std::string contents = planning::writeProfile(profile);
    if (o.output == "-") {
      std::fwrite(contents.data(), 1, contents.size(), stdout);
      return Status::success();
    }
    if (Status status = writeOutput(o.output, contents); status.failed())
      return status;
    if (!o.quiet)
      std::printf("%s: %zu devices, %zu links\n", o.output.c_str(), profile.devices.size(),
                  profile.links.size());
    return Status::success();
  }

private:
  const Options &o;
  const Bundle &bundle;
  std::string conditions;
};

/// Measures each kind of device once, in one process. Equal devices get the same entry, each under
/// its name.
Status runAlone(const Options &o, const Bundle &bundle) {
  Profiler profiler(o, bundle);
  if (Status status = profiler.checkOutput(); status.failed())
    return status;
  int threads = 0;
  for (const BundleDevice &device : bundle.devices)
    threads = std::max(threads, device.threads); // devices are measured sequentially
  std::vector<RankHardware> facts;
  facts.reserve(bundle.devices.size());
  for (const BundleDevice &device : bundle.devices)
    facts.push_back(hardwareOfThisProcess(device.kind));
  // Devices are measured sequentially.
  if (Status status = assignUnits(bundle, facts, /*share=*/true); status.failed())
    return status;
  std::map<std::tuple<std::string, int, uint32_t, std::string>, planning::DeviceProfile>
      measured; // key: kind, threads, target, GPU
  planning::Profile profile;
  for (uint32_t d = 0; d < bundle.devices.size(); ++d) {
    const BundleDevice &device = bundle.devices[d];
    const HardwareUnit *hardware = facts[d].unit();
    const std::string unit = hardware ? hardware->model + ", " + std::to_string(hardware->memory)
                                      : ""; // GPUs of one model are equal
    auto found = measured.find({device.kind, device.threads, device.target, unit});
    if (found == measured.end()) {
      Result<planning::DeviceProfile> times = profiler.device(d, facts[d].ordinal, threads);
      if (times.failed())
        return times.error();
      found = measured
                  .emplace(std::make_tuple(device.kind, device.threads, device.target, unit),
                           std::move(*times))
                  .first;
    } else if (!o.as.empty()) {
      continue;
    }
    planning::DeviceProfile entry = found->second;
    entry.device = o.as.empty() ? device.name : o.as;
    profile.devices.push_back(std::move(entry));
  }
  if (!o.as.empty() && profile.devices.size() > 1)
    return userError("--device-type=" + o.as + ": the bundle has devices of " +
                     std::to_string(profile.devices.size()) + " kinds; compile the model for one");
  planning::Profile header = profiler.empty();
  header.devices = std::move(profile.devices);
  return profiler.write(header);
}

/// CPUs that communication of a rank takes from its computation; 0: other CPUs are free for it.
/// \param threadsHere  threads of all devices of this host
/// \param share        fraction of a CPU that throttling leaves each thread; communication pauses
///                     too
double sharedCpus(const BundleDevice &device, int threadsHere, double share) {
  if (!deviceKindOf(device.kind).hostCpus || share < 1)
    return 0;
  double there = std::max(1u, std::thread::hardware_concurrency()) * double(device.threads) /
                 std::max(threadsHere, 1);
  if (CpuQuota quota = cpuQuota(); quota.cpus > 0)
    there = std::min(there, quota.cpus);
  return there - device.threads >= 1 ? 0 : there;
}

/// Measures the CPU cost of communication on devices whose CPUs move the data, and adds it to the
/// profile.
Status communicationCost(Job &job, Transport &transport, const Options &o, const Bundle &bundle,
                         uint32_t rank, int threadsHere, uint32_t instruction,
                         planning::Profile &profile,
                         const std::function<void(const std::string &)> &say) {
  Result<std::vector<double>> shares = deviceFactors("--throttle", o.throttle, 1, bundle);
  if (shares.failed())
    return shares.error();
  Result<std::vector<std::string>> published = job.member().allGatherBytes(
      "processors",
      format("%.17g", sharedCpus(bundle.devices[rank], threadsHere, (*shares)[rank])));
  if (published.failed())
    return published.error();
  std::vector<double> cpus;
  std::vector<int> threads;
  for (size_t r = 0; r < published->size(); ++r) {
    cpus.push_back(std::atof((*published)[r].c_str()));
    threads.push_back(cpus.back() > 0 ? bundle.devices[r].threads : 0);
  }
  if (std::all_of(threads.begin(), threads.end(), [](int count) { return count == 0; }))
    return Status::success();
  Result<std::vector<CommunicationWork>> found =
      measureCommunicationCostOfAll(job.member(), transport, instruction, o.linkSeconds, threads);
  if (found.failed())
    return found.error();
  for (size_t r = 0; r < found->size(); ++r) {
    if (threads[r] == 0)
      continue;
    planning::DeviceProfile &device = profile.devices[r];
    device.communicationPerByte = (*found)[r].perByte / cpus[r];
    device.communicationPerMessage = (*found)[r].perMessage / cpus[r];
    device.communicationDelay = (*found)[r].delay;
    if (say)
      say(device.device +
          format(": a message takes %.3g us plus %.3g ns/byte of computing time",
                 device.communicationPerMessage * 1e6, device.communicationPerByte * 1e9) +
          format(", and waits %.3g ms while it computes", device.communicationDelay * 1e3));
  }
  return Status::success();
}

/// Assigns hardware to every device and checks that the job fits it.
Status placeDevices(const Bundle &bundle, std::vector<RankHardware> &ranks, bool share) {
  if (Status status = assignUnits(bundle, ranks, share); status.failed())
    return status;
  std::string note;
  return checkHardware(bundle, ranks, &note);
}

/// Returns the facts of every rank, with devices assigned to the hardware of its host.
Result<std::vector<RankHardware>> placedRanks(Job &job, const Options &o, const Bundle &bundle,
                                              uint32_t rank) {
  RankHardware mineFound = hardwareOfThisProcess(bundle.devices[rank].kind);
  mineFound.bundle = bundle.digest;
  Result<std::vector<std::string>> texts =
      job.member().allGatherBytes("facts", encodeHardware(mineFound));
  if (texts.failed())
    return texts.error();
  std::vector<RankHardware> ranks;
  for (const std::string &text : *texts) {
    Result<RankHardware> hardware = decodeHardware(text);
    if (hardware.failed())
      return hardware.error();
    ranks.push_back(std::move(*hardware));
  }
  if (Status status = placeDevices(bundle, ranks, o.shareGpus); status.failed())
    return status;
  return ranks;
}

/// Merges the measurements of all ranks into one profile.
Result<planning::Profile> gathered(Job &job, const planning::Profile &mine) {
  Result<std::vector<std::string>> all =
      job.member().allGatherBytes("profiles", planning::writeProfile(mine));
  if (all.failed())
    return all.error();
  planning::Profile together;
  for (const std::string &text : *all) {
    Result<planning::Profile> part = planning::readProfile(text);
    if (part.failed())
      return userError("the profile of a rank cannot be read: " + part.message());
    together.model = part->model;
    together.precision = part->precision;
    std::string comment = part->devices.front().device + ": " + part->comment;
    together.comment += (together.comment.empty() ? "" : "; ") + comment;
    together.devices.push_back(part->devices.front());
  }
  return together;
}

/// Measures the links between ranks and the cost of communication, and adds them to the profile.
Status measureTransfers(Job &job, const Options &o, const Bundle &bundle, uint32_t rank,
                        int threadsHere, planning::Profile &profile) {
  Result<std::vector<uint32_t>> nodes = nodesOfDevices(bundle);
  if (nodes.failed())
    return nodes.error();
  if (nodes->empty())
    nodes->assign(bundle.devices.size(), 0);
  Result<std::unique_ptr<Transport>> transport = job.connect(*nodes, o.nodeConnections);
  if (transport.failed())
    return transport.error();
  std::function<void(const std::string &)> say;
  if (rank == 0 && !o.quiet)
    say = [](const std::string &line) { std::fprintf(stderr, "links: %s\n", line.c_str()); };
  Result<std::vector<RankLink>> links =
      measureLinks(job.member(), **transport, *nodes, o.linkSeconds, say);
  if (links.failed())
    return links.error();
  const Result<planning::Cluster> cluster = planning::readCluster(bundle.cluster);
  for (const RankLink &link : *links) {
    bool inside = (*nodes)[link.a] == (*nodes)[link.b];
    auto name = [&](uint32_t of) {
      return inside || cluster.failed() ? bundle.devices[of].name
                                        : cluster->nodes[(*nodes)[of]].name;
    };
    planning::LinkProfile entry{name(link.a),
                                name(link.b),
                                std::max(link.alone.bandwidth, link.together),
                                link.alone.latency,
                                link.together > 0 ? link.alone.bandwidth : 0,
                                link.alone.halfBandwidthBytes};
    if (say)
      say(entry.from + " to " + entry.to +
          format(": %.4g MB/s, %.4g us", entry.bandwidth / 1e6, entry.latency * 1e6) +
          (entry.perFlowBandwidth > 0 ? format(", one flow %.4g MB/s", entry.perFlowBandwidth / 1e6)
                                      : ""));
    profile.links.push_back(entry);
  }
  return communicationCost(job, **transport, o, bundle, rank, threadsHere,
                           uint32_t(2 * (nodes->size() + nodes->size() * nodes->size() * 2) + 16),
                           profile, say);
}

Status measureInJob(Job &job, const Options &o, const Bundle &bundle,
                    const RankEnvironment &environment) {
  if (environment.worldSize != bundle.devices.size())
    return userError(o.bundle + ": has " + std::to_string(bundle.devices.size()) +
                     " devices, but " + environment.source + " started " +
                     std::to_string(environment.worldSize) +
                     " processes; start one process per device");
  Result<std::vector<RankHardware>> ranks = placedRanks(job, o, bundle, environment.rank);
  if (ranks.failed())
    return ranks.error();
  int threads = 0;
  for (uint32_t r = 0; r < environment.worldSize; ++r)
    if ((*ranks)[r].host == (*ranks)[environment.rank].host)
      threads += bundle.devices[r].threads;
  Profiler profiler(o, bundle);
  if (environment.rank == 0)
    if (Status status = profiler.checkOutput(); status.failed())
      return status;
  Result<planning::DeviceProfile> times =
      profiler.device(environment.rank, (*ranks)[environment.rank].ordinal, threads);
  if (times.failed())
    return times.error();
  planning::Profile mine = profiler.empty();
  mine.devices.push_back(std::move(*times));
  Result<planning::Profile> together = gathered(job, mine);
  if (together.failed())
    return together.error();
  if (!o.noLinks && environment.worldSize > 1)
    if (Status status = measureTransfers(job, o, bundle, environment.rank, threads, *together);
        status.failed())
      return status;
  return environment.rank == 0 ? profiler.write(*together) : Status::success();
}

/// Runs one rank: measures its device at the same time as the other ranks measure theirs, then the
/// links.
Status runRank(const Options &o, const Bundle &bundle, const RankEnvironment &environment) {
  JobOptions options;
  options.secretFile = o.secretFile;
  options.listen = o.listen;
  options.times.joinSeconds = o.joinSeconds;
  for (const BundleDevice &device : bundle.devices)
    options.names.push_back(device.name);
  Result<std::unique_ptr<Job>> joined = Job::join(environment, options);
  if (joined.failed())
    return joined.error();
  Job &job = **joined;
  if (Status status = measureInJob(job, o, bundle, environment); status.failed())
    job.fail(status.error());
  job.leave();
  return Status::success();
}

Result<int> start(const Options &o, int argc, char **argv) {
  Result<std::optional<RankEnvironment>> environment = readRankEnvironment(currentEnvironment());
  if (environment.failed())
    return environment.error();
  Result<Bundle> bundle = loadBundle(o.bundle);
  if (bundle.failed())
    return bundle.error();
  bool rank = *environment && (!o.processes || std::getenv("ZORSE_RANK")) &&
              ((*environment)->worldSize > 1 || std::getenv("ZORSE_RANK"));
  if (rank && !(*environment)->isNode) {
    Status status = runRank(o, *bundle, **environment);
    return status.failed() ? Result<int>(status) : 0;
  }
  if (rank)
    return userError(
        (*environment)->source +
        " started one process per node; start one per device, or use --spawn on one machine");
  if (o.processes) {
    LaunchOptions launching;
    launching.command.assign(argv, argv + argc);
    launching.program = "/proc/self/exe";
    launching.worldSize = launching.localRanks = uint32_t(bundle->devices.size());
    for (const BundleDevice &device : bundle->devices)
      launching.deviceNames.push_back(device.name);
    launching.key = randomJobKey();
    launching.times.joinSeconds = o.joinSeconds;
    return launch(launching);
  }
  takeSecretFromEnvironment(); // not needed without other ranks; the bundle's machine code must not
                               // see it
  Status status = runAlone(o, *bundle);
  return status.failed() ? Result<int>(status) : 0;
}

} // namespace

int main(int argc, char **argv) {
  zorse::runtime::openStandardStreams();
  Options o;
  CLI::App app{"Measures a bundle's unit functions on this machine's devices, and links between "
               "ranks, and writes a profile for zorse-plan and "
               "zorse-compile (docs/reference/profile-json.md)."};
  app.add_option("bundle", o.bundle, "bundle directory, compiled for these devices with any plan")
      ->required();
  app.add_option("-o,--output", o.output, "output file; -: standard output")->capture_default_str();
  app.add_option("--batch-sizes", o.rows,
                 "batch sizes to measure, separated by commas (default: 1,2,4,... up to the batch, "
                 "at most 16)")
      ->delimiter(',')
      ->check(CLI::Range(int64_t(1), int64_t(1) << 31));
  app.add_option("--max-seconds", o.seconds,
                 "time budget in seconds: no round starts after it; at least three rounds are done")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--max-memory", o.memory,
                 "memory limit in bytes (default: half of the device's memory, at most 4 GiB)");
  app.add_option("--device-type", o.as,
                 "write the times for this device or device type instead of the bundle's devices; "
                 "only without other processes");
  app.add_option("--throttle", o.throttle,
                 "DEVICE=SHARE, as in the run that the profile is for: slow a device down to the "
                 "fraction SHARE of its speed");
  app.add_flag("--share-gpus", o.shareGpus,
               "let devices share a GPU if a host has fewer GPUs than devices");
  app.add_flag("--spawn", o.processes,
               "start one process per device on this machine; measures all devices at the same "
               "time, and the links between them");
  app.add_flag("--no-links", o.noLinks, "do not measure links");
  app.add_option("--link-measure-seconds", o.linkSeconds,
                 "approximate measurement time per link, in seconds")
      ->capture_default_str()
      ->check(CLI::Range(0.05, 600.0));
  app.add_option("--connections-per-peer", o.nodeConnections,
                 "connections between two ranks of different nodes, as for zorse-run")
      ->capture_default_str()
      ->check(CLI::Range(1, 16));
  app.add_option("--secret-file", o.secretFile, "file with the job's secret, as for zorse-run");
  app.add_option("--local-addr", o.listen,
                 "address of this host for other ranks, as for zorse-run");
  app.add_option("--rdzv-timeout", o.joinSeconds,
                 "seconds after the start within which all ranks must connect")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
  app.add_flag("--quiet", o.quiet, "print errors only");
  if (std::optional<int> done = parseFlags(app, argc, argv, "zorse-profile"))
    return *done;
  std::sort(o.rows.begin(), o.rows.end());
  o.rows.erase(std::unique(o.rows.begin(), o.rows.end()), o.rows.end());
  try {
    Result<int> code = start(o, argc, argv);
    if (!code.failed())
      return *code;
    complain(code.error());
    return exitCode(code.error());
  } catch (const std::bad_alloc &) {
    complain(userError("out of memory; set smaller batch sizes with --batch-sizes"));
    return 1;
  }
}
