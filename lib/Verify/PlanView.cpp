#include "zorse/Verify/PlanView.h"

#include "PlanParser.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

using namespace zorse::verify;
using Json = nlohmann::json;

namespace {

/// Reads with one error string; every getter is total, so that no exception can leave this file.
struct Reader {
  std::string &error;
  std::unordered_map<std::string, uint32_t> devices;

  bool fail(const std::string &message) {
    if (error.empty())
      error = message;
    return false;
  }

  // \param what  makes the name of the value, only when something is wrong with it: plans have many cells.
  template <typename What> bool integer(const Json &value, const What &what, int64_t &out) {
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX)))
      return fail(what() + ": expects an integer, found " +
                  (value.is_structured() ? value.type_name() : value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 40)));
    out = value.get<int64_t>();
    return true;
  }

  template <typename What> bool range(const Json &value, const What &what, int64_t &begin, int64_t &end) {
    if (!value.is_array() || value.size() != 2)
      return fail(what() + ": expects [begin, end]");
    return integer(value[0], what, begin) && integer(value[1], what, end);
  }

  template <typename What> bool device(const Json &value, const What &what, uint32_t &out) {
    if (value.is_string()) {
      auto it = devices.find(value.get_ref<const std::string &>());
      if (it == devices.end())
        return fail(what() + ": there is no device '" + value.get<std::string>() + "'");
      out = it->second;
      return true;
    }
    int64_t index = 0;
    if (!integer(value, what, index))
      return false;
    if (index < 0 || index >= int64_t(devices.size()))
      return fail(what() + ": device " + std::to_string(index) + " of " + std::to_string(devices.size()));
    out = uint32_t(index);
    return true;
  }
};

bool readDevices(const Json &list, PlanView &plan, Reader &reader) {
  if (!list.is_array())
    return reader.fail("devices: expects a list");
  for (const Json &item : list) {
    PlanView::Device device;
    if (item.is_string()) {
      device.name = item.get<std::string>();
    } else if (item.is_object() && item.contains("name") && item["name"].is_string()) {
      device.name = item["name"].get<std::string>();
      if (auto memory = item.find("memory"); memory != item.end() && memory->is_number()) {
        double bytes = memory->get<double>();
        device.memoryBytes = std::isfinite(bytes) && bytes > 0 && bytes < 9e18 ? int64_t(bytes) : 0;
      }
    } else {
      return reader.fail("devices: expects a name or an object with a name");
    }
    if (!reader.devices.emplace(device.name, uint32_t(plan.devices.size())).second)
      return reader.fail("devices: '" + device.name + "' is listed twice");
    plan.devices.push_back(std::move(device));
  }
  return true;
}

template <typename What> bool readActivations(const Json &value, const What &what, Reader &reader, bool &recompute) {
  if (value != "keep" && value != "recompute" && value != "offload") // what leaves and comes back is what it was: the programs say how
    return reader.fail(what() + ": expects keep, recompute or offload");
  recompute = value == "recompute";
  return true;
}

/// \param recompute  what cells do that say nothing
bool readCells(const Json &list, bool recompute, PlanView &plan, Reader &reader) {
  if (!list.is_array())
    return reader.fail("cells: expects a list");
  for (const Json &item : list) {
    auto name = [&](const char *key) { return [&plan, key] { return "cells[" + std::to_string(plan.cells.size()) + "]" + key; }; };
    PlanView::Cell cell{};
    const bool object = item.is_object();
    auto units = object ? item.find("units") : item.end(), samples = object ? item.find("samples") : item.end(),
         device = object ? item.find("device") : item.end();
    if (!object || units == item.end() || samples == item.end() || device == item.end())
      return reader.fail(name("")() + ": expects units, samples and device");
    if (!reader.range(*units, name(".units"), cell.firstUnit, cell.endUnit) ||
        !reader.range(*samples, name(".samples"), cell.firstSample, cell.endSample) || !reader.device(*device, name(".device"), cell.device))
      return false;
    cell.recompute = recompute;
    if (auto activations = item.find("activations");
        activations != item.end() && !readActivations(*activations, name(".activations"), reader, cell.recompute))
      return false;
    plan.cells.push_back(cell);
  }
  return true;
}

