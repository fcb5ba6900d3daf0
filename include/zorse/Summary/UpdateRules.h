// Update rules of parameters, which their order in state groups depends on.
#pragma once

#include "bundle.pb.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse {

/// Selects the parameters with weight decay.
struct WeightDecayFilter {
  bool byRank = true; ///< rank >= 2: matrices and embeddings, no biases and weights of norms
  std::vector<std::string> patterns; ///< otherwise: parameters with a name that contains one of
                                     ///< these
};

/// Parses `rank`, `all`, `none` or `names:P,Q`; nullopt for another text.
std::optional<WeightDecayFilter> parseDecay(const std::string &text);

/// Whether weight decay applies to the parameter.
bool decays(const bundle::ParameterInfo &parameter, const WeightDecayFilter &filter);

/// Sets the update rules of the summary's training options and that of each parameter, and lays out
/// the groups (FlatGroups.h). Returns which parameter or parameter group is wrong, or "".
std::string setUpdateRules(bundle::ModelSummary &summary, const WeightDecayFilter &filter,
                           const std::vector<bundle::ElementType> &copies);

} // namespace zorse
