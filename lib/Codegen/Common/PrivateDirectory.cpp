#include "zorse/Codegen/PrivateDirectory.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace llvm;
using namespace zorse::codegen;

static Error problem(int cause, const Twine &what) {
  return createStringError(std::error_code(cause, std::generic_category()), what);
}

Expected<std::unique_ptr<PrivateDirectory>> PrivateDirectory::create(StringRef purpose) {
  SmallString<128> pattern;
  sys::path::system_temp_directory(/*ErasedOnReboot=*/true, pattern);
  const std::string parent = pattern.str().str();
  sys::path::append(pattern, purpose + "-XXXXXX");
  constexpr int kTries = 16;
  for (int tried = 0; tried < kTries; ++tried) {
    std::unique_ptr<PrivateDirectory> directory(new PrivateDirectory());
    std::string name = pattern.str().str();
    if (!::mkdtemp(name.data())) // mode 0700; fails if the name exists
      return problem(errno, "cannot make a temporary folder in " + parent +
                                "; set TMPDIR to a folder in which you may write");
    directory->name_ = name;
    struct stat info = {};
    // Opened without O_CLOEXEC: the linker finds its files through this descriptor.
    directory->descriptor_ = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    // Another user may have moved the folder and created another one with its name.
    if (directory->descriptor_ < 0 || ::fstat(directory->descriptor_, &info) != 0 ||
        info.st_uid != ::geteuid() || (info.st_mode & 0077) != 0)
      continue;
    directory->path_ = "/proc/self/fd/" + std::to_string(directory->descriptor_);
    if (::access(directory->path_.c_str(), W_OK) != 0) // /proc is not mounted
      directory->path_ = name;
    return std::move(directory);
  }
  return problem(EPERM, "a temporary folder in " + parent +
                            " was replaced while it was being opened; set TMPDIR to a folder in "
                            "which only you may write");
}

PrivateDirectory::~PrivateDirectory() {
  if (descriptor_ >= 0) {
    std::error_code failure, ignored;
    for (sys::fs::directory_iterator it(path_, failure), end; it != end && !failure;
         it.increment(failure))
      ignored = sys::fs::remove(it->path());
    ::close(descriptor_);
  }
  if (!name_.empty())
    ::rmdir(name_.c_str());
}
