// Reads plan.json. Every message contains the JSON path, the expected and the found value.

#include "PlanFormat.h"

#include "zorse/Base/Apportion.h"
#include "zorse/Step/AssignMicroBatches.h"
#include "zorse/Step/Schedules.h"

#include "zorse/Summary/Summary.h"
#include "zorse/Support/JsonFields.h"
#include "zorse/Support/RegularFile.h"

#include "bundle.pb.h"

#include <algorithm>
#include <set>

using namespace zorse;
using namespace zorse::step;
using namespace zorse::fields;
using json = Json;

namespace {

int64_t toCount(const json &value, const std::string &path) {
  int64_t count = toInteger(value, path);
  if (count < 0)
    fail(path, "expected a number that is not negative, got " + show(value));
  return count;
}

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
              {"format", "model", "global_batch_size", "batch_norm_rows", "devices", "groups",
               "links", "cells", "stages", "pipelines", "backward", "split_backward", "activations",
               "overlap_communication", "state", "offload", "schedule", "durations", "comment"},
              kRenamedPlanKeys);
    if (root.contains("format") && toInteger(root["format"], "format") != kPlanFormat)
      fail("format", "expected " + std::to_string(kPlanFormat) + ", got " + show(root["format"]));
    if (root.contains("model"))
      plan.model = toText(root["model"], "model");
    if (root.contains("batch_norm_rows") &&
        toInteger(root["batch_norm_rows"], "batch_norm_rows") != plan.samplesPerRow)
      fail("batch_norm_rows", "the model takes the statistics of " +
                                  std::to_string(plan.samplesPerRow) +
                                  " samples together (--batch-norm-group-size), the plan is for " +
                                  show(root["batch_norm_rows"]));
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
      readState(root["state"]);
    if (root.contains("offload"))
      readOffload(root["offload"]);
    if (root.contains("schedule"))
      readSchedule(root["schedule"]);
    plan.schedule.splitBackward = toSwitch(root, "", "split_backward", false);
    plan.overlapCommunication = toSwitch(root, "", "overlap_communication", true);
    if (root.contains("durations"))
      readDurations(root["durations"]);
    return std::move(plan);
  }

