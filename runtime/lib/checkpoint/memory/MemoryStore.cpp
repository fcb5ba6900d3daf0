#include "MemoryStore.h"

#include "../Json.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

using namespace zorse::runtime;
namespace fs = std::filesystem;

namespace {

constexpr const char *kLayout = "layout-", *kDirectory = "directory";

Error failed(const std::string &path, const char *done, int error) {
  return userError(cannot(path, done, error));
}

/// Writes a small file at once: readers see all of it or nothing.
Status writeOnce(const std::string &path, const std::string &text) {
  std::string draft = path + ".XXXXXX";
  FileDescriptor file(::mkostemp(draft.data(), O_CLOEXEC));
  if (!file.valid())
    return failed(path, "created", errno);
  const bool written = ::write(file.get(), text.data(), text.size()) == ssize_t(text.size());
  const int cause = written ? 0 : errno ? errno : ENOSPC;
  if (cause == 0 && ::link(draft.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    const Error error = failed(path, "created", errno);
    ::unlink(draft.c_str());
    return error;
  }
  ::unlink(draft.c_str());
  return cause ? Status(failed(path, "written", cause)) : Status::success();
}

std::string readText(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return file ? text.str() : "";
}

/// The folder must be this user's: others may write into the parent.
Status makeFolder(const std::string &path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return failed(path, "made", errno);
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0)
    return failed(path, "read", errno);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 0077) != 0)
    return userError(path + ": expected a folder that only this user can read and write. "
                            "Remove it, or give another --memory-checkpoint-dir");
  return Status::success();
}

uint64_t hashOf(const std::string &text) { return XXH64(text.data(), text.size(), 0); }

std::string absoluteOf(const std::string &directory) {
  std::error_code none;
  const fs::path absolute = fs::weakly_canonical(directory, none);
  return none ? fs::absolute(directory).string() : absolute.string();
}

/// Start of the names of this user's folders.
std::string folderPrefix() { return "zorse-" + std::to_string(::geteuid()) + "-"; }

/// Whether a process has a slot of the folder open for writing.
bool isInUse(const std::string &folder) {
  std::error_code none;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder, none)) {
    const FileDescriptor file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (file.valid() && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0)
      return true;
  }
  return false;
}

/// Frees the memory of jobs that ended without removing their folder and whose checkpoints have
/// been deleted since.
void removeAbandoned(const std::string &root) {
  std::error_code none;
  for (const fs::directory_entry &entry : fs::directory_iterator(root, none)) {
    const std::string path = entry.path();
    if (entry.path().filename().string().rfind(folderPrefix(), 0) != 0)
      continue;
    const std::string directory = readText(path + "/" + kDirectory);
    if (!directory.empty() && !fs::exists(directory, none) && !none && !isInUse(path))
      fs::remove_all(entry.path(), none);
  }
}

std::optional<SlotHeader> readHeader(const std::string &path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  SlotHeader header;
  if (!file.valid() || ::pread(file.get(), &header, sizeof header, 0) != ssize_t(sizeof header) ||
      header.magic != SlotHeader::kMagic || !header.complete)
    return std::nullopt;
  header.file[sizeof header.file - 1] = 0;
  return header;
}

