#include "zorse/runtime/OutputFile.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zorse::runtime;

namespace {

Status cannotWrite(const std::string &path, int cause) {
  return userError(path + ": cannot be written: " + std::strerror(cause));
}

std::string directoryOf(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// Returns the target of symbolic links, so that a link is kept when the file is replaced.
std::string resolved(const std::string &path) {
  char *real = ::realpath(path.c_str(), nullptr);
  std::string out = real ? real : path;
  std::free(real);
  return out;
}

/// Returns "PREFIX<16 random digits>", so that temporary files of different processes and machines
/// have different names.
std::string draftName(const std::string &prefix) {
  std::random_device device;
  char digits[20];
  std::snprintf(digits, sizeof digits, "%08x%08x", unsigned(device()), unsigned(device()));
  return prefix + digits;
}

/// Removes temporary files that killed processes have left. A live process holds a lock on its
/// file.
void removeAbandoned(const std::string &directory, const std::string &prefix) {
  DIR *list = ::opendir(directory.c_str());
  std::vector<std::string> names;
  while (dirent *entry = list ? ::readdir(list) : nullptr)
    if (std::string name = entry->d_name;
        name.size() == prefix.size() + 16 && name.compare(0, prefix.size(), prefix) == 0 &&
        name.find_first_not_of("0123456789abcdef", prefix.size()) == std::string::npos)
      names.push_back(std::move(name));
  if (list)
    ::closedir(list);
  for (const std::string &name : names) {
    std::string path = directory;
    path.append("/").append(name);
    int file = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
      continue;
    if (::flock(file, LOCK_EX | LOCK_NB) == 0)
      ::unlink(path.c_str());
    ::close(file);
  }
}

} // namespace

FILE *zorse::runtime::createDraft(const std::string &target, std::string &draft) {
  const std::string prefix = target + ".writing.";
  removeAbandoned(directoryOf(target), prefix.substr(prefix.rfind('/') + 1));
  for (;;) {
    draft = draftName(prefix);
    int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 && errno == EEXIST)
      continue;
    if (file < 0)
      return nullptr;
    struct stat info = {};
    if ((::flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
        ::fstat(file, &info) == 0 && info.st_nlink > 0)
      return ::fdopen(file, "wb");
    ::close(file); // another process removed it as abandoned before it was locked
  }
}

Status zorse::runtime::checkWritable(const std::string &path) {
  struct stat info = {};
  bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode))
    return cannotWrite(path, EISDIR);
  if (exists && ::access(path.c_str(), W_OK) != 0)
    return cannotWrite(path, errno);
  if (exists && !S_ISREG(info.st_mode))
    return Status::success();
  std::string directory = directoryOf(exists ? resolved(path) : path);
  if (::stat(directory.c_str(), &info) != 0)
    return userError(path + ": cannot be written: directory '" + directory +
                     "': " + std::strerror(errno));
  if (!S_ISDIR(info.st_mode))
    return userError(path + ": cannot be written: '" + directory + "' is not a directory");
  if (::access(directory.c_str(), W_OK | X_OK) != 0)
    return userError(path + ": cannot be written: directory '" + directory +
                     "': " + std::strerror(errno));
  return Status::success();
}

Status zorse::runtime::writeOutput(const std::string &path,
                                   const std::function<bool(FILE *)> &write) {
  struct stat info = {};
  bool exists = ::stat(path.c_str(), &info) == 0, direct = exists && !S_ISREG(info.st_mode);
  std::string target = exists ? resolved(path) : path;
  std::string draft;
  FILE *file = direct ? std::fopen(target.c_str(), "wb") : createDraft(target, draft);
  if (!file)
    return cannotWrite(path, errno);
  errno = 0;
  bool good = write(file);
  int cause = errno;
  auto step = [&](bool done) {
    if (!done && good)
      cause = errno;
    good &= done;
  };
  step(std::fflush(file) == 0);
  const int lock = direct ? -1
                          : ::fcntl(::fileno(file), F_DUPFD_CLOEXEC,
                                    0); // keeps the temporary file locked until it is renamed
  step(std::fclose(file) == 0);
  if (!direct && good)
    step(std::rename(draft.c_str(), target.c_str()) == 0);
  if (lock >= 0)
    ::close(lock);
  if (good)
    return Status::success();
  if (!direct)
    ::unlink(draft.c_str());
  return cannotWrite(path, cause);
}

Status zorse::runtime::writeOutput(const std::string &path, const std::string &text) {
  return writeOutput(path, [&](FILE *file) {
    return std::fwrite(text.data(), 1, text.size(), file) == text.size();
  });
}
