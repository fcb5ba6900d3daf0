#include "FlatGroups.h"

#include "zorse/Summary/FlatGroups.h"

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

void units::layOutGroups(bundle::ModelSummary &summary, const WeightDecayFilter &rule,
                         const std::vector<bundle::ElementType> &copies) {
  for (bundle::ParameterInfo &parameter : *summary.mutable_parameters())
    parameter.set_decays(decays(parameter, rule));
  zorse::layOutGroups(summary, copies);
}
