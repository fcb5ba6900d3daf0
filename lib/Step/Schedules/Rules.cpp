#include "Rules.h"

#include <cassert>

using namespace zorse::step;

namespace {

/// All rules, indexed by ScheduleKind.
const std::vector<std::unique_ptr<ScheduleRule>> &table() {
  static const std::vector<std::unique_ptr<ScheduleRule>> rules = [] {
    std::vector<std::unique_ptr<ScheduleRule>> made;
    for (auto make : {oneForwardOneBackwardRule, gpipeRule, steadyStateRule, interleavedRule,
                      waveRule, breadthFirstRule, explicitRule}) {
      made.push_back(make());
      assert(made.back()->kind == static_cast<ScheduleKind>(made.size() - 1) &&
             "rules are listed in the order of ScheduleKind");
    }
    return made;
  }();
  return rules;
}

} // namespace

std::string ScheduleRule::whyUnsupported(const Plan &, const bundle::ModelSummary &) const {
  return {};
}
bool ScheduleRule::fallbackOrder(const PlanLowering &, Order &) const { return false; }

const ScheduleRule &zorse::step::scheduleRule(ScheduleKind kind) {
  return *table()[static_cast<size_t>(kind)];
}

const ScheduleRule *zorse::step::findSchedule(const std::string &name) {
  for (const ScheduleRule *rule : namedSchedules())
    if (name == rule->name)
      return rule;
  return nullptr;
}

const char *zorse::step::renamedSchedule(const std::string &name) {
  for (auto [old, now] :
       {std::pair{"timed", "steady_state"}, {"folded", "wave"}, {"ministages", "breadth_first"}})
    if (name == old)
      return now;
  return nullptr;
}

const std::vector<const ScheduleRule *> &zorse::step::namedSchedules() {
  static const std::vector<const ScheduleRule *> named = [] {
    std::vector<const ScheduleRule *> rules;
    for (const auto &rule : table())
      if (rule->kind != ScheduleKind::Explicit)
        rules.push_back(rule.get());
    return rules;
  }();
  return named;
}

std::string zorse::step::listSchedules(const char *lastWord) {
  std::string list;
  for (size_t i = 0; i < namedSchedules().size(); ++i)
    list += (i == 0                            ? ""
             : i + 1 < namedSchedules().size() ? ", "
                                               : " " + std::string(lastWord) + " ") +
            ("\"" + std::string(namedSchedules()[i]->name) + "\"");
  return list;
}
