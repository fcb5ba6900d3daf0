// A communicator of NCCL that never blocks: calls return at once, and what they have begun is waited for by asking, so that it can be given up.
#pragma once

#include "NcclApi.h"

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace zorse::runtime::nccl {

/// The first failure of a transport's communicators: after it nothing begins.
class SharedFailure {
public:
  /// \returns whether it is the first.
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

/// Does something with each of `all` at the same time, each in a thread of its own, and waits for all of them. To abort a communicator ends its
/// kernels and then frees memory, which waits for whatever else is on the GPU: another communicator's kernel, which nobody would have ended if one
/// were aborted after the other.
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

  /// \param devices  ascending; rank r of the communicator is devices[r]. `failure` outlives this.
  Communicator(const NcclApi &api, std::vector<uint32_t> devices, uint32_t me, const SharedFailure &failure);
  ~Communicator();
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  /// Meets the other ranks, which have the same id. In the context of the device.
  Status connect(const UniqueId &id, Clock::time_point deadline);

  /// One call, or several as a group, in the thread that puts work on the device's stream.
  Status run(const char *what, const std::function<int(Comm)> &call, Clock::time_point deadline = Clock::time_point::max());
  Status group(const char *what, const std::function<int(Comm)> &calls, Clock::time_point deadline = Clock::time_point::max());

  /// What has gone wrong beside calls, at a peer's end for instance.
  Status asynchronousError();

  /// Ends what is on streams. From any thread.
  void abort();

  const std::vector<uint32_t> &devices() const { return devices_; }
  int rankOf(uint32_t device) const; ///< -1: no member

private:
  Status settle(const char *what, int result, Clock::time_point deadline);

  const NcclApi &api_;
  const std::vector<uint32_t> devices_;
  const uint32_t me_;
  const SharedFailure &failure_;
  std::mutex mutex_; ///< held during calls, which return at once
  Comm comm_ = nullptr;
};

} // namespace zorse::runtime::nccl