/// Excludes other processes that open or remove slots of a store.
FileDescriptor lockStore(const std::string &path) {
  FileDescriptor file(::open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file.valid())
    while (::flock(file.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
  return file;
}

/// The number after a word in a small file of the kernel; `otherwise` if there is none.
uint64_t numberIn(const char *path, const std::string &word, uint64_t otherwise) {
  const std::string text = readText(path);
  const size_t at = text.find(word);
  const char *begin = at == std::string::npos ? "" : text.c_str() + at + word.size();
  char *end = nullptr;
  const uint64_t number = std::strtoull(begin, &end, 10);
  return end == begin ? otherwise : number;
}

/// Bytes that this process can still use, as the machine and its control group say.
uint64_t freeMemory() {
  constexpr uint64_t kKilobyte = 1024;
  const uint64_t machine = numberIn("/proc/meminfo", "MemAvailable:", UINT64_MAX / kKilobyte),
                 limit = numberIn("/sys/fs/cgroup/memory.max", "", UINT64_MAX),
                 used = numberIn("/sys/fs/cgroup/memory.current", "", 0);
  return std::min(machine * kKilobyte, limit - std::min(limit, used));
}

/// A file system in memory takes memory even if that ends other processes.
Status checkMemory(const std::string &path, int file, uint64_t bytes) {
  constexpr long kTmpfs = 0x01021994;
  struct stat status = {};
  struct statfs system = {};
  if (::fstat(file, &status) != 0 || ::fstatfs(file, &system) != 0 || system.f_type != kTmpfs)
    return Status::success(); // the reservation reports other errors
  const uint64_t present = uint64_t(status.st_blocks) * 512,
                 needed = bytes - std::min(bytes, present), available = freeMemory();
  return needed <= available
             ? Status::success()
             : Status(userError(path + ": needs " + std::to_string(needed) +
                                " bytes of memory, this node has " + std::to_string(available)));
}

bool isLocked(const std::string &path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return file.valid() && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0;
}

} // namespace

std::string zorse::runtime::memoryCheckpointFolder(const std::string &root,
                                                   const std::string &checkpointDirectory) {
  return root + "/" + folderPrefix() + hexadecimal(hashOf(absoluteOf(checkpointDirectory)));
}

Result<MemorySlot> MemorySlot::map(const std::string &path, FileDescriptor file,
                                   uint64_t stateBytes) {
  const uint64_t bytes = kDirectAlignment + stateBytes;
  if (Status status = checkMemory(path, file.get(), bytes); status.failed())
    return status.error();
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0)
    return failed(path, "opened", errno);
  if (uint64_t(status.st_size) > bytes && ::ftruncate(file.get(), off_t(bytes)) != 0)
    return failed(path, "shortened", errno);
  // Without reserved memory, a full file system would end the process when it writes.
  if (const int cause = ::posix_fallocate(file.get(), 0, off_t(bytes)))
    return failed(path, ("extended to " + std::to_string(bytes) + " bytes").c_str(), cause);
  void *address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (address == MAP_FAILED)
    return failed(path, "mapped", errno);
  MemorySlot slot(std::move(file), static_cast<std::byte *>(address), bytes);
  if (slot.header()->stateBytes != stateBytes)
    slot.begin();
  return slot;
}

MemorySlot::MemorySlot(MemorySlot &&other) noexcept
    : file_(std::move(other.file_)), data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_) {}

MemorySlot::~MemorySlot() {
  if (data_)
    ::munmap(data_, bytes_);
}

std::optional<MemoryStep> MemorySlot::content() const {
  return header()->magic == SlotHeader::kMagic && header()->complete ? std::optional(header()->of)
                                                                     : std::nullopt;
}

