#include "TemporaryFolder.h"

#include "zorse/runtime/OutputFile.h"

#include <gtest/gtest.h>

#include <filesystem>

#include <unistd.h>

using namespace zorse::runtime;
using zorse::runtime::test::TemporaryFolder;

namespace {

TEST(OutputFile, IsRefusedBeforeItIsWritten) {
  TemporaryFolder folder;
  EXPECT_TRUE(checkWritable(folder.path("new")).succeeded());
  EXPECT_TRUE(checkWritable(folder.write("old", "x")).succeeded());
  EXPECT_TRUE(checkWritable("/dev/null").succeeded());
  Status missing = checkWritable(folder.path("nowhere/file"));
  ASSERT_TRUE(missing.failed());
  EXPECT_NE(missing.message().find("nowhere"), std::string::npos);
  EXPECT_TRUE(checkWritable(folder.path("")).failed());
  EXPECT_TRUE(checkWritable(folder.path("old/file")).failed());
}

TEST(OutputFile, ReplacesAFileWholeOrNotAtAll) {
  TemporaryFolder folder;
  std::string path = folder.write("file", "old");
  Status failed = writeOutput(path, [](FILE *file) {
    std::fputs("half", file);
    return false;
  });
  EXPECT_TRUE(failed.failed());
  EXPECT_EQ(folder.read("file"), "old");
  EXPECT_TRUE(writeOutput(path, "new").succeeded());
  EXPECT_EQ(folder.read("file"), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("")), {}), 1); // no temporary file is left
}

TEST(OutputFile, DraftsOfKilledWritersAreRemovedAndThoseOfLivingOnesAreNot) {
  TemporaryFolder folder;
  std::string path = folder.write("file", "old");
  folder.write("file.writing.0123456789abcdef", "of a killed writer");
  folder.write("file.writing.notes", "the user's");
  Status outer = writeOutput(path, [&](FILE *file) {
    EXPECT_TRUE(writeOutput(path, "inner").succeeded()); // as another process would
    return std::fputs("outer", file) >= 0;
  });
  EXPECT_TRUE(outer.succeeded()) << outer.message();
  EXPECT_EQ(folder.read("file"), "outer");
  EXPECT_EQ(folder.read("file.writing.notes"), "the user's");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("")), {}), 2);
}

// If others may write to the directory, a link with the name of the temporary file could redirect the output to another
// file.
TEST(OutputFile, DraftsFollowNoLink) {
  TemporaryFolder folder;
  std::string path = folder.path("out"), victim = folder.path("victim");
  ASSERT_EQ(::symlink(victim.c_str(), (path + ".writing." + std::to_string(::getpid())).c_str()), 0);
  ASSERT_TRUE(writeOutput(path, "text").succeeded());
  EXPECT_FALSE(std::filesystem::exists(victim));
}

TEST(OutputFile, KeepsSymbolicLinks) {
  TemporaryFolder folder;
  std::string path = folder.write("file", "old"), link = folder.path("link");
  std::filesystem::create_symlink("file", link);
  EXPECT_TRUE(writeOutput(link, "new").succeeded());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(folder.read("file"), "new");
}

TEST(OutputFile, WritesToDevicesAndNoticesThatTheyAreFull) {
  EXPECT_TRUE(writeOutput("/dev/null", "text").succeeded());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  if (!std::filesystem::is_character_file("/dev/full"))
    GTEST_SKIP() << "no /dev/full here";
  Status full = writeOutput("/dev/full", "text");
  ASSERT_TRUE(full.failed());
  EXPECT_NE(full.message().find("No space left"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

} // namespace
