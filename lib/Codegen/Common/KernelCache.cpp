#include "KernelCache.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/WithColor.h"
#include "llvm/Support/raw_ostream.h"

#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace llvm;
using namespace zorse::codegen;

namespace {

constexpr size_t kKeyBytes = 32, kSignatureBytes = 32;

/// Whether only the user and root can have written the file.
bool isOwn(const struct stat &info) {
  return (info.st_uid == ::geteuid() || info.st_uid == 0) &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// Returns the bytes of a regular file that belongs to the user; nullopt otherwise.
std::optional<std::string> readOwn(const std::string &path) {
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0)
    return std::nullopt;
  struct stat info = {};
  std::optional<std::string> bytes;
  if (::fstat(file, &info) == 0 && S_ISREG(info.st_mode) && isOwn(info)) {
    bytes.emplace(size_t(info.st_size), '\0');
    for (size_t at = 0; at < bytes->size();) {
      ssize_t got = ::read(file, bytes->data() + at, bytes->size() - at);
      if (got <= 0) {
        bytes.reset();
        break;
      }
      at += size_t(got);
    }
  }
  ::close(file);
  return bytes;
}

/// Returns the user's key and creates it if it does not exist. Empty if it cannot be stored.
std::string cacheKey() {
  SmallString<128> path;
  if (!sys::path::home_directory(path))
    return {};
  sys::path::append(path, ".config", "zorse");
  if (sys::fs::create_directories(path, /*IgnoreExisting=*/true, sys::fs::perms::owner_all))
    return {};
  sys::path::append(path, "cache-key");
  std::string name = path.str().str(), draft = name + "." + std::to_string(::getpid()),
              key(kKeyBytes, '\0');
  if (::access(name.c_str(), F_OK) != 0 &&
      ::getrandom(key.data(), key.size(), 0) == ssize_t(key.size())) {
    int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file >= 0) {
      if (::write(file, key.data(), key.size()) == ssize_t(key.size()))
        (void)!::link(draft.c_str(),
                      name.c_str()); // atomic; if several compilers create the key, the first one
                                     // wins
      ::close(file);
      ::unlink(draft.c_str());
    }
  }
  std::optional<std::string> found = readOwn(name);
  return found && found->size() == kKeyBytes ? *found : std::string();
}

/// HMAC, RFC 2104.
std::string hmac(StringRef key, ArrayRef<StringRef> parts) {
  auto pad = [&](uint8_t with) {
    std::string block(64, char(with));
    for (size_t i = 0; i < key.size(); ++i)
      block[i] = char(uint8_t(block[i]) ^ uint8_t(key[i]));
    return block;
  };
  SHA256 inner, outer;
  inner.update(StringRef(pad(0x36)));
  for (StringRef part : parts)
    inner.update(part);
  auto digest = inner.final();
  outer.update(StringRef(pad(0x5c)));
  outer.update(ArrayRef<uint8_t>(digest));
  auto result = outer.final();
  return std::string(reinterpret_cast<const char *>(result.data()), kSignatureBytes);
}

} // namespace

std::unique_ptr<KernelCache> KernelCache::open(const CodegenOptions &options) {
  if (!options.useCache)
    return nullptr;
  SmallString<128> path;
  if (!options.cacheDir.empty()) {
    path = options.cacheDir;
  } else if (const char *dir = std::getenv("ZORSE_CACHE")) {
    path = dir;
  } else if (const char *dir = std::getenv("XDG_CACHE_HOME"); dir && *dir) {
    path = dir;
    sys::path::append(path, "zorse");
  } else if (sys::path::home_directory(path)) {
    sys::path::append(path, ".cache", "zorse");
  }
  if (path.empty() ||
      sys::fs::create_directories(path, /*IgnoreExisting=*/true, sys::fs::perms::owner_all) ||
      sys::fs::access(path, sys::fs::AccessMode::Write))
    return nullptr;
  std::string directory = path.str().str();
  struct stat info = {};
  if (::stat(directory.c_str(), &info) != 0)
    return nullptr;
  if (!isOwn(info)) {
    WithColor::warning() << directory << ": the cache of kernels is not used, because "
                         << (info.st_uid == ::geteuid() || info.st_uid == 0
                                 ? "other users can write to it"
                                 : "it belongs to another user")
                         << ", and its files become machine code of bundles. Set ZORSE_CACHE to "
                            "your own folder, or run: chmod go-w "
                         << directory << '\n';
    return nullptr;
  }
  std::string key = cacheKey();
  if (key.empty())
    return nullptr;
  return std::unique_ptr<KernelCache>(new KernelCache(std::move(directory), std::move(key)));
}

std::string KernelCache::signature(const std::string &symbol, StringRef object) const {
  return hmac(key, {symbol, StringRef("\0", 1), object});
}

std::optional<std::string> KernelCache::find(const std::string &symbol) const {
  std::optional<std::string> file = readOwn(directory + "/" + symbol + ".o");
  if (!file || file->size() <= kSignatureBytes)
    return std::nullopt;
  StringRef object = StringRef(*file).drop_back(kSignatureBytes);
  if (StringRef(*file).take_back(kSignatureBytes) != signature(symbol, object))
    return std::nullopt; // damaged, or written by another user: compile it again
  file->resize(object.size());
  return file;
}

void KernelCache::keep(const std::string &symbol, const std::string &object) const {
  // Write to a temporary name and rename, so that concurrent compilations never read a partial
  // file.
  SmallString<128> temporary;
  int descriptor;
  std::string path = directory + "/" + symbol + ".o";
  if (sys::fs::createUniqueFile(path + ".%%%%%%%%", descriptor, temporary, sys::fs::OF_None,
                                sys::fs::owner_read | sys::fs::owner_write))
    return;
  {
    raw_fd_ostream out(descriptor, /*shouldClose=*/true);
    out << object << signature(symbol, object);
    out.flush();
    if (out.has_error()) {
      out.clear_error();
      sys::fs::remove(temporary);
      return;
    }
  }
  if (sys::fs::rename(temporary, path))
    sys::fs::remove(temporary);
}
