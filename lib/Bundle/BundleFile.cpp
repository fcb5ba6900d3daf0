#include "BundleFile.h"

#include "zorse/Support/RegularFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace zorse::bundle {

Result<std::string> readFile(const std::string &path) { return readRegularFile(path, SIZE_MAX); }

BundleFile::~BundleFile() {
  if (file)
    fclose(file);
}

void BundleFile::fail(const std::string &what) {
  if (failure.empty())
    failure = what + ": " + strerror(errno);
}

void BundleFile::open(const std::string &target) {
  path = target;
  file = fopen(path.c_str(), "wb");
  if (!file)
    fail(path + ": cannot be written");
}

void BundleFile::write(std::string_view bytes) {
  if (!failure.empty() || bytes.empty())
    return;
  if (fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size())
    return fail(path + ": cannot be written");
  sum.update(bytes);
  written += bytes.size();
}

void BundleFile::append(const std::string &source, uint64_t offset, uint64_t size) {
  if (!failure.empty())
    return;
  struct stat info = {};
  Result<int> descriptor = openRegularFile(source, info);
  FILE *from = descriptor.failed() ? nullptr : fdopen(*descriptor, "rb");
  if (descriptor.failed()) {
    failure = descriptor.message();
  } else if (!from || fseeko(from, static_cast<off_t>(offset), SEEK_SET) != 0) {
    fail(source + ": cannot be read");
    if (!from)
      ::close(*descriptor);
  } else {
    std::vector<char> buffer(1 << 20);
    while (size > 0 && failure.empty()) {
      size_t got = fread(buffer.data(), 1, std::min<uint64_t>(buffer.size(), size), from);
      if (got == 0) {
        failure = source + ": ends " + std::to_string(size) +
                  " bytes before the end of a weight that the model refers to";
        break;
      }
      write({buffer.data(), got});
      size -= got;
    }
  }
  if (from)
    fclose(from);
}

Result<std::string> BundleFile::close() {
  if (file && fclose(file) != 0)
    fail(path + ": cannot be written");
  file = nullptr;
  if (!failure.empty())
    return userError(failure);
  return sum.finish();
}

} // namespace zorse::bundle
