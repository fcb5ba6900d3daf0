// File storage without syncing: most tests need no durability.
#pragma once

#include "snapshot/Storage.h"

namespace zorse::runtime::test {

class QuickStorage : public SnapshotStorage {
public:
  int sync(int) override { return 0; }
  int syncFolder(const std::string &) override { return 0; }
};

} // namespace zorse::runtime::test
