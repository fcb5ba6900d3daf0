// Reads or creates the secret of a user's jobs.
#include "Proof.h"

#include "zorse/runtime/Control.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <openssl/crypto.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zorse::control;
using namespace zorse::runtime;

namespace {

constexpr size_t kMinBytes = 16, kMaxBytes = 4096;

Result<std::string> checked(std::string secret, const std::string &source) {
  while (!secret.empty() && std::strchr(" \t\r\n", secret.back()))
    secret.pop_back();
  if (secret.size() < kMinBytes)
    return userError(source + ": the secret has " + std::to_string(secret.size()) +
                     " bytes, expected at least " + std::to_string(kMinBytes) +
                     "; make one with: openssl rand -hex 32");
  if (secret.size() > kMaxBytes)
    return userError(source + ": the secret has more than " + std::to_string(kMaxBytes) +
                     " bytes; is it the right file?");
  return secret;
}

Result<std::string> readAll(int fd, const std::string &path) {
  std::string text;
  char piece[1024];
  while (text.size() <= kMaxBytes + 16) {
    ssize_t n = ::read(fd, piece, sizeof piece);
    if (n == 0)
      break;
    if (n > 0)
      text.append(piece, size_t(n));
    else if (errno != EINTR)
      return userError(path + ": cannot be read: " + std::strerror(errno));
  }
  return text;
}

struct File {
  int fd;
  ~File() {
    if (fd >= 0)
      ::close(fd);
  }
};

Result<std::string> secretIn(const std::string &path) {
  File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)}; // a FIFO does not block
  struct stat info = {};
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0)
    return userError(path + ": the file with the secret cannot be read: " + std::strerror(errno) +
                     "; make one with: (umask 077; openssl rand -hex 32 > " + path + ")");
  if (!S_ISREG(info.st_mode))
    return userError(path + ": expected a file with the secret, found something else");
  if (info.st_mode & 077) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", unsigned(info.st_mode & 07777));
    return userError(path + ": the file with the secret can be used by others (mode " + mode +
                     ", expected 0600); run: chmod 600 " + path +
                     " (a secret that Kubernetes mounts: defaultMode: 0400)");
  }
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    return userError(
        path + ": the file with the secret belongs to another user; expected one of your own");
  Result<std::string> text = readAll(file.fd, path);
  if (text.failed())
    return text;
  return checked(std::move(*text), path);
}

Result<std::string> homeDirectory() {
  if (const char *home = std::getenv("HOME"); home && *home)
    return std::string(home);
  passwd entry = {}, *found = nullptr;
  char buffer[4096];
  if (::getpwuid_r(::geteuid(), &entry, buffer, sizeof buffer, &found) == 0 && found &&
      found->pw_dir && *found->pw_dir)
    return std::string(found->pw_dir);
  return userError("found no home directory for the file with the secret: set ZORSE_SECRET or "
                   "ZORSE_SECRET_FILE");
}

/// Creates `path` with a new secret, unless another process creates it first. The file appears
/// complete or not at all.
Status makeSecret(const std::string &directory, const std::string &path) {
  for (size_t slash = directory.find('/', 1);; slash = directory.find('/', slash + 1)) {
    std::string part = directory.substr(0, slash);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST && errno != EISDIR && errno != EROFS)
      return userError(part + ": the folder for the secret cannot be created: " +
                       std::strerror(errno) + "; set ZORSE_SECRET or ZORSE_SECRET_FILE");
    if (slash == std::string::npos)
      break;
  }
  static const char digits[] = "0123456789abcdef";
  auto hex = [](const std::string &bytes) {
    std::string out;
    for (unsigned char byte : bytes)
      out += {digits[byte >> 4], digits[byte & 15]};
    return out;
  };
  std::string draft = path + "." + hex(randomBytes(8)), text = hex(randomBytes()) + "\n";
  File file{::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
  bool good = file.fd >= 0 && ::write(file.fd, text.data(), text.size()) == ssize_t(text.size()) &&
              ::fsync(file.fd) == 0;
  // Unlike rename, does not replace a file of another process.
  if (good)
    good = ::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST;
  int cause = errno;
  if (file.fd >= 0)
    ::unlink(draft.c_str());
  if (!good)
    return userError(path + ": the file with the secret cannot be created: " +
                     std::strerror(cause) + "; set ZORSE_SECRET or ZORSE_SECRET_FILE");
  return Status::success();
}

} // namespace

std::string zorse::runtime::takeSecretFromEnvironment() {
  char *value = std::getenv("ZORSE_SECRET");
  if (!value)
    return {};
  std::string secret = value;
  // If the environment was passed to this process, /proc/self/environ still shows the value after
  // unsetenv.
  OPENSSL_cleanse(value, secret.size());
  ::unsetenv("ZORSE_SECRET");
  return secret;
}

Result<std::string> zorse::runtime::jobSecret(const std::string &file) {
  if (std::string secret = takeSecretFromEnvironment(); !secret.empty())
    return checked(std::move(secret), "ZORSE_SECRET");
  if (!file.empty())
    return secretIn(file);
  if (const char *named = std::getenv("ZORSE_SECRET_FILE"); named && *named)
    return secretIn(named);
  Result<std::string> home = homeDirectory();
  if (home.failed())
    return home;
  std::string directory = *home + "/.config/zorse", path = directory + "/secret";
  if (::access(path.c_str(), F_OK) != 0)
    if (Status failed = makeSecret(directory, path); failed.failed())
      return failed;
  return secretIn(path);
}
