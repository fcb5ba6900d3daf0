// A group of ranks that communicate through a shared directory, for tests. Ranks are threads,
// forked processes, or processes in separate network namespaces.
#pragma once

#include "zorse/runtime/ProcessGroup.h"

#include <atomic>
#include <string>

namespace zorse::test {

class FileGroup final : public runtime::ProcessGroup {
public:
  /// The directory must exist, and be empty when the first rank joins.
  FileGroup(std::string directory, uint32_t rank, uint32_t size, uint64_t generation = 1);

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return size_; }
  uint64_t generation() const override { return generation_; }
  runtime::Result<std::vector<std::string>> allGatherBytes(const std::string &name,
                                                           const std::string &mine) override;

  /// Makes all current and later exchanges fail with this message, on all ranks. Repeated calls
  /// have no further effect.
  void fail(const std::string &why);

private:
  std::string directory_;
  uint32_t rank_, size_;
  uint64_t generation_;
};

} // namespace zorse::test
