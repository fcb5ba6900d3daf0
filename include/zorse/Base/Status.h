// Error reporting of compiler, runtime and tools outside of MLIR. Functions that can fail do not
// throw; they return a Status or a Result.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace zorse {

/// The party that can fix the error. It determines the exit code of tools: 1 for User, 2 for
/// Internal. (The exit code of a broken connection is 2 as well, because the input is correct. See
/// Error::code.)
enum class ErrorKind : uint8_t {
  User, ///< input, option or bundle is not as expected; the message contains the expected value,
        ///< the value found and how to fix it.
  Internal, ///< a bug in Zorse.
};

struct Error {
  ErrorKind kind = ErrorKind::User;
  std::string message;
  uint32_t peer = UINT32_MAX; ///< for a transfer: the rank at the other end of the failed
                              ///< connection, which may know the cause.
  std::string where = {}; ///< location in a run: "device a, instruction 17 (receive from b) of step
                          ///< 4"
  int exitCode = 0; ///< exit code of tools, replaces the kind's; 2: the input is correct, a restart
                    ///< may help

  int code() const {
    return exitCode != 0 ? exitCode : kind == ErrorKind::User && peer == UINT32_MAX ? 1 : 2;
  }

  std::string text() const { return where.empty() ? message : where + ": " + message; }
};

class [[nodiscard]] Status {
public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}

  static Status success() { return Status(); }

  bool failed() const { return error_.has_value(); }
  bool succeeded() const { return !error_.has_value(); }
  const Error &error() const {
    assert(failed());
    return *error_;
  }
  std::string message() const { return error_ ? error_->text() : std::string(); }

private:
  std::optional<Error> error_;
};

inline Error userError(std::string message) { return {ErrorKind::User, std::move(message)}; }
inline Error internalError(std::string message) {
  return {ErrorKind::Internal, std::move(message)};
}

/// A value or an error.
template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(std::move(error)) {}
  Result(const Status &failure) : error_(failure.error()) {}

  bool failed() const { return !value_.has_value(); }
  const Error &error() const { return error_; }
  std::string message() const { return error_.text(); }

  T &operator*() {
    assert(value_);
    return *value_;
  }
  const T &operator*() const {
    assert(value_);
    return *value_;
  }
  T *operator->() { return &**this; }
  const T *operator->() const { return &**this; }

private:
  std::optional<T> value_;
  Error error_;
};

} // namespace zorse
