// Writes directories atomically: a tool writes to a draft directory next to the target and
// exchanges it for the target when it is complete. A process that is killed at any time leaves
// either the old directory or the new one.
#pragma once

#include "zorse/Base/Status.h"

#include <string>

namespace zorse::bundle {

/// A new directory that belongs to this process. Its name is a prefix and 16 random hexadecimal
/// digits, so no existing directory is ever reused or removed. A lock (flock) on the directory
/// indicates that its process is alive; a later process removes the directories of killed
/// processes.
class DraftDirectory {
public:
  /// Creates the directory "PREFIX<16 digits>". Removes directories with such names if their
  /// process has ended.
  static Result<DraftDirectory> create(const std::string &prefix);
  /// Removes the directory, unless it was released.
  ~DraftDirectory();
  DraftDirectory(DraftDirectory &&other) noexcept;
  DraftDirectory &operator=(DraftDirectory &&other) noexcept;

  const std::string &path() const { return path_; }
  /// Removes the directory now.
  void remove();
  /// Releases ownership: the destructor no longer removes the directory.
  void release() { path_.clear(); }

private:
  DraftDirectory() = default;
  std::string path_;
  int lock_ = -1;
};

class OutputDirectory {
public:
  /// Returns the reason why a directory that is not empty must not be replaced ("contains
  /// 'notes.txt', which is not part of a bundle"); empty if it may be replaced.
  using Refusal = std::string (*)(const std::string &directory);

  /// Returns the reason why `create` would fail now, as far as it is known without writing; empty
  /// if none is known. For tools with long work ahead.
  static std::string problem(const std::string &target, Refusal refusal);

  /// Creates the draft. Fails if `target` exists and is neither an empty directory nor one that
  /// `refusal` allows to be replaced. A symbolic link to a directory is kept. \param refusal  null:
  /// only empty directories are replaced
  static Result<OutputDirectory> create(const std::string &target, Refusal refusal);

  /// Path to write the contents to.
  const std::string &path() const { return draft_.path(); }

  /// Replaces the target by the draft, in one operation if the file system supports it
  /// (RENAME_EXCHANGE), and removes the previous contents. A lock on the parent directory orders
  /// processes that write the same target; the last one wins.
  Status commit();

private:
  OutputDirectory(DraftDirectory draft, std::string name, std::string target, Refusal refusal)
      : draft_(std::move(draft)), name_(std::move(name)), target_(std::move(target)),
        refusal_(refusal) {}
  DraftDirectory draft_;
  std::string name_, target_; ///< as given, and with symbolic links resolved
  Refusal refusal_;
};

} // namespace zorse::bundle
