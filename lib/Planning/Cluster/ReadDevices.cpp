#include "ClusterReader.h"

#include "zorse/Base/Format.h"
#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Planning/DeviceDefaults.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;
using namespace zorse::planning::fields;

namespace {

void readSpeed(const YAML::Node &node, const std::string &what, const DeviceType *type,
               ClusterDevice &device) {
  if (!node.IsMap()) {
    double speed = toSpeed(node, what);
    for (size_t t = 0; t < kSpeeds; ++t)
      device.flopsPerSecond[t] = type && type->flopsPerSecond[t] <= 0 ? 0 : speed;
    return;
  }
  checkKeys(node, what, {"f32", "f16", "bf16"});
  for (size_t t = 0; t < kSpeeds; ++t)
    if (YAML::Node speed = node[elementTypeName(kSpeedTypes[t])])
      device.flopsPerSecond[t] =
          toSpeed(speed, what + "." + elementTypeName(kSpeedTypes[t]), /*zero=*/true);
}

std::vector<std::string> typeNames() {
  std::vector<std::string> names;
  for (const DeviceType &type : deviceTypes())
    names.push_back(type.name);
  return names;
}

} // namespace

void zorse::planning::setDefaults(ClusterDevice &device, const DeviceType *type) {
  const bool cpu = deviceKindOf(device.kind).hostCpus;
  if (!type) { // described without a type: elementwise work and calls take time on every device
    device.memoryBandwidth = cpu ? kThreadBandwidth * device.threads : kDeviceBandwidth;
    device.launchOverhead = cpu ? kCpuLaunch : kDeviceLaunch;
    return;
  }
  if (device.arch.empty() && device.kind == type->kind)
    device.arch = type->arch;
  const double threads = cpu ? device.threads : 1; // the table has values per thread
  for (size_t t = 0; t < kSpeeds; ++t)
    device.flopsPerSecond[t] = type->flopsPerSecond[t] * threads;
  device.multiprocessors = cpu ? 0 : type->multiprocessors;
  device.memoryBandwidth = type->memoryBandwidth * threads;
  device.launchOverhead = type->launchOverhead;
  device.memory = type->memory;
  device.reservedMemory = type->reservedMemory;
}

YAML::Node zorse::planning::templateOf(const YAML::Node &node, const std::string &what,
                                       const YAML::Node &templates) {
  const YAML::Node name = node["template"];
  if (!name.IsDefined())
    return YAML::Node(YAML::NodeType::Undefined);
  std::vector<std::string> known;
  if (templates.IsDefined() && templates.IsMap())
    for (const auto &item : templates) {
      if (name.IsScalar() && item.first.IsScalar() && item.first.Scalar() == name.Scalar())
        return item.second;
      if (item.first.IsScalar())
        known.push_back(item.first.Scalar());
    }
  std::string text = name.IsScalar() ? name.Scalar() : "";
  fail(name, what + ": there is no template " + show(name) + suggestion(text, known) +
                 (known.empty() ? "; the file has no such templates"
                                : "; the file has " + listed(known)));
}

namespace {

/// Reads an entry without its name and count.
class DeviceReader {
public:
  DeviceReader(const Fields &fields, const std::string &what, ClusterDevice &device)
      : fields(fields), what(what), device(device) {}

