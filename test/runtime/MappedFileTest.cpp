#include "zorse/runtime/MappedFile.h"
#include "TemporaryDirectory.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

void readWhatIsGone(const std::string &path) {
  explainUnreadableMappings();
  Result<MappedFile> file = MappedFile::open(path);
  std::filesystem::resize_file(path, 0);
  volatile std::byte read = file->data()[5000];
  (void)read;
}

TEST(MappedFile, TruncatedWhileItIsReadEndsTheProcessWithItsName) {
  TemporaryDirectory directory;
  std::string path = directory.write("weights.bin", std::string(10000, 'x'));
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(readWhatIsGone(path), testing::ExitedWithCode(1),
              "error: .*weights.bin: cannot be read any more");
}

TEST(MappedFile, OtherBusErrorsEndItByTheirSignal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT((explainUnreadableMappings(), ::raise(SIGBUS)), testing::KilledBySignal(SIGBUS), "");
}

} // namespace
