// Tests that outputs that name an input, directly or through links, are refused before any file is
// opened.
#include "TemporaryDirectory.h"

#include "zorse/runtime/Overwrites.h"

#include <gtest/gtest.h>

#include <filesystem>

using namespace zorse::runtime;
using namespace zorse::runtime::test;
namespace fs = std::filesystem;

namespace {

class Overwrites : public ::testing::Test {
protected:
  Overwrites() {
    directory.write("train.txt", "data");
    directory.write("model.zorse/manifest.json", "{}");
    directory.write("model.zorse/weights.safetensors", "w");
    fs::create_symlink("train.txt", directory.path("link.txt"));
    fs::create_hard_link(directory.path("train.txt"), directory.path("hard.txt"));
    fs::create_directory(directory.path("out"));
    fs::create_directory_symlink("model.zorse", directory.path("linked.zorse"));
    fs::create_symlink("out/later.txt", directory.path("dangling.txt"));
  }

  std::string check(const std::vector<NamedPath> &inputs, const std::vector<NamedPath> &outputs) {
    Status status = checkOverwrites(inputs, outputs);
    return status.failed() ? status.message() : "fine";
  }
  std::string at(const char *name) { return directory.path(name); }

  TemporaryDirectory directory;
};

TEST_F(Overwrites, SeesThroughLinksAndSpellings) {
  for (const char *output :
       {"train.txt", "link.txt", "hard.txt", "./out/../train.txt", "model.zorse/../link.txt"}) {
    std::string said = check({{"--data", at("train.txt")}}, {{"--save-weights", at(output)}});
    EXPECT_NE(said.find("--save-weights"), std::string::npos) << output << ": " << said;
    EXPECT_NE(said.find("is the same file as --data"), std::string::npos) << output << ": " << said;
  }
  EXPECT_EQ(check({{"--data", at("train.txt")}, {"--load-weights", ""}},
                  {{"--save-weights", at("out/train.txt")}, {"--trace", ""}}),
            "fine");
  // A missing input: the code that opens it reports its error, but no output may create it either.
  EXPECT_NE(check({{"--data", at("out/later.txt")}}, {{"--metrics-file", at("dangling.txt")}})
                .find("same file"),
            std::string::npos);
}

TEST_F(Overwrites, FoldersThatAreReadAreNotWrittenInto) {
  for (const char *output :
       {"model.zorse/weights.safetensors", "model.zorse/new.json", "linked.zorse/new.json",
        "linked.zorse/made/later/new.json", "out/../model.zorse/manifest.json"})
    EXPECT_NE(check({{"the bundle", at("model.zorse")}}, {{"--metrics-file", at(output)}})
                  .find("lies in the bundle"),
              std::string::npos)
        << output;
  EXPECT_NE(check({{"the bundle", at("linked.zorse")}}, {{"--checkpoint-dir", at("model.zorse")}})
                .find("same file"),
            std::string::npos);
  EXPECT_EQ(check({{"the bundle", at("model.zorse")}},
                  {{"--metrics-file", at("model.zorse.json")}, {"--trace", at("out/none/x")}}),
            "fine");
}

TEST_F(Overwrites, FoldersThatAreReplacedHoldNoInput) {
  EXPECT_NE(check({{"the model", at("linked.zorse/weights.safetensors")}},
                  {{"--output", at("model.zorse"), true}})
                .find("is replaced with everything in it"),
            std::string::npos);
  EXPECT_EQ(check({{"the model", at("train.txt")}}, {{"--output", at("model.zorse"), true}}),
            "fine");
  EXPECT_EQ(check({{"--data", at("train.txt")}}, {{"--checkpoint-dir", at("")}}), "fine")
      << "a folder that files are added to may hold an input";
}

TEST_F(Overwrites, OutputsDoNotOverwriteEachOther) {
  EXPECT_NE(
      check({}, {{"--metrics-file", at("out/a")}, {"--trace", at("out/../out/a")}}).find("--trace"),
      std::string::npos);
  EXPECT_NE(check({}, {{"--metrics-file", at("out/later.txt")}, {"--trace", at("dangling.txt")}})
                .find("is also written by --metrics-file"),
            std::string::npos);
  EXPECT_EQ(
      check({{"--data", "/dev/null"}}, {{"--metrics-file", "/dev/null"}, {"--trace", "/dev/null"}}),
      "fine");
}

} // namespace
