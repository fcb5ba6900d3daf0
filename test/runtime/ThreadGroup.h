// A job with ranks that are threads of this process. A rank can die: it never completes its
// exchanges, and those of the others fail.
#pragma once

#include "zorse/runtime/ProcessGroup.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

namespace zorse::runtime::test {

class ThreadJob {
public:
  ThreadJob(uint32_t size, uint64_t generation) : size_(size), generation_(generation) {}

  std::unique_ptr<ProcessGroup> group(uint32_t rank) { return std::make_unique<Rank>(*this, rank); }

  /// From now on the rank is silent, and every exchange that it has not joined fails.
  void kill(uint32_t rank) {
    std::lock_guard<std::mutex> lock(mutex_);
    dead_.insert(rank);
    changed_.notify_all();
  }

private:
  class Rank final : public ProcessGroup {
  public:
    Rank(ThreadJob &job, uint32_t rank) : job_(job), rank_(rank) {}
    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return job_.size_; }
    uint64_t generation() const override { return job_.generation_; }
    Result<std::vector<std::string>> allGatherBytes(const std::string &name,
                                                    const std::string &mine) override {
      std::unique_lock<std::mutex> lock(job_.mutex_);
      if (job_.dead_.count(rank_))
        return userError("this rank is dead");
      auto &said = job_.said_[name];
      if (said.count(rank_))
        return internalError("exchange '" + name + "' for the second time");
      said[rank_] = mine;
      job_.changed_.notify_all();
      job_.changed_.wait(lock, [&] { return !job_.dead_.empty() || said.size() == job_.size_; });
      if (said.size() < job_.size_)
        return userError("the job has failed");
      std::vector<std::string> all;
      for (const auto &[rank, text] : said)
        all.push_back(text);
      return all;
    }

  private:
    ThreadJob &job_;
    uint32_t rank_;
  };

  const uint32_t size_;
  const uint64_t generation_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<uint32_t> dead_;
  std::map<std::string, std::map<uint32_t, std::string>> said_;
};

} // namespace zorse::runtime::test
