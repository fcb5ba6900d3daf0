// Tests that equal contents give bundles with equal bytes, that a failure leaves no files, and that
// errors name the damage.
#include "Must.h"

#include "zorse/Bundle/BundleReader.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <filesystem>
#include <fstream>

#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace zorse::bundle;

namespace {

class BundleTest : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::path(::testing::TempDir()) /
                ("bundle-" + std::to_string(getpid()) + "-" + std::to_string(counter++));
    fs::create_directories(directory);
    std::ofstream(directory / "model.data", std::ios::binary) << "0123456789abcdef";
  }
  void TearDown() override { fs::remove_all(directory); }

  BundleContents contents() {
    BundleContents c;
    c.model = "toy";
    c.batch = 8;
    c.devices = {{"a", "cpu", 2, 1 << 20}, {"t4:0", "cpu", 1, 0}};
    c.plan = R"({"global_batch_size": 8, "devices": [{"name": "a", "memory": 1048576}, "t4:0"]})";
    c.cluster = "name: toy\n";
    c.summary.set_name("toy");
    c.summary.set_compute_type(F32);
    c.summary.mutable_training()->set_optimizer(TrainingOptions::ADAMW);
    c.summary.mutable_training()->set_learning_rate(3e-4);
    LibraryCall *call = c.functions.add_functions()->add_launches()->mutable_library();
    for (const char *key : {"heads", "causal", "window", "query_length", "key_length"})
      (*call->mutable_integers())[key] = 1;
    c.functions.set_arch("x86-64");
    c.functions.add_objects("kernels.so");
    c.kernels = "ELF";
    Program program;
    program.set_device_name("a");
    c.programs = {serialize(program), serialize(program)};
    WeightData inFile{"w", "f32", {2}, {}, directory / "model.data", 4, 8, ""};
    WeightData here{"c", "i64", {1}, {}, "", 0, 0, "\1\0\0\0\0\0\0\0"};
    here.bytes = std::string(8, '\1');
    WeightData transposed{"t", "bf16", {2, 1}, {1, 0}, directory / "model.data", 0, 4, ""};
    c.weights = {inFile, here, transposed};
    return c;
  }

  std::string path(const char *name) { return directory / name; }
  std::string read(const fs::path &file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void expectSame(const fs::path &a, const fs::path &b) {
    int count = 0;
    for (const auto &entry : fs::recursive_directory_iterator(a))
      if (entry.is_regular_file()) {
        ++count;
        EXPECT_EQ(read(entry.path()), read(b / fs::relative(entry.path(), a))) << entry.path();
      }
    EXPECT_EQ(count, 11);
  }

  fs::path directory;
  static inline int counter = 0;
};

TEST_F(BundleTest, EqualContentsGiveEqualBytes) {
  ASSERT_EQ(writeBundle(contents(), path("one.zorse")).message(), "");
  ASSERT_EQ(writeBundle(contents(), path("two.zorse/")).message(), "");
  ASSERT_EQ(writeBundle(contents(), path("two.zorse")).message(), "")
      << "an existing bundle is replaced";
  expectSame(directory / "one.zorse", directory / "two.zorse");
}

TEST_F(BundleTest, ReadsBackWhatWasWritten) {
  ASSERT_EQ(writeBundle(contents(), path("one.zorse")).message(), "");
  auto bundle = readBundle(path("one.zorse"));
  ASSERT_FALSE(bundle.failed()) << bundle.message();
  EXPECT_EQ(bundle->batch, 8);
  EXPECT_EQ(bundle->findDevice("t4:0"), 1);
  EXPECT_EQ(bundle->findDevice("b"), -1);
  EXPECT_EQ(bundle->functions.functions(0).launches(0).library().integers().size(), 5u);
  EXPECT_EQ(readProgram(*bundle, 1).message(), "");
  EXPECT_TRUE(readProgram(*bundle, 2).failed());
}

