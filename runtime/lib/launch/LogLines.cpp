#include "LogLines.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <unistd.h>

using namespace zorse::runtime::launching;

void OutputQueue::write() {
  if (empty())
    return;
  // A pipe that is writable by poll accepts PIPE_BUF bytes without blocking.
  ssize_t written =
      ::write(fd_, waiting_.data() + done_, std::min<size_t>(waiting_.size() - done_, PIPE_BUF));
  if (written < 0 && (errno == EINTR || errno == EAGAIN))
    return;
  if (written < 0) {
    broken_ = true;
    done_ = waiting_.size();
  } else {
    done_ += size_t(written);
  }
  if (empty() || done_ > (size_t(1) << 16)) {
    waiting_.erase(0, done_);
    done_ = 0;
  }
}

void LineSplitter::put(const char *text, size_t size) {
  std::string line = prefix_;
  line.append(text, size);
  line += '\n';
  to_->push(line);
}

void LineSplitter::take(const char *bytes, size_t size) {
  while (size > 0) {
    const void *end = std::memchr(bytes, '\n', size);
    size_t length = end ? size_t(static_cast<const char *>(end) - bytes) : size;
    size_t taken = std::min(length, kLongest - partial_.size());
    partial_.append(bytes, taken);
    if (taken < length) { // the line exceeds the limit
      put(partial_.data(), partial_.size());
      partial_.clear();
      bytes += taken;
      size -= taken;
      continue;
    }
    if (end) {
      put(partial_.data(), partial_.size());
      partial_.clear();
      ++length;
    }
    bytes += length;
    size -= length;
  }
}

void LineSplitter::flush() {
  if (!partial_.empty())
    put(partial_.data(), partial_.size());
  partial_.clear();
}
