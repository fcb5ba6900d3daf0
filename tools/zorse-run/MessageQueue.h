// A thread that handles messages one at a time, in the order in which they were added.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace zorse::run {

class MessageQueue {
public:
  explicit MessageQueue(std::function<void(const std::string &)> handle)
      : handle_(std::move(handle)) {}
  /// Waits until all messages are handled, if start() was called.
  ~MessageQueue();

  /// Starts the thread. Messages that were added before are kept.
  void start();
  /// Adds a message, from any thread. Does not wait.
  void add(std::string message);
  /// Waits until all messages so far are handled.
  void drain();

private:
  void work();

  std::function<void(const std::string &)> handle_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> messages_;
  bool idle_ = true, stopping_ = false;
  std::thread thread_;
};

} // namespace zorse::run
