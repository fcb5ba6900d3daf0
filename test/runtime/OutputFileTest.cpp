#include "TemporaryDirectory.h"

#include "zorse/runtime/OutputFile.h"

#include <gtest/gtest.h>

#include <filesystem>

#include <unistd.h>

using namespace zorse::runtime;
using zorse::runtime::test::TemporaryDirectory;

namespace {

TEST(OutputFile, IsRefusedBeforeItIsWritten) {
  TemporaryDirectory directory;
  EXPECT_TRUE(checkWritable(directory.path("new")).succeeded());
  EXPECT_TRUE(checkWritable(directory.write("old", "x")).succeeded());
  EXPECT_TRUE(checkWritable("/dev/null").succeeded());
  Status missing = checkWritable(directory.path("nowhere/file"));
  ASSERT_TRUE(missing.failed());
  EXPECT_NE(missing.message().find("nowhere"), std::string::npos);
  EXPECT_TRUE(checkWritable(directory.path("")).failed());
  EXPECT_TRUE(checkWritable(directory.path("old/file")).failed());
}

TEST(OutputFile, ReplacesAFileWholeOrNotAtAll) {
  TemporaryDirectory directory;
  std::string path = directory.write("file", "old");
  Status failed = writeOutput(path, [](FILE *file) {
    std::fputs("half", file);
    return false;
  });
  EXPECT_TRUE(failed.failed());
  EXPECT_EQ(directory.read("file"), "old");
  EXPECT_TRUE(writeOutput(path, "new").succeeded());
  EXPECT_EQ(directory.read("file"), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path("")), {}),
            1); // no temporary file is left
}

TEST(OutputFile, DraftsOfKilledWritersAreRemovedAndThoseOfLivingOnesAreNot) {
  TemporaryDirectory directory;
  std::string path = directory.write("file", "old");
  directory.write("file.writing.0123456789abcdef", "of a killed writer");
  directory.write("file.writing.notes", "the user's");
  Status outer = writeOutput(path, [&](FILE *file) {
    EXPECT_TRUE(writeOutput(path, "inner").succeeded()); // as another process would
    return std::fputs("outer", file) >= 0;
  });
  EXPECT_TRUE(outer.succeeded()) << outer.message();
  EXPECT_EQ(directory.read("file"), "outer");
  EXPECT_EQ(directory.read("file.writing.notes"), "the user's");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path("")), {}), 2);
}

// If others may write to the directory, a link with the name of the temporary file could redirect
// the output to another file.
TEST(OutputFile, DraftsFollowNoLink) {
  TemporaryDirectory directory;
  std::string path = directory.path("out"), victim = directory.path("victim");
  ASSERT_EQ(::symlink(victim.c_str(), (path + ".writing." + std::to_string(::getpid())).c_str()),
            0);
  ASSERT_TRUE(writeOutput(path, "text").succeeded());
  EXPECT_FALSE(std::filesystem::exists(victim));
}

TEST(OutputFile, KeepsSymbolicLinks) {
  TemporaryDirectory directory;
  std::string path = directory.write("file", "old"), link = directory.path("link");
  std::filesystem::create_symlink("file", link);
  EXPECT_TRUE(writeOutput(link, "new").succeeded());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(directory.read("file"), "new");
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
