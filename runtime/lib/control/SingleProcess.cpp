// The group of a job with one process.
#include "zorse/runtime/ProcessGroup.h"

#include <mutex>

using namespace zorse::runtime;

namespace {

class SingleProcessGroup final : public ProcessGroup {
public:
  explicit SingleProcessGroup(uint64_t generation) : generation_(generation) {}
  uint32_t rank() const override { return 0; }
  uint32_t size() const override { return 1; }
  uint64_t generation() const override { return generation_; }
  Result<std::vector<std::string>> allGatherBytes(const std::string &,
                                                  const std::string &mine) override {
    return std::vector<std::string>{mine};
  }

private:
  uint64_t generation_;
};

class SingleProcessStopCoordinator final : public StopCoordinator {
public:
  bool beginIteration(uint64_t) override {
    std::lock_guard<std::mutex> lock(mutex_);
    return !stopped_;
  }
  void requestStop() override {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }

private:
  std::mutex mutex_;
  bool stopped_ = false;
};

} // namespace

std::unique_ptr<ProcessGroup> zorse::runtime::makeSingleProcessGroup(uint64_t generation) {
  return std::make_unique<SingleProcessGroup>(generation);
}
std::unique_ptr<StopCoordinator> zorse::runtime::makeLocalStopCoordinator() {
  return std::make_unique<SingleProcessStopCoordinator>();
}
