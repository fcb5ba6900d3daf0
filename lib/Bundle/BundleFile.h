// A file of a bundle that is being written. Counts and hashes the written bytes.
#pragma once

#include "zorse/Bundle/Manifest.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace zorse::bundle {

/// Reads a whole file. Errors begin with the path.
Result<std::string> readFile(const std::string &path);

class BundleFile {
public:
  BundleFile() = default;
  ~BundleFile();
  BundleFile(const BundleFile &) = delete;
  BundleFile &operator=(const BundleFile &) = delete;

  /// Creates the file. `close` reports the first failure of any call.
  void open(const std::string &path);
  void write(std::string_view bytes);
  /// Appends [offset, offset + size) of another file, through a buffer of 1 MiB.
  void append(const std::string &source, uint64_t offset, uint64_t size);
  uint64_t size() const { return written; }
  /// Flushes and closes the file. \returns the SHA-256
  Result<std::string> close();

private:
  void fail(const std::string &what);

  std::string path, failure;
  FILE *file = nullptr;
  Sha256 sum;
  uint64_t written = 0;
};

} // namespace zorse::bundle