  void run() {
    readType();
    readKind();
    readArch();
    if (YAML::Node threads = fields["threads"])
      device.threads = toCount(threads, what + ": threads", 4096);
    setDefaults(device, type);
    readSpeeds();
    readMemory();
    if (YAML::Node bandwidth = fields["memory_bandwidth"])
      device.memoryBandwidth = toBandwidth(bandwidth, what + ": memory_bandwidth");
    readTimes();
    readEfficiency();
    if (YAML::Node slowdown = fields["slowdown"])
      device.slowdown = toSlowdown(slowdown, what + ": slowdown");
    if (YAML::Node launch = fields["launch_overhead"])
      device.launchOverhead = toSeconds(launch, what + ": launch_overhead");
    if (YAML::Node price = fields["price"])
      device.price = toPrice(price, what + ": price");
    if (YAML::Node direct = fields["device_to_device"])
      device.deviceToDevice = toFlag(direct, what + ": device_to_device");
  }

private:
  void readType() {
    if (YAML::Node name = fields["type"]) {
      type = name.IsScalar() ? findDeviceType(name.Scalar()) : nullptr;
      device.type = type ? type->name : toName(name, what + ": type", /*spaces=*/true);
      if (!type && !fields["flops_per_second"]) {
        std::string known;
        for (const std::string &each : typeNames())
          known += (known.empty() ? "" : ", ") + each;
        fail(name, what + ": type '" + device.type + "' is not known" +
                       suggestion(device.type, typeNames()) + "; known are " + known +
                       "; another type needs at least 'flops_per_second', 'memory' and 'kind'");
      }
    }
    if (type)
      device.kind = type->kind;
  }

  void readKind() {
    if (YAML::Node kind = fields["kind"]) {
      if (kind.IsNull()) // a null device must be requested explicitly
        fail(kind, what + ": expected a kind out of " + deviceKindNames(/*driven=*/false) +
                       ", got nothing; a null device is asked for by kind: \"null\", in quotes");
      device.kind = toName(kind, what + ": kind");
      if (!findDeviceKind(device.kind))
        fail(kind, what + ": expected a kind out of " + deviceKindNames(/*driven=*/false) +
                       ", got '" + device.kind + "'");
    }
  }

  void readArch() {
    if (YAML::Node arch = fields["arch"]) {
      const std::vector<std::string> &known = deviceKindOf(device.kind).architectures;
      const std::string offered = toName(arch, what + ": arch"); // "sm_61" executes code for
                                                                 // "sm_60"
      device.arch = deviceKindOf(device.kind).codeFor(offered);
      if (!deviceKindOf(device.kind).exists(offered))
        fail(arch, what + ": arch: " +
                       (known.empty() ? "there are none to choose from for devices of kind " +
                                            device.kind + "; leave it out"
                                      : "expected " + listed(known) + suggestion(offered, known) +
                                            ", got '" + offered + "'"));
    }
  }

  void readSpeeds() {
    if (YAML::Node speed = fields["flops_per_second"])
      readSpeed(speed, what + ": flops_per_second", type, device);
    // One number for all types does not apply to bf16 if the device has no bf16 arithmetic. A
    // separate number for bf16 is the speed with values that are only stored as bf16.
    if (!DeviceKind::hasBf16(device.arch) &&
        !(fields["flops_per_second"] && fields["flops_per_second"].IsMap()))
      device
          .flopsPerSecond[std::find(std::begin(kSpeedTypes), std::end(kSpeedTypes), bundle::BF16) -
                          std::begin(kSpeedTypes)] = 0;
    if (*std::max_element(std::begin(device.flopsPerSecond), std::end(device.flopsPerSecond)) <= 0)
      fail(fields.node(),
           what + ": its speed is not known; give 'flops_per_second' (FLOP/s) or a 'type' out of " +
               listed(typeNames()));
  }

  void readMemory() {
    if (YAML::Node memory = fields["memory"])
      device.memory = toBytes(memory, what + ": memory", /*zero=*/true);
    if (YAML::Node reserve = fields["reserved_memory"])
      device.reservedMemory = toBytes(reserve, what + ": reserved_memory", /*zero=*/true);
    if (device.memory > 0 && device.reservedMemory >= device.memory)
      fail(fields["reserved_memory"] ? fields["reserved_memory"]
           : fields["memory"]        ? fields["memory"]
                                     : fields.node(),
           what + ": its memory of " + showBytes(double(device.memory)) +
               " is no more than the reserve of " + showBytes(double(device.reservedMemory)) +
               "; give a smaller 'reserved_memory'");
  }