private:
  /// Converts samples of the file to rows of the plan. A row may contain several samples.
  int64_t toRows(int64_t samples, const std::string &path) {
    if (samples % plan.samplesPerRow != 0)
      fail(path, "expected a multiple of " + std::to_string(plan.samplesPerRow) +
                     " samples, the size of a batch norm group (--batch-norm-group-size), got " +
                     std::to_string(samples));
    return samples / plan.samplesPerRow;
  }
  std::pair<int64_t, int64_t> toRows(std::pair<int64_t, int64_t> samples, const std::string &path) {
    return {toRows(samples.first, path + "[0]"), toRows(samples.second, path + "[1]")};
  }
  int64_t toMicroBatch(const json &value, const std::string &path) {
    return toRows(::toMicroBatch(value, path), path);
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
        checkKeys(list[i], path, {"name", "flops_per_second", "memory", "node"}, kRenamedPlanKeys);
        if (!list[i].contains("name"))
          fail(path, "missing key \"name\"");
        device.name = toText(list[i]["name"], path + ".name");
        if (list[i].contains("flops_per_second"))
          device.flopsPerSecond = toNumber(list[i]["flops_per_second"], path + ".flops_per_second");
        if (list[i].contains("memory"))
          device.memory = toCount(list[i]["memory"], path + ".memory");
        if (list[i].contains("node"))
          device.node = toText(list[i]["node"], path + ".node");
      }
      if (device.name.empty() || device.name.find_first_of("/\\ \t\n") != std::string::npos)
        fail(path,
             "a device's name must not be empty or hold spaces or slashes, got " + show(list[i]));
      if (!deviceIndex.emplace(device.name, static_cast<uint32_t>(i)).second)
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
        group.devices.push_back(toDevice(devices[d], at(path + ".devices", d)));
      group.shares.assign(group.devices.size(), 1);
      if (list[i].contains("shares")) {
        const json &shares = toArray(list[i]["shares"], path + ".shares");
        if (shares.size() != group.devices.size())
          fail(path + ".shares", "lists " + std::to_string(shares.size()) + " shares, expected " +
                                     std::to_string(group.devices.size()) + ", one per device");
        for (size_t d = 0; d < shares.size(); ++d)
          group.shares[d] = toNumber(shares[d], at(path + ".shares", d));
      }
      if (deviceIndex.count(group.name) ||
          !groupIndex.emplace(group.name, static_cast<uint32_t>(i)).second)
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

  uint32_t toDevice(const json &value, const std::string &path) {
    std::string name = toText(value, path);
    auto it = deviceIndex.find(name);
    if (it != deviceIndex.end())
      return it->second;
    std::string known;
    for (size_t i = 0; i < plan.devices.size() && i < 12; ++i)
      known += (i ? ", " : "") + plan.devices[i].name;
    fail(path, "unknown device '" + name + "'; \"devices\" lists " + known +
                   (plan.devices.size() > 12 ? ", ..." : ""));
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
      Cell cell{toInt32(u0, path + ".units"),
                toInt32(u1, path + ".units"),
                s0,
                s1,
                0,
                readActivations(list[i], path, activations)};
      if (!plan.groups.empty())
        firstCells.push_back(static_cast<uint32_t>(plan.cells.size()));
      const auto group = groupIndex.find(toText(list[i]["device"], path + ".device"));
      if (group == groupIndex.end()) {
        cell.device = toDevice(list[i]["device"], path + ".device");
        plan.cells.push_back(cell);
        continue;
      }
      cell.group = static_cast<int32_t>(group->second);
      for (uint32_t device : plan.groups[group->second].devices) {
        cell.device = device;
        plan.cells.push_back(cell);
        ++cell.member;
      }
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
        device.device = toDevice(list[i], path);
      } else {
        checkKeys(list[i], path, {"device", "samples", "share", "micro_batch_size"},
                  kRenamedPlanKeys);
        if (!list[i].contains("device"))
          fail(path, "missing key \"device\"");
        device.device = toDevice(list[i]["device"], path + ".device");
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
    assignMicroBatches(u0, u1, begin, devices, plan.cells);
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

  void readState(const json &state) {
    checkKeys(state, "state", {"default_sharding", "optimizer_in_backward", "groups"},
              kRenamedPlanKeys);
    plan.optimizerStep = toSwitch(state, "state", "optimizer_in_backward", false)
                             ? OptimizerStep::InBackward
                             : OptimizerStep::AfterBackward;
    plan.defaultSharding = kDefaultShardings[toChoice(state, "state", "default_sharding",
                                                      {"proportional", "equal", "first"}, 0)];
    if (!state.contains("groups"))
      return;
    std::set<uint32_t> named;
    const json &list = toArray(state["groups"], "state.groups");
    for (int pass = 0; pass < 2; ++pass) // "*" means every trainable group that is not listed
      for (size_t i = 0; i < list.size(); ++i) {
        std::string path = at("state.groups", i);
        checkKeys(list[i], path, {"group", "owners"}, kRenamedPlanKeys);
        if (!list[i].contains("group") || !list[i].contains("owners"))
          fail(path, "expected \"group\" and \"owners\"");
        bool all = list[i]["group"] == "*";
        if (all != (pass == 1))
          continue;
        GroupOwners entry;
        entry.owners = readOwners(list[i]["owners"], path + ".owners");
        if (all && entry.owners.size() > plan.devices.size()) // the list is copied to many groups
          fail(path + ".owners", "lists " + std::to_string(entry.owners.size()) +
                                     " owners, expected at most one extent for each of the " +
                                     std::to_string(plan.devices.size()) + " devices");
        if (!all) {
          entry.group = toGroup(list[i]["group"], path + ".group");
          named.insert(entry.group);
          plan.owners.push_back(std::move(entry));
          continue;
        }
        for (int g = 0; g < summary.groups_size(); ++g)
          if (summary.groups(g).trainable() && named.insert(g).second) {
            entry.group = g;
            plan.owners.push_back(entry);
          }
      }
    std::stable_sort(plan.owners.begin(), plan.owners.end(),
                     [](const GroupOwners &a, const GroupOwners &b) { return a.group < b.group; });
  }

  uint32_t toGroup(const json &value, const std::string &path) {
    if (value.is_number_integer()) {
      int64_t index = toInteger(value, path);
      if (index < 0 || index >= summary.groups_size())
        fail(path, "state group " + std::to_string(index) + " does not exist: the model has " +
                       std::to_string(summary.groups_size()));
      return static_cast<uint32_t>(index);
    }
    std::string name = toText(value, path);
    for (int g = 0; g < summary.groups_size(); ++g)
      if (summary.groups(g).name() == name)
        return g;
    fail(path, "the model has no state group called '" + name + "'");
  }

  std::vector<Owner> readOwners(const json &list, const std::string &where) {
    toArray(list, where);
    std::vector<Owner> owners;
    for (size_t i = 0; i < list.size(); ++i) {
      std::string path = at(where, i);
      Owner owner;
      if (list[i].is_string()) {
        if (list.size() != 1)
          fail(path, "expected {\"device\", \"fraction\"} where a group has several owners, got " +
                         show(list[i]));
        owner.device = toDevice(list[i], path);
        owner.fraction = 1;
        owners.push_back(owner);
        continue;
      }
      checkKeys(list[i], path, {"device", "fraction", "elements"}, kRenamedPlanKeys);
      if (!list[i].contains("device") ||
          list[i].contains("fraction") == list[i].contains("elements"))
        fail(path, "expected \"device\" and one of \"fraction\" (of the group) and \"elements\" "
                   "([begin, end])");
      owner.device = toDevice(list[i]["device"], path + ".device");
      if (list[i].contains("fraction")) {
        owner.fraction = toNumber(list[i]["fraction"], path + ".fraction");
      } else {
        std::tie(owner.begin, owner.end) = toRange(list[i]["elements"], path + ".elements");
        if (owner.begin < 0)
          fail(path + ".elements", "expected begin >= 0");
      }
      owners.push_back(owner);
    }
    return owners;
  }

  void readOffload(const json &list) {
    toArray(list, "offload", kMaxRules);
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string path = at("offload", i);
      checkKeys(list[i], path,
                {"devices", "groups", "parameters", "optimizer_states", "gradients", "optimizer",
                 "reshard_after_forward", "buffer_count"},
                kRenamedPlanKeys);
      OffloadRule rule;
      rule.devices = readIndices(
          list[i], path, "devices",
          [&](const json &value, const std::string &where) { return toDevice(value, where); });
      rule.groups = readIndices(
          list[i], path, "groups",
          [&](const json &value, const std::string &where) { return toGroup(value, where); });
      for (auto [key, tier] : {std::pair{"parameters", &rule.parameters},
                               {"optimizer_states", &rule.optimizerStates},
                               {"gradients", &rule.gradients},
                               {"optimizer", &rule.optimizer}})
        if (list[i].contains(key))
          *tier = toTier(list[i][key], path + "." + key);
      if (list[i].contains("reshard_after_forward")) {
        if (list[i].contains("devices"))
          fail(path, "has \"reshard_after_forward\" and \"devices\": all readers of a group gather "
                     "it at the same times; leave one of the keys out");
        rule.reshardAfterForward = toSwitch(list[i], path, "reshard_after_forward", false);
      }
      if (list[i].contains("buffer_count")) {
        const int64_t images = toInteger(list[i]["buffer_count"], path + ".buffer_count");
        if (images < 1 || images > kMaxBufferCount)
          fail(path + ".buffer_count", "expected 1 to " + std::to_string(kMaxBufferCount) +
                                           ", got " + show(list[i]["buffer_count"]));
        if (list[i].contains("groups"))
          fail(path, "has \"buffer_count\" and \"groups\": buffers are counted in chunks, with all "
                     "their groups; leave one of the keys out");
        rule.bufferCount = static_cast<uint32_t>(images);
      }
      if (!rule.parameters && !rule.optimizerStates && !rule.gradients && !rule.optimizer &&
          !rule.reshardAfterForward.has_value() && !rule.bufferCount)
        fail(path, "expected at least one of \"parameters\", \"optimizer_states\", \"gradients\", "
                   "\"optimizer\", \"reshard_after_forward\" and "
                   "\"buffer_count\"");
      plan.offload.push_back(std::move(rule));
    }
  }

  MemoryTier toTier(const json &value, const std::string &path) {
    const std::string name = toText(value, path);
    if (name != "device" && name != "host")
      fail(path, "expected \"device\" or \"host\", got \"" + name + "\"");
    return name == "host" ? MemoryTier::Host : MemoryTier::Device;
  }

  /// Returns the indices that a rule lists, ascending; if the key is missing, all.
  template <typename Read>
  std::vector<uint32_t> readIndices(const json &rule, const std::string &path, const char *key,
                                    Read read) {
    std::vector<uint32_t> indices;
    if (!rule.contains(key))
      return indices;
    const std::string where = path + "." + key;
    const json &list = toArray(rule[key], where);
    if (list.empty())
      fail(where, "is empty: name some, or leave the key out for all");
    for (size_t i = 0; i < list.size(); ++i)
      indices.push_back(read(list[i], at(where, i)));
    std::sort(indices.begin(), indices.end());
    if (auto twice = std::adjacent_find(indices.begin(), indices.end()); twice != indices.end())
      fail(where, "names one of them twice");
    return indices;
  }

  void readSchedule(const json &schedule) {
    if (schedule.is_object() && schedule.contains("order"))
      return readOrder(schedule);
    const json *name = schedule.is_string()                                ? &schedule
                       : schedule.is_object() && schedule.contains("name") ? &schedule["name"]
                                                                           : nullptr;
    const ScheduleRule *rule = name && name->is_string() ? findSchedule(name->get<std::string>())
                                                         : nullptr;
    if (const char *now = !rule && name && name->is_string()
                              ? renamedSchedule(name->get<std::string>())
                              : nullptr)
      fail("schedule", show(*name) + " is now \"" + now + "\"");
    if (!rule)
      fail("schedule",
           "expected " + listSchedules("or") +
               ", {\"name\": one of them, and its parameters} or {\"order\": ...}, got " +
               show(schedule));
    plan.schedule.kind = rule->kind;
    if (schedule.is_string())
      return;
    std::vector<const char *> known{"name"};
    for (const ScheduleParameter &parameter : rule->parameters)
      known.push_back(parameter.key);
    checkKeys(schedule, "schedule", known, kRenamedPlanKeys);
    for (const ScheduleParameter &parameter : rule->parameters)
      if (schedule.contains(parameter.key))
        std::visit(
            [&](auto field) {
              readParameter(schedule[parameter.key], std::string("schedule.") + parameter.key,
                            parameter.positive, plan.schedule.*field);
            },
            parameter.field);
  }

  void readParameter(const json &value, const std::string &path, bool positive, double &result) {
    result = toNumber(value, path);
    if (positive && !(result > 0))
      fail(path, "expected a number above 0, got " + show(value));
  }

  void readParameter(const json &value, const std::string &path, bool, uint32_t &result) {
    result = toUnsigned(value, path);
  }

  void readParameter(const json &value, const std::string &path, bool,
                     std::vector<uint32_t> &result) {
    if (!value.is_object())
      fail(path, "expected {device: number, ...}, got " + show(value));
    result.assign(value.empty() ? 0 : plan.devices.size(), 0);
    for (auto &[name, count] : value.items()) {
      const uint32_t number = toUnsigned(count, std::string(path).append(".").append(name));
      for (uint32_t device : devicesNamed(name, path))
        result[device] = number;
    }
  }

  uint32_t toUnsigned(const json &value, const std::string &path) {
    int64_t count = toCount(value, path);
    if (count > UINT32_MAX)
      fail(path, "number too large: " + show(value));
    return static_cast<uint32_t>(count);
  }

  void readOrder(const json &schedule) {
    checkKeys(schedule, "schedule", {"order"}, kRenamedPlanKeys);
    plan.schedule.kind = ScheduleKind::Explicit;
    plan.order.resize(plan.devices.size());
    if (!schedule["order"].is_object())
      fail("schedule", "expected {\"order\": {device: [\"F0\", \"B0\", ...]}}");
    for (auto &[name, tasks] : schedule["order"].items()) {
      const std::string path = "schedule.order." + name;
      const std::vector<uint32_t> devices = devicesNamed(name, path);
      for (size_t i = 0; i < toArray(tasks, path).size(); ++i) {
        TaskId task = toTask(tasks[i], at(path, i));
        if (!plan.groups.empty()) {
          if (task.cell >= firstCells.size())
            fail(at(path, i), "names no cell: the plan has " + std::to_string(firstCells.size()));
          task.cell = firstCells[task.cell];
        }
        for (uint32_t device : devices) {
          plan.order[device].push_back(task);
          ++task.cell; // the next device's
        }
      }
    }
  }

  /// Returns the device with a name, or the devices of the group.
  std::vector<uint32_t> devicesNamed(const std::string &name, const std::string &path) {
    if (const auto group = groupIndex.find(name); group != groupIndex.end())
      return plan.groups[group->second].devices;
    const uint32_t device = toDevice(json(name), path);
    for (const DeviceGroup &group : plan.groups)
      if (std::find(group.devices.begin(), group.devices.end(), device) != group.devices.end())
        fail(path, "device '" + name + "' is in group '" + group.name +
                       "': all devices of a group do the same, so name the group");
    return {device};
  }

  TaskId toTask(const json &value, const std::string &path) {
    std::string text = toText(value, path);
    bool digits =
        text.size() > 1 && text.size() < 11 &&
        std::all_of(text.begin() + 1, text.end(), [](char c) { return c >= '0' && c <= '9'; });
    size_t kind = text.empty() ? std::string::npos : std::string("FBW").find(text[0]);
    if (!digits || kind == std::string::npos || std::stoll(text.substr(1)) > UINT32_MAX)
      fail(path, "expected F, B or W and the index of a cell, as in \"F0\", got \"" + text + "\"");
    return {static_cast<TaskKind>(kind), static_cast<uint32_t>(std::stoll(text.substr(1)))};
  }

  void readDurations(const json &durations) {
    checkKeys(durations, "durations", {"forward", "backward", "weights"}, kRenamedPlanKeys);
    CellDurations result;
    for (auto [key, out] : {std::pair{"forward", &result.forward},
                            {"backward", &result.backward},
                            {"weights", &result.weights}}) {
      if (!durations.contains(key)) {
        if (out == &result.weights)
          continue;
        fail("durations", std::string("missing key \"") + key + "\"");
      }
      std::string path = std::string("durations.") + key;
      for (size_t i = 0; i < toArray(durations[key], path).size(); ++i)
        out->push_back(toNumber(durations[key][i], at(path, i)));
    }
    plan.durations = std::move(result);
  }

  const json &root;
  const zorse::bundle::ModelSummary &summary;
  Plan plan;
  Activations activations = Activations::Keep; ///< of cells that do not set it
  std::vector<uint32_t> firstCells; ///< by cell of the file, in a plan with groups: the cell of the
                                    ///< group's first device
  std::map<std::string, uint32_t> deviceIndex, groupIndex;
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
  return "--global-batch-size: expects a multiple of --batch-norm-group-size, " +
         std::to_string(group) + ", got " + std::to_string(batch) +
         ": batch norm computes statistics of groups of this size. Use --global-batch-size=" +
         (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + group) +
         ", or --batch-norm-group-size=" + std::to_string(divisor);
}

zorse::Result<Plan> zorse::step::readPlanFile(const std::string &path,
                                              const bundle::ModelSummary &summary) {
  return parseRegularFile(path, kMaxPlanBytes,
                          [&](const std::string &text) { return readPlan(text, summary); });
}