/// The same of cells in plain form. False, without an error, where a device does not exist.
bool takeCells(const std::vector<PlanParser::Cell> &cells, bool recompute, PlanView &plan, const Reader &reader) {
  plan.cells.reserve(cells.size());
  for (const PlanParser::Cell &cell : cells) {
    int64_t device = cell.deviceNumber;
    if (!cell.device.empty()) {
      auto it = reader.devices.find(cell.device);
      device = it == reader.devices.end() ? -1 : int64_t(it->second);
    }
    if (device < 0 || device >= int64_t(plan.devices.size()))
      return false;
    plan.cells.push_back({cell.units[0], cell.units[1], cell.samples[0], cell.samples[1], uint32_t(device), recompute});
  }
  return true;
}

/// state: when updates come, and the owners a plan names; extents where they are explicit, -1 where a share decides.
bool readOwners(const Json &state, PlanView &plan, Reader &reader) {
  if (!state.is_object())
    return reader.fail("state: expects an object");
  if (auto commit = state.find("commit"); commit != state.end()) {
    if (*commit != "step" && *commit != "group")
      return reader.fail("state.commit: expects step or group");
    plan.commitsByGroup = *commit == "group";
  }
  auto groups = state.find("groups");
  if (groups == state.end())
    return true;
  if (!groups->is_array())
    return reader.fail("state.groups: expects a list");
  for (const Json &row : *groups) {
    int64_t group = 0;
    if (!row.is_object() || !row.contains("group") || !row.contains("owners") || !row["owners"].is_array())
      return reader.fail("state.groups: expects a group and its owners");
    auto name = [](const char *key) { return [key] { return std::string(key); }; };
    if (!reader.integer(row["group"], name("state.groups.group"), group))
      return false;
    if (group < 0 || group > int64_t(UINT32_MAX))
      return reader.fail("state.groups: there is no group " + std::to_string(group));
    for (const Json &owner : row["owners"]) {
      PlanView::Shard shard{uint32_t(group), 0, -1, -1};
      if (!owner.is_object() || !owner.contains("device"))
        return reader.fail("state.groups.owners: expects a device");
      if (!reader.device(owner["device"], name("state.groups.owners.device"), shard.device) ||
          (owner.contains("elements") && !reader.range(owner["elements"], name("state.groups.owners.elements"), shard.begin, shard.end)))
        return false;
      plan.owners.push_back(shard);
    }
  }
  return true;
}

bool readResidency(const Json &list, PlanView &plan, Reader &reader) {
  if (!list.is_array())
    return reader.fail("residency: expects a list");
  auto name = [](const char *key) { return [key] { return std::string("residency.") + key; }; };
  for (const Json &row : list) {
    PlanView::Residency rule;
    if (!row.is_object())
      return reader.fail("residency: expects objects");
    for (const auto &[key, value] : row.items()) {
      static constexpr const char *kKindKeys[PlanView::kKinds] = {"parameters", "moments", "gradients", "update"};
      const auto *kind = std::find(std::begin(kKindKeys), std::end(kKindKeys), key);
      if (kind != std::end(kKindKeys)) {
        if (value != "device" && value != "host")
          return reader.fail("residency." + key + ": expects device or host");
        rule.tiers[kind - std::begin(kKindKeys)] = value == "host" ? PlanView::Tier::Host : PlanView::Tier::Device;
        continue;
      }
      if (key == "gather" || key == "images") // when and how many: the programs say
        continue;
      if ((key != "devices" && key != "groups") || !value.is_array())
        return reader.fail("residency." + key + ": is not known, or not a list");
      for (const Json &item : value) {
        int64_t group = 0;
        uint32_t device = 0;
        if (key == "devices" ? !reader.device(item, name("devices"), device) : !reader.integer(item, name("groups"), group))
          return false;
        if (group < 0 || group > int64_t(UINT32_MAX))
          return reader.fail("residency.groups: there is no group " + std::to_string(group));
        key == "devices" ? rule.devices.push_back(device) : rule.groups.push_back(uint32_t(group));
      }
    }
    plan.residency.push_back(std::move(rule));
  }
  return true;
}

