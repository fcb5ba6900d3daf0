#include "zorse/runtime/OutputFile.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

using namespace zorse::runtime;

namespace {

Status cannotWrite(const std::string &path, int cause) { return userError(path + ": cannot be written: " + std::strerror(cause)); }

std::string folderOf(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// The file behind symbolic links, so that a link stays one when the file is replaced.
std::string resolved(const std::string &path) {
  char *real = ::realpath(path.c_str(), nullptr);
  std::string out = real ? real : path;
  std::free(real);
  return out;
}

} // namespace

Status zorse::runtime::checkWritable(const std::string &path) {
  struct stat info = {};
  bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode))
    return cannotWrite(path, EISDIR);
  if (exists && ::access(path.c_str(), W_OK) != 0)
    return cannotWrite(path, errno);
  if (exists && !S_ISREG(info.st_mode))
    return Status::success();
  std::string folder = folderOf(exists ? resolved(path) : path);
  if (::stat(folder.c_str(), &info) != 0)
    return userError(path + ": cannot be written: folder '" + folder + "': " + std::strerror(errno));
  if (!S_ISDIR(info.st_mode))
    return userError(path + ": cannot be written: '" + folder + "' is not a folder");
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return userError(path + ": cannot be written: folder '" + folder + "': " + std::strerror(errno));
  return Status::success();
}

Status zorse::runtime::writeOutput(const std::string &path, const std::function<bool(FILE *)> &write) {
  struct stat info = {};
  bool exists = ::stat(path.c_str(), &info) == 0, direct = exists && !S_ISREG(info.st_mode);
  std::string target = exists ? resolved(path) : path;
  std::string draft = direct ? target : target + ".writing." + std::to_string(::getpid());
  FILE *file = std::fopen(draft.c_str(), "wb");
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
  step(std::fclose(file) == 0);
  if (!direct && good)
    step(std::rename(draft.c_str(), target.c_str()) == 0);
  if (good)
    return Status::success();
  if (!direct)
    ::unlink(draft.c_str());
  return cannotWrite(path, cause);
}

Status zorse::runtime::writeOutput(const std::string &path, const std::string &text) {
  return writeOutput(path, [&](FILE *file) { return std::fwrite(text.data(), 1, text.size(), file) == text.size(); });
}
