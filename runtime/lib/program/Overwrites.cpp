#include "zorse/runtime/Overwrites.h"

#include <climits>
#include <cstdlib>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

using namespace zorse::runtime;

namespace {

/// Identifies a file independently of its name.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  std::string missing; ///< path below the directory (device, inode) of a file that does not exist
                       ///< yet; empty: it exists
  bool operator==(const Identity &o) const {
    return device == o.device && inode == o.inode && missing == o.missing;
  }
};

struct InputPath {
  const NamedPath *given;
  bool exists = false, special = false;
  Identity self;
  std::vector<Identity> directories; ///< directories that contain it, innermost first
};

std::string directoryOf(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// Returns the target of symbolic links, whether or not it exists.
std::string target(std::string path) {
  for (int link = 0; link < 40; ++link) {
    char to[PATH_MAX];
    ssize_t size = ::readlink(path.c_str(), to, sizeof to);
    if (size <= 0)
      break;
    std::string next(to, size_t(size));
    path = next[0] == '/' ? next : directoryOf(path) + "/" + next;
  }
  return path;
}

InputPath look(const NamedPath &given) {
  InputPath known;
  known.given = &given;
  std::string path = target(given.path);
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  struct stat info = {};
  if (::stat(given.path.c_str(), &info) == 0) {
    known.exists = true;
    known.special = !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
    known.self = {info.st_dev, info.st_ino, ""};
  }
  // Walks up the real path. A file that does not exist yet is identified by its path below the
  // first existing directory.
  std::string missing;
  while (::stat(path.c_str(), &info) != 0) {
    size_t slash = path.rfind('/');
    missing = "/" + path.substr(slash == std::string::npos ? 0 : slash + 1) + missing;
    std::string directory = directoryOf(path);
    if (directory == path)
      break;
    path = directory;
  }
  if (!known.exists)
    known.self = {info.st_dev, info.st_ino, missing};
  char *real = ::realpath(path.c_str(), nullptr);
  std::string directory = real ? real : path;
  std::free(real);
  if (!known.exists) // this directory contains it
    known.directories.push_back({info.st_dev, info.st_ino, ""});
  while (directory != "/" && directory != ".") {
    directory = directoryOf(directory);
    if (::stat(directory.c_str(), &info) == 0)
      known.directories.push_back({info.st_dev, info.st_ino, ""});
  }
  return known;
}

std::vector<InputPath> lookAtAll(const std::vector<NamedPath> &paths) {
  std::vector<InputPath> known;
  for (const NamedPath &path : paths)
    if (!path.path.empty())
      known.push_back(look(path));
  return known;
}

bool holds(const InputPath &directory, const InputPath &file) {
  for (const Identity &one : file.directories)
    if (one == directory.self)
      return true;
  return false;
}

std::string called(const NamedPath &path) { return path.name + " (" + path.path + ")"; }

} // namespace

Status zorse::runtime::checkOverwrites(const std::vector<NamedPath> &inputPaths,
                                       const std::vector<NamedPath> &outputPaths) {
  std::vector<InputPath> inputs = lookAtAll(inputPaths), outputs = lookAtAll(outputPaths);
  const std::string remedy = ": nothing was written; name another file";
  for (size_t i = 0; i < outputs.size(); ++i) {
    const InputPath &output = outputs[i];
    if (output.special)
      continue; // a terminal, a pipe, /dev/null
    for (const InputPath &input : inputs) {
      if (input.self == output.self)
        return userError(output.given->name + ": " + output.given->path + " is the same file as " +
                         called(*input.given) + ", which would be overwritten" + remedy);
      if (input.exists && holds(input, output))
        return userError(output.given->name + ": " + output.given->path + " lies in " +
                         called(*input.given) + ", which is read" + remedy);
      if (output.given->replaced && holds(output, input))
        return userError(output.given->name + ": " + output.given->path +
                         " is replaced with everything in it, and " + called(*input.given) +
                         " lies in it" + remedy);
    }
    if (output.given->path.rfind("/dev/", 0) == 0)
      continue; // several outputs may be written to standard output
    for (size_t j = 0; j < i; ++j)
      if (outputs[j].self == output.self)
        return userError(output.given->name + ": " + output.given->path + " is also written by " +
                         outputs[j].given->name + remedy);
  }
  return Status::success();
}
