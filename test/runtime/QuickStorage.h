// File storage without syncing: most tests need no durability.
#pragma once

#include "checkpoint/Storage.h"

namespace zorse::runtime::test {

class QuickStorage : public CheckpointStorage {
public:
  int sync(int) override { return 0; }
  int syncDirectory(const std::string &) override { return 0; }
};

} // namespace zorse::runtime::test
