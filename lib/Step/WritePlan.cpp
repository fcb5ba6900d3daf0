#include "PlanFormat.h"

#include "zorse/Step/Schedules.h"

#include "bundle.pb.h"

#include <algorithm>
#include <nlohmann/json.hpp>

using namespace zorse::step;
using nlohmann::ordered_json;

namespace {

/// Writes arrays of objects with one element per line and all else compact, so that long plans are
/// readable and have small diffs.
void writeRows(std::string &out, const char *key, const std::vector<ordered_json> &rows) {
  out += std::string("  \"") + key + "\": [";
  for (size_t i = 0; i < rows.size(); ++i)
    out += (i ? ",\n    " : "\n    ") + rows[i].dump();
  out += rows.empty() ? "]" : "\n  ]";
}

constexpr const char *kActivationNames[] = {"keep", "recompute", "offload"}; ///< by Activations

ordered_json toJson(const LinkSpeed &link) {
  return {{"bandwidth", link.bandwidth}, {"latency", link.latency}};
}

ordered_json toJson(const OffloadRule &rule, const Plan &plan) {
  ordered_json row = ordered_json::object();
  for (uint32_t device : rule.devices)
    row["devices"].push_back(plan.devices[device].name);
  if (!rule.groups.empty())
    row["groups"] = rule.groups;
  auto write = [&](const char *key, std::optional<MemoryTier> tier) {
    if (tier)
      row[key] = *tier == MemoryTier::Host ? "host" : "device";
  };
  write("parameters", rule.parameters);
  write("optimizer_states", rule.optimizerStates);
  write("gradients", rule.gradients);
  write("optimizer", rule.optimizer);
  if (rule.reshardAfterForward.has_value())
    row["reshard_after_forward"] = *rule.reshardAfterForward;
  if (rule.bufferCount)
    row["buffer_count"] = *rule.bufferCount;
  return row;
}

/// Returns the names for tasks and counts by device: that of its group, which its first device
/// stands for, or its own; empty: another device of a group.
std::vector<std::string> namesOfDevices(const Plan &plan) {
  std::vector<std::string> names;
  names.reserve(plan.devices.size());
  for (const PlanDevice &device : plan.devices)
    names.push_back(device.name);
  for (const DeviceGroup &group : plan.groups)
    for (uint32_t device : group.devices)
      names[device] = device == group.devices[0] ? group.name : "";
  return names;
}

/// Returns only the name if every parameter has its default.
std::string scheduleText(const Plan &plan) {
  const Schedule &schedule = plan.schedule, defaults;
  const ScheduleRule &rule = scheduleRule(schedule.kind);
  ordered_json object = {{"name", rule.name}};
  for (const ScheduleParameter &parameter : rule.parameters)
    std::visit(
        [&](auto field) {
          const auto &value = schedule.*field;
          if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
            if (value != defaults.*field)
              object[parameter.key] = value;
          } else {
            const std::vector<std::string> names = namesOfDevices(plan);
            for (size_t d = 0; d < value.size(); ++d)
              if (!names[d].empty() && (value[d] != 0 || d + 1 == value.size()))
                object[parameter.key][names[d]] = value[d];
            // At least one: a list of zeros differs from an empty list.
            if (!value.empty() && !object.contains(parameter.key))
              object[parameter.key][*std::find_if(
                  names.begin(), names.end(), [](const auto &name) { return !name.empty(); })] = 0;
          }
        },
        parameter.field);
  return object.size() == 1 ? object["name"].dump() : object.dump();
}

void writeDevices(std::string &out, const Plan &plan) {
  std::vector<ordered_json> rows;
  for (const PlanDevice &device : plan.devices) {
    ordered_json row = {{"name", device.name}};
    if (device.flopsPerSecond > 0)
      row["flops_per_second"] = device.flopsPerSecond;
    if (device.memory > 0)
      row["memory"] = device.memory;
    if (!device.node.empty())
      row["node"] = device.node;
    if (!device.site.empty())
      row["site"] = device.site;
    rows.push_back(std::move(row));
  }
  writeRows(out, "devices", rows);
}

void writeGroups(std::string &out, const Plan &plan) {
  std::vector<ordered_json> rows;
  for (const DeviceGroup &group : plan.groups) {
    ordered_json devices = ordered_json::array();
    for (uint32_t device : group.devices)
      devices.push_back(plan.devices[device].name);
    rows.push_back({{"name", group.name}, {"devices", devices}, {"shares", group.shares}});
  }
  writeRows(out, "groups", rows);
  out += ",\n";
}

/// Activations that all cells share are written after the cells. The cells of the devices of a
/// group are one cell of the group.
void writeCells(std::string &out, const Plan &plan) {
  std::vector<ordered_json> rows;
  const Activations common = plan.cells.empty() ? Activations::Keep
                                                : plan.cells.front().activations;
  const bool all = std::all_of(plan.cells.begin(), plan.cells.end(),
                               [&](const Cell &cell) { return cell.activations == common; });
  for (const Cell &cell : plan.cells) {
    if (!isListed(cell))
      continue;
    rows.push_back(
        {{"units", {cell.unitBegin, cell.unitEnd}},
         {"samples", {cell.sampleBegin * plan.samplesPerRow, cell.sampleEnd * plan.samplesPerRow}},
         {"device", cell.group >= 0 ? plan.groups[static_cast<size_t>(cell.group)].name
                                    : plan.devices[cell.device].name}});
    if (cell.activations != Activations::Keep && !all)
      rows.back()["activations"] = kActivationNames[static_cast<size_t>(cell.activations)];
  }
  writeRows(out, "cells", rows);
  if (all && common != Activations::Keep)
    out += std::string(",\n  \"activations\": \"") + kActivationNames[static_cast<size_t>(common)] +
           "\"";
}

