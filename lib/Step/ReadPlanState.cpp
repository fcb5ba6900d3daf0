// Reads the sections "state" and "offload" of plan.json.

#include "PlanFormat.h"
#include "PlanSections.h"

#include "bundle.pb.h"

#include <algorithm>
#include <set>

using namespace zorse;
using namespace zorse::step;
using namespace zorse::fields;
using json = Json;

namespace {

class StateReader {
public:
  StateReader(const bundle::ModelSummary &summary, const PlanNames &names, Plan &plan)
      : summary(summary), names(names), plan(plan) {}

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
        owner.device = names.toDevice(list[i], path);
        owner.fraction = 1;
        owners.push_back(owner);
        continue;
      }
      checkKeys(list[i], path, {"device", "fraction", "elements"}, kRenamedPlanKeys);
      if (!list[i].contains("device") ||
          list[i].contains("fraction") == list[i].contains("elements"))
        fail(path, "expected \"device\" and one of \"fraction\" (of the group) and \"elements\" "
                   "([begin, end])");
      owner.device = names.toDevice(list[i]["device"], path + ".device");
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
      rule.devices =
          readIndices(list[i], path, "devices", [&](const json &value, const std::string &where) {
            return names.toDevice(value, where);
          });
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

private:
  const bundle::ModelSummary &summary;
  const PlanNames &names;
  Plan &plan;
};

} // namespace

void zorse::step::readPlanState(const json &state, const bundle::ModelSummary &summary,
                                const PlanNames &names, Plan &plan) {
  StateReader(summary, names, plan).readState(state);
}

void zorse::step::readOffload(const json &list, const bundle::ModelSummary &summary,
                              const PlanNames &names, Plan &plan) {
  StateReader(summary, names, plan).readOffload(list);
}
