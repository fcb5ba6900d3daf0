#include "FlatGroups.h"

#include "zorse/Summary/Summary.h"

#include <map>
#include <tuple>

using namespace zorse;
using namespace zorse::units;

bool units::decays(const bundle::ParameterInfo &parameter, const WeightDecayFilter &rule) {
  if (!parameter.trainable() || parameter.running_stat())
    return false;
  if (rule.byRank)
    return parameter.shape_size() >= 2;
  return llvm::any_of(rule.patterns, [&](const std::string &pattern) {
    return parameter.name().find(pattern) != std::string::npos;
  });
}

std::optional<WeightDecayFilter> units::parseDecay(llvm::StringRef text) {
  if (text == "rank")
    return WeightDecayFilter();
  WeightDecayFilter rule{/*byRank=*/false, {}};
  if (text == "all")
    rule.patterns.push_back(""); // contained in every name
  else if (text.consume_front("names:")) {
    llvm::SmallVector<llvm::StringRef> patterns;
    text.split(patterns, ',', -1, /*KeepEmpty=*/false);
    for (llvm::StringRef pattern : patterns)
      rule.patterns.push_back(pattern.str());
  } else if (text != "none")
    return std::nullopt;
  return rule;
}

namespace {

/// A unit of a device of a group that reads a parameter.
struct Reader {
  uint32_t unit;
  int group, member;
  bool contributes; ///< computes the gradient, or a summand of it

  auto tie() const { return std::tie(unit, group, member, contributes); }
  bool operator<(const Reader &o) const { return tie() < o.tie(); }
};

void findReaders(const bundle::ModelSummary &summary, std::vector<std::vector<Reader>> &readers) {
  for (auto [g, group] : llvm::enumerate(summary.device_groups()))
    for (auto [m, member] : llvm::enumerate(group.members()))
      for (auto [unit, info] : llvm::zip(group.units(), member.units()))
        for (auto [position, parameter] : llvm::enumerate(info.parameters()))
          readers[parameter].push_back(
              {unit, int(g), int(m),
               !llvm::is_contained(info.other_contributes(), uint32_t(position))});
}

} // namespace

void units::layOutGroups(bundle::ModelSummary &summary, const WeightDecayFilter &rule,
                         llvm::ArrayRef<bundle::ElementType> copies) {
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
    llvm::sort(units);
    units.erase(std::unique(units.begin(), units.end()), units.end());
  }

  // Ordered by first use, trained before frozen; statistics are separate from parameters with
  // gradients.
  std::map<std::tuple<std::vector<uint32_t>, bool, int, int, bool, std::vector<Reader>>,
           std::vector<uint32_t>>
      members;
  for (int p = 0; p < summary.parameters_size(); ++p) {
    auto &parameter = *summary.mutable_parameters(p);
    parameter.set_decays(decays(parameter, rule));
    members[{using_[p], !parameter.trainable(), int(parameter.type()), int(copies[p]),
             parameter.running_stat(), readers[p]}]
        .push_back(p);
  }

  summary.clear_groups();
  for (auto &[key, parameters] : members) {
    auto &[units, frozen, type, copy, statistic, readingDevices] = key;
    std::stable_partition(parameters.begin(), parameters.end(),
                          [&](uint32_t p) { return summary.parameters(p).decays(); });
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
    if (!readingDevices.empty() &&
        llvm::all_equal(llvm::map_range(
            readingDevices, [](const Reader &r) { return std::pair(r.group, r.member); })))
      *group.mutable_name() += " of device " + std::to_string(readingDevices.front().member) +
                               " of " + summary.device_groups(readingDevices.front().group).name();
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
      if (parameter.decays())
        group.set_decaying_elements(offset);
    }
    group.set_elements(offset);
  }
}