void writeState(std::string &out, const Plan &plan) {
  out += "  \"state\": {\"default_sharding\": ";
  out += plan.defaultSharding == ShardSizing::Proportional ? "\"proportional\""
         : plan.defaultSharding == ShardSizing::Equal      ? "\"equal\""
                                                           : "\"first\"";
  if (plan.optimizerStep == OptimizerStep::InBackward)
    out += ", \"optimizer_in_backward\": true";
  if (!plan.owners.empty()) {
    out += ", \"groups\": [";
    for (size_t i = 0; i < plan.owners.size(); ++i) {
      ordered_json row = {{"group", plan.owners[i].group}};
      ordered_json owners = ordered_json::array();
      for (const Owner &owner : plan.owners[i].owners) {
        ordered_json entry = {{"device", plan.devices[owner.device].name}};
        if (owner.begin < 0)
          entry["fraction"] = owner.fraction;
        else
          entry["elements"] = {owner.begin, owner.end};
        owners.push_back(std::move(entry));
      }
      row["owners"] = std::move(owners);
      out += (i ? ",\n    " : "\n    ") + row.dump();
    }
    out += "\n  ]";
  }
  out += "}";
}

void writeOrder(std::string &out, const Plan &plan) {
  out += "{\"order\": {";
  bool first = true;
  std::vector<uint32_t> number; // of a cell in the file
  number.reserve(plan.cells.size());
  uint32_t next = 0;
  for (const Cell &cell : plan.cells)
    number.push_back(isListed(cell) ? next++ : next);
  const std::vector<std::string> names = namesOfDevices(plan);
  for (size_t d = 0; d < plan.order.size(); ++d) {
    if (plan.order[d].empty() || names[d].empty())
      continue;
    ordered_json tasks = ordered_json::array();
    for (TaskId task : plan.order[d])
      tasks.push_back(std::string(1, "FBW"[size_t(task.kind)]) +
                      std::to_string(task.cell < number.size() ? number[task.cell] : task.cell));
    out += (first ? "\n    " : ",\n    ") + ordered_json(names[d]).dump() + ": " + tasks.dump();
    first = false;
  }
  out += "\n  }}";
}

} // namespace

std::string zorse::step::writePlan(const Plan &plan, const bundle::ModelSummary &summary) {
  std::string out = "{\n  \"format\": " + std::to_string(kPlanFormat) + ",\n";
  if (!plan.model.empty())
    out += "  \"model\": " + ordered_json(plan.model).dump() + ",\n";
  out += "  \"global_batch_size\": " + std::to_string(plan.batch * plan.samplesPerRow) + ",\n";
  if (plan.samplesPerRow > 1)
    out += "  \"group_rows\": " + std::to_string(plan.samplesPerRow) + ",\n";
  writeDevices(out, plan);
  if (plan.intraNode.bandwidth > 0 || plan.intraNode.latency > 0 || plan.interNode.bandwidth > 0 ||
      plan.interNode.latency > 0)
    out += ",\n  \"links\": " + ordered_json{{"intra_node", toJson(plan.intraNode)},
                                             {"inter_node", toJson(plan.interNode)}}
                                    .dump();
  out += ",\n";
  if (!plan.groups.empty())
    writeGroups(out, plan);
  writeCells(out, plan);
  out += ",\n  \"backward\": \"same\"";
  if (plan.schedule.splitBackward)
    out += ",\n  \"split_backward\": true";
  out += ",\n";
  writeState(out, plan);
  if (!plan.offload.empty()) {
    std::vector<ordered_json> rows;
    for (const OffloadRule &rule : plan.offload)
      rows.push_back(toJson(rule, plan));
    out += ",\n";
    writeRows(out, "offload", rows);
  }
  out += ",\n  \"schedule\": ";
  if (plan.schedule.kind == ScheduleKind::Explicit)
    writeOrder(out, plan);
  else
    out += scheduleText(plan);
  if (plan.communication != Communication::Overlapped)
    out += ",\n  \"overlap_communication\": false";
  if (plan.gradientWire != GradientWire::Unrounded)
    out += std::string(",\n  \"gradient_wire\": \"") +
           kGradientWireNames[static_cast<size_t>(plan.gradientWire)] + "\"";
  if (plan.communication == Communication::Eager)
    out += ",\n  \"send_protocol\": \"eager\"";
  if (plan.durations) {
    ordered_json durations = {{"forward", plan.durations->forward},
                              {"backward", plan.durations->backward}};
    if (!plan.durations->weights.empty())
      durations["weights"] = plan.durations->weights;
    out += ",\n  \"durations\": " + durations.dump();
  }
  return out + "\n}\n";
}
