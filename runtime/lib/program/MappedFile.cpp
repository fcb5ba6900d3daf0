#include "zorse/runtime/MappedFile.h"

#include "zorse/Support/RegularFile.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zorse;
using namespace zorse::runtime;

namespace {

/// Current mappings, for a signal handler that must not lock. Further mappings get no explanation.
struct Mapping {
  std::atomic<const std::byte *> begin{nullptr};
  std::atomic<size_t> size{0};
  char path[512];
};
Mapping mappings[128];

void remember(const std::byte *begin, size_t size, const std::string &path) {
  static const std::byte taken{};
  for (Mapping &mapping : mappings) {
    const std::byte *free = nullptr;
    if (!mapping.begin.compare_exchange_strong(free, &taken))
      continue;
    mapping.size = size;
    mapping.path[path.copy(mapping.path, sizeof mapping.path - 1)] = '\0';
    mapping.begin = begin;
    return;
  }
}

void forget(const std::byte *begin) {
  for (Mapping &mapping : mappings)
    if (mapping.begin == begin) {
      mapping.size = 0;
      mapping.begin = nullptr;
      return;
    }
}

void onBusError(int signal, siginfo_t *info, void *) {
  const std::byte *address = static_cast<const std::byte *>(info->si_addr);
  for (const Mapping &mapping : mappings) {
    const std::byte *begin = mapping.begin;
    if (!begin || address < begin || address >= begin + mapping.size)
      continue;
    const char *words[] = {"error: ", mapping.path,
                           ": cannot be read any more: it was truncated or replaced after it was "
                           "opened, or its disk failed\n"};
    for (const char *word : words)
      if (::write(STDERR_FILENO, word, std::strlen(word)) < 0)
        break;
    ::_exit(1);
  }
  ::signal(signal,
           SIG_DFL); // raised again by the same instruction, or below if another process sent it
  if (info->si_code <= 0)
    ::raise(signal);
}

} // namespace

void zorse::runtime::explainUnreadableMappings() {
  struct sigaction action = {};
  action.sa_sigaction = onBusError;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

MappedFile::MappedFile(MappedFile &&other) noexcept { *this = std::move(other); }

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!mapped_)
    return;
  forget(data_);
  ::munmap(const_cast<std::byte *>(data_), size_);
}

MappedFile MappedFile::view(std::string path, const void *data, size_t size) {
  MappedFile file;
  file.path_ = std::move(path);
  file.data_ = static_cast<const std::byte *>(data);
  file.size_ = size;
  return file;
}

Result<MappedFile> MappedFile::open(const std::string &path) {
  struct stat info = {};
  Result<int> descriptor = openRegularFile(path, info);
  if (descriptor.failed())
    return descriptor.error();
  MappedFile file;
  file.path_ = path;
  std::optional<Error> problem;
  if (info.st_size > 0) {
    void *address = ::mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, *descriptor, 0);
    if (address == MAP_FAILED) {
      problem = userError(path + ": cannot be read: " + std::strerror(errno));
    } else {
      file.data_ = static_cast<const std::byte *>(address);
      file.size_ = info.st_size;
      file.mapped_ = true;
      remember(file.data_, file.size_, path);
    }
  }
  ::close(*descriptor);
  if (problem)
    return *problem;
  return file;
}
