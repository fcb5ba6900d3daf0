// Files as snapshots need them: every call says what went wrong (errno, 0: nothing), and a test can stand in for a failing disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

inline constexpr uint64_t kDirectAlignment = 4096;

class SnapshotStorage {
public:
  virtual ~SnapshotStorage();

  /// Folder and its parents; one that is there is no error.
  virtual int makeFolder(const std::string &path);
  /// For writing, emptied when it is there. The handle goes to write, reserve, sync and close.
  /// \param direct  past the page cache where the file system can: writes from kDirectAlignment-aligned memory of such sizes then cost no processor
  /// time.
  virtual int create(const std::string &path, int &handle, bool direct = false);
  /// Room for so many bytes, where the file system can say so early.
  virtual int reserve(int handle, uint64_t bytes);
  /// All of it, in as many calls as it takes.
  virtual int write(int handle, const std::byte *data, size_t bytes);
  /// Begins writing to the device what was written so far, without waiting.
  virtual void startSync(int handle, uint64_t from, uint64_t bytes);
  virtual int sync(int handle);
  virtual int close(int handle);
  virtual int rename(const std::string &from, const std::string &to);
  virtual int syncFolder(const std::string &path);
  virtual int remove(const std::string &path);
  virtual int removeFolder(const std::string &path);

  /// For reading; the handle goes to size, read and close.
  virtual int open(const std::string &path, int &handle);
  virtual int size(int handle, uint64_t &bytes);
  /// Exactly so many bytes at `offset`; EIO when the file ends before, ENODATA in its stead.
  virtual int read(int handle, uint64_t offset, std::byte *target, size_t bytes);
  /// Names in a folder, without "." and "..", in no order.
  virtual int list(const std::string &path, std::vector<std::string> &names);
};

std::shared_ptr<SnapshotStorage> makePosixStorage();

/// "PATH: cannot be written: No space left on device"
std::string cannot(const std::string &path, const char *done, int error);

/// Reads a file of at most `limit` bytes (EFBIG).
int readWhole(SnapshotStorage &storage, const std::string &path, size_t limit, std::string &text);

} // namespace zorse::runtime
