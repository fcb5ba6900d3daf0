// The machine code of a bundle, loaded from the bytes that were hashed. A file that was replaced
// since then has no effect.
#pragma once

#include "zorse/runtime/Status.h"

#include <cstddef>
#include <map>
#include <memory>
#include <string>

namespace zorse::runtime {

/// A file in memory that no process can change.
class MemoryFile {
public:
  /// Copies `size` bytes. `name` is the path that they were read from, for messages.
  static Result<std::shared_ptr<const MemoryFile>> copyOf(const std::string &name, const void *data,
                                                          size_t size);
  /// Keeps the file at `path` open instead of copying it, if a copy is not possible (file size
  /// limit). Replacing the file has no effect; writing to it has.
  static Result<std::shared_ptr<const MemoryFile>> hold(const std::string &path);
  ~MemoryFile();
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;

  const std::string &name() const { return name_; }
  const std::byte *data() const { return data_; }
  size_t size() const { return size_; }
  /// Path for dlopen, valid while this object exists. Loaded libraries must be closed first,
  /// because dlopen identifies libraries by their paths.
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

private:
  MemoryFile() = default;
  Status map(size_t size);
  std::string name_;
  const std::byte *data_ = nullptr;
  size_t size_ = 0;
  int descriptor_ = -1;
};

/// Kernel objects by "<architecture>/<object>".
class KernelObjects {
public:
  KernelObjects() = default;
  /// Reads objects from a directory on demand, for objects that belong to no bundle.
  KernelObjects(std::string directory)
      : directory_(std::move(directory)) {} // NOLINT(google-explicit-constructor)
  KernelObjects(const char *directory)
      : directory_(directory) {} // NOLINT(google-explicit-constructor)

  void add(const std::string &name, std::shared_ptr<const MemoryFile> file) {
    files_[name] = std::move(file);
  }
  Result<std::shared_ptr<const MemoryFile>> find(const std::string &architecture,
                                                 const std::string &object) const;

private:
  std::string directory_;
  std::map<std::string, std::shared_ptr<const MemoryFile>> files_;
};

} // namespace zorse::runtime
