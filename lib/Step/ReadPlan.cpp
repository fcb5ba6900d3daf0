// Reads plan.json. Every message contains the JSON path, the expected and the found value.

#include "PlanFormat.h"
#include "PlanSections.h"

#include "zorse/Base/Apportion.h"
#include "zorse/Step/AssignMicroBatches.h"

#include "zorse/Summary/Summary.h"
#include "zorse/Support/JsonFields.h"
#include "zorse/Support/RegularFile.h"

#include "bundle.pb.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::step;
using namespace zorse::fields;
using json = Json;

namespace {

int64_t toMicroBatch(const json &value, const std::string &path) {
  int64_t rows = toInteger(value, path);
  if (rows < 1)
    fail(path, "expected at least 1, got " + show(value));
  return rows;
}

int32_t toInt32(int64_t value, const std::string &path) {
  if (value < INT32_MIN || value > INT32_MAX)
    fail(path, "number too large: " + std::to_string(value));
  return static_cast<int32_t>(value);
}

class Reader {
public:
  Reader(const json &root, const zorse::bundle::ModelSummary &summary)
      : root(root), summary(summary) {
    plan.samplesPerRow = zorse::samplesPerRow(summary);
  }

  Plan read() {
    checkKeys(root, "",
              {"format",
               "model",
               "global_batch_size",
               "group_rows",
               "devices",
               "groups",
               "links",
               "cells",
               "stages",
               "pipelines",
               "backward",
               "split_backward",
               "activations",
               "overlap_communication",
               "gradient_wire",
               "send_protocol",
               "state",
               "offload",
               "schedule",
               "durations",
               "comment"},
              kRenamedPlanKeys);
    if (root.contains("format") && toInteger(root["format"], "format") != kPlanFormat)
      fail("format", "expected " + std::to_string(kPlanFormat) + ", got " + show(root["format"]));
    if (root.contains("model"))
      plan.model = toText(root["model"], "model");
    if (root.contains("group_rows") &&
        toInteger(root["group_rows"], "group_rows") != plan.samplesPerRow)
      fail("group_rows", "the model combines groups of " + std::to_string(plan.samplesPerRow) +
                             " samples (--group-rows), the plan is for " +
                             show(root["group_rows"]));
    if (!root.contains("global_batch_size"))
      fail("", "missing key \"global_batch_size\"");
    plan.batch =
        toRows(toInteger(root["global_batch_size"], "global_batch_size"), "global_batch_size");
    if (plan.batch < 1)
      fail("global_batch_size", "expected at least 1, got " + show(root["global_batch_size"]));
    if (plan.batch > kMaxSamples)
      fail("global_batch_size", "expected at most " + std::to_string(kMaxSamples) + ", got " +
                                    show(root["global_batch_size"]));
    readDevices();
    if (root.contains("groups"))
      readGroups(root["groups"]);
    readLinks();
    activations = readActivations(root, "", Activations::Keep);
    readTiling();
    for (size_t c = root.contains("cells") ? plan.cells.size() : 0; c < plan.cells.size(); ++c)
      plan.cells[c].activations = activations;
    refuseUnsupported();
    if (root.contains("state"))
      readPlanState(root["state"], summary, names, plan);
    if (root.contains("offload"))
      readOffload(root["offload"], summary, names, plan);
    if (root.contains("schedule"))
      readSchedule(root["schedule"], names, plan);
    plan.schedule.splitBackward = toSwitch(root, "", "split_backward", false);
    if (root.contains("gradient_wire"))
      plan.gradientWire = toGradientWire(root["gradient_wire"]);
    plan.communication = readCommunication();
    if (root.contains("durations"))
      plan.durations = readDurations(root["durations"]);
    return std::move(plan);
  }

private:
  /// Converts samples of the file to rows of the plan. A row may contain several samples.
  int64_t toRows(int64_t samples, const std::string &path) {
    if (samples % plan.samplesPerRow != 0)
      fail(path, "expected a multiple of " + std::to_string(plan.samplesPerRow) +
                     " samples, the size of a group (--group-rows), got " +
                     std::to_string(samples));
    return samples / plan.samplesPerRow;
  }
  std::pair<int64_t, int64_t> toRows(std::pair<int64_t, int64_t> samples, const std::string &path) {
    return {toRows(samples.first, path + "[0]"), toRows(samples.second, path + "[1]")};
  }
  int64_t toMicroBatch(const json &value, const std::string &path) {
    return toRows(::toMicroBatch(value, path), path);
  }

  static GradientWire toGradientWire(const json &value) {
    const zorse::Result<GradientWire> wire = gradientWireNamed(toText(value, "gradient_wire"));
    if (wire.failed())
      fail("gradient_wire", wire.message());
    return *wire;
  }

