// The hash by which plans, profiles and snapshots name a model (ModelSummary.content_hash).
#pragma once

#include <string>

namespace zorse::bundle {

/// Whether two hashes, each NUMBER-HASH, can be compared: the same model has another hash in another version (kGraphVersion in
/// lib/Units/BuildUnits.cpp), and hashes of different versions say nothing about each other. Those from before there were versions have no number.
inline bool comparable(const std::string &hash, const std::string &other) {
  auto version = [](const std::string &text) {
    const size_t end = text.find_first_not_of("0123456789");
    return end != std::string::npos && text[end] == '-' ? text.substr(0, end) : std::string();
  };
  return version(hash) == version(other);
}

/// Whether the hashes are certainly those of two models. "" is any model.
inline bool differentModels(const std::string &hash, const std::string &other) {
  return !hash.empty() && !other.empty() && comparable(hash, other) && hash != other;
}

} // namespace zorse::bundle
