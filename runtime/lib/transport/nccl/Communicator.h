// A nonblocking NCCL communicator. Calls return immediately and are polled until they complete, so
// that the communicator can be aborted at any time.
#pragma once

#include "NcclApi.h"

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

namespace zorse::runtime::nccl {

/// The first failure of a transport's communicators. No operation starts after it.
class SharedFailure {
public:
  /// \returns whether this is the first failure
  bool keep(const Error &error) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (error_)
      return false;
    error_ = error;
    return true;
  }
  std::optional<Error> get() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return error_;
  }

private:
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

/// Calls `what` for each element of `all` concurrently, each in its own thread, and waits for all.
/// Aborting a communicator ends its kernels and then frees memory, which waits for all other work
/// on the GPU. If communicators were aborted sequentially, this would wait forever for the kernel
/// of another communicator.
template <typename T> void atOnce(std::vector<T> &all, const std::function<void(T &)> &what) {
  std::vector<std::thread> threads;
  for (size_t i = 1; i < all.size(); ++i)
    threads.emplace_back([&what, &one = all[i]] { what(one); });
  if (!all.empty())
    what(all.front());
  for (std::thread &thread : threads)
    thread.join();
}

class Communicator {
public:
  using Clock = std::chrono::steady_clock;

  /// \param devices  ascending; rank r of the communicator is devices[r]
  /// \param failure  must outlive this object
  Communicator(const NcclApi &api, std::vector<uint32_t> devices, uint32_t me,
               const SharedFailure &failure);
  ~Communicator();
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  /// Connects to the other ranks, which use the same id. Call it in the context of the device.
  Status connect(const UniqueId &id, Clock::time_point deadline);

  /// Runs one call (`run`) or several calls as a group (`group`). Call them in the thread that
  /// enqueues work on the device's stream.
  Status run(const char *what, const std::function<int(Comm)> &call,
             Clock::time_point deadline = Clock::time_point::max());
  Status group(const char *what, const std::function<int(Comm)> &calls,
               Clock::time_point deadline = Clock::time_point::max());

  /// Returns an error that occurred outside of calls, for example at a peer.
  Status asynchronousError();

  /// Ends the work on streams. Callable from any thread.
  void abort();

  const std::vector<uint32_t> &devices() const { return devices_; } ///< by rank
  int rankOf(uint32_t device) const;                                ///< -1: not a member

private:
  Status settle(const char *what, int result, Clock::time_point deadline);

  const NcclApi &api_;
  const std::vector<uint32_t> devices_;
  std::unordered_map<uint32_t, int> ranks_; ///< by device
  const uint32_t me_;
  const SharedFailure &failure_;
  std::mutex mutex_; ///< held during calls, which return immediately
  Comm comm_ = nullptr;
};

} // namespace zorse::runtime::nccl