TEST_F(BundleTest, NamesOfTheHubAreWrittenAndRead) {
  BundleContents c = contents();
  c.weights[0].hub = {{"t.w", "head"}, {}, true, false};
  c.weights[1].hub = {{}, {"tied"}, false, false};
  c.hub.buffers = {"freq"};
  c.hub.lora = Lora{8, 16.5, {"q", "v"}, true};
  ASSERT_EQ(writeBundle(c, path("one.zorse")).message(), "");
  nlohmann::json table = nlohmann::json::parse(read(directory / "one.zorse/weights.json"));
  HubModel model;
  ASSERT_EQ(fromJson(table.at("hub"), model).message(), "");
  EXPECT_EQ(toJson(model), toJson(c.hub));
  for (int i : {0, 1}) {
    HubFact fact;
    ASSERT_EQ(fromJson(table.at("parameters")[i].at("hub"), fact).message(), "");
    EXPECT_EQ(toJson(fact), toJson(c.weights[i].hub));
  }
  EXPECT_FALSE(table.at("parameters")[2].contains("hub"));
  for (const char *bad : {"7", R"({"names":7})", R"({"names":[""]})",
                          R"({"names":["a"],"transposed":1})", R"({"ties":[{}]})"}) {
    HubFact fact;
    EXPECT_TRUE(fromJson(nlohmann::json::parse(bad), fact).failed()) << bad;
  }
  for (const char *bad : {R"({"lora":7})", R"({"lora":{"r":0,"alpha":1}})",
                          R"({"lora":{"r":18446744073709551615,"alpha":1}})", R"({"lora":{"r":1}})",
                          R"({"lora":{"r":1,"alpha":1,"targets":"q"}})", R"({"buffers":"x"})"})
    EXPECT_TRUE(fromJson(nlohmann::json::parse(bad), model).failed()) << bad;
}

TEST_F(BundleTest, WeightsAreWhereTheTableSays) {
  for (WeightMode mode : {WeightMode::Copy, WeightMode::Reference}) {
    BundleContents c = contents();
    c.weightMode = mode;
    ASSERT_EQ(writeBundle(c, path("w.zorse")).message(), "");
    auto table = nlohmann::json::parse(read(directory / "w.zorse" / "weights.json"));
    std::vector<std::string> expected = {"456789ab", std::string(8, '\1'), "0123"};
    for (int i = 0; i < 3; ++i) {
      const auto &entry = table["parameters"][i];
      // An absolute path stays absolute.
      std::string bytes = read(directory / "w.zorse" / std::string(entry["file"]));
      EXPECT_EQ(bytes.substr(entry["offset"], entry["bytes"]), expected[i]) << entry;
    }
    EXPECT_EQ(table["parameters"][2]["permutation"], (std::vector<int>{1, 0}));
    EXPECT_EQ(fs::exists(directory / "w.zorse" / "weights.safetensors"), mode == WeightMode::Copy);
  }
}

TEST_F(BundleTest, TheDigestIsWhatSha256sumSays) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::string digest = must(writeBundle(contents(), path("one.zorse")));
  auto bundle = readBundle(path("one.zorse"));
  ASSERT_FALSE(bundle.failed()) << bundle.message();
  EXPECT_EQ(bundle->digest, digest);
  EXPECT_EQ(sha256(read(directory / "one.zorse" / "manifest.json")), digest);
  EXPECT_EQ(read(directory / "one.zorse" / "manifest.sha256"), digest + "  manifest.json\n");
  for (const auto &[name, hash] : bundle->files)
    EXPECT_EQ(sha256(read(directory / "one.zorse" / name)), hash) << name;
  // All contents count: other weights give another digest.
  std::ofstream(directory / "model.data", std::ios::binary) << "0123456789abcdeg";
  BundleContents other = contents();
  other.weights[0].offset = 8;
  EXPECT_NE(must(writeBundle(other, path("two.zorse"))), digest);
}

TEST_F(BundleTest, DamageIsNamed) {
  std::string error;
  ASSERT_EQ(writeBundle(contents(), path("one.zorse")).message(), "");
  std::ofstream(directory / "one.zorse" / "functions.pb", std::ios::app) << "x";
  error = readBundle(path("one.zorse")).message();
  EXPECT_NE(error.find("functions.pb: its SHA-256"), std::string::npos) << error;
  fs::remove(directory / "one.zorse" / "functions.pb");
  error = readBundle(path("one.zorse")).message();
  EXPECT_NE(error.find("functions.pb: cannot be read"), std::string::npos) << error;
  std::ofstream(directory / "one.zorse" / "manifest.json") << "{\"format_version\": 999}";
  error = readBundle(path("one.zorse")).message();
  EXPECT_NE(error.find("999"), std::string::npos) << error;
  std::ofstream(directory / "one.zorse" / "manifest.json") << "";
  error = readBundle(path("one.zorse")).message();
  EXPECT_NE(error.find("manifest.json"), std::string::npos) << error;
  EXPECT_TRUE(readBundle(path("none.zorse")).failed());
}

