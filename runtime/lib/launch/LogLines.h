// Collects output lines of many processes and writes them to two descriptors without blocking.
#pragma once

#include <string>

namespace zorse::runtime::launching {

/// Bytes that wait to be written to one descriptor.
class OutputQueue {
public:
  explicit OutputQueue(int fd) : fd_(fd) {}

  void push(const std::string &text) {
    if (!broken_)
      waiting_ += text;
  }
  int fd() const { return fd_; }
  bool empty() const { return done_ == waiting_.size(); }
  /// If the queue is full, no output is read from ranks until some of it is written: a slow reader
  /// slows the ranks down, as a terminal does.
  bool full() const { return waiting_.size() - done_ > (size_t(1) << 20); }
  /// Call when the descriptor is writable. Writes few enough bytes not to block. Drops output if
  /// the descriptor has no reader.
  void write();

private:
  int fd_;
  std::string waiting_;
  size_t done_ = 0;
  bool broken_ = false;
};

/// Splits one stream into complete lines and adds a prefix to each.
class LineSplitter {
public:
  LineSplitter(std::string prefix, OutputQueue &to) : prefix_(std::move(prefix)), to_(&to) {}

  void take(const char *bytes, size_t size);
  /// Emits a last line without a newline.
  void flush();

  static constexpr size_t kLongest = 16 << 10; ///< limit in bytes of one line; a longer line is
                                               ///< split

private:
  void put(const char *text, size_t size);

  std::string prefix_, partial_;
  OutputQueue *to_;
};

} // namespace zorse::runtime::launching
