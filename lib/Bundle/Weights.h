// The bytes of parameters: weights.json and the safetensors file beside it.
#pragma once

#include "zorse/Bundle/BundleWriter.h"

#include <nlohmann/json.hpp>

#include <map>

namespace zorse::bundle {

/// Writes the safetensors file into `directory` where one is needed, adds its hash to `files`, and returns weights.json in `json`.
bool writeWeights(const std::vector<WeightData> &weights, const HubModel &hub, WeightMode mode, const std::string &directory,
                  nlohmann::ordered_json &json, std::map<std::string, std::string> &files, std::string &error);

} // namespace zorse::bundle