TEST_F(BundleTest, FailureLeavesNothingBehind) {
  std::string error;
  BundleContents c = contents();
  c.weights[0].size = 100; // beyond the end of the file
  error = writeBundle(c, path("bad.zorse")).message();
  EXPECT_NE(error.find("model.data: ends 88 bytes before"), std::string::npos) << error;
  EXPECT_FALSE(fs::exists(directory / "bad.zorse"));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 1);

  std::ofstream(directory / "file") << "precious";
  EXPECT_TRUE(writeBundle(contents(), path("file")).failed());
  EXPECT_EQ(read(directory / "file"), "precious");
}

TEST_F(BundleTest, OtherFilesInADirectoryAreKept) {
  std::string error;
  ASSERT_EQ(writeBundle(contents(), path("one.zorse")).message(), "");
  std::ofstream(directory / "one.zorse" / "notes.txt") << "precious";
  error = writeBundle(contents(), path("one.zorse")).message();
  EXPECT_NE(error.find("contains 'notes.txt'"), std::string::npos) << error;
  EXPECT_EQ(read(directory / "one.zorse" / "notes.txt"), "precious");
  fs::create_directory(directory / "site");
  std::ofstream(directory / "site" / "manifest.json") << "{}"; // the manifest of a web page
  std::ofstream(directory / "site" / "index.html") << "precious";
  EXPECT_TRUE(writeBundle(contents(), path("site")).failed());
  EXPECT_EQ(read(directory / "site" / "index.html"), "precious");
  fs::create_directory_symlink(directory / "two.zorse", directory / "link.zorse");
  ASSERT_EQ(writeBundle(contents(), path("two.zorse")).message(), "");
  ASSERT_EQ(writeBundle(contents(), path("link.zorse")).message(), "");
  EXPECT_TRUE(fs::is_symlink(directory / "link.zorse"));
}

/// Number of leftover temporary files (.*) next to the bundles.
size_t strayCount(const fs::path &directory) {
  size_t stray = 0;
  for (const auto &entry : fs::directory_iterator(directory))
    stray += entry.path().filename().string()[0] == '.';
  return stray;
}

TEST_F(BundleTest, AKilledWriterLeavesTheOldBundleOrTheNewOne) {
  std::string digests[2];
  BundleContents versions[2] = {contents(), contents()};
  versions[1].cluster = "name: other\n";
  for (int version : {0, 1})
    digests[version] = must(writeBundle(versions[version], path("b.zorse")));
  unsigned seed = 1;
  for (int kill = 0; kill < 100; ++kill) {
    pid_t child = fork();
    if (child == 0) {
      for (int version = 0;; version = 1 - version)
        if (writeBundle(versions[version], path("b.zorse")).failed())
          _exit(1);
    }
    usleep(1000 + rand_r(&seed) % 8000);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed";
    auto bundle = readBundle(path("b.zorse"));
    ASSERT_FALSE(bundle.failed()) << "kill " << kill << ": " << bundle.message();
    EXPECT_TRUE(bundle->digest == digests[0] || bundle->digest == digests[1]);
    for (const auto &[name, hash] : bundle->files)
      EXPECT_EQ(sha256(read(directory / "b.zorse" / name)), hash) << name;
  }
  ASSERT_EQ(writeBundle(versions[0], path("b.zorse")).message(), "");
  EXPECT_EQ(strayCount(directory), 0u) << "what killed writers left is removed by the next one";
}

TEST_F(BundleTest, WritersOfOneBundleAreOrdered) {
  std::vector<pid_t> children;
  for (int writer = 0; writer < 6; ++writer)
    if (children.push_back(fork()); children.back() == 0) {
      BundleContents mine = contents();
      mine.cluster = "name: w" + std::to_string(writer) + "\n";
      for (int i = 0; i < 20; ++i)
        if (auto written = writeBundle(mine, path("b.zorse")); written.failed()) {
          std::fprintf(stderr, "%s\n", written.message().c_str());
          _exit(1);
        }
      _exit(0);
    }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  auto bundle = readBundle(path("b.zorse"));
  ASSERT_FALSE(bundle.failed()) << bundle.message();
  EXPECT_EQ(strayCount(directory), 0u);
}

} // namespace
