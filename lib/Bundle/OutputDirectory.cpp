#include "zorse/Bundle/OutputDirectory.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace zorse::bundle {

namespace {

constexpr size_t kDigits = 16;
constexpr int kLockTries = 500; // every 10 ms: another program (flock . make) may hold the lock of
                                // a directory for any time
#ifndef RENAME_NOREPLACE
constexpr unsigned RENAME_NOREPLACE = 1, RENAME_EXCHANGE = 2;
#endif

/// Holds a lock on a directory during its lifetime. held() is false if the file system has no locks
/// (NFS).
class DirectoryLock {
public:
  explicit DirectoryLock(const std::string &directory)
      : file_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    for (int i = 0; file_ >= 0 && !held_ && i < kLockTries; ++i) {
      held_ = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
      if (!held_ && errno != EWOULDBLOCK && errno != EINTR)
        break;
      if (!held_)
        ::usleep(10000);
    }
  }
  DirectoryLock(const DirectoryLock &) = delete;
  ~DirectoryLock() {
    if (file_ >= 0)
      ::close(file_);
  }
  bool held() const { return held_; }

private:
  int file_;
  bool held_ = false;
};

std::string randomDigits() {
  std::random_device device;
  char text[kDigits + 1];
  std::snprintf(text, sizeof text, "%08x%08x", unsigned(device()), unsigned(device()));
  return text;
}

bool isDraft(const std::string &name, const std::string &prefix) {
  return name.size() == prefix.size() + kDigits && name.compare(0, prefix.size(), prefix) == 0 &&
         name.find_first_not_of("0123456789abcdef", prefix.size()) == std::string::npos;
}

/// Calls `use` for directories with such names if their process has ended. Each is locked until
/// `use` returns.
template <typename Use>
void eachAbandoned(const fs::path &directory, const std::string &prefix, Use use) {
  std::error_code failure;
  std::vector<fs::path> found;
  for (fs::directory_iterator each(directory, failure), end; !failure && each != end;
       each.increment(failure))
    if (isDraft(each->path().filename().string(), prefix))
      found.push_back(each->path());
  for (const fs::path &path : found) {
    int file = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
      continue;
    if (::flock(file, LOCK_EX | LOCK_NB) == 0)
      use(path);
    ::close(file);
  }
}

int renameWith(const fs::path &from, const fs::path &to, unsigned flags) {
  return ::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0 ? 0
                                                                                            : errno;
}

std::string draftPrefix(const fs::path &target) {
  return "." + target.filename().string() + ".writing.";
}
std::string asidePrefix(const fs::path &target) {
  return "." + target.filename().string() + ".replaced.";
}

/// Restores the old directory: if the file system cannot exchange two names, a process that is
/// killed between two renames leaves it under another name.
void bringBack(const fs::path &target) {
  DirectoryLock lock(target.parent_path().string());
  if (!lock.held())
    return;
  eachAbandoned(target.parent_path(), asidePrefix(target), [&](const fs::path &aside) {
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(target, ignored)))
      fs::remove_all(aside, ignored);
    else
      fs::rename(aside, target, ignored);
  });
}

/// Removes a trailing slash and follows a symbolic link to a directory.
fs::path targetOf(const std::string &name) {
  std::error_code failure;
  fs::path target = fs::absolute(name).lexically_normal();
  if (target.filename().empty()) // "out.zorse/"
    target = target.parent_path();
  if (fs::is_symlink(fs::symlink_status(target, failure)) && fs::is_directory(target, failure))
    target = fs::canonical(target, failure);
  return target;
}

/// Returns the reason why `target` must not be replaced; empty if it may be.
std::string refusalOf(const fs::path &target, OutputDirectory::Refusal refusal) {
  std::error_code failure;
  if (!fs::is_directory(target, failure))
    return "is not a directory";
  if (fs::is_empty(target, failure))
    return {};
  return refusal ? refusal(target.string()) : "is not empty";
}

std::string leftAlone(const std::string &name, const std::string &why) {
  return name + ": exists and " + why +
         ": it is not overwritten. Choose another name with -o, or remove it";
}

} // namespace

DraftDirectory::DraftDirectory(DraftDirectory &&other) noexcept { *this = std::move(other); }

DraftDirectory &DraftDirectory::operator=(DraftDirectory &&other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  return *this;
}

