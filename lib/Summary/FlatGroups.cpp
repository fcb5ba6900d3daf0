#include "zorse/Summary/FlatGroups.h"

#include "zorse/Summary/Optimizers.h"
#include "zorse/Summary/StateLayout.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

using namespace zorse;

namespace {

/// A unit of a device of a group that reads a parameter.
struct Reader {
  uint32_t unit;
  int group, member;
  bool contributes; ///< computes the gradient, or a summand of it

  auto tie() const { return std::tie(unit, group, member, contributes); }
  bool operator<(const Reader &o) const { return tie() < o.tie(); }
};

/// Calls `visit` with every unit: of the model, and of the devices of groups.
template <typename Visit> void forEachUnit(bundle::ModelSummary &summary, Visit visit) {
  for (bundle::UnitInfo &unit : *summary.mutable_units())
    visit(unit);
  for (bundle::DeviceGroup &group : *summary.mutable_device_groups())
    for (bundle::DeviceGroup::Member &member : *group.mutable_members())
      for (bundle::UnitInfo &unit : *member.mutable_units())
        visit(unit);
}

void findReaders(const bundle::ModelSummary &summary, std::vector<std::vector<Reader>> &readers) {
  for (int g = 0; g < summary.device_groups_size(); ++g) {
    const bundle::DeviceGroup &group = summary.device_groups(g);
    for (int m = 0; m < group.members_size(); ++m)
      for (int i = 0; i < group.units_size(); ++i) {
        const bundle::UnitInfo &unit = group.members(m).units(i);
        const auto &others = unit.other_contributes();
        for (int p = 0; p < unit.parameters_size(); ++p)
          readers[unit.parameters(p)].push_back(
              {group.units(i), g, m,
               std::find(others.begin(), others.end(), static_cast<uint32_t>(p)) == others.end()});
      }
  }
}

/// Returns the parameters of which a device has a part, and which or whose parts are no multiples
/// of the alignment. A device concatenates the parts that it has of a group, so each has a separate
/// group.
std::set<uint32_t> unalignedParts(bundle::ModelSummary &summary) {
  std::set<uint32_t> found;
  forEachUnit(summary, [&](const bundle::UnitInfo &unit) {
    for (const bundle::UnitInfo::ParameterPart &part : unit.parts()) {
      const uint32_t parameter = unit.parameters(static_cast<int>(part.argument()));
      const auto &info = summary.parameters(int(parameter));
      const int64_t align = int64_t(kStateAlignment / elementBytes(info.type()));
      int64_t elements = 0;
      for (int r = 0; r < part.begin_size(); ++r)
        elements += part.end(r) - part.begin(r);
      if (elements % align || elementsOf(info) % align)
        found.insert(parameter);
    }
  });
  return found;
}

const bundle::UpdateRule *ruleOfParameter(const bundle::ModelSummary &summary,
                                          const bundle::ParameterInfo &parameter) {
  return parameter.trainable() && parameter.update_rule() < uint32_t(summary.update_rules_size())
             ? &summary.update_rules(int(parameter.update_rule()))
             : nullptr;
}

/// Properties of an update rule in which the parameters of a group agree: whether it has blocks,
/// and types of states.
std::vector<int> kindOf(const bundle::UpdateRule *rule) {
  std::vector<int> kind{rule && rule->block_size() > 0};
  for (int s = 0; rule && s < rule->states_size(); ++s)
    kind.push_back(rule->states(s).type());
  return kind;
}

/// Returns what groups with blocks are called after their units.
std::string nameOfBlocks(const bundle::ModelSummary &summary,
                         const std::vector<uint32_t> &parameters) {
  const auto isVector = [&](uint32_t p) {
    return ruleOfParameter(summary, summary.parameters(int(p)))->block_size() < 2;
  };
  if (!std::all_of(parameters.begin(), parameters.end(), isVector))
    return " (matrices)";
  return infoOf(summary.training().optimizer()).has(OptimizerInfo::Codes) ? " (8-bit states)"
                                                                          : " (vectors)";
}

/// Returns the device that alone reads a group: " of device 1 of g"; empty if there are several.
std::string readerName(const bundle::ModelSummary &summary, const std::vector<Reader> &readers) {
  if (readers.empty() || !std::all_of(readers.begin(), readers.end(), [&](const Reader &reader) {
        return reader.group == readers[0].group && reader.member == readers[0].member;
      }))
    return {};
  return " of device " + std::to_string(readers[0].member) + " of " +
         summary.device_groups(readers[0].group).name();
}

} // namespace

