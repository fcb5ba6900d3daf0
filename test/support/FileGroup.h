// A group of ranks that share a folder, for tests: threads, forked processes, or processes in network namespaces of their own.
#pragma once

#include "zorse/runtime/Group.h"

#include <atomic>
#include <string>

namespace zorse::test {

class FileGroup final : public runtime::Group {
public:
  /// The folder exists and is empty when the first rank comes.
  FileGroup(std::string folder, uint32_t rank, uint32_t size, uint64_t generation = 1);

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return size_; }
  uint64_t generation() const override { return generation_; }
  runtime::Result<std::vector<std::string>> exchange(const std::string &name, const std::string &mine) override;

  /// Every exchange under way or later fails with this, on all ranks. More than once is as good as once.
  void fail(const std::string &why);

private:
  std::string folder_;
  uint32_t rank_, size_;
  uint64_t generation_;
};

} // namespace zorse::test
