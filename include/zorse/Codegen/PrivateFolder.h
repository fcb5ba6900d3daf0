#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace zorse::codegen {

/// A folder for temporary files below TMPDIR (or /tmp) that no other user can enter, whatever the umask; it is deleted with everything in it.
///
/// Its files become machine code, so they must not be exchanged. Where others may write to TMPDIR they can rename the folder and put one of their own
/// in its place. `path` therefore leads through an open descriptor to the folder that was made; processes started from here inherit the descriptor.
class PrivateFolder {
public:
  /// `purpose`: the beginning of its name.
  static llvm::Expected<std::unique_ptr<PrivateFolder>> create(llvm::StringRef purpose);
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder &) = delete;
  PrivateFolder &operator=(const PrivateFolder &) = delete;

  const std::string &path() const { return path_; }
  /// Where it was made, for messages and tests.
  const std::string &name() const { return name_; }

private:
  PrivateFolder() = default;
  std::string name_, path_;
  int descriptor_ = -1;
};

} // namespace zorse::codegen