void zorse::layOutGroups(bundle::ModelSummary &summary,
                         const std::vector<bundle::ElementType> &copies) {
  std::vector<std::vector<uint32_t>> using_(summary.parameters_size());
  std::vector<std::vector<Reader>> readers(summary.parameters_size());
  for (int u = 0; u < summary.units_size(); ++u)
    for (uint32_t parameter : summary.units(u).parameters())
      using_[parameter].push_back(u);
  findReaders(summary, readers);
  for (size_t p = 0; p < readers.size(); ++p)
    for (const Reader &reader : readers[p])
      using_[p].push_back(reader.unit);
  for (std::vector<uint32_t> &units : using_) {
    std::sort(units.begin(), units.end());
    units.erase(std::unique(units.begin(), units.end()), units.end());
  }

  // Ordered by first use, trained before frozen. Statistics are separate from parameters with
  // gradients, and blocks that are updated as a whole from parameters that owners may divide.
  std::map<std::tuple<std::vector<uint32_t>, bool, int, int, bool, std::vector<int>,
                      std::vector<Reader>, int>,
           std::vector<uint32_t>>
      members;
  const std::set<uint32_t> alone = unalignedParts(summary);
  for (int p = 0; p < summary.parameters_size(); ++p) {
    const auto &parameter = summary.parameters(p);
    members[{using_[p], !parameter.trainable(), int(parameter.type()), int(copies[p]),
             parameter.running_stat(), kindOf(ruleOfParameter(summary, parameter)), readers[p],
             alone.count(uint32_t(p)) ? p : -1}]
        .push_back(p);
  }

  summary.clear_groups();
  for (auto &[key, parameters] : members) {
    auto &[units, frozen, type, copy, statistic, kind, readingDevices, separate] = key;
    std::stable_sort(parameters.begin(), parameters.end(), [&](uint32_t a, uint32_t b) {
      return summary.parameters(a).update_rule() < summary.parameters(b).update_rule();
    });
    bundle::FlatGroupInfo &group = *summary.add_groups();
    uint32_t id = summary.groups_size() - 1;
    std::string name;
    for (uint32_t unit : units)
      name += (name.empty() ? "" : " + ") + summary.units(unit).name();
    if (units.size() > 3)
      name = summary.units(units.front()).name() + " + ... + " + summary.units(units.back()).name();
    group.set_name(frozen      ? name + " (frozen)"
                   : statistic ? name + " (statistics)"
                   : copy      ? name + " (" + elementTypeName(bundle::ElementType(copy)) + ")"
                               : name);
    if (kind.front())
      group.set_name(group.name() + nameOfBlocks(summary, parameters));
    group.set_name(group.name() + readerName(summary, readingDevices));
    group.set_trainable(!frozen);
    group.set_running_stat(statistic);
    group.set_type(bundle::ElementType(type));
    group.set_param_dtype(bundle::ElementType(copy));
    group.mutable_units()->Add(units.begin(), units.end());

    const int64_t alignment = int64_t(kStateAlignment / elementBytes(group.type()));
    int64_t offset = 0;
    for (uint32_t p : parameters) {
      auto &parameter = *summary.mutable_parameters(p);
      parameter.set_group(id);
      parameter.set_offset(offset);
      group.add_parameters(p);
      offset += (elementsOf(parameter) + alignment - 1) / alignment * alignment;
    }
    group.set_elements(offset);
  }
}

bool zorse::updatesBlocks(const bundle::ModelSummary &summary, const bundle::FlatGroupInfo &group) {
  const bundle::UpdateRule *rule = zorse::ruleOf(summary, group);
  return rule && rule->block_size() > 0;
}

int64_t zorse::alignedBlocks(const bundle::UpdateRule &rule, bundle::ElementType type) {
  int64_t blocks = 1;
  auto align = [&](int64_t entries, bundle::ElementType of) {
    const int64_t bytes = entries * int64_t(elementBytes(of)), alignment = kStateAlignment;
    blocks = std::lcm(blocks, alignment / std::gcd(alignment, bytes));
  };
  align(blockElements(rule), type);
  for (const bundle::UpdateRule::State &state : rule.states())
    align(state.entries(), state.type() == bundle::ELEMENT_TYPE_UNSPECIFIED ? type : state.type());
  return blocks;
}

int64_t zorse::ownerBorder(const bundle::ModelSummary &summary, uint32_t group, int64_t element) {
  const bundle::FlatGroupInfo &info = summary.groups(int(group));
  if (element >= info.elements())
    return info.elements();
  const int64_t alignment = int64_t(kStateAlignment / elementBytes(info.type()));
  const auto &parameters = info.parameters();
  if (!updatesBlocks(summary, info))
    return element / alignment * alignment;
  const auto after = std::upper_bound(
      parameters.begin(), parameters.end(), element,
      [&](int64_t e, uint32_t p) { return e < summary.parameters(int(p)).offset(); });
  const auto &parameter = summary.parameters(int(*std::prev(after)));
  const bundle::UpdateRule &rule = *ruleOfParameter(summary, parameter);
  const int64_t size = blockElements(rule) * alignedBlocks(rule, info.type());
  // The last blocks extend to the end of the padding.
  const int64_t number = std::min((element - parameter.offset()) / size,
                                  std::max<int64_t>(1, elementsOf(parameter) / size) - 1);
  return parameter.offset() + number * size;
}

void zorse::dropUnreadParameters(bundle::ModelSummary &summary,
                                 std::vector<bundle::ElementType> &copies) {
  std::vector<bool> read(static_cast<size_t>(summary.parameters_size()), false);
  forEachUnit(summary, [&](bundle::UnitInfo &unit) {
    for (uint32_t parameter : unit.parameters())
      read[parameter] = true;
  });
  std::vector<uint32_t> place(read.size(), 0);
  uint32_t kept = 0;
  for (size_t p = 0; p < read.size(); ++p) {
    if (!read[p])
      continue;
    place[p] = kept;
    copies[kept] = copies[p];
    summary.mutable_parameters()->SwapElements(static_cast<int>(kept++), static_cast<int>(p));
  }
  copies.resize(kept);
  summary.mutable_parameters()->DeleteSubrange(static_cast<int>(kept),
                                               static_cast<int>(read.size() - kept));
  forEachUnit(summary, [&](bundle::UnitInfo &unit) {
    for (uint32_t &parameter : *unit.mutable_parameters())
      parameter = place[parameter];
  });
}
