#include "zorse/Summary/UpdateRules.h"

#include "zorse/Base/Patterns.h"
#include "zorse/Summary/FlatGroups.h"
#include "zorse/Summary/Optimizers.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace zorse;

using Training = bundle::TrainingOptions;

bool zorse::decays(const bundle::ParameterInfo &parameter, const WeightDecayFilter &filter) {
  if (!parameter.trainable() || parameter.running_stat())
    return false;
  if (filter.byRank)
    return parameter.shape_size() >= 2;
  return std::any_of(filter.patterns.begin(), filter.patterns.end(),
                     [&](const std::string &pattern) {
                       return parameter.name().find(pattern) != std::string::npos;
                     });
}

std::optional<WeightDecayFilter> zorse::parseDecay(const std::string &text) {
  const std::string names = "names:";
  if (text == "rank")
    return WeightDecayFilter();
  WeightDecayFilter filter{/*byRank=*/false, {}};
  if (text == "all") {
    filter.patterns.push_back(""); // contained in every name
  } else if (text.compare(0, names.size(), names) == 0) {
    for (size_t begin = names.size(); begin < text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      if (end > begin)
        filter.patterns.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  } else if (text != "none") {
    return std::nullopt;
  }
  return filter;
}

namespace {

/// Update rules of all parameters. Parameters with equal learning rate and weight decay share one.
class RuleTable {
public:
  RuleTable(const bundle::TrainingOptions &training, const WeightDecayFilter &filter)
      : training(training), filter(filter) {
    for (int g = 0; g < training.parameter_groups_size(); ++g)
      for (const std::string &pattern : training.parameter_groups(g).parameters()) {
        patterns.push_back(pattern);
        groupOf.push_back(g);
      }
  }

  /// Returns what is wrong with the parameter groups, or "".
  std::string run(bundle::ModelSummary &summary) {
    std::vector<Key> keys;
    for (const bundle::ParameterInfo &parameter : summary.parameters()) {
      keys.push_back(keyOf(parameter));
      if (std::string problem = problemOf(parameter, keys.back()); !problem.empty())
        return "parameter '" + (parameter.has_shard() ? parameter.shard().of() : parameter.name()) +
               "': " + problem;
    }
    std::map<Key, uint32_t> rules;
    for (const Key &key : keys)
      if (key.trainable)
        rules[key] = 0;
    summary.clear_update_rules();
    for (auto &[key, rule] : rules)
      rule = ruleOf(key, summary);
    for (int p = 0; p < summary.parameters_size(); ++p)
      if (keys[p].trainable)
        summary.mutable_parameters(p)->set_update_rule(rules.at(keys[p]));
    return {};
  }

private:
  /// The order of rules: parameters of no group, with weight decay first, then groups; those with
  /// blocks follow, and statistics are last.
  struct Key {
    bool trainable = false, statistic = false;
    int group = -1;
    bool plain = false; ///< no weight decay
    /// UpdateRule.block
    std::vector<int64_t> block;

    bool operator<(const Key &o) const { return tie() < o.tie(); }
    std::tuple<bool, bool, int, bool, const std::vector<int64_t> &> tie() const {
      return {statistic, !block.empty(), group, plain, block};
    }
  };

  Key keyOf(const bundle::ParameterInfo &parameter) const {
    Key key;
    key.trainable = parameter.trainable();
    key.statistic = parameter.running_stat();
    if (!key.trainable || key.statistic)
      return key;
    const int deciding = decidingPattern(patterns, parameter.has_shard() ? parameter.shard().of()
                                                                         : parameter.name());
    key.group = deciding < 0 ? -1 : groupOf[deciding];
    key.plain = !decays(parameter, filter) || training.weight_decay() == 0;
    if (key.group >= 0 && training.parameter_groups(key.group).has_weight_decay())
      key.plain = training.parameter_groups(key.group).weight_decay() == 0;
    const OptimizerInfo &info = infoOf(training.optimizer());
    if (info.has(OptimizerInfo::Matrices))
      key.block = matrixOf(parameter, key);
    else if (info.has(OptimizerInfo::Factors))
      key.block = wholeOf(parameter);
    else if (const int64_t elements = elementsOf(parameter); info.has(OptimizerInfo::Codes) &&
                                                             elements >= kFewestCoded &&
                                                             elements % kCodeBlock == 0)
      key.block = {kCodeBlock};
    return key;
  }

  /// Decides whether Muon updates a parameter: if it is a hidden weight, or if its group says so.
  /// \returns the sizes of its matrices; {0, 0} if it has none
  std::vector<int64_t> matrixOf(const bundle::ParameterInfo &parameter, const Key &key) const {
    const auto chosen = key.group < 0 ? Training::OPTIMIZER_UNSPECIFIED
                                      : training.parameter_groups(key.group).optimizer();
    if (chosen != Training::MUON &&
        (chosen != Training::OPTIMIZER_UNSPECIFIED || !parameter.has_hidden()))
      return {};
    if (parameter.has_hidden())
      return {parameter.hidden().rows(), parameter.hidden().columns()};
    if (parameter.shape_size() >= 2)
      return {parameter.shape(0), elementsOf(parameter) / parameter.shape(0)};
    return {0, 0};
  }

  /// The shape of a parameter, with all dimensions before the last two as one.
  static std::vector<int64_t> wholeOf(const bundle::ParameterInfo &parameter) {
    std::vector<int64_t> shape(parameter.shape().begin(), parameter.shape().end());
    if (shape.empty())
      return {1};
    while (shape.size() > 3) {
      shape[1] *= shape[0];
      shape.erase(shape.begin());
    }
    return shape;
  }

  /// Returns why a parameter cannot have the block of its key, or "".
  std::string problemOf(const bundle::ParameterInfo &parameter, const Key &key) const {
    const OptimizerInfo &info = infoOf(training.optimizer());
    if (!key.block.empty() && parameter.has_shard())
      return std::string(info.name) + " updates whole " +
             (info.has(OptimizerInfo::Codes) ? "blocks" : "matrices") +
             ", and devices of a group have parts of it; compile with --tensor-parallel-size=1, " +
             (info.has(OptimizerInfo::Matrices) ? "or for this parameter with --param-group='" +
                                                      parameter.shard().of() + ":optimizer=adamw'"
                                                : "or with another --optimizer");
    if (key.block == std::vector<int64_t>{0, 0})
      return "muon updates matrices, and this parameter has fewer than two dimensions; remove "
             "optimizer=muon from its --param-group";
    return {};
  }

  uint32_t ruleOf(const Key &key, bundle::ModelSummary &summary) const {
    bundle::UpdateRule rule;
    rule.set_running_stat(key.statistic);
    rule.set_learning_rate_scale(1);
    rule.mutable_block()->Add(key.block.begin(), key.block.end());
    addOptimizerStates(training, rule);
    std::string name = key.statistic ? "statistics" : key.plain ? "plain" : "decay";
    if (!key.plain && !key.statistic)
      rule.set_weight_decay(training.weight_decay());
    if (key.group >= 0) {
      const auto &group = training.parameter_groups(key.group);
      rule.set_learning_rate_scale(group.learning_rate_scale());
      if (group.has_weight_decay())
        rule.set_weight_decay(group.weight_decay());
      name = "group" + std::to_string(key.group) + "." + name;
    }
    for (size_t i = 0; i < key.block.size(); ++i)
      name += (i ? "x" : ".") + std::to_string(key.block[i]);
    for (int r = 0; r < summary.update_rules_size(); ++r) {
      const bundle::UpdateRule &known = summary.update_rules(r);
      if (known.running_stat() == rule.running_stat() &&
          known.learning_rate_scale() == rule.learning_rate_scale() &&
          known.weight_decay() == rule.weight_decay() &&
          std::equal(known.block().begin(), known.block().end(), key.block.begin(),
                     key.block.end()))
        return uint32_t(r);
    }
    rule.set_name(name);
    *summary.add_update_rules() = rule;
    return uint32_t(summary.update_rules_size() - 1);
  }

  const bundle::TrainingOptions &training;
  const WeightDecayFilter &filter;
  std::vector<std::string> patterns;
  std::vector<int> groupOf; ///< by pattern
};

} // namespace

std::string zorse::setUpdateRules(bundle::ModelSummary &summary, const WeightDecayFilter &filter,
                                  const std::vector<bundle::ElementType> &copies) {
  const bundle::TrainingOptions training = summary.training();
  std::string problem = RuleTable(training, filter).run(summary);
  if (problem.empty())
    layOutGroups(summary, copies);
  return problem;
}
