#include "MessageQueue.h"

using namespace zorse::run;

MessageQueue::~MessageQueue() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable())
    thread_.join();
}

void MessageQueue::start() {
  thread_ = std::thread([this] { work(); });
}

void MessageQueue::add(std::string message) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    messages_.push_back(std::move(message));
  }
  changed_.notify_all();
}

void MessageQueue::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (thread_.joinable())
    changed_.wait(lock, [&] { return messages_.empty() && idle_; });
}

void MessageQueue::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !messages_.empty(); });
    if (messages_.empty())
      return;
    idle_ = false;
    const std::string message = std::move(messages_.front());
    messages_.pop_front();
    lock.unlock();
    handle_(message);
    lock.lock();
    idle_ = true;
    changed_.notify_all();
  }
}