/// The file counts samples, programs count rows of several.
bool toRows(const Json &count, PlanView &plan, Reader &reader) {
  if (!reader.integer(count, [] { return std::string("batch_norm_rows"); }, plan.samplesPerRow))
    return false;
  if (plan.samplesPerRow < 1)
    return reader.fail("batch_norm_rows: expects at least 1");
  bool whole = plan.batch % plan.samplesPerRow == 0;
  plan.batch /= plan.samplesPerRow;
  for (PlanView::Cell &cell : plan.cells)
    for (int64_t *sample : {&cell.firstSample, &cell.endSample}) {
      whole &= *sample % plan.samplesPerRow == 0;
      *sample /= plan.samplesPerRow;
    }
  return whole || reader.fail("batch and cells: expects multiples of batch_norm_rows, " + std::to_string(plan.samplesPerRow));
}

} // namespace

bool PlanView::keepsOnHost(uint32_t device, uint32_t group, Kind kind) const {
  auto names = [](const std::vector<uint32_t> &list, uint32_t index) {
    return list.empty() || std::find(list.begin(), list.end(), index) != list.end();
  };
  for (auto rule = residency.rbegin(); rule != residency.rend(); ++rule)
    if (rule->tiers[kind] != Tier::NotNamed && names(rule->devices, device) && names(rule->groups, group))
      return rule->tiers[kind] == Tier::Host;
  return false;
}

std::optional<PlanView> zorse::verify::readPlanView(std::string_view text, std::string &error) {
  error.clear();
  PlanView plan;
  Reader reader{error, {}};
  auto tree = [&] { return Json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true); };
  PlanParser parser;
  const bool plain = parser.parse(text); // else the tree of all says what is wrong
  Json json = plain ? std::move(parser.tree) : tree();
  if (json.is_discarded() || !json.is_object()) {
    error = "the plan is not a JSON object";
    return std::nullopt;
  }
  if (!json.contains("batch") || !json.contains("devices") || !json.contains("cells")) {
    error = "the plan expects batch, devices and cells";
    return std::nullopt;
  }
  if (!reader.integer(json["batch"], [] { return std::string("batch"); }, plan.batch) || !readDevices(json["devices"], plan, reader))
    return std::nullopt;
  bool recompute = false;
  if (auto activations = json.find("activations");
      activations != json.end() && !readActivations(*activations, [] { return std::string("activations"); }, reader, recompute))
    return std::nullopt;
  if (!plain || !json["cells"].is_array() || !takeCells(parser.cells, recompute, plan, reader)) {
    plan.cells.clear();
    if (plain)
      json = tree();
    if (!readCells(json["cells"], recompute, plan, reader))
      return std::nullopt;
  }
  if (json.contains("state") && !readOwners(json["state"], plan, reader))
    return std::nullopt;
  if (json.contains("residency") && !readResidency(json["residency"], plan, reader))
    return std::nullopt;
  if (auto split = json.find("split_backward"); split != json.end()) {
    if (!split->is_boolean()) {
      error = "split_backward: expects true or false";
      return std::nullopt;
    }
    plan.splitBackward = split->get<bool>();
  }
  if (json.contains("batch_norm_rows") && !toRows(json["batch_norm_rows"], plan, reader))
    return std::nullopt;
  return plan;
}
