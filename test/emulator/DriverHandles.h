// Which GPU a stream, an event or a function belongs to. The driver refuses what was destroyed, and what belongs to another context than the current
// one, with CUDA_ERROR_INVALID_HANDLE (400).
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace zorse::emulator {

/// Of any sort. May be used from several threads.
class DriverHandles {
public:
  static constexpr size_t kNone = size_t(-1);

  void add(const void *handle, size_t gpu) {
    std::lock_guard<std::mutex> lock(mutex);
    gpuOf[handle] = gpu;
  }
  /// \return  whether it was there
  bool remove(const void *handle) {
    std::lock_guard<std::mutex> lock(mutex);
    return gpuOf.erase(handle) != 0;
  }
  /// The handle's GPU; kNone: there is no such handle.
  size_t gpu(const void *handle) const {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = gpuOf.find(handle);
    return found == gpuOf.end() ? kNone : found->second;
  }

private:
  mutable std::mutex mutex;
  std::map<const void *, size_t> gpuOf;
};

} // namespace zorse::emulator