  /// Reads the time model: a roofline, or kernel by kernel.
  void readTimes() {
    YAML::Node rows = fields["half_peak_rows"], multiprocessors = fields["sm_count"];
    if (rows && multiprocessors)
      fail(rows, what + ": expected 'half_peak_rows', for times that follow a roofline, or "
                        "'sm_count', for times that are modelled launch by launch, found "
                        "both; leave one out");
    if (rows) {
      device.halfPeakRows = toRows(rows, what + ": half_peak_rows");
      device.multiprocessors = 0;
    }
    if (multiprocessors) {
      if (deviceKindOf(device.kind).hostCpus)
        fail(multiprocessors,
             what + ": sm_count: expected a device that is a GPU, found one of kind " +
                 device.kind + "; leave it out");
      device.multiprocessors = toCount(multiprocessors, what + ": sm_count", 4096);
    }
  }

  void readEfficiency() {
    if (YAML::Node efficiency = fields["execution_mode"]) {
      const std::string name = toName(efficiency, what + ": execution_mode");
      const auto mode = std::find(kExecutionModes.begin(), kExecutionModes.end(), name);
      if (mode == kExecutionModes.end())
        fail(efficiency,
             what +
                 ": execution_mode: expected compiled (kernels as Zorse makes them), tuned (a "
                 "framework with tuned kernels) or eager (a framework that launches every "
                 "operation separately), got '" +
                 name + "'");
      device.executionMode = static_cast<ExecutionMode>(mode - kExecutionModes.begin());
    }
  }

  const Fields &fields;
  const std::string &what;
  ClusterDevice &device;
  const DeviceType *type = nullptr;
};

} // namespace

DeviceEntry zorse::planning::readDeviceEntry(const YAML::Node &node, const YAML::Node &templates) {
  checkKeys(node, "device",
            {"name", "template", "kind", "arch", "type", "flops_per_second", "memory",
             "reserved_memory", "memory_bandwidth", "half_peak_rows", "sm_count", "execution_mode",
             "slowdown", "launch_overhead", "threads", "count", "price", "device_to_device",
             "gpu"});
  DeviceEntry entry;
  entry.at = node;
  ClusterDevice &device = entry.device;
  Fields fields(node, templateOf(node, "device", templates));
  if (!node["name"])
    fail(node, "device: missing key 'name'");
  device.name = toName(node["name"], "device.name");
  const std::string what = "device '" + device.name + "'";
  DeviceReader(fields, what, device).run();
  if (YAML::Node count = fields["count"]) {
    entry.count = toCount(count, what + ": count", kMaxDevices);
    entry.counted = true;
  }
  if (YAML::Node gpu = node["gpu"]) { // not allowed in templates: a GPU is one device
    device.gpu = toName(gpu, what + ": gpu");
    if (deviceKindOf(device.kind).sharesHostMemory)
      fail(gpu, what + ": gpu: expected a device that is a GPU, found one of kind " + device.kind +
                    "; leave it out");
    if (entry.count > 1)
      fail(gpu, what + ": gpu: names one GPU, and 'count' makes several devices of the entry; "
                       "write one entry for each, or leave 'gpu' out");
  }
  return entry;
}

bundle::LinkSpec zorse::planning::readLink(const YAML::Node &node, const std::string &what,
                                           const bundle::LinkSpec &defaults) {
  bundle::LinkSpec link = defaults;
  if (!node.IsDefined())
    return link;
  checkKeys(node, what, {"bandwidth", "latency", "per_flow_bandwidth", "half_bandwidth_bytes"});
  if (YAML::Node bandwidth = node["bandwidth"])
    link.set_bandwidth(toBandwidth(bandwidth, what + ".bandwidth", /*link=*/true));
  if (YAML::Node latency = node["latency"])
    link.set_latency(toSeconds(latency, what + ".latency"));
  if (YAML::Node flow = node["per_flow_bandwidth"])
    link.set_per_flow_bandwidth(toBandwidth(flow, what + ".per_flow_bandwidth", /*link=*/true));
  if (YAML::Node size = node["half_bandwidth_bytes"])
    link.set_half_bandwidth_bytes(static_cast<double>(
        toBytes(size, what + ".half_bandwidth_bytes", /*zero=*/true, /*least=*/1)));
  return link;
}
