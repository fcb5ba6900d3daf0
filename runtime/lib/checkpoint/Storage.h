// File operations of checkpoints. Every call returns an errno value, 0 on success. Tests override
// them to simulate a failing disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

inline constexpr uint64_t kDirectAlignment = 4096;

class CheckpointStorage {
public:
  virtual ~CheckpointStorage();

  /// Creates a folder and its parents. An existing folder is not an error.
  virtual int makeDirectory(const std::string &path);
  /// Creates or truncates a file for writing. The handle is valid for write, reserve, sync and
  /// close.
  /// \param direct  bypass the page cache if the file system supports it; writes from memory and
  ///   with sizes aligned to kDirectAlignment then need no CPU time
  virtual int create(const std::string &path, int &handle, bool direct = false);
  /// Creates a file for writing. Returns EEXIST if it exists. Atomic, also on NFS.
  virtual int createExclusive(const std::string &path, int &handle);
  /// Reserves space for `bytes` bytes, if the file system supports it.
  virtual int reserve(int handle, uint64_t bytes);
  /// Writes all bytes, if necessary with several system calls.
  virtual int write(int handle, const std::byte *data, size_t bytes);
  /// Starts writing the data to the device without waiting.
  virtual void startSync(int handle, uint64_t from, uint64_t bytes);
  virtual int sync(int handle);
  virtual int close(int handle);
  virtual int rename(const std::string &from, const std::string &to);
  virtual int syncDirectory(const std::string &path);
  virtual int remove(const std::string &path);
  virtual int removeDirectory(const std::string &path);

  /// Opens a file for reading. The handle is valid for size, read and close.
  virtual int open(const std::string &path, int &handle);
  virtual int size(int handle, uint64_t &bytes);
  /// Reads exactly `bytes` bytes at `offset`. Returns EIO on a read error and ENODATA if the file
  /// ends early.
  virtual int read(int handle, uint64_t offset, std::byte *target, size_t bytes);
  /// Lists the names in a folder, without "." and "..", in no particular order.
  virtual int list(const std::string &path, std::vector<std::string> &names);
};

std::shared_ptr<CheckpointStorage> makePosixStorage();

/// For example "PATH: cannot be written: No space left on device".
std::string cannot(const std::string &path, const char *done, int error);

/// Reads a file of at most `limit` bytes. Returns EFBIG if it is larger.
int readWhole(CheckpointStorage &storage, const std::string &path, size_t limit, std::string &text);

} // namespace zorse::runtime
