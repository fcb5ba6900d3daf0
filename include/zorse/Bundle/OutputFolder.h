// Directories that a tool writes as a whole: into a draft beside the target first, which is exchanged for the target when it is complete. A process
// that is killed at any time leaves the old directory or the new one.
#pragma once

#include "zorse/Base/Status.h"

#include <string>

namespace zorse::bundle {

/// A new directory of this process's own. Its name is a prefix and 16 random hexadecimal digits, so nothing that exists is ever taken or removed. A
/// lock (flock) on the directory says that its process lives: a later one removes what killed processes have left.
class DraftFolder {
public:
  /// Makes the directory "PREFIX<16 digits>"; what ended processes have left under such names is removed.
  static Result<DraftFolder> create(const std::string &prefix);
  /// Removes the directory, unless it was released.
  ~DraftFolder();
  DraftFolder(DraftFolder &&other) noexcept;
  DraftFolder &operator=(DraftFolder &&other) noexcept;

  const std::string &path() const { return path_; }
  /// Removes the directory now.
  void remove();
  /// The directory is somebody else's from now on.
  void release() { path_.clear(); }

private:
  DraftFolder() = default;
  std::string path_;
  int lock_ = -1;
};

class OutputFolder {
public:
  /// Why a directory that is not empty must not be replaced ("holds 'notes.txt', which is no file of a bundle"); empty: it may be.
  using Refusal = std::string (*)(const std::string &directory);

  /// Why `create` would fail now, as far as it is known without writing; empty: nothing is in the way. For tools that have long work ahead.
  static std::string problem(const std::string &target, Refusal refusal);

  /// Makes the draft. An error where `target` exists and is not an empty directory or one that `refusal` lets be replaced. A symbolic link to a
  /// directory stays one. \param refusal  null: only empty directories are replaced
  static Result<OutputFolder> create(const std::string &target, Refusal refusal);

  /// Where the contents go.
  const std::string &path() const { return draft_.path(); }

  /// Makes the draft the target, in one operation where the file system can (RENAME_EXCHANGE), and removes what was there. Several processes that
  /// write one target are ordered by a lock on its parent directory; the last one stays.
  Status commit();

private:
  OutputFolder(DraftFolder draft, std::string name, std::string target, Refusal refusal)
      : draft_(std::move(draft)), name_(std::move(name)), target_(std::move(target)), refusal_(refusal) {}
  DraftFolder draft_;
  std::string name_, target_; ///< as given, and where it is
  Refusal refusal_;
};

} // namespace zorse::bundle
