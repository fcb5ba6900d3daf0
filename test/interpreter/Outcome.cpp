#include "Machine.h"

using namespace zorse;
using namespace zorse::interpret;

void Machine::finish(Result &result) {
  for (size_t p = 0; p < programs.size(); ++p)
    for (const auto &state : programs[p].state()) {
      Words words = fetch(span(p, state.region(), 0, int64_t(state.region().bytes()), false));
      const auto &value = state.value();
      if (value.kind() == bundle::Value::OPTIMIZER_STEP) {
        result.optimizerSteps.push_back(hashOfStep(words));
        continue;
      }
      auto &elements = result.state[{int(value.kind()), value.id(), value.cut()}];
      for (int64_t e = value.begin(); e < value.end() && size_t(e - value.begin()) < words.size();
           ++e)
        if (!padding(value, e)) {
          auto [it, fresh] = elements.try_emplace(e, words[size_t(e - value.begin())]);
          if (!fresh && it->second != words[size_t(e - value.begin())]) // stored twice with
                                                                        // different words
            it->second = 0;
        }
    }
  result.reports = reports;
}

Outcome interpret::run(const bundle::ModelSummary &summary,
                       const bundle::FunctionLibrary &functions,
                       const std::vector<bundle::Program> &programs, const Steps &steps,
                       const Interleaving &interleaving) {
  return Machine(summary, functions, programs, steps, interleaving).run();
}

std::string interpret::difference(const Result &expected, const Result &found) {
  for (size_t s = 0; s < expected.reports.size(); ++s)
    if (s >= found.reports.size() || found.reports[s] != expected.reports[s])
      return "step " + std::to_string(s + 1) + " reports something else";
  for (const auto &[key, elements] : expected.state) {
    auto it = found.state.find(key);
    for (const auto &[element, word] : elements)
      if (it == found.state.end() || !it->second.count(element) || it->second.at(element) != word)
        return "element " + std::to_string(element) + " of group " +
               std::to_string(std::get<1>(key)) +
               (std::get<0>(key) == bundle::Value::MOMENTS ? "'s moments" : "") + " differs";
  }
  for (uint64_t count : found.optimizerSteps)
    if (count != expected.optimizerSteps[0])
      return "the optimizer step differs";
  return "";
}

Harm interpret::findHarm(const bundle::ModelSummary &summary,
                         const bundle::FunctionLibrary &functions,
                         const std::vector<bundle::Program> &programs, const Result &expected,
                         const Steps &steps, int interleavings, uint32_t seed) {
  Harm harm;
  for (; harm.runs < interleavings && !harm.harmful; ++harm.runs) {
    Interleaving how{seed * 1000003u + uint32_t(harm.runs),
                     Interleaving::Policy(harm.runs % Interleaving::Policies)};
    Outcome outcome = run(summary, functions, programs, steps, how);
    static const char *const kinds[] = {"", "invalid: ", "deadlock: ", "race: "};
    if (outcome.kind != Outcome::Finished)
      harm.what = kinds[outcome.kind] + outcome.what;
    else
      harm.what = difference(expected, outcome.result);
    harm.harmful = !harm.what.empty();
  }
  return harm;
}
