// The bytes of parameters: weights.json and the safetensors file next to it.
#pragma once

#include "zorse/Bundle/BundleWriter.h"

#include <nlohmann/json.hpp>

#include <map>

namespace zorse::bundle {

/// Writes the safetensors file to `directory` if one is needed, and adds its hash to `files`.
/// \returns weights.json
Result<nlohmann::ordered_json> writeWeights(const std::vector<WeightData> &weights,
                                            const HubModel &hub, WeightMode mode,
                                            const std::string &directory,
                                            std::map<std::string, std::string> &files);

} // namespace zorse::bundle
