// Files that are not waited for: most tests lose nothing by a power cut.
#pragma once

#include "snapshot/Storage.h"

namespace zorse::runtime::test {

class QuickStorage : public SnapshotStorage {
public:
  int sync(int) override { return 0; }
  int syncFolder(const std::string &) override { return 0; }
};

} // namespace zorse::runtime::test
