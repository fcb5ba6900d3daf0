#include "PlanFormat.h"

#include "zorse/Step/Schedules.h"

using namespace zorse;
using namespace zorse::step;
using zorse::fields::Json;

const fields::RenamedKeys zorse::step::kRenamedPlanKeys = {
    {"batch", "global_batch_size"},
    {"batch_norm_rows", "group_rows"},
    {"residency", "offload"},
    {"moments", "optimizer_states"},
    {"update", "optimizer"},
    {"gather", "reshard_after_forward"},
    {"images", "buffer_count"},
    {"default", "default_sharding"},
    {"commit", "optimizer_in_backward"},
    {"communication", "overlap_communication"},
    {"share", "fraction"},
    {"microbatch", "micro_batch_size"},
    {"speed", "flops_per_second"},
    {"in_flight", "in_flight_factor"},
    {"ahead", "warmup_forwards"},
    {"interleave", "microbatch_group_size"},
    {"weight_delay", "max_weight_grad_delay"},
};

namespace {

bool isText(const Json &value, const char *text) {
  return value.is_string() && value.get_ref<const std::string &>() == text;
}

/// Converts a choice of two words to a boolean.
void toSwitch(Json &object, const char *old, const char *no, const char *yes, const char *now) {
  fields::renameKey(object, old, now);
  if (object.is_object() && object.contains(now))
    if (Json &value = object[now]; isText(value, no) || isText(value, yes))
      value = isText(value, yes);
}

Json &items(Json &object, const char *key) {
  static Json none;
  none = Json::array();
  return object.is_object() && object.contains(key) && object[key].is_array() ? object[key] : none;
}

void upgradeStages(Json &stages) {
  for (Json &stage : stages) {
    fields::renameKey(stage, "microbatch", "micro_batch_size");
    for (Json &device : items(stage, "devices"))
      fields::renameKey(device, "microbatch", "micro_batch_size");
  }
}

void upgradeState(Json &root) {
  if (!root.contains("state"))
    return;
  Json &state = root["state"];
  fields::renameKey(state, "default", "default_sharding");
  toSwitch(state, "commit", "step", "group", "optimizer_in_backward");
  for (Json &group : items(state, "groups"))
    for (Json &owner : items(group, "owners"))
      if (owner.is_object() && owner.contains("share") && owner["share"].is_number()) {
        const double percent = owner["share"].get<double>();
        owner.erase("share");
        owner["fraction"] = percent / 100;
      }
}

void upgradeSchedule(Json &root) {
  if (!root.contains("schedule"))
    return;
  Json &schedule = root["schedule"];
  Json &name = schedule.is_object() && schedule.contains("name") ? schedule["name"] : schedule;
  if (const char *now = name.is_string() ? renamedSchedule(name.get<std::string>()) : nullptr)
    name = now;
  for (auto [old, now] : {std::pair{"in_flight", "in_flight_factor"},
                          {"ahead", "warmup_forwards"},
                          {"interleave", "microbatch_group_size"},
                          {"weight_delay", "max_weight_grad_delay"}})
    fields::renameKey(schedule, old, now);
}

} // namespace

void zorse::step::upgradePlan(Json &root) {
  if (!root.is_object() || !root.contains("format"))
    return;
  const int64_t format = fields::toInteger(root["format"], "format");
  if (format == kPlanFormat)
    return;
  if (format != 1)
    fields::fail("format", "expected " + std::to_string(kPlanFormat) +
                               ", or 1, which is converted; got " + fields::show(root["format"]));
  root["format"] = kPlanFormat;
  fields::renameKey(root, "batch", "global_batch_size");
  toSwitch(root, "communication", "blocking", "overlapped", "overlap_communication");
  for (Json &device : items(root, "devices"))
    fields::renameKey(device, "speed", "flops_per_second");
  upgradeStages(items(root, "stages"));
  for (Json &pipeline : items(root, "pipelines"))
    upgradeStages(items(pipeline, "stages"));
  upgradeState(root);
  fields::renameKey(root, "residency", "offload");
  for (Json &rule : items(root, "offload")) {
    fields::renameKey(rule, "moments", "optimizer_states");
    fields::renameKey(rule, "update", "optimizer");
    toSwitch(rule, "gather", "step", "phase", "reshard_after_forward");
    fields::renameKey(rule, "images", "buffer_count");
  }
  upgradeSchedule(root);
}
