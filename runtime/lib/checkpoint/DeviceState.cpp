#include "DeviceState.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include <sys/mman.h>

using namespace zorse::runtime;

namespace {

constexpr uint64_t kBytesPerThread = 256u << 20; ///< with fewer bytes, another thread costs more
                                                 ///< than it saves
constexpr int kMaxThreads = 4;

} // namespace

Result<DeviceState> DeviceState::create(const Executor &executor, DeviceLayout layout) {
  DeviceState state(executor, std::move(layout));
  uint64_t bytes = state.layout_.stateBytes;
  if (bytes > 0) {
    void *address =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED)
      return userError("checkpoints need " + std::to_string(bytes) +
                       " bytes for a copy of the state of the device in file '" +
                       state.layout_.name + "', which this machine does not have");
    state.data_ = static_cast<std::byte *>(address);
    state.mapped_ = bytes;
    (void)::madvise(address, bytes, MADV_HUGEPAGE);
    std::memset(address, 0, bytes);
  }
  return state;
}

DeviceState::DeviceState(DeviceState &&other) noexcept
    : executor_(other.executor_), layout_(std::move(other.layout_)), data_(other.data_),
      mapped_(other.mapped_), optimizerStep_(other.optimizerStep_) {
  other.data_ = nullptr;
}

DeviceState::~DeviceState() {
  if (data_)
    ::munmap(data_, mapped_);
}

Status zorse::runtime::copyDeviceState(const Executor &executor, const DeviceLayout &layout,
                                       std::byte *target, abi::OptimizerStep &optimizerStep) {
  const int cores = int(std::max(1u, std::thread::hardware_concurrency()));
  const auto threads = std::clamp<uint64_t>(layout.stateBytes / kBytesPerThread, 1,
                                            uint64_t(std::clamp(cores / 4, 1, kMaxThreads)));
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status failure;
  auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < layout.slices.size();) {
      const ShardLayout &laid = layout.slices[i];
      if (Status status = executor.read(layout.device, laid.region, 0, target + laid.fileOffset,
                                        laid.slice.bytes());
          status.failed()) {
        std::lock_guard<std::mutex> lock(mutex);
        failure = status;
      }
    }
  };
  std::vector<std::thread> helpers;
  for (uint64_t i = 1; i < threads; ++i)
    helpers.emplace_back(work);
  work();
  for (std::thread &helper : helpers)
    helper.join();
  if (layout.optimizerStep && failure.succeeded())
    failure =
        executor.read(layout.device, *layout.optimizerStep, 0, &optimizerStep,
                      std::min<uint64_t>(layout.optimizerStep->bytes(), sizeof optimizerStep));
  return failure;
}