  Communication readCommunication() {
    const bool overlap = toSwitch(root, "", "overlap_communication", true);
    const bool eager = toChoice(root, "", "send_protocol", kSendProtocols, 0) == 1;
    if (overlap && root.contains("send_protocol"))
      fail("send_protocol", "it applies to devices that do not compute while they send: add "
                            "\"overlap_communication\": false, or leave it out");
    return overlap ? Communication::Overlapped
           : eager ? Communication::Eager
                   : Communication::Rendezvous;
  }

  void readDevices() {
    if (!root.contains("devices"))
      fail("", "missing key \"devices\"");
    const json &list = toArray(root["devices"], "devices");
    for (size_t i = 0; i < list.size(); ++i) {
      std::string path = at("devices", i);
      PlanDevice device;
      if (list[i].is_string()) {
        device.name = list[i].get<std::string>();
      } else {
        checkKeys(list[i], path, {"name", "flops_per_second", "memory", "node", "site"},
                  kRenamedPlanKeys);
        if (!list[i].contains("name"))
          fail(path, "missing key \"name\"");
        device.name = toText(list[i]["name"], path + ".name");
        if (list[i].contains("flops_per_second"))
          device.flopsPerSecond = toNumber(list[i]["flops_per_second"], path + ".flops_per_second");
        if (list[i].contains("memory"))
          device.memory = toCount(list[i]["memory"], path + ".memory");
        if (list[i].contains("node"))
          device.node = toText(list[i]["node"], path + ".node");
        if (list[i].contains("site"))
          device.site = toText(list[i]["site"], path + ".site");
      }
      if (device.name.empty() || device.name.find_first_of("/\\ \t\n") != std::string::npos)
        fail(path,
             "a device's name must not be empty or hold spaces or slashes, got " + show(list[i]));
      if (!names.devices.emplace(device.name, static_cast<uint32_t>(i)).second)
        fail(path, "device '" + device.name + "' is listed twice");
      plan.devices.push_back(std::move(device));
    }
  }

  void readGroups(const json &list) {
    toArray(list, "groups");
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string path = at("groups", i);
      checkKeys(list[i], path, {"name", "devices", "shares"}, kRenamedPlanKeys);
      if (!list[i].contains("name") || !list[i].contains("devices"))
        fail(path, "expected \"name\" and \"devices\"");
      DeviceGroup group;
      group.name = toText(list[i]["name"], path + ".name");
      const json &devices = toArray(list[i]["devices"], path + ".devices");
      for (size_t d = 0; d < devices.size(); ++d)
        group.devices.push_back(names.toDevice(devices[d], at(path + ".devices", d)));
      group.shares.assign(group.devices.size(), 1);
      if (list[i].contains("shares")) {
        const json &shares = toArray(list[i]["shares"], path + ".shares");
        if (shares.size() != group.devices.size())
          fail(path + ".shares", "lists " + std::to_string(shares.size()) + " shares, expected " +
                                     std::to_string(group.devices.size()) + ", one per device");
        for (size_t d = 0; d < shares.size(); ++d)
          group.shares[d] = toNumber(shares[d], at(path + ".shares", d));
      }
      if (names.devices.count(group.name) ||
          !names.groups.emplace(group.name, static_cast<uint32_t>(i)).second)
        fail(path + ".name", "'" + group.name + "' is the name of another group or of a device");
      plan.groups.push_back(std::move(group));
    }
  }

  void readLinks() {
    if (!root.contains("links"))
      return;
    const json &links = root["links"];
    checkKeys(links, "links", {"intra_node", "inter_node"}, kRenamedPlanKeys);
    auto read = [&](const char *key, LinkSpeed &link) {
      if (!links.contains(key))
        return;
      std::string path = std::string("links.") + key;
      checkKeys(links[key], path, {"bandwidth", "latency"}, kRenamedPlanKeys);
      if (links[key].contains("bandwidth"))
        link.bandwidth = toNumber(links[key]["bandwidth"], path + ".bandwidth");
      if (links[key].contains("latency"))
        link.latency = toNumber(links[key]["latency"], path + ".latency");
    };
    read("intra_node", plan.intraNode);
    read("inter_node", plan.interNode);
  }

