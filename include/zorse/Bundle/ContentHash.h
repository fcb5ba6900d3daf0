// The hash that identifies a model in plans, profiles and checkpoints (ModelSummary.content_hash).
#pragma once

#include <string>

namespace zorse::bundle {

/// Whether two hashes of the form VERSION-HASH can be compared. The same model has different hashes
/// in different versions (kGraphVersion in lib/Units/UnitPasses.cpp), so hashes of different
/// versions are not comparable. Hashes that are older than versions have no number.
inline bool comparable(const std::string &hash, const std::string &other) {
  auto version = [](const std::string &text) {
    const size_t end = text.find_first_not_of("0123456789");
    return end != std::string::npos && text[end] == '-' ? text.substr(0, end) : std::string();
  };
  return version(hash) == version(other);
}

/// Whether the hashes certainly belong to two different models. "" matches any model.
inline bool differentModels(const std::string &hash, const std::string &other) {
  return !hash.empty() && !other.empty() && comparable(hash, other) && hash != other;
}

} // namespace zorse::bundle
