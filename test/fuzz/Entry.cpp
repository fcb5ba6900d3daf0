// libFuzzer's entry point, and code that targets share.
#include "Fuzz.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <unistd.h>

using namespace zorse::fuzz;

namespace {

/// Printed at the end of a run; tools/fuzz.py reads it.
struct Count {
  uint64_t inputs = 0, accepted = 0;
  ~Count() {
    if (inputs)
      fprintf(stderr, "accepted %llu of %llu inputs\n", (unsigned long long)accepted,
              (unsigned long long)inputs);
  }
} count;

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  ExactCopy copy({reinterpret_cast<const char *>(data), size});
  ++count.inputs;
  bool accepted = readOne(copy.view());
  count.accepted += accepted;
  // Keep most refused inputs out of the corpus. Their mutations are also refused; otherwise hardly
  // any input would soon pass the first checks.
  return accepted || isOneIn(16, copy.view()) ? 0 : -1;
}

bool zorse::fuzz::isOneIn(unsigned n, std::string_view bytes) {
  return std::hash<std::string_view>()(bytes) / 7 % n == 0;
}

void zorse::fuzz::broken(const char *condition, const char *file, int line) {
  fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
  abort();
}

uint64_t zorse::fuzz::touch(const void *data, size_t size) {
  uint64_t sum = 0;
  for (size_t i = 0; i < size; ++i)
    sum = sum * 31 + static_cast<const volatile uint8_t *>(data)[i];
  return sum;
}

ExactCopy::ExactCopy(std::string_view bytes) : data_(new char[bytes.size()]), size_(bytes.size()) {
  if (size_)
    memcpy(data_, bytes.data(), size_);
}

const std::string &zorse::fuzz::scratchDirectory() {
  static const struct Directory {
    std::string path;
    Directory() {
      namespace fs = std::filesystem;
      std::error_code none;
      fs::path root = fs::is_directory("/dev/shm", none) ? fs::path("/dev/shm")
                                                         : fs::temp_directory_path();
      path = (root / ("zorse-fuzz-" + std::to_string(getpid()))).string() + "/";
      fs::create_directories(path);
    }
    ~Directory() {
      std::error_code none;
      std::filesystem::remove_all(path, none);
    }
  } directory;
  return directory.path;
}

ScratchFile::ScratchFile(const std::string &name) : path_(scratchDirectory() + name) {}

const std::string &ScratchFile::write(std::string_view bytes) {
  // The file is opened once and not truncated first: allocating and freeing pages takes longer than
  // reading.
  if (handle_ < 0 && (handle_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0)
    broken("a file in memory is opened", __FILE__, __LINE__);
  if (::pwrite(handle_, bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()) ||
      ::ftruncate(handle_, off_t(bytes.size())) != 0)
    broken("a file in memory is written", __FILE__, __LINE__);
  return path_;
}
