#include "Communicator.h"

#include <algorithm>

using namespace zorse::runtime;
using namespace zorse::runtime::nccl;

namespace {
// Most calls finish within a few microseconds, which is less than the time to suspend and wake a
// thread.
constexpr std::chrono::microseconds kSpin(40), kAsk(50);
constexpr std::chrono::seconds kClose(5);
} // namespace

Communicator::Communicator(const NcclApi &api, std::vector<uint32_t> devices, uint32_t me,
                           const SharedFailure &failure)
    : api_(api), devices_(std::move(devices)), me_(me), failure_(failure) {
  for (uint32_t device : devices_)
    ranks_.emplace(device, int(ranks_.size()));
}

/// Finalizes the communicator if all members reach their end. Aborts it if it failed or its peers
/// do not finalize.
Communicator::~Communicator() {
  if (!comm_)
    return;
  const Comm comm = comm_;
  if (failure_.get() || run(
                            "ncclCommFinalize", [&](Comm) { return api_.ncclCommFinalize(comm); },
                            Clock::now() + kClose)
                            .failed())
    abort();
  else
    api_.ncclCommDestroy(comm);
}

int Communicator::rankOf(uint32_t device) const {
  const auto found = ranks_.find(device);
  return found == ranks_.end() ? -1 : found->second;
}

Status Communicator::connect(const UniqueId &id, Clock::time_point deadline) {
  Config config;
  int result = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    result = api_.ncclCommInitRankConfig(&comm_, int(devices_.size()), id, rankOf(me_), &config);
  }
  return settle("ncclCommInitRankConfig", result, deadline);
}

Status Communicator::run(const char *what, const std::function<int(Comm)> &call,
                         Clock::time_point deadline) {
  int result = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!comm_ || failure_.get())
      return failure_.get() ? Status(*failure_.get())
                            : Status(internalError("use of an aborted communicator"));
    result = call(comm_);
  }
  return settle(what, result, deadline);
}

Status Communicator::group(const char *what, const std::function<int(Comm)> &calls,
                           Clock::time_point deadline) {
  return run(
      what,
      [&](Comm comm) {
        if (int result = api_.ncclGroupStart(); result != kSuccess)
          return result;
        const int inside = calls(comm), end = api_.ncclGroupEnd();
        return inside != kSuccess && inside != kInProgress ? inside : end;
      },
      deadline);
}

/// Waits until NCCL has accepted the call. At the first contact with a peer, this requires the
/// peer's call too.
Status Communicator::settle(const char *what, int result, Clock::time_point deadline) {
  const Clock::time_point begin = Clock::now();
  for (;;) {
    if (result == kSuccess)
      return Status::success();
    if (std::optional<Error> failed = failure_.get())
      return *failed;
    std::unique_lock<std::mutex> lock(mutex_);
    if (result != kInProgress)
      return userError(api_.describe(what, result, comm_));
    if (Clock::now() > deadline)
      return userError(std::string(what) + ": timed out waiting for the other ranks");
    if (!comm_)
      return internalError("use of an aborted communicator");
    if (int asked = api_.ncclCommGetAsyncError(comm_, &result); asked != kSuccess)
      return userError(api_.describe("ncclCommGetAsyncError", asked, comm_));
    lock.unlock();
    if (result == kInProgress && Clock::now() - begin > kSpin)
      std::this_thread::sleep_for(kAsk);
  }
}

Status Communicator::asynchronousError() {
  std::lock_guard<std::mutex> lock(mutex_);
  int result = kSuccess;
  if (!comm_ || failure_.get())
    return Status::success();
  if (int asked = api_.ncclCommGetAsyncError(comm_, &result); asked != kSuccess)
    return userError(api_.describe("ncclCommGetAsyncError", asked, comm_));
  return result == kSuccess || result == kInProgress
             ? Status::success()
             : Status(userError(api_.describe("NCCL", result, comm_)));
}

void Communicator::abort() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (comm_)
    api_.ncclCommAbort(comm_);
  comm_ = nullptr;
}
