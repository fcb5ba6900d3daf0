// Compiled kernels on disk, between compilations. What comes out of it is linked and run, so nothing that somebody else can have written is taken.
#pragma once

#include "zorse/Codegen/Codegen.h"

#include <memory>
#include <optional>
#include <string>

namespace zorse::codegen {

class KernelCache {
public:
  /// The folder that the options, ZORSE_CACHE or the user's cache folder name. None where there is no such folder, or, with a warning, where others
  /// than the user and root may write: then all kernels are compiled anew.
  static std::unique_ptr<KernelCache> open(const CodegenOptions &options);

  /// The object of a symbol, if it is there, of this user, whole, and signed with this user's key.
  std::optional<std::string> find(const std::string &symbol) const;
  /// Failures only cost the entry.
  void keep(const std::string &symbol, const std::string &object) const;

private:
  KernelCache(std::string folder, std::string key) : folder(std::move(folder)), key(std::move(key)) {}
  std::string signature(const std::string &symbol, llvm::StringRef object) const;

  std::string folder;
  std::string key; ///< of this user, in ~/.config/zorse/cache-key: not where the entries are
};

} // namespace zorse::codegen