DraftDirectory::~DraftDirectory() {
  remove();
  if (lock_ >= 0)
    ::close(lock_);
}

void DraftDirectory::remove() {
  std::error_code ignored;
  if (!path_.empty())
    fs::remove_all(path_, ignored);
  path_.clear();
}

Result<DraftDirectory> DraftDirectory::create(const std::string &prefix) {
  const fs::path directory = fs::absolute(prefix).parent_path();
  DirectoryLock lock(directory.string()); // a directory that is created but not yet locked looks
                                          // abandoned
  std::error_code ignored;
  if (lock.held())
    eachAbandoned(directory, fs::path(prefix).filename().string(),
                  [&](const fs::path &path) { fs::remove_all(path, ignored); });
  DraftDirectory draft;
  int made = -1;
  do
    draft.path_ = prefix + randomDigits();
  while ((made = ::mkdir(draft.path_.c_str(), 0777)) != 0 && errno == EEXIST);
  if (made != 0) {
    draft.path_.clear();
    return userError(directory.string() +
                     ": cannot write to this directory: " + std::strerror(errno));
  }
  draft.lock_ = ::open(draft.path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (draft.lock_ >= 0)
    (void)::flock(draft.lock_, LOCK_EX | LOCK_NB);
  return draft;
}

std::string OutputDirectory::problem(const std::string &name, Refusal refusal) {
  std::error_code failure;
  const fs::path target = targetOf(name);
  if (fs::exists(fs::symlink_status(target, failure)))
    if (std::string why = refusalOf(target, refusal); !why.empty())
      return leftAlone(name, why);
  fs::path parent = target.parent_path();
  while (!fs::exists(parent, failure) && parent.has_relative_path()) // parent directories are
                                                                     // created
    parent = parent.parent_path();
  if (!fs::is_directory(parent, failure))
    return name + ": cannot be created: " + parent.string() +
           " is not a directory; choose another name with -o";
  if (::access(parent.c_str(), W_OK | X_OK) != 0)
    return name + ": cannot be created: directory " + parent.string() + ": " +
           std::strerror(errno) + "; choose another name with -o";
  return {};
}

Result<OutputDirectory> OutputDirectory::create(const std::string &name, Refusal refusal) {
  if (std::string why = problem(name, refusal); !why.empty())
    return userError(why);
  const fs::path target = targetOf(name);
  std::error_code failure;
  fs::create_directories(target.parent_path(), failure);
  if (failure)
    return userError(name + ": cannot be created: " + failure.message());
  bringBack(target);
  Result<DraftDirectory> draft =
      DraftDirectory::create((target.parent_path() / draftPrefix(target)).string());
  if (draft.failed())
    return draft.error();
  return OutputDirectory(std::move(*draft), name, target.string(), refusal);
}

Status OutputDirectory::commit() {
  const fs::path target = target_, draft = draft_.path();
  std::optional<DirectoryLock> lock(target.parent_path().string());
  int cause = renameWith(draft, target, RENAME_NOREPLACE);
  if (cause == 0) {
    draft_.release();
    return Status::success();
  }
  std::error_code failure;
  bool exists = fs::exists(fs::symlink_status(target, failure));
  // Another process may have created it in the meantime.
  if (std::string why = exists ? refusalOf(target, refusal_) : ""; !why.empty())
    return userError(leftAlone(name_, why));
  if (exists)
    cause = renameWith(draft, target, RENAME_EXCHANGE);
  if (cause == 0) {
    lock.reset();
    draft_.remove(); // the previous contents
    return Status::success();
  }
  if (cause == EINVAL || cause == ENOSYS) { // not supported by the file system
    const fs::path aside = target.parent_path() / (asidePrefix(target) + randomDigits());
    cause = exists && ::rename(target.c_str(), aside.c_str()) != 0 ? errno : 0;
    if (!cause && ::rename(draft.c_str(), target.c_str()) != 0) {
      cause = errno;
      (void)::rename(aside.c_str(), target.c_str());
    }
    if (!cause) {
      draft_.release();
      lock.reset();
      fs::remove_all(aside, failure);
      return Status::success();
    }
  }
  return userError(name_ + ": cannot be written: " + std::strerror(cause));
}

} // namespace zorse::bundle
