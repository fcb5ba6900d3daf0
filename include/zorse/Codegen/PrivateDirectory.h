#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace zorse::codegen {

/// A temporary folder below TMPDIR (or /tmp) that no other user can enter, independent of the
/// umask. The destructor deletes it with its contents.
///
/// Its files become machine code, so other users must not be able to replace them. If others may
/// write to TMPDIR, they can rename the folder and create another one with its name. `path`
/// therefore refers to the folder through an open file descriptor. Child processes inherit the
/// descriptor.
class PrivateDirectory {
public:
  /// Creates a folder with a name that begins with `purpose`.
  static llvm::Expected<std::unique_ptr<PrivateDirectory>> create(llvm::StringRef purpose);
  ~PrivateDirectory();
  PrivateDirectory(const PrivateDirectory &) = delete;
  PrivateDirectory &operator=(const PrivateDirectory &) = delete;

  const std::string &path() const { return path_; }
  /// Path under which the folder was created, for messages and tests.
  const std::string &name() const { return name_; }

private:
  PrivateDirectory() = default;
  std::string name_, path_;
  int descriptor_ = -1;
};

} // namespace zorse::codegen
