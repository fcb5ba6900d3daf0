#include "zorse/runtime/ReportedSteps.h"

#include <algorithm>

using namespace zorse::runtime;

void ReportedSteps::add(uint64_t step) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    step_ = std::max(step_, step);
  }
  changed_.notify_all();
}

bool ReportedSteps::await(uint64_t step) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || step_ >= step; });
  return step_ >= step;
}

void ReportedSteps::close() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}
