#include "zorse/Verify/PlanView.h"

#include "zorse/Support/JsonFields.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <unordered_map>
#include <utility>

using namespace zorse::verify;
using namespace zorse::fields;

namespace {

/// Parses one file. Every function throws Bad with the path below its argument.
struct Reader {
  PlanView plan;
  std::unordered_map<std::string, uint32_t> devices;

  PlanView read(const Json &root) {
    for (const char *key : {"global_batch_size", "devices", "cells"})
      if (!root.contains(key))
        fail("", root.is_object() ? std::string("missing key \"") + key + "\""
                                  : "expected an object, got " + show(root));
    plan.batch = toInteger(root["global_batch_size"], "global_batch_size");
    forEach(root["devices"], "devices", [&](const Json &item) { readDevice(item); });
    if (root.contains("groups"))
      forEach(root["groups"], "groups", [&](const Json &item) { readGroup(item); });
    const bool recompute = recomputes(root, false);
    plan.cells.reserve(root["cells"].size());
    forEach(root["cells"], "cells", [&](const Json &item) { readCell(item, recompute); });
    if (root.contains("state"))
      readState(root["state"]);
    if (root.contains("offload"))
      forEach(root["offload"], "offload", [&](const Json &item) { readOffload(item); });
    plan.splitBackward = toSwitch(root, "", "split_backward", false);
    plan.roundedSums = PlanView::RoundedSums(
        toChoice(root, "", "gradient_wire", {"f32", "bf16", "bf16:sites"}, 0));
    if (root.contains("group_rows"))
      toRows(root["group_rows"]);
    return std::move(plan);
  }

  uint32_t toDevice(const Json &value, const std::string &path) {
    if (!value.is_string())
      return uint32_t(toInteger(value, path, 0, int64_t(devices.size()) - 1));
    auto found = devices.find(value.get_ref<const std::string &>());
    if (found == devices.end())
      fail(path, "expected one of \"devices\", got " + show(value));
    return found->second;
  }

  static uint32_t toGroup(const Json &value, const std::string &path) {
    return uint32_t(toInteger(value, path, 0, UINT32_MAX));
  }

  void readDevice(const Json &item) {
    PlanView::Device device;
    if (!item.is_string() && !item.contains("name"))
      fail("", "expected a name or an object with a name, got " + show(item));
    device.name = item.is_string() ? item.get<std::string>() : toText(item["name"], "name");
    if (auto memory = item.find("memory"); memory != item.end() && memory->is_number()) {
      double bytes = memory->get<double>();
      device.memoryBytes = std::isfinite(bytes) && bytes > 0 && bytes < 9e18 ? int64_t(bytes) : 0;
    }
    for (auto [key, text] : {std::pair("node", &device.node), std::pair("site", &device.site)})
      if (item.is_object() && item.contains(key))
        *text = toText(item[key], key);
    if (!devices.emplace(device.name, uint32_t(plan.devices.size())).second)
      fail("", "'" + device.name + "' is listed twice");
    plan.devices.push_back(std::move(device));
  }

  void readGroup(const Json &item) {
    if (!item.contains("name") || !item.contains("devices"))
      fail("", "expected a name and devices, got " + show(item));
    PlanView::Group group;
    group.name = toText(item["name"], "name");
    if (devices.count(group.name))
      fail("name", "'" + group.name + "' is the name of a device");
    forEach(item["devices"], "devices",
            [&](const Json &device) { group.devices.push_back(toDevice(device, "")); });
    plan.groups.push_back(std::move(group));
  }

  /// Offloaded activations count as kept, because the copies do not change them; the programs show
  /// how they are offloaded.
  static bool recomputes(const Json &object, bool otherwise) {
    return toChoice(object, "", "activations", {"keep", "recompute", "offload"}, otherwise) == 1;
  }

