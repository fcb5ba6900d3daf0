// Lines of many processes on the way to two descriptors, without ever blocking on either side.
#pragma once

#include <string>

namespace zorse::runtime::launching {

/// What waits to be written to one descriptor.
class OutputQueue {
public:
  explicit OutputQueue(int fd) : fd_(fd) {}

  void push(const std::string &text) {
    if (!broken_)
      waiting_ += text;
  }
  int fd() const { return fd_; }
  bool empty() const { return done_ == waiting_.size(); }
  /// Nothing more is read from ranks until some of it is written: who reads slowly holds the ranks up as a terminal does.
  bool full() const { return waiting_.size() - done_ > (size_t(1) << 20); }
  /// Call when the descriptor can take bytes: writes so few that it does not block. What nobody reads any more is dropped.
  void write();

private:
  int fd_;
  std::string waiting_;
  size_t done_ = 0;
  bool broken_ = false;
};

/// Cuts one stream into whole lines with a prefix each.
class LineSplitter {
public:
  LineSplitter(std::string prefix, OutputQueue &to) : prefix_(std::move(prefix)), to_(&to) {}

  void take(const char *bytes, size_t size);
  /// A last line without an end.
  void flush();

  static constexpr size_t kLongest = 16 << 10; ///< bytes of one line; a longer one goes on in lines of its own.

private:
  void put(const char *text, size_t size);

  std::string prefix_, partial_;
  OutputQueue *to_;
};

} // namespace zorse::runtime::launching
