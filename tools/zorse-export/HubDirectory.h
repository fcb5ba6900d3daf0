// The output directory of a hub export, and the files other than tensors that are copied into it.
#pragma once

#include "zorse/runtime/Elements.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>

namespace zorse::exporting {

/// Calls `write` with a new folder next to `output`. The folder is renamed to `output` if `write`
/// succeeds, and removed otherwise.
runtime::Status
writeDirectory(const std::string &output,
               const std::function<runtime::Status(const std::string &directory)> &write);

/// Copies configuration, tokenizer and similar files: all files of `from` except weights and
/// indices.
/// \param type  type of the weights to write into config.json; nullopt: keep the present one
runtime::Status copyCompanions(const std::string &from, const std::string &to,
                               std::optional<runtime::StoredType> type);

/// Writes indented JSON, in the style of transformers.
runtime::Status writeJson(const std::string &path, const nlohmann::ordered_json &json);

/// Parses a JSON file. Returns an error if it is not JSON.
runtime::Result<nlohmann::ordered_json> readJson(const std::string &path);

} // namespace zorse::exporting