void MemorySlot::begin() {
  header()->complete = 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void MemorySlot::finish(const SlotHeader &header) {
  SlotHeader next = header;
  next.magic = SlotHeader::kMagic;
  next.complete = 0;
  std::memcpy(data_, &next, sizeof next);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  this->header()->complete = 1;
}

Result<MemoryStore> MemoryStore::open(const std::string &root,
                                      const std::string &checkpointDirectory) {
  removeAbandoned(root);
  const std::string path = memoryCheckpointFolder(root, checkpointDirectory);
  if (Status status = makeFolder(path); status.failed())
    return status;
  const std::string name = path + "/id";
  std::string id = readText(name);
  if (id.empty()) {
    std::random_device random;
    const uint64_t number = uint64_t(random()) << 32 | random();
    if (Status status = writeOnce(name, hexadecimal(number)); status.failed())
      return status;
    if (Status status = writeOnce(path + "/" + kDirectory, absoluteOf(checkpointDirectory));
        status.failed())
      return status;
    id = readText(name);
  }
  return MemoryStore(path, id);
}

std::optional<MemoryStore> MemoryStore::find(const std::string &root,
                                             const std::string &checkpointDirectory) {
  const std::string path = memoryCheckpointFolder(root, checkpointDirectory);
  std::error_code none;
  return fs::is_directory(path, none) ? std::optional(MemoryStore(path, readText(path + "/id")))
                                      : std::nullopt;
}

std::vector<MemoryStore::Held> MemoryStore::list() const {
  std::vector<Held> out;
  std::error_code none;
  for (const fs::directory_entry &entry : fs::directory_iterator(path_, none)) {
    const std::string extension = entry.path().extension();
    if (extension.size() != 2 || extension[1] < '0' || extension[1] > '3')
      continue;
    if (const std::optional<SlotHeader> header = readHeader(entry.path()))
      out.push_back({entry.path(), *header});
  }
  return out;
}

std::optional<MemoryStep> MemoryStore::contentOf(const std::string &slotPath) {
  const std::optional<SlotHeader> header = readHeader(slotPath);
  return header ? std::optional(header->of) : std::nullopt;
}

bool MemoryStore::View::isUnchanged() const {
  std::atomic_thread_fence(std::memory_order_acquire);
  SlotHeader now;
  std::memcpy(&now, mapped.data(), sizeof now);
  return now.complete && now.of == header.of;
}

Result<MemoryStore::View> MemoryStore::view(const MemoryStep &step, const std::string &file) const {
  for (const Held &held : list()) {
    if (!(held.header.of == step) || held.header.file != file)
      continue;
    Result<MappedFile> mapped = MappedFile::open(held.path);
    if (mapped.failed())
      return mapped.error();
    if (mapped->size() < kDirectAlignment + held.header.stateBytes)
      return userError(held.path + ": is truncated");
    return View{std::move(*mapped), held.header};
  }
  return userError(path_ + ": does not contain the state of " + file + " after step " +
                   std::to_string(step.step));
}

Result<std::string> MemoryStore::layoutText(uint64_t generation) const {
  const std::string name = path_ + "/" + kLayout + std::to_string(generation) + ".json";
  std::string text = readText(name);
  if (text.empty())
    return userError(name + ": does not exist");
  return text;
}

Status MemoryStore::writeLayout(uint64_t generation, const std::string &text) const {
  const std::string name = path_ + "/" + kLayout + std::to_string(generation) + ".json";
  std::error_code none;
  return fs::exists(name, none) ? Status::success() : writeOnce(name, text);
}

std::string MemoryStore::slotPath(const std::string &device, int which) const {
  return path_ + "/" + hexadecimal(hashOf(device)) + "." + std::to_string(which);
}

Result<MemorySlot> MemoryStore::openSlot(const std::string &device, int which,
                                         uint64_t stateBytes) const {
  const std::string path = slotPath(device, which);
  FileDescriptor file;
  {
    const FileDescriptor lock = lockStore(path_);
    file = FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.valid() && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      ::unlink(path.c_str());
      file = FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (file.valid())
        (void)::flock(file.get(), LOCK_EX | LOCK_NB);
    }
    if (!file.valid())
      return failed(path, "opened", errno);
  }
  return MemorySlot::map(path, std::move(file), stateBytes);
}

void MemoryStore::removeBefore(uint64_t generation, const std::vector<std::string> &devices) const {
  std::set<std::string> used;
  for (const std::string &device : devices)
    used.insert({slotPath(device, 0), slotPath(device, 1)});
  std::error_code none;
  const FileDescriptor lock = lockStore(path_);
  for (const Held &held : list())
    if (held.header.of.generation < generation && !used.count(held.path) && !isLocked(held.path))
      fs::remove(held.path, none);
  const std::string layout = kLayout;
  for (const fs::directory_entry &entry : fs::directory_iterator(path_, none)) {
    const std::string name = entry.path().filename();
    if (name.rfind(layout, 0) == 0 &&
        std::strtoull(name.c_str() + layout.size(), nullptr, 10) < generation)
      fs::remove(entry.path(), none);
  }
}

void MemoryStore::remove() const {
  std::error_code none;
  fs::remove_all(path_, none);
}
