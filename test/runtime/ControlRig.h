// Ranks of a job in one process, for tests of the control plane.
#pragma once

#include "Must.h"
#include "Patience.h"

#include "zorse/runtime/Control.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace zorse::runtime::test {

using zorse::test::patience;

inline JobKey testKey(const std::string &job = "job") { return {job, "sixteen bytes of secret"}; }

inline ControlTimes quickTimes() {
  ControlTimes times;
  times.heartbeatSeconds = 0.05;
  times.heartbeatTimeoutSeconds = 5 * patience();
  times.watchdogTimeoutSeconds = 60;
  times.joinSeconds = 20 * patience();
  return times;
}

inline CoordinatorOptions coordinatorOptions(uint32_t worldSize) {
  CoordinatorOptions options;
  options.key = testKey();
  options.worldSize = worldSize;
  options.times = quickTimes();
  return options;
}

inline MemberOptions memberOptions(uint32_t rank, uint32_t worldSize, uint16_t port) {
  MemberOptions options;
  options.key = testKey();
  options.rank = rank;
  options.worldSize = worldSize;
  options.endpoints = {{"127.0.0.1", port}};
  options.device = "cpu:" + std::to_string(rank);
  options.times = quickTimes();
  return options;
}

/// Records the callbacks of a rank.
class Ear {
public:
  void attach(MemberOptions &options) {
    options.failed = [this](const Failure &failure) {
      std::lock_guard<std::mutex> lock(mutex_);
      failures_.push_back(failure);
      at_ = std::chrono::steady_clock::now();
      changed_.notify_all();
    };
    options.reported = [this](const std::string &bytes) {
      std::lock_guard<std::mutex> lock(mutex_);
      reports_.push_back(bytes);
      changed_.notify_all();
    };
  }
  /// Waits for the verdict; an empty message on timeout.
  Failure verdict(double seconds = 10 * patience()) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                      [this] { return !failures_.empty(); });
    return failures_.empty() ? Failure() : failures_.front();
  }
  size_t verdicts() {
    std::lock_guard<std::mutex> lock(mutex_);
    return failures_.size();
  }
  std::vector<std::string> reports() {
    std::lock_guard<std::mutex> lock(mutex_);
    return reports_;
  }
  std::chrono::steady_clock::time_point at() {
    std::lock_guard<std::mutex> lock(mutex_);
    return at_;
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Failure> failures_;
  std::vector<std::string> reports_;
  std::chrono::steady_clock::time_point at_;
};

/// A coordinator and all its ranks, joined. It is a launcher's coordinator unless `options.rank` is
/// set.
class Rig {
public:
  explicit Rig(uint32_t worldSize) : Rig(coordinatorOptions(worldSize)) {}
  explicit Rig(const CoordinatorOptions &options) : ears(options.worldSize) {
    coordinator = must(Coordinator::start(options));
    for (uint32_t rank = 0; rank < options.worldSize; ++rank) {
      MemberOptions mine = memberOptions(rank, options.worldSize, coordinator->port());
      ears[rank].attach(mine);
      members.push_back(must(Member::join(mine)));
    }
  }
  /// Runs `function` on one thread per rank and joins them.
  template <typename Function> void each(const Function &function) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < members.size(); ++rank)
      threads.emplace_back([&, rank] { function(rank, *members[rank]); });
    for (std::thread &thread : threads)
      thread.join();
  }

  std::vector<Ear> ears;
  std::unique_ptr<Coordinator> coordinator;
  std::vector<std::unique_ptr<Member>> members;
};

inline bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

} // namespace zorse::runtime::test
