#include "zorse/runtime/Hardware.h"
#include "Units.h"

#include "zorse/runtime/Drivers.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

#include <sched.h>
#include <unistd.h>

using namespace zorse::runtime;
using nlohmann::json;

namespace {

uint64_t numberIn(const char *path) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? number : UINT64_MAX; // "max" is not a number
}

uint64_t memoryHere() {
  uint64_t machine = uint64_t(::sysconf(_SC_PHYS_PAGES)) * uint64_t(::sysconf(_SC_PAGESIZE));
  return std::min({machine, numberIn("/sys/fs/cgroup/memory.max"),
                   numberIn("/sys/fs/cgroup/memory/memory.limit_in_bytes")});
}

std::string hostHere() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::string(name) + (boot.empty() ? "" : " (" + boot.substr(0, 8) + ")");
}

int coresHere() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                       : int(::sysconf(_SC_NPROCESSORS_ONLN));
}

std::string rankText(const Bundle &bundle, const std::vector<RankHardware> &ranks, size_t rank) {
  return "rank " + std::to_string(rank) + " (device " + bundle.devices[rank].name + ", host " +
         ranks[rank].host + ")";
}

constexpr const char *kNoGpu = "none"; ///< RankHardware.processor of a rank without a GPU
constexpr size_t kMaxUnits = 1024;     ///< limit of the units of a host

/// The `arch` values for the cluster file that the device supports.
std::string runnable(const std::string &cpu, bool gpu) {
  const std::string code = zorse::deviceKindOf(gpu ? "cuda" : "cpu").codeFor(cpu);
  return code.empty() ? cpu : code;
}

/// Explains why ranks cannot run their code: one message for all ranks of an architecture that
/// found the same hardware.
std::string wrongCpus(const Bundle &bundle, const std::vector<RankHardware> &ranks) {
  std::map<std::pair<std::string, std::string>, std::vector<size_t>> wrong; // ranks by architecture
                                                                            // and found hardware
  for (size_t r = 0; r < ranks.size(); ++r)
    if (const std::string &arch = bundle.functionsOf(uint32_t(r)).arch();
        !zorse::deviceKindOf(bundle.devices[r].kind).runs(ranks[r].cpu, arch))
      wrong[{arch, ranks[r].cpu}].push_back(r);
  std::string text;
  for (const auto &[what, found] : wrong) {
    const bool gpus = !zorse::deviceKindOf(bundle.devices[found.front()].kind).hostCpus;
    text += "\n  " + rankText(bundle, ranks, found.front());
    if (found.size() > 1)
      text += " and " + std::to_string(found.size() - 1) + " more";
    if (gpus && what.second == kNoGpu)
      text += ": the bundle's kernels are for GPUs (" + what.first +
              "), and no GPU is found there, or no driver of NVIDIA's (libcuda.so.1); start these "
              "ranks on machines with GPUs (zorse-cluster shows what "
              "a machine has), or compile the model for a cluster of the devices that are there";
    else
      text += ": the bundle's kernels are for " + what.first + ", this " +
              (gpus ? "GPU" : "processor") + " is " + what.second +
              "; set 'arch: " + runnable(what.second, gpus) +
              "' of the device in the cluster file, or compile the model for the oldest " +
              (gpus ? "GPU" : "processor") + " of the cluster";
  }
  return text.empty() ? text : text.substr(3); // the caller adds the separator
}

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

/// GPUs of one host with devices that plan more memory than they have: one message for all.
std::string fullGpus(const Bundle &bundle, const std::vector<RankHardware> &ranks,
                     const std::vector<size_t> &here) {
  struct Use {
    uint64_t planned = 0;
    std::string devices;
    const HardwareUnit *unit = nullptr;
  };
  std::map<std::string, Use> uses;
  for (size_t r : here)
    if (const HardwareUnit *unit = ranks[r].unit(); unit && unit->memory > 0) {
      Use &use = uses[unit->id];
      use.unit = unit;
      use.planned += plannedBytes(bundle, r, /*onDevice=*/true);
      use.devices += (use.devices.empty() ? "" : ", ") + bundle.devices[r].name;
    }
  std::string text;
  for (const auto &[id, use] : uses)
    if (use.planned > use.unit->memory)
      text += (text.empty() ? "" : "\n  ") +
              ("GPU " + describe(*use.unit) + " of host " + ranks[here.front()].host + ": has " +
               mebibytes(use.unit->memory) + " of memory, devices " + use.devices + " plan " +
               mebibytes(use.planned) +
               " on it; give them less 'memory' in the cluster file, or fewer of them that GPU");
  return text;
}

} // namespace

uint64_t zorse::runtime::plannedBytes(const Bundle &bundle, size_t device, bool onDevice) {
  const bool own = !zorse::deviceKindOf(bundle.devices[device].kind).sharesHostMemory;
  uint64_t bytes = 0;
  for (const bundle::Arena &arena : bundle.programs[device].arenas())
    if ((own && arena.kind() == bundle::DEVICE) == onDevice)
      bytes += arena.bytes();
  return bytes;
}

