#include "zorse/runtime/KernelObjects.h"

#include "zorse/Support/RegularFile.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace zorse;
using namespace zorse::runtime;

namespace {

/// Opens a file without a name. If the kernel refuses executable memfds (vm.memfd_noexec), it is an
/// unlinked file below TMPDIR.
int openNameless() {
  int descriptor = ::memfd_create("zorse-kernels", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor >= 0)
    return descriptor;
  const char *directory = std::getenv("TMPDIR");
  return ::open(directory && *directory ? directory : "/tmp",
                O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
}

bool writeAll(int descriptor, const void *data, size_t size) {
  const char *from = static_cast<const char *>(data);
  while (size > 0) {
    ssize_t written = ::write(descriptor, from, size);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    from += written;
    size -= size_t(written);
  }
  return true;
}

} // namespace

Result<std::shared_ptr<const MemoryFile>> MemoryFile::copyOf(const std::string &name,
                                                             const void *data, size_t size) {
  std::shared_ptr<MemoryFile> file(new MemoryFile());
  file->name_ = name;
  file->descriptor_ = openNameless();
  if (file->descriptor_ < 0 || !writeAll(file->descriptor_, data, size))
    return userError(name + ": cannot be copied to memory: " + std::strerror(errno));
  // Unlinked files cannot be sealed; no other user can open them.
  ::fcntl(file->descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  if (Status status = file->map(size); status.failed())
    return status;
  return std::shared_ptr<const MemoryFile>(std::move(file));
}

Result<std::shared_ptr<const MemoryFile>> MemoryFile::hold(const std::string &path) {
  std::shared_ptr<MemoryFile> file(new MemoryFile());
  struct stat info = {};
  Result<int> descriptor = openRegularFile(path, info);
  if (descriptor.failed())
    return descriptor.error();
  file->name_ = path;
  file->descriptor_ = *descriptor;
  if (Status status = file->map(size_t(info.st_size)); status.failed())
    return status;
  return std::shared_ptr<const MemoryFile>(std::move(file));
}

Status MemoryFile::map(size_t size) {
  void *address = size == 0 ? nullptr
                            : ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (address == MAP_FAILED)
    return userError(name_ + ": cannot be mapped: " + std::strerror(errno));
  data_ = static_cast<const std::byte *>(address);
  size_ = size;
  return Status::success();
}

MemoryFile::~MemoryFile() {
  if (data_)
    ::munmap(const_cast<std::byte *>(data_), size_);
  if (descriptor_ >= 0)
    ::close(descriptor_);
}

Result<std::shared_ptr<const MemoryFile>> KernelObjects::find(const std::string &architecture,
                                                              const std::string &object) const {
  const std::string name = architecture + "/" + object;
  if (auto found = files_.find(name); found != files_.end())
    return found->second;
  if (directory_.empty())
    return userError("kernel object 'kernels/" + name +
                     "' was not loaded with the bundle; compile the model again");
  const std::string path = directory_ + "/" + name;
  Result<std::string> bytes = readRegularFile(path, SIZE_MAX);
  if (bytes.failed())
    return bytes.error();
  return MemoryFile::copyOf(path, bytes->data(), bytes->size());
}
