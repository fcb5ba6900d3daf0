// Maps streams, events and functions to their GPUs. The driver refuses handles that were destroyed
// or belong to another context than the current one, with CUDA_ERROR_INVALID_HANDLE (400).
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace zorse::emulator {

/// Handles of all kinds. Thread-safe.
class DriverHandles {
public:
  static constexpr size_t kNone = size_t(-1);

  void add(const void *handle, size_t gpu) {
    std::lock_guard<std::mutex> lock(mutex);
    gpuOf[handle] = gpu;
  }
  /// \return  whether it was registered
  bool remove(const void *handle) {
    std::lock_guard<std::mutex> lock(mutex);
    return gpuOf.erase(handle) != 0;
  }
  /// The handle's GPU; kNone: unknown handle.
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
