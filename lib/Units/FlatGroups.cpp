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
  return llvm::any_of(rule.patterns, [&](const std::string &pattern) { return parameter.name().find(pattern) != std::string::npos; });
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

void units::layOutGroups(bundle::ModelSummary &summary, const WeightDecayFilter &rule, llvm::ArrayRef<bundle::ElementType> copies) {
  std::vector<std::vector<uint32_t>> using_(summary.parameters_size());
  for (int u = 0; u < summary.units_size(); ++u)
    for (uint32_t parameter : summary.units(u).parameters())
      using_[parameter].push_back(u);

  // Ordered by first use, trained before frozen; statistics are separate from parameters with
  // gradients.
  std::map<std::tuple<std::vector<uint32_t>, bool, int, int, bool>, std::vector<uint32_t>> members;
  for (int p = 0; p < summary.parameters_size(); ++p) {
    auto &parameter = *summary.mutable_parameters(p);
    parameter.set_decays(decays(parameter, rule));
    members[{using_[p], !parameter.trainable(), int(parameter.type()), int(copies[p]), parameter.running_stat()}].push_back(p);
  }

  summary.clear_groups();
  for (auto &[key, parameters] : members) {
    auto &[units, frozen, type, copy, statistic] = key;
    std::stable_partition(parameters.begin(), parameters.end(), [&](uint32_t p) { return summary.parameters(p).decays(); });
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
