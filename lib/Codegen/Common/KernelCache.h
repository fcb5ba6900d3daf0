// On-disk cache of compiled kernels. Cached objects are linked and executed, so the cache uses only
// files that no other user can have written.
#pragma once

#include "zorse/Codegen/Codegen.h"

#include <memory>
#include <optional>
#include <string>

namespace zorse::codegen {

class KernelCache {
public:
  /// Opens the folder that the options, ZORSE_CACHE or the user's cache folder name. Returns null
  /// if there is no such folder, or, with a warning, if users other than the owner and root can
  /// write to it. All kernels are then compiled.
  static std::unique_ptr<KernelCache> open(const CodegenOptions &options);

  /// Returns the object of a symbol if it exists, belongs to this user, is complete and is signed
  /// with this user's key.
  std::optional<std::string> find(const std::string &symbol) const;
  /// Stores an object. A failure only means that the entry is missing.
  void keep(const std::string &symbol, const std::string &object) const;

private:
  KernelCache(std::string directory, std::string key)
      : directory(std::move(directory)), key(std::move(key)) {}
  std::string signature(const std::string &symbol, llvm::StringRef object) const;

  std::string directory;
  std::string key; ///< this user's key, from ~/.config/zorse/cache-key, which is not in the cache
                   ///< folder
};

} // namespace zorse::codegen