  void readTiling() {
    int forms = root.contains("cells") + root.contains("stages") + root.contains("pipelines");
    if (forms != 1)
      fail("", forms ? "has more than one of \"cells\", \"stages\" and \"pipelines\": keep one"
                     : "missing key \"cells\" (or \"stages\" or \"pipelines\")");
    if (root.contains("cells"))
      return readCells(root["cells"]);
    if (root.contains("stages"))
      return readStages(root["stages"], "stages", 0, plan.batch);
    const json &list = toArray(root["pipelines"], "pipelines");
    for (size_t i = 0; i < list.size(); ++i) {
      std::string path = at("pipelines", i);
      checkKeys(list[i], path, {"samples", "stages"}, kRenamedPlanKeys);
      if (!list[i].contains("samples") || !list[i].contains("stages"))
        fail(path, "expected \"samples\": [begin, end] and \"stages\"");
      auto [begin, end] = toRows(toRange(list[i]["samples"], path + ".samples"), path + ".samples");
      if (begin < 0 || begin >= end || end > plan.batch)
        fail(path + ".samples", "expected a range inside 0-" +
                                    std::to_string(plan.batch * plan.samplesPerRow) + ", got " +
                                    show(list[i]["samples"]));
      readStages(list[i]["stages"], path + ".stages", begin, end);
    }
  }

  void readCells(const json &list) {
    toArray(list, "cells");
    plan.cells.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      std::string path = at("cells", i);
      checkKeys(list[i], path, {"units", "samples", "device", "activations"}, kRenamedPlanKeys);
      for (const char *key : {"units", "samples", "device"})
        if (!list[i].contains(key))
          fail(path, std::string("missing key \"") + key + "\"");
      auto [u0, u1] = toRange(list[i]["units"], path + ".units");
      auto [s0, s1] = toRows(toRange(list[i]["samples"], path + ".samples"), path + ".samples");
      addCell({toInt32(u0, path + ".units"), toInt32(u1, path + ".units"), s0, s1,
               toPlace(list[i]["device"], path + ".device"),
               readActivations(list[i], path, activations)});
    }
  }

  /// Returns the index of a device, or the number of devices plus the index of a group.
  uint32_t toPlace(const json &value, const std::string &path) const {
    const auto group = names.groups.find(toText(value, path));
    if (group == names.groups.end())
      return names.toDevice(value, path);
    return static_cast<uint32_t>(plan.devices.size()) + group->second;
  }

  /// Adds a cell whose `device` is a place. Every device of a group has a cell.
  void addCell(Cell cell) {
    if (!plan.groups.empty())
      names.firstCells.push_back(static_cast<uint32_t>(plan.cells.size()));
    if (cell.device < plan.devices.size()) {
      plan.cells.push_back(cell);
      return;
    }
    cell.group = static_cast<int32_t>(cell.device - plan.devices.size());
    for (uint32_t device : plan.groups[static_cast<size_t>(cell.group)].devices) {
      cell.device = device;
      plan.cells.push_back(cell);
      ++cell.member;
    }
  }

  void readStages(const json &list, const std::string &where, int64_t begin, int64_t end) {
    toArray(list, where);
    for (size_t i = 0; i < list.size(); ++i) {
      std::string path = at(where, i);
      checkKeys(list[i], path, {"units", "devices", "micro_batch_size"}, kRenamedPlanKeys);
      if (!list[i].contains("units") || !list[i].contains("devices"))
        fail(path, "expected \"units\": [begin, end] and \"devices\"");
      auto [u0, u1] = toRange(list[i]["units"], path + ".units");
      int64_t common = list[i].contains("micro_batch_size")
                           ? toMicroBatch(list[i]["micro_batch_size"], path + ".micro_batch_size")
                           : 0;
      readStage(list[i]["devices"], path + ".devices", toInt32(u0, path), toInt32(u1, path), begin,
                end, common);
    }
  }

  void readStage(const json &list, const std::string &where, int32_t u0, int32_t u1, int64_t begin,
                 int64_t end, int64_t common) {
    toArray(list, where);
    std::vector<StageDevice> devices;
    std::vector<double> weights;
    bool counted = false;
    for (size_t i = 0; i < list.size(); ++i) {
      std::string path = at(where, i);
      StageDevice device;
      device.microBatchSize = common;
      double weight = 1;
      if (list[i].is_string()) {
        device.device = toPlace(list[i], path);
      } else {
        checkKeys(list[i], path, {"device", "samples", "share", "micro_batch_size"},
                  kRenamedPlanKeys);
        if (!list[i].contains("device"))
          fail(path, "missing key \"device\"");
        device.device = toPlace(list[i]["device"], path + ".device");
        if (list[i].contains("micro_batch_size"))
          device.microBatchSize =
              toMicroBatch(list[i]["micro_batch_size"], path + ".micro_batch_size");
        if (list[i].contains("share") && list[i].contains("samples"))
          fail(path, "has both \"samples\" and \"share\": keep one");
        if (list[i].contains("share"))
          weight = toNumber(list[i]["share"], path + ".share");
        if (list[i].contains("samples")) {
          counted = true;
          device.samples =
              toRows(toCount(list[i]["samples"], path + ".samples"), path + ".samples");
          if (device.samples > plan.batch)
            fail(path + ".samples", "expected at most the batch, " +
                                        std::to_string(plan.batch * plan.samplesPerRow) + ", got " +
                                        show(list[i]["samples"]));
        }
      }
      devices.push_back(device);
      weights.push_back(weight);
    }
    int64_t total = 0;
    for (size_t i = 0; i < devices.size(); ++i) {
      if (counted && !(list[i].is_object() && list[i].contains("samples")))
        fail(at(where, i), "missing key \"samples\", which other devices of the stage have");
      total += devices[i].samples;
    }
    if (counted && total != end - begin)
      fail(where, "the devices' samples add up to " + std::to_string(total * plan.samplesPerRow) +
                      ", expected " + std::to_string((end - begin) * plan.samplesPerRow) +
                      " (samples " + std::to_string(begin * plan.samplesPerRow) + "-" +
                      std::to_string(end * plan.samplesPerRow) + ")");
    if (!counted) {
      if (std::all_of(weights.begin(), weights.end(), [](double w) { return w <= 0; }))
        fail(where, "expected at least one device with a positive share");
      std::vector<int64_t> parts = apportion(end - begin, weights);
      for (size_t i = 0; i < devices.size(); ++i)
        devices[i].samples = parts[i];
    }
    int64_t count = static_cast<int64_t>(plan.cells.size());
    for (StageDevice &device : devices) {
      if (device.microBatchSize == 0)
        device.microBatchSize = std::max<int64_t>(device.samples, 1);
      count += device.samples / device.microBatchSize;
    }
    if (count > kMaxCells)
      fail(where,
           "gives more than " + std::to_string(kMaxCells) + " cells: use larger micro-batches");
    std::vector<Cell> cells;
    assignMicroBatches(u0, u1, begin, devices, cells);
    for (const Cell &cell : cells)
      addCell(cell);
  }

  /// \param otherwise  value if the key is missing
  static Activations readActivations(const json &object, const std::string &path,
                                     Activations otherwise) {
    return static_cast<Activations>(toChoice(object, path, "activations",
                                             {"keep", "recompute", "offload"},
                                             static_cast<size_t>(otherwise)));
  }

  void refuseUnsupported() {
    if (root.contains("backward") && root["backward"] != "same")
      fail("backward",
           "a separate backward tiling is not supported yet: write \"same\" or remove the key");
  }

  const json &root;
  const zorse::bundle::ModelSummary &summary;
  Plan plan;
  Activations activations = Activations::Keep; ///< of cells that do not set it
  PlanNames names{plan};
};

} // namespace

