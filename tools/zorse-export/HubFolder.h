// The directory that an export for the hub makes, and what it takes from the one that the run began with besides tensors.
#pragma once

#include "zorse/runtime/Elements.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>

namespace zorse::exporting {

/// Calls `write` with a new folder beside `output`, which takes its name when `write` has succeeded and is removed otherwise.
runtime::Status writeFolder(const std::string &output, const std::function<runtime::Status(const std::string &folder)> &write);

/// Copies the configuration, the tokenizer and the like: everything in `from` by its kind but weights and indices.
/// \param type  what config.json says of the type of the weights; nullopt: what it says already
runtime::Status copyCompanions(const std::string &from, const std::string &to, std::optional<runtime::StoredType> type);

/// Indented, as transformers writes its files.
runtime::Status writeJson(const std::string &path, const nlohmann::ordered_json &json);

/// What a JSON file holds; an error where it is none.
runtime::Result<nlohmann::ordered_json> readJson(const std::string &path);

} // namespace zorse::exporting