RankHardware zorse::runtime::hardwareOfThisProcess(const std::string &kind) {
  RankHardware hardware;
  hardware.host = hostHere();
  for (const Driver &driver : drivers())
    if (kind == driver.kind)
      hardware.units = driver.units();
  if (const char *visible = std::getenv("CUDA_VISIBLE_DEVICES");
      visible && !zorse::deviceKindOf(kind).hostCpus)
    hardware.visible = visible;
  hardware.cores = coresHere();
  hardware.memory = memoryHere();
  return hardware;
}

std::string zorse::runtime::encodeHardware(const RankHardware &hardware) {
  json units = json::array();
  for (const HardwareUnit &unit : hardware.units)
    units.push_back(json{{"id", unit.id},
                         {"address", unit.address},
                         {"model", unit.model},
                         {"architecture", unit.architecture},
                         {"memory", unit.memory}});
  return json{
      {"host", hardware.host},     {"cores", hardware.cores},     {"memory", hardware.memory},
      {"units", std::move(units)}, {"visible", hardware.visible}, {"driver", hardware.driver},
      {"nccl", hardware.nccl},     {"no_nccl", hardware.noNccl},  {"throttled", hardware.throttled},
      {"bundle", hardware.bundle}, {"run", hardware.run}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<RankHardware> zorse::runtime::decodeHardware(const std::string &text) {
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  RankHardware hardware;
  try {
    hardware.host = parsed.at("host");
    // The JSON library would convert real numbers and wrap large ones.
    if (!parsed.at("units").is_array() || parsed["units"].size() > kMaxUnits ||
        !parsed.at("cores").is_number_unsigned() || parsed["cores"].get<uint64_t>() > INT32_MAX ||
        !parsed.at("memory").is_number_unsigned())
      return userError("a rank publishes facts that cannot be read (numbers of cores and bytes are "
                       "expected); start every rank with the same version of Zorse");
    hardware.cores = parsed["cores"].get<int>();
    hardware.memory = parsed["memory"].get<uint64_t>();
    hardware.visible = parsed.at("visible");
    for (const json &unit : parsed["units"]) {
      if (!unit.at("memory").is_number_unsigned())
        return userError("a rank publishes a GPU without a number of bytes; start every rank with "
                         "the same version of Zorse");
      hardware.units.push_back({unit.at("id"), unit.at("address"), unit.at("model"),
                                unit.at("architecture"), unit["memory"].get<uint64_t>()});
    }
    hardware.driver = parsed.at("driver");
    hardware.nccl = parsed.at("nccl");
    hardware.noNccl = parsed.at("no_nccl");
    hardware.throttled = parsed.at("throttled");
    hardware.bundle = parsed.at("bundle");
    hardware.run = parsed.at("run");
  } catch (const json::exception &exception) {
    return userError(std::string("a rank publishes facts that cannot be read (") +
                     exception.what() + "); start every rank with the same version of Zorse");
  }
  return hardware;
}

Status zorse::runtime::checkHardware(const Bundle &bundle, const std::vector<RankHardware> &ranks,
                                     std::string *note) {
  std::string errors, notes;
  auto error = [&](const std::string &text) { errors += (errors.empty() ? "" : "\n  ") + text; };
  if (ranks.size() != bundle.devices.size())
    return userError("the bundle is for " + std::to_string(bundle.devices.size()) +
                     " devices, the job has " + std::to_string(ranks.size()) +
                     " ranks; start one rank per device, or compile the model for this cluster");

  struct Host {
    std::vector<size_t> ranks;
    uint64_t planned = 0, memory = UINT64_MAX;
    int threads = 0, cores = 0;
  };
  std::map<std::string, Host> hosts;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankHardware &hardware = ranks[r];
    if (hardware.bundle != ranks[0].bundle)
      error(rankText(bundle, ranks, r) + ": has bundle " + hardware.bundle + ", rank 0 has " +
            ranks[0].bundle + "; give every rank the same bundle");
    if (hardware.run != ranks[0].run)
      error(rankText(bundle, ranks, r) + ": was started with " + hardware.run + ", rank 0 with " +
            ranks[0].run + "; start every rank with the same options and data");
    Host &host = hosts[hardware.host];
    host.ranks.push_back(r);
    host.planned += plannedBytes(bundle, r, /*onDevice=*/false);
    host.memory = std::min(host.memory, hardware.memory);
    host.threads += bundle.devices[r].threads;
    host.cores = std::max(host.cores, hardware.cores);
  }
  if (std::string wrong = wrongCpus(bundle, ranks); !wrong.empty())
    error(wrong);
  for (const auto &[name, host] : hosts) {
    if (host.planned > host.memory) {
      std::string devices;
      for (size_t r : host.ranks)
        devices += (devices.empty() ? "" : ", ") + bundle.devices[r].name;
      error("host " + name + ": has " + mebibytes(host.memory) + " of memory, devices " + devices +
            " plan " + mebibytes(host.planned) +
            " together; spread the ranks over more hosts or compile for less memory");
    }
    if (std::string full = fullGpus(bundle, ranks, host.ranks); !full.empty())
      error(full);
    if (host.threads > host.cores)
      notes += (notes.empty() ? "" : "; ") +
               ("host " + name + " has " + std::to_string(host.cores) + " cores for devices with " +
                std::to_string(host.threads) + " threads together: they will disturb each other");
  }
  if (note)
    *note = notes;
  if (errors.empty())
    return Status::success();
  return userError("this job does not fit its bundle:\n  " + errors);
}