  /// \param recompute  default for cells that do not specify it
  void readCell(const Json &item, bool recompute) {
    for (const char *key : {"units", "samples", "device"})
      if (!item.contains(key))
        fail("", std::string("expected units, samples and device, got ") + show(item));
    const auto [firstUnit, endUnit] = toRange(item["units"], "units");
    const auto [firstSample, endSample] = toRange(item["samples"], "samples");
    PlanView::Cell cell{firstUnit, endUnit, firstSample, endSample, 0, recomputes(item, recompute)};
    const auto named =
        std::find_if(plan.groups.begin(), plan.groups.end(),
                     [&](const PlanView::Group &group) { return item["device"] == group.name; });
    if (named == plan.groups.end()) {
      cell.device = toDevice(item["device"], "device");
      plan.cells.push_back(cell);
      return;
    }
    cell.group = int32_t(named - plan.groups.begin());
    for (uint32_t device : named->devices) {
      cell.device = device;
      plan.cells.push_back(cell);
      ++cell.member;
    }
  }

  /// Reads when updates run, and the owners that the plan names. An extent is -1 if a fraction
  /// determines it.
  void readState(const Json &state) {
    if (!state.is_object())
      fail("state", "expected an object, got " + show(state));
    plan.commitsByGroup = toSwitch(state, "state", "optimizer_in_backward", false);
    if (!state.contains("groups"))
      return;
    forEach(state["groups"], "state.groups", [&](const Json &row) {
      if (!row.contains("group") || !row.contains("owners"))
        fail("", "expected a group and its owners, got " + show(row));
      const uint32_t group = toGroup(row["group"], "group");
      forEach(row["owners"], "owners", [&](const Json &owner) {
        if (!owner.contains("device"))
          fail("", "expected an object with a device, got " + show(owner));
        PlanView::Shard shard{group, toDevice(owner["device"], "device"), -1, -1};
        if (owner.contains("elements"))
          std::tie(shard.begin, shard.end) = toRange(owner["elements"], "elements");
        plan.owners.push_back(shard);
      });
    });
  }

  void readOffload(const Json &item) {
    static constexpr const char *kKindKeys[PlanView::kKinds] = {"parameters", "optimizer_states",
                                                                "gradients", "optimizer"};
    checkKeys(item, "",
              {"devices", "groups", kKindKeys[0], kKindKeys[1], kKindKeys[2], kKindKeys[3],
               "reshard_after_forward", "buffer_count"}); // the programs show the last two
    PlanView::Offload rule;
    for (size_t kind = 0; kind < PlanView::kKinds; ++kind)
      if (item.contains(kKindKeys[kind]))
        rule.tiers[kind] = toChoice(item, "", kKindKeys[kind], {"device", "host"}, 0) == 1
                               ? PlanView::Tier::Host
                               : PlanView::Tier::Device;
    if (item.contains("devices"))
      forEach(item["devices"], "devices",
              [&](const Json &device) { rule.devices.push_back(toDevice(device, "")); });
    if (item.contains("groups"))
      forEach(item["groups"], "groups",
              [&](const Json &group) { rule.groups.push_back(toGroup(group, "")); });
    plan.offload.push_back(std::move(rule));
  }

  /// Converts samples to rows. The file counts samples; programs count rows of several samples.
  void toRows(const Json &count) {
    plan.samplesPerRow = toInteger(count, "group_rows", 1, INT64_MAX);
    bool whole = plan.batch % plan.samplesPerRow == 0;
    plan.batch /= plan.samplesPerRow;
    for (PlanView::Cell &cell : plan.cells)
      for (int64_t *sample : {&cell.firstSample, &cell.endSample}) {
        whole &= *sample % plan.samplesPerRow == 0;
        *sample /= plan.samplesPerRow;
      }
    if (!whole)
      fail("global_batch_size and cells",
           "expected multiples of group_rows, " + std::to_string(plan.samplesPerRow));
  }
};

} // namespace

bool PlanView::keepsOnHost(uint32_t device, uint32_t group, Kind kind) const {
  auto names = [](const std::vector<uint32_t> &list, uint32_t index) {
    return list.empty() || std::find(list.begin(), list.end(), index) != list.end();
  };
  for (auto rule = offload.rbegin(); rule != offload.rend(); ++rule)
    if (rule->tiers[kind] != Tier::NotNamed && names(rule->devices, device) &&
        names(rule->groups, group))
      return rule->tiers[kind] == Tier::Host;
  return false;
}

zorse::Result<PlanView> zorse::verify::readPlanView(std::string_view text) {
  return fields::read(text, "the plan", SIZE_MAX,
                      [](const Json &root) { return Reader().read(root); });
}
