// A group of the same ranks for a second series of exchanges. The name of an exchange can be used
// only once.
#pragma once

#include "zorse/runtime/ProcessGroup.h"

#include <string>
#include <utility>
#include <vector>

namespace zorse::run {

/// Adds a prefix to the names of exchanges. The wrapped group must outlive it.
class PrefixedGroup final : public runtime::ProcessGroup {
public:
  PrefixedGroup(runtime::ProcessGroup &group, std::string prefix)
      : group_(group), prefix_(std::move(prefix)) {}
  uint32_t rank() const override { return group_.rank(); }
  uint32_t size() const override { return group_.size(); }
  uint64_t generation() const override { return group_.generation(); }
  runtime::Result<std::vector<std::string>> allGatherBytes(const std::string &name,
                                                           const std::string &mine) override {
    return group_.allGatherBytes(prefix_ + name, mine);
  }

private:
  runtime::ProcessGroup &group_;
  const std::string prefix_;
};

} // namespace zorse::run