zorse::Result<Plan> zorse::step::readPlan(const std::string &text,
                                          const bundle::ModelSummary &summary) {
  return read(text, "the plan", kMaxPlanBytes, [&](json root) {
    upgradePlan(root);
    return Reader(root, summary).read();
  });
}

zorse::Result<PlanHead> zorse::step::readPlanHead(const std::string &path) {
  auto readHead = [](json root) {
    PlanHead head;
    if (!root.is_object())
      fail("", "expected an object, got " + show(root));
    upgradePlan(root);
    if (root.contains("global_batch_size"))
      head.batch = toInteger(root["global_batch_size"], "global_batch_size", 1, kMaxSamples);
    else if (root.contains("batch"))
      fail("", "key \"batch\" is now \"global_batch_size\"");
    else
      fail("", "missing key \"global_batch_size\"");
    if (root.contains("devices"))
      for (const json &device : toArray(root["devices"], "devices"))
        if (device.is_string() ||
            (device.is_object() && device.contains("name") && device["name"].is_string()))
          head.devices.push_back(device.is_string() ? device.get<std::string>()
                                                    : device["name"].get<std::string>());
    return head;
  };
  return parseRegularFile(path, kMaxPlanBytes, [&](const std::string &text) {
    return read(text, "the plan", kMaxPlanBytes, readHead);
  });
}

std::string zorse::step::otherBatch(const std::string &path, int64_t planned, int64_t asked) {
  return path + ": is for a batch of " + std::to_string(planned) +
         " samples, but --global-batch-size is " + std::to_string(asked) + ". Change one of them";
}

std::string zorse::step::brokenGroups(int64_t batch, int64_t group) {
  const int64_t below = batch / group * group;
  int64_t divisor = std::min(batch, group);
  while (divisor > 1 && batch % divisor != 0)
    --divisor;
  return "--global-batch-size: expects a multiple of --group-rows, " + std::to_string(group) +
         ", got " + std::to_string(batch) +
         ": the loss is a mean over groups of this size. Use --global-batch-size=" +
         (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + group) +
         ", or --group-rows=" + std::to_string(divisor);
}

zorse::Result<Plan> zorse::step::readPlanFile(const std::string &path,
                                              const bundle::ModelSummary &summary) {
  return parseRegularFile(path, kMaxPlanBytes,
                          [&](const std::string &text) { return readPlan(text, summary); });
}
